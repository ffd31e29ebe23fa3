"""Every aggregate can be told to count those rows alone that meet a condition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.errors import DefinitionError
from headrace.expressions import Aggregate, parse_aggregate
from tests.unit.expressions.aggregates.test_any_grouping import same

TIME = pl.col("time")


class Longest(hr.Accumulator):
    """The row-by-row maximum."""

    state = "most DOUBLE"
    result_type = "DOUBLE"

    def start(self) -> dict[str, Any]:
        return {"most": None}

    def add(self, kept: dict[str, Any], value: float | None) -> dict[str, Any]:
        return self.merge(kept, {"most": value})

    def merge(self, one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
        return {"most": max((value for value in (one["most"], other["most"]) if value is not None), default=None)}

    def result(self, kept: dict[str, Any]) -> Any:
        return kept["most"]


class Product(hr.VectorAccumulator):
    """A product of all values."""

    state = "product DOUBLE"
    result_type = "DOUBLE"

    def partial(self, value: pl.Expr) -> dict[str, pl.Expr]:
        return {"product": value.product()}

    def merge(self, kept: Any) -> dict[str, pl.Expr]:
        return {"product": kept["product"].product()}

    def result(self, kept: Mapping[str, pl.Expr]) -> pl.Expr:
        return kept["product"]


TEXTS = [
    "count(*)",
    "count(x)",
    "count(DISTINCT x)",
    "approx_count_distinct(x)",
    "sum(x)",
    "avg(x)",
    "min(x)",
    "max(x)",
    "stddev(x)",
    "var_pop(x)",
    "first(x)",
    "last(x)",
    "min_by(x, y)",
    "max_by(x, y)",
    "approx_percentile(x, array(0.1, 0.9))",
]
VALUES: list[Any] = [
    hr.percentile("x", 0.5),
    hr.top("x", n=2),
    hr.top("x", n=2, of="y"),
    hr.collect_list("x", at_most=3),
    hr.collect_set("x", at_most=3),
    hr.ewm("x", half_life="2 microseconds"),
    Longest("x"),
    Product("x"),
]
rows = st.lists(
    st.tuples(
        st.integers(0, 5), st.none() | st.sampled_from([1.0, 2.0, 3.5]), st.integers(0, 3), st.none() | st.booleans()
    ),
    max_size=12,
)


def value(aggregate: Aggregate, frame: pl.DataFrame) -> Any:
    halves = [frame[: frame.height // 2], frame[frame.height // 2 :]]
    partials = pl.concat([half.select(**aggregate.partial(frame.schema, TIME)) for half in halves])
    merged = partials.select(**aggregate.merge(frame.schema))
    assert dict(merged.schema) == aggregate.state_types(frame.schema)
    return merged.select(aggregate.result(frame.schema))["out"].to_list()[0]


def frame_of(given_rows: Any) -> pl.DataFrame:
    schema = {"time": pl.Int64, "x": pl.Float64, "y": pl.Int64, "good": pl.Boolean}
    return pl.DataFrame(given_rows, schema=schema, orient="row")


@settings(deadline=None, max_examples=30)
@given(rows=rows)
def test_a_condition_means_that_the_other_rows_do_not_exist(rows: Any) -> None:
    frame = frame_of(rows)
    kept = frame.filter(pl.col("good") & (pl.col("y") < 3))
    condition = "good AND y < 3"
    pairs: list[tuple[Any, Any]] = [(f"{text} FILTER (WHERE {condition})", text) for text in TEXTS]
    pairs += [(measure.where(condition), measure) for measure in VALUES]
    for filtered, plain in pairs:
        found = value(parse_aggregate(filtered, name="out"), frame)
        assert same(found, value(parse_aggregate(plain, name="out"), kept)), filtered


def test_a_condition_that_is_null_does_not_hold() -> None:
    frame = frame_of([(0, 1.0, 0, None), (0, 2.0, 0, True), (0, 4.0, 0, False)])
    assert value(parse_aggregate("sum(x) FILTER (WHERE good)", name="out"), frame) == 2.0
    assert value(parse_aggregate("count(*) FILTER (WHERE good)", name="out"), frame) == 1


@pytest.mark.parametrize(("condition", "rows", "total"), [("NULL", 0, None), ("FALSE", 0, None), ("TRUE", 3, 7.0)])
def test_a_condition_may_read_no_column(condition: str, rows: int, total: float | None) -> None:
    frame = frame_of([(0, 1.0, 0, None), (0, 2.0, 0, True), (0, 4.0, 0, False)]).with_columns(g=pl.lit(1))
    for text, expected in (("count(*)", rows), ("count(x)", rows), ("sum(x)", total)):
        aggregate = parse_aggregate(f"{text} FILTER (WHERE {condition})", name="out")
        assert value(aggregate, frame) == expected
        grouped = frame.group_by("g").agg(**aggregate.partial(frame.schema, TIME))
        assert grouped.select(aggregate.result(frame.schema)).item() == expected


def test_a_condition_is_named_with_the_columns_that_it_reads() -> None:
    assert parse_aggregate("sum(x) FILTER (WHERE good)", name="out").columns == {"x", "good"}
    assert parse_aggregate(hr.top("x", n=1, of="y").where("good"), name="out").columns == {"x", "y", "good"}


def test_two_conditions_must_both_hold() -> None:
    frame = frame_of([(0, 1.0, 0, True), (0, 2.0, 5, True), (0, 4.0, 5, False)])
    measure = hr.collect_set("x", at_most=5).where("good").where("y > 1 OR y < 0")
    assert value(parse_aggregate(measure, name="out"), frame) == [2.0]
    assert measure.text == "hr.collect_set('x', at_most=5).where('good').where('y > 1 OR y < 0')"


@pytest.mark.parametrize("given_as", ["sum(x) FILTER (WHERE x)", hr.percentile("x", 0.5).where("x")])
def test_a_condition_must_be_one(given_as: Any) -> None:
    with pytest.raises(DefinitionError, match=r"\[CONDITION_TYPE\] 'x' is Float64"):
        parse_aggregate(given_as, name="out").result_type({"x": pl.Float64()})


def test_a_condition_must_be_of_listed_sql() -> None:
    with pytest.raises(DefinitionError, match=r"\[EXPRESSION_UNSUPPORTED\] .*'ROUND\(x\)' is not in the list"):
        hr.ewm("x", half_life="1 minute").where("round(x) = 0")
