"""Every aggregate over sliding windows is what the same aggregate is over the rows of the window alone."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest

import headrace as hr
from headrace.event_time.record import TimeBounds
from headrace.event_time.strategy import BEGINNING, END
from headrace.operators.windows.sliding_totals import SHARE
from headrace.operators.windows.sliding_windows import SlidingOperator
from headrace.wheel.codec import decode, encode
from tests.unit.operators.stored import stored

MOMENT = pl.Datetime("us", "UTC")
SIZE = timedelta(seconds=10)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Span(hr.Accumulator):
    """Highest less lowest, row by row."""

    state = "low DOUBLE, high DOUBLE"
    result_type = "DOUBLE"

    def start(self) -> dict[str, Any]:
        return {"low": float("inf"), "high": float("-inf")}

    def add(self, kept: dict[str, Any], value: Any) -> dict[str, Any]:
        return {"low": min(kept["low"], value), "high": max(kept["high"], value)}

    def merge(self, one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
        return {"low": min(one["low"], other["low"]), "high": max(one["high"], other["high"])}

    def result(self, kept: dict[str, Any]) -> float:
        return float(kept["high"] - kept["low"])


AGGREGATES: list[Any] = [
    "count(*)",
    "count(amount)",
    "count(*) FILTER (WHERE amount > 50)",
    "sum(amount)",
    "sum(price)",
    "min(price)",
    "max(amount)",
    "avg(price)",
    "stddev(price)",
    "var_pop(price)",
    "first(price)",
    "last(shop)",
    "max_by(price, shop)",
    "count(DISTINCT amount)",
    "approx_count_distinct(amount)",
    hr.percentile("price", [0.1, 0.9]),
    hr.top("price", n=2, of="shop"),
    hr.collect_list("amount", at_most=5),
    hr.collect_set("shop", at_most=2),
    hr.ewm("price", half_life="1 second"),
    Span("price"),
]


def make_rows() -> pl.DataFrame:
    """Rows before and after 1970, some at one time, of two keys."""
    chance = random.Random(5)
    rows = [
        {
            "key": chance.choice("ab"),
            "at": EPOCH + timedelta(milliseconds=100 * chance.randrange(-50, 150)),
            "amount": None if chance.random() < 0.1 else chance.randrange(100),
            "price": chance.uniform(0, 10),
            "shop": chance.choice("xyz"),
        }
        for _ in range(60)
    ]
    return pl.DataFrame(rows).cast({"at": MOMENT}).sort("at", maintain_order=True)


ROWS = make_rows()


def emitted(operator: SlidingOperator) -> pl.DataFrame:
    """Forty rows, then twenty more, then second after second, then the end, in a slot for each share."""
    outputs = []
    states: dict[int, pl.DataFrame] = {}
    before = BEGINNING
    seconds = ((ROWS.clear(), second * 1_000_000) for second in range(6, 15))
    batches = ((ROWS.head(40), BEGINNING), (ROWS.tail(20), 5_000_000), *seconds, (ROWS.clear(), END))
    for batch, (given, fire) in enumerate(batches):
        bounds = TimeBounds(before, fire, before, batch=batch)
        before = fire
        partials = operator.combine(given, bounds).partials
        for share in range(1 if operator.shares is None else operator.shares.count):
            part = partials if operator.shares is None else partials.filter(pl.col(SHARE) == share)
            state = states.get(share, pl.DataFrame(schema=operator.state_schema))
            applied = operator.apply(state, part, bounds)
            kept = decode([encode(stored(operator, state, applied, bounds))])
            # The store gives rows in an order of its own.
            states[share] = kept.sample(fraction=1, shuffle=True, seed=batch)
            outputs.append(applied.output)
    assert all(state.is_empty() for state in states.values())
    return pl.concat(outputs)


def plain(value: Any) -> Any:
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return round(value, 9) if isinstance(value, float) else value


@pytest.mark.parametrize("spread", [1, 3])
@pytest.mark.parametrize("aggregate", AGGREGATES, ids=str)
def test_an_aggregate_over_a_sliding_window_is_that_of_the_windows_rows(aggregate: Any, spread: int) -> None:
    step = hr.sliding("w", size=SIZE, key="key", spread=spread).agg(result=aggregate).late(hr.drop())
    operator = step.bind(ROWS.schema, "at")
    assert isinstance(operator, SlidingOperator)
    found = emitted(operator).rows(named=True)
    assert len(found) == ROWS.height
    for row in found:
        seen = ROWS.filter(
            (pl.col("key") == row["key"]) & (pl.col("at") > row["at"] - SIZE) & (pl.col("at") <= row["at"])
        )
        partials = seen.group_by("key").agg(**operator.aggregation.partial)
        (wanted,) = partials.select(operator.aggregation.result(partials)).rows()[0]
        assert plain(row["result"]) == plain(wanted)
