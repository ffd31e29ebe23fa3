"""Many groups at once, in frames so large that Polars works in parallel."""

from __future__ import annotations

import random
from collections import defaultdict
from decimal import Context, Decimal

import polars as pl
import pytest
from pyspark import cloudpickle

from headrace.expressions import parse_aggregate
from tests.models.aggregates import ANSWERS, NUMBERS, POSITIONAL, Row
from tests.unit.expressions.aggregates.test_any_grouping import read, same

ROWS, GROUPS, PIECES = 40_000, 3_000, 4


def test_thousands_of_groups_have_the_answers_of_the_model() -> None:
    chance = random.Random(5)
    by_group: defaultdict[int, list[Row]] = defaultdict(list)
    rows: list[tuple[int, int, float | None, str]] = []
    for _ in range(ROWS):
        value = None if chance.random() < 0.05 else chance.choice([0.0, -0.0, chance.uniform(-9, 9)])
        group, row = (
            chance.randrange(GROUPS),
            Row(chance.randrange(50), value, f"a rather long name {chance.randrange(40)}"),
        )
        by_group[group].append(row)
        rows.append((group, row.time, row.value, row.other))
    frame = pl.DataFrame(rows, schema={"g": pl.Int64, "time": pl.Int64, "x": pl.Float64, "y": pl.String}, orient="row")
    models = ANSWERS | NUMBERS | POSITIONAL
    for text, model in models.items():
        aggregate = read(text, "out")
        pieces = [frame[start : start + ROWS // PIECES] for start in range(0, ROWS, ROWS // PIECES)]
        partials = [piece.group_by("g").agg(**aggregate.partial(frame.schema, pl.col("time"))) for piece in pieces]
        merged = pl.concat(partials).group_by("g").agg(**aggregate.merge(frame.schema))
        found = dict(merged.select("g", aggregate.result(frame.schema)).rows())
        assert found.keys() == by_group.keys()
        wrong = [group for group, own in by_group.items() if not same(found[group], model(own))]
        assert wrong == [], text


def test_a_sum_of_integers_says_when_it_is_beyond_the_range() -> None:
    frame = pl.DataFrame({"g": ["a", "a", "b", "b", "c", "d"], "x": [2**63 - 1, 1, -(2**63), -1, 2**63 - 1, None]})
    aggregate = parse_aggregate("sum(x)", name="out")
    partials = frame.group_by("g", maintain_order=True).agg(**aggregate.partial(frame.schema, pl.lit(0)))
    overflowed = aggregate.overflowed(frame.schema)
    assert overflowed is not None
    assert partials.select(overflowed).to_series().to_list() == [True, True, False, False]
    assert partials.select(aggregate.result(frame.schema)).to_series().to_list() == [None, None, 2**63 - 1, None]


@pytest.mark.parametrize(
    ("text", "dtype", "answers"),
    [
        ("sum(x)", pl.Decimal(38, 0), [True, True, False, False]),
        ("avg(x)", pl.Decimal(38, 0), [True, True, True, False]),
        ("sum(x)", pl.Decimal(38, 4), [True, True, False, False]),
        ("avg(x)", pl.Decimal(38, 38), [True, True, False, False]),
    ],
)
def test_sums_and_averages_of_decimals_say_when_they_do_not_fit(
    text: str, dtype: pl.Decimal, answers: list[bool]
) -> None:
    most = 10**38 - 1
    unscaled = [most, 1, -most, -most, most, None]
    values = [None if value is None else Decimal(value).scaleb(-dtype.scale, Context(prec=40)) for value in unscaled]
    frame = pl.DataFrame({"g": ["a", "a", "b", "b", "c", "d"], "x": values}, schema_overrides={"x": dtype})
    aggregate = parse_aggregate(text, name="out")
    partials = frame.group_by("g", maintain_order=True).agg(**aggregate.partial(frame.schema, pl.lit(0)))
    overflowed = aggregate.overflowed(frame.schema)
    assert overflowed is not None
    assert partials.select(overflowed).to_series().to_list() == answers
    nulls = partials.select(aggregate.result(frame.schema)).to_series().is_null().to_list()
    assert nulls == [*answers[:3], True]


def test_other_aggregates_never_overflow() -> None:
    schema = {"x": pl.Int64(), "y": pl.Float64()}
    for text in ("avg(x)", "avg(y)", "count(*)", "sum(y)", "max(x)"):
        assert parse_aggregate(text, name="out").overflowed(schema) is None


def test_variance_keeps_its_digits_far_from_zero() -> None:
    values = [1e9 + value for value in (4.0, 7.0, 13.0, 16.0)]
    frame = pl.DataFrame({"g": 0, "x": values * 1000})
    aggregate = parse_aggregate("var_samp(x)", name="out")
    pieces = [frame[start : start + 7] for start in range(0, frame.height, 7)]
    partials = [piece.group_by("g").agg(**aggregate.partial(frame.schema, pl.lit(0))) for piece in pieces]
    merged = pl.concat(partials).group_by("g").agg(**aggregate.merge(frame.schema))
    found = merged.select(aggregate.result(frame.schema)).item()
    assert abs(found / (22.5 * 4000 / 3999) - 1) < 1e-8


def test_variance_of_equal_values_near_the_largest_double_is_zero_in_any_grouping() -> None:
    aggregate = parse_aggregate("var_pop(x)", name="out")
    frame = pl.DataFrame({"x": [1.7e308] * 4})
    for size in (1, 2, 4):
        pieces = [frame[start : start + size] for start in range(0, 4, size)]
        partials = pl.concat([piece.select(**aggregate.partial(frame.schema, pl.lit(0))) for piece in pieces])
        merged = partials.select(**aggregate.merge(frame.schema))
        assert merged.select(aggregate.result(frame.schema)).item() == 0.0


def test_aggregates_travel_to_workers() -> None:
    frame = pl.DataFrame({"g": [1, 1, 2], "time": [1, 2, 3], "x": [1.0, 2.0, 3.0], "y": ["a", "b", "c"]})
    for text in (
        *ANSWERS,
        *NUMBERS,
        *POSITIONAL,
        "approx_count_distinct(x)",
        "approx_percentile(x, 0.5) FILTER (WHERE x > 1)",
    ):
        here = read(text, "out")
        there = cloudpickle.loads(cloudpickle.dumps(here))
        assert there == here
        states = [
            frame.group_by("g", maintain_order=True).agg(**aggregate.partial(frame.schema, pl.col("time")))
            for aggregate in (here, there)
        ]
        assert states[0].select(here.result(frame.schema)).equals(states[1].select(there.result(frame.schema))), text
