"""Temporal joins as of arrival: what is known in each batch tells what its rows meet, whatever crashes in between."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.operators.joins.temporal_join import temporal_join
from headrace.testing import at, batch, crash, play, watermark
from headrace.testing.elements import At
from tests.models import temporal_join_by_arrival as model
from tests.models.examples import examples
from tests.models.rows import START, micros, split
from tests.models.temporal_join import time_of

ROWS = 150
SECOND, MINUTE = 1_000_000, 60_000_000
places = st.sets(st.integers(1, ROWS - 1), max_size=10)
seeds = st.integers(0, 2**32)
lives = st.sampled_from([None, 3 * MINUTE, 20 * MINUTE])
sides: tuple[Any, ...] = ("left", "right")


def join(how: Any, ttl: int | None) -> Any:
    life: Any = {"keep_forever": True} if ttl is None else {"ttl": timedelta(microseconds=ttl)}
    return temporal_join("j", on="item", how=how, as_of="arrival", **life)


@pytest.mark.parametrize("changelog", [False, True], ids=["versions", "changelog"])
@pytest.mark.parametrize("how", ["inner", "left"])
@examples(4)
@given(seed=seeds, batches=places, crashes=places, ttl=lives)
def test_every_row_meets_once_and_at_once_the_latest_version_of_its_batch_and_those_before(
    changelog: bool, how: Any, seed: int, batches: set[int], crashes: set[int], ttl: int | None
) -> None:
    """All is within the bound, so that what the join forgets no row could have met."""
    elements = model.make(seed, rows=ROWS, changelog=changelog)
    time = hr.event_time("at", out_of_order="20 minutes", partition="partition")
    played = play(join(how, ttl), *split(elements, batches, crashes), batch(), event_time=time)
    truth = model.answer(model.parts(elements, batches | crashes), how=how, ttl=ttl)
    assert sorted((row["n"], row["v"]) for row in played.main) == sorted(truth.items())
    if not changelog:
        for item in model.ITEMS:
            numbers = [row["n"] for row in played.main if row["item"] == item]
            assert numbers == sorted(numbers)


@pytest.mark.parametrize("how", ["inner", "left"])
@examples(10)
@given(
    batches=st.lists(
        st.tuples(
            st.integers(0, 40),
            st.lists(st.tuples(st.sampled_from(sides), st.sampled_from("ab"), st.integers(0, 100)), max_size=6),
            st.booleans(),
        ),
        min_size=1,
        max_size=8,
    ),
    ttl=st.sampled_from([5, 30]),
)
def test_nothing_is_late_and_a_version_is_forgotten_when_time_has_left_its_life_behind(
    how: Any, batches: list[tuple[int, list[tuple[Any, str, int]], bool]], ttl: int
) -> None:
    """Watermarks by hand, each a few seconds further; rows and versions at any second of a hundred."""
    elements: list[Any] = [at(START, item="x", n=-1), at(START, side="right", item="x", v=-1)]
    held: dict[str, At] = {}
    truth: dict[int, int | None] = {}
    passed, number = 0, 0
    for further, given_rows, dies in batches:
        passed += further
        elements.append(watermark(START + timedelta(seconds=passed)))
        held = {item: version for item, version in held.items() if _second(version) + ttl > passed}
        rows: list[At] = []
        for side, item, second in given_rows:
            number += 1
            name = {"left": "n", "right": "v"}[side]
            rows.append(at(START + timedelta(seconds=second), side=side, item=item, **{name: number}))
        held |= {row.columns["item"]: row for row in rows if row.side == "right"}
        for row in rows:
            if row.side == "left":
                truth[row.columns["n"]] = model.met(row, held.get(row.columns["item"]), ttl * SECOND)
        elements += [*rows, *([crash()] if dies else []), batch()]
    if how == "inner":
        truth = {n: version for n, version in truth.items() if version is not None}
    played = play(join(how, ttl * SECOND), *elements)
    assert {row["n"]: row["v"] for row in played.main if row["item"] != "x"} == truth
    assert len(played.main) == len(truth) + 1
    assert played.late == []


def _second(version: At) -> int:
    return (time_of(version) - micros(START)) // SECOND
