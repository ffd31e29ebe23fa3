"""Lookups: any batches, any partitions, a crash anywhere, cached or not, in order or not: what the model answers."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.operators.lookup.client import Cache, cache
from headrace.operators.lookup.lookup import Lookup, lookup
from headrace.testing import batch, play
from tests.models import lookup as model
from tests.models import sliding
from tests.models.examples import examples
from tests.models.rows import end_of_rows, make_input, micros, split

ROWS = 150
HOUR = 3_600_000_000
places = st.sets(st.integers(1, ROWS - 1), max_size=8)
seeds = st.integers(0, 2**32)
parts = st.integers(1, 4)
caches = st.sampled_from([None, cache(ttl="1 day", size=2), cache(ttl="1 day")])


def lookup_step(remembering: Cache | None = None, **options: Any) -> Lookup:
    unknown, failing = model.UNKNOWN, model.FAILING

    async def about(account: str) -> dict[str, Any] | None:
        await asyncio.sleep(0.0005)
        if account == failing:
            raise ConnectionError(account)
        return None if account == unknown else {"label": account * 2, "rank": ord(account)}

    given: dict[str, Any] = {
        "output": "label STRING, rank INT",
        "retries": 0,
        "breaker": None,
        "timeout": "1 minute",
        **options,
    }
    return lookup("about", about, on="account", on_failure="dead_letter", cache=remembering, **given)


def by_number(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row["number"])


@examples(25)
@given(
    seed=seeds,
    cuts=places,
    crashes=places,
    parts=parts,
    remembering=caches,
    order=st.sampled_from(["kept", "free"]),
    in_flight=st.sampled_from([1, 3, 100]),
)
def test_every_row_leaves_once_with_its_answer_or_is_one_dead_letter(
    seed: int, cuts: set[int], crashes: set[int], parts: int, remembering: Cache | None, order: str, in_flight: int
) -> None:
    rows = sliding.numbered(make_input(seed, rows=ROWS, disorder=600, partitions=parts))
    step = lookup_step(remembering, order=order, in_flight=in_flight)
    played = play(step, *split(rows, cuts, crashes), batch())
    answered, failed = model.enriched(rows)
    wanted = ["account", "number", "label", "rank"]
    assert [[row[name] for name in wanted] for row in by_number(played.main)] == [
        [row[name] for name in wanted] for row in by_number(answered)
    ]
    letters = [json.loads(bytes(letter["raw"])) for letter in played.dead_letters]
    assert sorted(letter["number"] for letter in letters) == sorted(row["number"] for row in failed)


@examples(15)
@given(seed=seeds, cuts=places, crashes=places)
def test_rows_of_one_partition_leave_in_the_order_they_came(seed: int, cuts: set[int], crashes: set[int]) -> None:
    rows = sliding.numbered(make_input(seed, rows=ROWS, disorder=600))
    played = play(lookup_step(), *split(rows, cuts, crashes), batch(), engine="inline")
    answered, _ = model.enriched(rows)
    assert [row["number"] for row in played.main] == [row["number"] for row in answered]


@examples(15)
@given(seed=seeds, cuts=places, crashes=places, parts=parts)
def test_windows_behind_a_lookup_are_those_of_the_source_s_time(
    seed: int, cuts: set[int], crashes: set[int], parts: int
) -> None:
    rows = make_input(seed, rows=ROWS, pace=60, disorder=600, partitions=parts).rows
    hourly = hr.tumbling("hourly", size="1 hour", key="label").agg(n="count(*)").late(hr.side_output())
    time = hr.event_time("at", out_of_order="10 minutes")
    played = play((lookup_step(), hourly), *split(rows, cuts, crashes), *end_of_rows(account="z"), event_time=time)
    counts = Counter({(row["label"], micros(row["window"]["start"])): row["n"] for row in played.main})
    assert {place: n for place, n in counts.items() if place[0] != "zz"} == model.counted(rows, HOUR)
    assert played.late == []
