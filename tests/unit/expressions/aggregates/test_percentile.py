"""Percentiles are within the stated share of the true value, whatever the values and however they are merged."""

from __future__ import annotations

import math
from decimal import Context, Decimal
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.expressions import parse_aggregate
from tests.models.aggregates import Row, percentile

TIME = pl.lit(0, pl.Int64)
quietly = settings(deadline=None, max_examples=60)
SHARES = [0.0, 0.001, 0.1, 0.5, 0.9, 0.99, 1.0]


def found(pieces: list[list[Any]], dtype: pl.DataType, error: float = 0.01) -> list[Any] | None:
    """The percentiles of all values, sketched piece by piece."""
    aggregate = parse_aggregate(hr.percentile("x", SHARES, error=error), name="p")
    frames = [pl.DataFrame({"x": pl.Series(piece, dtype=dtype)}) for piece in pieces]
    schema = frames[0].schema
    partials = pl.concat([frame.select(**aggregate.partial(schema, TIME)) for frame in frames])
    merged = partials.select(**aggregate.merge(schema))
    assert dict(merged.schema) == aggregate.state_types(schema)
    answer = merged.select(aggregate.result(schema))
    assert answer.schema["p"] == aggregate.result_type(schema) == pl.List(dtype)
    found: list[Any] | None = answer["p"].to_list()[0]
    return found


def within(answer: Any, true: Any, error: float, step: float = 0.0) -> bool:
    if isinstance(true, float) and not math.isfinite(true):
        return repr(answer) == repr(true)
    # One part in a million for the roundings of logarithms.
    return abs(float(answer) - float(true)) <= abs(float(true)) * error * (1 + 1e-6) + step


numbers = (
    st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False, min_value=-1e9, max_value=1e9)
    | st.floats(1e-6, 1e6)
    | st.sampled_from([0.0, -0.0, 1.0, math.inf, -math.inf, math.nan, 1.7e308, -1.7e308])
)


@quietly
@given(pieces=st.lists(st.lists(st.none() | numbers, max_size=30), min_size=1, max_size=4))
def test_doubles_are_within_one_per_cent(pieces: list[list[float | None]]) -> None:
    values = [value for piece in pieces for value in piece]
    rows = [Row(0, value) for value in values]
    answers = found(pieces, pl.Float64())
    if all(value is None for value in values):
        assert answers is None
        return
    assert answers is not None
    sizes = [abs(value) for value in values if value is not None and math.isfinite(value)]
    for share, answer in zip(SHARES, answers, strict=True):
        # What is 10**19 times smaller than the largest value may count as zero.
        assert within(answer, percentile(rows, share), 0.01, step=max(sizes, default=0.0) * 1e-19), share


@quietly
@given(pieces=st.lists(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-60, 60)), min_size=1, max_size=3))
def test_integers_are_within_one_per_cent_and_a_half(pieces: list[list[int]]) -> None:
    rows = [Row(0, value) for piece in pieces for value in piece]
    for share, answer in zip(SHARES, found(pieces, pl.Int64()) or [], strict=bool(rows)):
        assert within(answer, percentile(rows, share), 0.01, step=0.5 + 1e-6), share


@quietly
@given(values=st.lists(st.integers(-49, 49), min_size=1))
def test_small_integers_are_exact(values: list[int]) -> None:
    rows = [Row(0, value) for value in values]
    assert found([values], pl.Int32()) == [percentile(rows, share) for share in SHARES]


@quietly
@given(
    values=st.lists(
        st.integers(-(10**38) + 1, 10**38 - 1).map(lambda digits: Decimal(digits).scaleb(-18, Context(prec=40))),
        min_size=1,
    )
)
def test_decimals_up_to_their_largest(values: list[Decimal]) -> None:
    rows = [Row(0, value) for value in values]
    largest = max(abs(float(value)) for value in values)
    for share, answer in zip(SHARES, found([values], pl.Decimal(38, 18)) or [], strict=True):
        assert within(answer, percentile(rows, share), 0.01, step=1e-18 + largest * 1e-19), share


@pytest.mark.parametrize("dtype", [pl.Float32(), pl.Int8(), pl.Int64(), pl.Decimal(10, 2)])
def test_the_extremes_of_a_type_do_not_overflow(dtype: pl.DataType) -> None:
    limits: dict[Any, Any] = {pl.Float32(): 3.4028234663852886e38, pl.Int8(): 127, pl.Int64(): 2**63 - 1}
    limit = limits.get(dtype, Decimal("99999999.99"))
    answers = found([[limit] * 10, [-limit] * 10], dtype)
    assert answers is not None
    assert answers[0] == -limit
    assert answers[-1] == limit
    assert all(within(answer, -limit, 0.01, 0.5) for answer in answers[1:4])
    assert all(within(answer, limit, 0.01, 0.5) for answer in answers[4:])


@pytest.mark.parametrize("error", [0.001, 0.01, 0.1])
@pytest.mark.parametrize("shape", ["lognormal", "pareto", "normal", "uniform"])
def test_many_values_of_usual_distributions(shape: str, error: float) -> None:
    chance = np.random.default_rng(7)
    values = {
        "lognormal": chance.lognormal(3, 2, 20_000),
        "pareto": chance.pareto(1.1, 20_000),
        "normal": chance.normal(0, 5, 20_000),
        "uniform": chance.uniform(-1, 1, 20_000),
    }[shape]
    ordered = np.sort(values)
    answers = found([list(part) for part in np.split(values, 5)], pl.Float64(), error)
    assert answers is not None
    for share, answer in zip(SHARES, answers, strict=True):
        true = ordered[max(math.ceil(len(ordered) * share), 1) - 1]
        assert within(answer, true, error), (share, answer, true)


def test_a_sketch_has_a_bound_whatever_the_values() -> None:
    spread = np.exp(np.random.default_rng(1).uniform(-700, 700, 100_000))
    frame = pl.DataFrame({"x": np.concatenate([spread, -spread])})
    aggregate = parse_aggregate(hr.percentile("x", [0.0, 0.5, 1.0]), name="p")
    state = frame.select(**aggregate.partial(frame.schema, TIME))
    assert state["p.buckets"].list.len().item() <= 2 * (math.ceil(19 * math.log(10) / (2 * math.log(1.01))) + 2) + 1
    largest = float(spread.max())
    assert state.select(aggregate.result(frame.schema)).item().to_list() == [-largest, 0.0, largest]


def test_an_infinity_does_not_make_the_other_values_small() -> None:
    answers = found([[math.inf] * 3 + [1.0] * 10 + [2.0] * 10 + [math.nan, math.nan]], pl.Float64())
    assert answers is not None
    assert within(answers[3], 2.0, 0.01)
    assert answers[4:] == [math.inf, pytest.approx(math.nan, nan_ok=True), pytest.approx(math.nan, nan_ok=True)]


def test_one_percentile_is_a_value_and_several_are_a_list() -> None:
    frame = pl.DataFrame({"x": [1, 2, 3, 4]})
    for given_as, expected in [
        ("approx_percentile(x, 0.5)", 2),
        ("percentile_approx(x, 1)", 4),
        ("approx_percentile(x, array(0.5, 1.0))", [2, 4]),
        (hr.percentile("x", 0.5), 2),
        (hr.percentile("x", [0.5]), [2]),
    ]:
        aggregate = parse_aggregate(given_as, name="p")
        result = frame.select(**aggregate.partial(frame.schema, TIME)).select(aggregate.result(frame.schema))
        assert result["p"].to_list() == [expected]
