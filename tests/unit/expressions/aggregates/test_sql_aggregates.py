"""Aggregates as SQL text: what is refused, exact sums and averages, any split of the rows."""

from __future__ import annotations

import math
from decimal import Decimal
from itertools import pairwise
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import DefinitionError
from headrace.expressions import Aggregate, parse_aggregate

TIME = pl.lit(0, pl.Int64)
SCHEMA: dict[str, pl.DataType] = {
    "account": pl.String(),
    "amount": pl.Float64(),
    "count": pl.Int64(),
    "price": pl.Decimal(10, 2),
    "at": pl.Datetime("us", "UTC"),
    "local": pl.Datetime("us"),
    "day": pl.Date(),
    "tags": pl.List(pl.String()),
    "shop": pl.Struct({"city": pl.String(), "place": pl.Struct({"floor": pl.Int32()})}),
}


def _aggregated(text: str, frame: pl.DataFrame) -> Any:
    aggregate = parse_aggregate(text, name="out")
    return frame.select(**aggregate.partial(frame.schema, TIME)).select(aggregate.result(frame.schema)).item()


@pytest.mark.parametrize("text", ["amount", "amount + 1", "'a'", "amount > 1 AND account IS NULL", "upper(account)"])
def test_a_value_of_one_row_is_not_an_aggregate(text: str) -> None:
    with pytest.raises(DefinitionError, match=r"\[AGGREGATE_EXPECTED\] aggregate 'total'"):
        parse_aggregate(text, name="total")


@pytest.mark.parametrize(
    "text",
    ["count(account, amount)", "sum(amount) OVER ()", "round(sum(amount))", "sum(amount) AS total", "max(amount, 2)"],
)
def test_an_aggregate_that_is_not_listed_is_refused_with_the_list(text: str) -> None:
    with pytest.raises(DefinitionError, match=r"count\(\*\), count\(x\), count\(DISTINCT x\)") as failure:
        parse_aggregate(text, name="total")
    assert failure.value.id == "EXPRESSION_UNSUPPORTED"


def test_the_argument_of_an_aggregate_must_be_listed_and_read_a_column() -> None:
    with pytest.raises(DefinitionError, match=r"\[EXPRESSION_UNSUPPORTED\] 'ROUND\(amount\)'"):
        parse_aggregate("sum(round(amount))", name="total")
    with pytest.raises(DefinitionError, match=r"'sum\(1\)' reads no column. Use count\(\*\)"):
        parse_aggregate("sum(1)", name="total")


@pytest.mark.parametrize(
    ("text", "dtype"),
    [("sum(account)", "String"), ("avg(at)", "Datetime"), ("max(tags)", "List"), ("min(shop)", "Struct")],
)
def test_an_argument_of_the_wrong_type_is_named_with_its_type(text: str, dtype: str) -> None:
    with pytest.raises(DefinitionError, match=rf"\[AGGREGATE_TYPE\] aggregate 'total': .* is {dtype}"):
        parse_aggregate(text, name="total").result_type(SCHEMA)


def test_beside_aggregates_there_is_no_value_of_one_row() -> None:
    for text in ("sum(amount) + amount", "count(*) / (amount * 2)", "max(amount) - count"):
        with pytest.raises(
            DefinitionError, match=r"\[AGGREGATE_EXPECTED\] aggregate 'total': '(amount|count)' is a value"
        ):
            parse_aggregate(text, name="total")


def test_an_expression_over_aggregates_has_the_state_of_each_once() -> None:
    aggregate = parse_aggregate("sum(count) / count(*) + sum(count)", name="out")
    assert aggregate.state_types(SCHEMA) == {"out.0.sum": pl.Decimal(38, 0), "out.1.count": pl.Int64()}
    assert _aggregated("sum(count) / count(*) + sum(count)", pl.DataFrame({"count": [1, 2, 6]})) == 12.0


def test_sums_of_products_are_exact_and_a_result_beyond_its_type_has_overflowed() -> None:
    frame = pl.DataFrame({"x": [2**31 - 1, -(2**31)], "y": [2**62, 2**62]}, schema_overrides={"x": pl.Int32})
    assert _aggregated("sum(x * x)", frame) == (2**31 - 1) ** 2 + 2**62
    for text, beyond in {
        "max(x) - min(x)": True,
        "sum(y * 2)": True,
        "sum(y * 2 - y)": True,
        "sum(x) + 1": False,
    }.items():
        aggregate = parse_aggregate(text, name="out")
        overflowed = aggregate.overflowed(frame.schema)
        assert overflowed is not None
        assert frame.select(**aggregate.partial(frame.schema, TIME)).select(overflowed).item() is beyond, text


def test_partial_columns_are_called_after_the_aggregate() -> None:
    aggregate = parse_aggregate("avg(amount)", name="mean")
    assert aggregate.columns == {"amount"}
    assert list(aggregate.partial(SCHEMA, TIME)) == ["mean.sum", "mean.count"]
    assert aggregate.state_types(SCHEMA) == {"mean.sum": pl.Float64(), "mean.count": pl.Int64()}


def test_rows_are_counted_with_their_nulls_and_values_without() -> None:
    frame = pl.DataFrame({"amount": [1.0, None, math.nan]})
    assert _aggregated("count(*)", frame) == 3
    assert _aggregated("count(1)", frame) == 3
    assert _aggregated("count(amount)", frame) == 2
    assert _aggregated("count(*)", frame.clear()) == 0


@pytest.mark.parametrize("function", ["sum", "min", "max", "avg"])
@pytest.mark.parametrize("dtype", [pl.Int32(), pl.Int64(), pl.Float64(), pl.Decimal(10, 2), pl.Decimal(38, 2)])
def test_an_aggregate_of_nothing_is_null(function: str, dtype: pl.DataType) -> None:
    frame = pl.DataFrame({"x": [None, None]}, schema={"x": dtype})
    assert _aggregated(f"{function}(x)", frame) is None
    assert _aggregated(f"{function}(x)", frame.clear()) is None


def test_a_sum_that_overflows_on_the_way_and_comes_back_is_exact() -> None:
    assert _aggregated("sum(x)", pl.DataFrame({"x": [2**63 - 1, 5, -5]})) == 2**63 - 1
    large = Decimal("9" * 38)
    frame = pl.DataFrame({"x": [large, large, Decimal("-" + "9" * 38)]}, schema={"x": pl.Decimal(38, 0)})
    assert _aggregated("sum(x)", frame) == large


def test_a_sum_that_does_not_fit_its_type_has_no_value() -> None:
    assert _aggregated("sum(x)", pl.DataFrame({"x": [2**63 - 1, 1]})) is None
    large = Decimal("9" * 38)
    frame = pl.DataFrame({"x": [large, Decimal(1)]}, schema={"x": pl.Decimal(38, 0)})
    assert _aggregated("sum(x)", frame) is None
    negative = pl.DataFrame({"x": [Decimal("-" + "9" * 38)] * 9}, schema={"x": pl.Decimal(38, 0)})
    assert _aggregated("sum(x)", negative) is None


def test_the_average_of_longs_does_not_overflow() -> None:
    assert _aggregated("avg(x)", pl.DataFrame({"x": [2**63 - 1, 2**63 - 1]})) == float(2**63)


def test_the_average_of_decimals_rounds_half_away_from_zero() -> None:
    third = pl.DataFrame({"x": ["0.01", "0.01", "0.00"]}).select(pl.col("x").cast(pl.Decimal(10, 2)))
    assert _aggregated("avg(x)", third) == Decimal("0.006667")
    for sign in (1, -1):
        values = [Decimal(sign).scaleb(-2), *[Decimal(0)] * 19_999]
        frame = pl.DataFrame({"x": values}, schema={"x": pl.Decimal(10, 2)})
        assert _aggregated("avg(x)", frame) == Decimal(sign).scaleb(-6)


def _merged(aggregate: Aggregate, frame: pl.DataFrame, cuts: list[int]) -> Any:
    bounds = [0, *sorted(cuts), frame.height]
    pieces = [frame[start:end] for start, end in pairwise(bounds)]
    partials = pl.concat([piece.select(**aggregate.partial(frame.schema, TIME)) for piece in pieces])
    assert dict(partials.schema) == aggregate.state_types(frame.schema)
    state = partials.select(**aggregate.merge(frame.schema))
    assert dict(state.schema) == aggregate.state_types(frame.schema)
    return state.select(aggregate.result(frame.schema)).item()


@settings(deadline=None)
@given(
    values=st.lists(st.none() | st.integers(-(10**38) + 1, 10**38 - 1), max_size=12),
    cuts=st.lists(st.integers(0, 12), max_size=4),
    function=st.sampled_from(["count", "sum", "min", "max", "avg"]),
)
def test_any_split_of_the_rows_gives_the_same_decimals(
    values: list[int | None], cuts: list[int], function: str
) -> None:
    frame = pl.DataFrame({"x": [None if v is None else Decimal(v) for v in values]}, schema={"x": pl.Decimal(38, 0)})
    aggregate = parse_aggregate(f"{function}(x)", name="out")
    result = _merged(aggregate, frame, [min(cut, len(values)) for cut in cuts])
    assert result == _merged(aggregate, frame, [])
    known = [value for value in values if value is not None]
    if function == "sum" and known:
        total = sum(known)
        assert result == (Decimal(total) if abs(total) < 10**38 else None)


@settings(deadline=None)
@given(
    values=st.lists(st.none() | st.sampled_from([0.0, -0.0, 1.0, -2.0, math.nan, math.inf, -math.inf]), max_size=8),
    cuts=st.lists(st.integers(0, 8), max_size=4),
    function=st.sampled_from(["count", "sum", "min", "max", "avg"]),
)
def test_any_split_of_the_rows_gives_the_same_floats(
    values: list[float | None], cuts: list[int], function: str
) -> None:
    frame = pl.DataFrame({"x": values}, schema={"x": pl.Float64})
    aggregate = parse_aggregate(f"{function}(x)", name="out")
    whole = _merged(aggregate, frame, [])
    assert repr(_merged(aggregate, frame, [min(cut, len(values)) for cut in cuts])) == repr(whole)
    known = [value for value in values if value is not None]
    if function == "max" and known:
        assert math.isnan(whole) if any(map(math.isnan, known)) else whole == max(known)
    if function == "min" and known:
        ordered = [value for value in known if not math.isnan(value)]
        assert whole == min(ordered) if ordered else math.isnan(whole)
