"""A process: any batches, any partitions, a crash anywhere: what the model tells."""

from __future__ import annotations

import json
import random
import sys
from collections import defaultdict
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import cloudpickle

import headrace as hr
from headrace.testing import at, play
from headrace.testing.elements import At
from tests.models import process_model as model
from tests.models.examples import examples
from tests.models.rows import START, Event, end_of_rows, micros, split

# Spark's workers cannot import this module, so they get its classes whole.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

ROWS = 120
QUIET, EXACT, AGAIN = (timedelta(microseconds=each) for each in (model.QUIET, model.EXACT, model.AGAIN))
places = st.sets(st.integers(1, ROWS - 1), max_size=10)
seeds = st.integers(0, 2**32)


class Telling(hr.KeyedProcess):
    """Does what the model does."""

    last = hr.value_state("BIGINT", ttl=timedelta(microseconds=model.LAST_TTL))
    recent = hr.list_state("BIGINT", ttl=timedelta(microseconds=model.RECENT_TTL))
    shops = hr.map_state("INT", "BIGINT", ttl=timedelta(microseconds=model.SHOPS_TTL))

    def on_row(self, row: Any, context: Any) -> Any:
        last, recent, shops = self.last.get(), sum(self.recent.get()), self.shops.keys()
        yield {"account": context.key, "said": json.dumps(["row", row.amount, last, recent, shops])}
        self.last.set(row.amount)
        self.recent.add(row.amount)
        self.shops.put(row.amount % 4, row.amount)
        context.set_timer("quiet", after=QUIET, payload=0)
        if row.amount % 5 == 0:
            context.set_timer("exact", at=row.at + EXACT, payload=row.amount)
        if row.amount % 7 == 0:
            context.cancel_timer("exact")
        if row.amount % 11 == 0:
            raise ValueError(row.amount)

    def on_timer(self, timer: Any, context: Any) -> Any:
        yield {
            "account": context.key,
            "said": json.dumps([timer.name, timer.payload, None, sum(self.recent.get()), []]),
        }
        if timer.name == "quiet" and timer.payload < 2:
            context.set_timer("quiet", after=AGAIN, payload=timer.payload + 1)


def step_by(key: str | None) -> Any:
    """The step over the rows of each key, or over all."""
    output = "account STRING, said STRING"
    return hr.process("telling", Telling, key=key, output=output, on_error="dead_letter").late(hr.side_output())


def make_rows(seed: int, *, partitions: int, disorder: int = 300) -> tuple[list[Event], list[At]]:
    """Rows ten seconds apart, each up to ``disorder`` seconds behind its place; no two at the same time."""
    chance = random.Random(seed)
    events, arriving = [], []
    for place in range(ROWS):
        late = chance.choice([0, 0, chance.randrange(disorder)])
        time = START + timedelta(seconds=place * 10 - late, microseconds=place)
        account, amount = chance.choice("abc"), chance.randrange(1, 60)
        events.append(Event(account, micros(time), amount))
        arriving.append(at(time, account=account, amount=amount, partition=chance.randrange(partitions)))
    return events, arriving


@pytest.mark.parametrize("key", ["account", None])
@examples(12)
@given(seed=seeds, cuts=places, crashes=places, parts=st.integers(1, 4))
def test_any_split_into_batches_and_partitions_with_crashes_tells_what_the_model_tells(
    key: str | None, seed: int, cuts: set[int], crashes: set[int], parts: int
) -> None:
    events, rows = make_rows(seed, partitions=parts)
    time = hr.event_time("at", out_of_order="5 minutes")
    played = play(step_by(key), *split(rows, cuts, crashes), *end_of_rows(amount=1), event_time=time)
    results: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for row in played.main:
        if row["at"] < START + timedelta(days=1):
            results[str(row["account"])].append((micros(row["at"]), *json.loads(row["said"])))
    if key is None:
        events = [replace(event, account="None") for event in events]
    wanted, failed = model.processed(events)
    assert dict(results) == {account: each for account, each in wanted.items() if each}
    assert sorted(json.loads(letter["raw"])["amount"] for letter in played.dead_letters) == failed
    assert played.late == []
