"""Whatever the partials that rows are put into, and whatever the order of merging, the answer is the model's.

Aggregates in which positions break ties are merged in the order of the rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import Any

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.expressions import Aggregate, parse_aggregate
from headrace.schemas import polars_schema, spark_schema
from headrace.wheel.codec import decode, encode
from tests.models.aggregates import ANSWERS, COMPUTED, NUMBERS, POSITIONAL, Row

TIME = pl.col("time")
GROUPS = 3
Placed = list[tuple[int, int, Row]]
Models = dict[str, Callable[[Sequence[Row]], Any]]


@cache
def read(text: str, name: str) -> Aggregate:
    """An aggregate of a text, be it SQL or a value of ``hr``."""
    values = [
        hr.top("x", n=2),
        hr.top("x", n=3, of="y"),
        hr.collect_list("x", at_most=3),
        hr.collect_set("x", at_most=2),
        hr.ewm("x", half_life="3 microseconds"),
    ]
    return parse_aggregate({value.text: value for value in values}.get(text, text), name=name)


def results(
    aggregates: Sequence[Aggregate], pieces: Sequence[pl.DataFrame], merges: Sequence[int], *, in_order: bool
) -> pl.DataFrame:
    """The results by group, over partials of pieces that are merged three at a time, neighbours or any."""
    schema = pieces[0].schema
    partial = {name: part for each in aggregates for name, part in each.partial(schema, TIME).items()}
    merge = {name: part for each in aggregates for name, part in each.merge(schema).items()}
    states = {name: dtype for each in aggregates for name, dtype in each.state_types(schema).items()}
    assert polars_schema(spark_schema(states)) == states
    partials = [piece.group_by("g").agg(**partial) for piece in pieces]
    for place in merges:
        stored = [decode([encode(one)]) for one in partials]
        chosen = stored[place : place + 3] if in_order else [*stored[place:], *stored[:place]][:3]
        if chosen:
            left = [one for one in stored if not any(one is each for each in chosen)]
            left.insert(place if in_order else len(left), pl.concat(chosen).group_by("g").agg(**merge))
            partials = left
    state = pl.concat(partials).group_by("g").agg(**merge)
    assert dict(state.drop("g").schema) == states
    answer = state.select("g", *(each.result(schema) for each in aggregates)).sort("g")
    assert dict(answer.drop("g").schema) == {each.name: each.result_type(schema) for each in aggregates}
    return answer


def same(found: Any, expected: Any) -> bool:
    """Equal; floats to a billionth, NaN to itself, and a negative zero to none."""
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(same, found, expected))
    if isinstance(expected, dict):
        return all(same(found[name], value) for name, value in expected.items())
    if isinstance(found, float) and expected is not None:
        if math.isnan(expected):
            return math.isnan(found)
        if expected == 0.0 and found == 0.0:
            return math.copysign(1.0, found) == 1.0
        return math.isclose(found, expected, rel_tol=1e-9)
    return bool(found == expected)


def check(rows: Placed, dtypes: tuple[pl.DataType, pl.DataType], merges: list[int], models: Models) -> None:
    """Compare aggregates with their models; a row comes with its group and its piece."""
    frame = pl.DataFrame(
        {
            "g": [group for group, _, _ in rows],
            "time": [row.time for _, _, row in rows],
            "x": pl.Series([row.value for _, _, row in rows], dtype=dtypes[0]),
            "y": pl.Series([row.other for _, _, row in rows], dtype=dtypes[1]),
        },
        schema_overrides={"g": pl.Int64, "time": pl.Int64},
    )
    pieces = [frame.filter(pl.Series([piece == p for _, piece, _ in rows], dtype=pl.Boolean)) for p in range(4)]
    groups = sorted({group for group, _, _ in rows})
    in_pieces = sorted(rows, key=lambda row: row[1])
    for chosen, in_order in ((models, False), (POSITIONAL, True)):
        aggregates = [read(text, f"a{place}") for place, text in enumerate(chosen)]
        found = results(aggregates, pieces, merges, in_order=in_order)
        assert found["g"].to_list() == groups
        for place, (text, model) in enumerate(chosen.items()):
            for group, answer in zip(groups, found[f"a{place}"].to_list(), strict=True):
                expected = model([row for owner, _, row in in_pieces if owner == group])
                assert same(answer, expected), f"{text}: {answer!r}, the model says {expected!r}"


def rows_of(values: st.SearchStrategy[Any], others: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    row = st.builds(Row, st.integers(-9, 9), st.none() | values, st.none() | others)
    return st.lists(st.tuples(st.integers(0, GROUPS - 1), st.integers(0, 3), row), max_size=25)


merge_places = st.lists(st.integers(0, 3), max_size=4)
quietly = settings(deadline=None, max_examples=40)
words = st.sampled_from(["", "a", "b", "ab", "é", "z\0", "a string that is longer than twelve bytes"])
tame = st.floats(-1e6, 1e6).map(lambda value: round(value, 3) + 0.0)
strange = st.sampled_from([0.0, -0.0, 1.5, -2.0, math.nan, math.inf, -math.inf, 5e-324, 1.7e308])


@quietly
@given(rows=rows_of(st.integers(-(2**40), 2**40), words), merges=merge_places)
def test_integers(rows: Placed, merges: list[int]) -> None:
    check(rows, (pl.Int64(), pl.String()), merges, ANSWERS | NUMBERS | COMPUTED)


@quietly
@given(rows=rows_of(tame, st.integers(-3, 3)), merges=merge_places)
def test_floats(rows: Placed, merges: list[int]) -> None:
    check(rows, (pl.Float64(), pl.Int32()), merges, ANSWERS | NUMBERS)


@quietly
@given(rows=rows_of(strange, strange), merges=merge_places)
def test_zeros_infinities_nan_and_extremes(rows: Placed, merges: list[int]) -> None:
    spreads = {text: model for text, model in NUMBERS.items() if text.startswith(("std", "var"))}
    check(rows, (pl.Float64(), pl.Float64()), merges, ANSWERS | spreads)


@quietly
@given(rows=rows_of(st.sampled_from([1.0, -2.0, math.nan, math.inf]), st.none()), merges=merge_places)
def test_infinities_and_nan_that_are_added(rows: Placed, merges: list[int]) -> None:
    added = {text: model for text, model in NUMBERS.items() if not text.startswith("hr.")}
    check(rows, (pl.Float64(), pl.Int64()), merges, added)


@quietly
@given(
    rows=rows_of(st.integers(-(10**6), 10**6).map(lambda cents: Decimal(cents).scaleb(-2)), words), merges=merge_places
)
def test_decimals(rows: Placed, merges: list[int]) -> None:
    check(rows, (pl.Decimal(10, 2), pl.String()), merges, ANSWERS | {"sum(x)": NUMBERS["sum(x)"]})


@quietly
@given(rows=rows_of(words, st.booleans()), merges=merge_places)
def test_strings(rows: Placed, merges: list[int]) -> None:
    check(rows, (pl.String(), pl.Boolean()), merges, ANSWERS)


moments = st.integers(-5, 5).map(lambda seconds: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds))
days = st.integers(0, 5).map(lambda day: date(2026, 1, 1) + timedelta(days=day))


@quietly
@given(rows=rows_of(moments, days), merges=merge_places)
def test_times_and_dates(rows: Placed, merges: list[int]) -> None:
    check(rows, (pl.Datetime("us", "UTC"), pl.Date()), merges, ANSWERS)


@quietly
@given(rows=rows_of(st.binary(max_size=3), st.timedeltas(timedelta(0), timedelta(seconds=2))), merges=merge_places)
def test_bytes_and_durations(rows: Placed, merges: list[int]) -> None:
    check(rows, (pl.Binary(), pl.Duration("us")), merges, ANSWERS)
