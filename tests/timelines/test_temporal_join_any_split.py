"""Temporal joins: any split, any partitions, a crash anywhere, the model's answer."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.operators.joins.temporal_join import temporal_join
from headrace.testing import at, batch, play, watermark
from headrace.testing.elements import At
from tests.models import temporal_join as model
from tests.models.examples import examples
from tests.models.rows import PARTITIONS, START, micros, split

ROWS = 200
MINUTE = 60_000_000
places = st.sets(st.integers(1, ROWS - 1), max_size=10)
seeds = st.integers(0, 2**32)
sides: tuple[Any, ...] = ("left", "right")


def end_of_both(**more: Any) -> list[Any]:
    """A row on both sides of every partition, a day later, so that every row before has left."""
    later = START + timedelta(days=1)
    rows = [at(later, item="end", n=-1, partition=number) for number in range(PARTITIONS)]
    versions = [at(later, side="right", item="end", v=-1, partition=n, **more) for n in range(PARTITIONS)]
    return [batch(), *rows, *versions, batch(), batch()]


@pytest.mark.parametrize("changelog", [False, True], ids=["versions", "changelog"])
@pytest.mark.parametrize("how", ["inner", "left"])
@examples(4)
@given(
    seed=seeds,
    batches=places,
    crashes=places,
    partitions=st.integers(1, 4),
    ttl=st.sampled_from([None, 3 * MINUTE, 20 * MINUTE]),
)
def test_every_row_within_the_bound_meets_the_version_of_its_time_once(
    changelog: bool, how: Any, seed: int, batches: set[int], crashes: set[int], partitions: int, ttl: int | None
) -> None:
    rows = model.make(seed, rows=ROWS, changelog=changelog, partitions=partitions)
    life: Any = {"keep_forever": True} if ttl is None else {"ttl": timedelta(microseconds=ttl)}
    step = temporal_join("j", on="item", how=how, versions_late=hr.side_output(), **life).late(hr.side_output())
    change = {"change": "insert"} if changelog else {}
    time = hr.event_time("at", out_of_order="15 minutes", partition="partition")
    played = play(step, *split(rows.elements, batches, crashes), *end_of_both(**change), event_time=time)
    found = [(row["n"], row["v"]) for row in played.main if row["n"] >= 0]
    assert sorted(found) == sorted(model.answer(rows, how=how, ttl=ttl).items())
    assert played.late == played.late_right == []
    times = [(row["item"], row["at"]) for row in played.main]
    for item in "abc":
        assert [time for each, time in times if each == item] == sorted(time for each, time in times if each == item)


@pytest.mark.parametrize("how", ["inner", "left"])
@examples(5)
@given(seed=seeds, batches=places, crashes=places, ttl=st.sampled_from([None, 3 * MINUTE, 20 * MINUTE]))
def test_corrections_of_late_rows_and_late_versions_come_to_the_answer(
    how: Any, seed: int, batches: set[int], crashes: set[int], ttl: int | None
) -> None:
    rows = model.make(seed, rows=ROWS, disorder=3600, changelog=True, partitions=2)
    life: Any = {"keep_forever": True} if ttl is None else {"ttl": timedelta(microseconds=ttl)}
    long = hr.update_for("1 hour 20 minutes")
    step = temporal_join("j", on="item", how=how, versions_late=long, **life).late(long)
    elements = [*split(rows.elements, batches, crashes), *end_of_both(change="insert")]
    played = play(step, *elements, event_time=hr.event_time("at"))
    assert played.late == played.late_right == []
    known: dict[int, int | None] = {}
    retracted: set[int] = set()
    for row in played.main:
        n, v = row["n"], row["v"]
        match row["change"]:
            case "insert":
                assert n not in known
                known[n] = v
            case "delete":
                assert how == "inner"
                assert known.pop(n) == v
            case "update_before":
                assert known[n] == v
                retracted.add(n)
            case "update_after":
                retracted.remove(n)
                assert known[n] != v
                known[n] = v
    assert not retracted
    assert {n: v for n, v in known.items() if n >= 0} == model.answer(rows, how=how, ttl=ttl)


@examples(15)
@given(
    batches=st.lists(
        st.tuples(st.integers(0, 40), st.lists(st.tuples(st.sampled_from(sides), st.integers(0, 100)), max_size=6)),
        min_size=1,
        max_size=8,
    )
)
def test_what_is_late_is_what_the_model_says(batches: list[tuple[int, list[tuple[Any, int]]]]) -> None:
    """Watermarks by hand, each a few seconds further; rows and versions at any second of a hundred."""
    step = temporal_join("j", on="item", how="left", keep_forever=True, versions_late=hr.side_output())
    elements: list[Any] = [at(START, item="x", n=0), at(START, side="right", item="x", v=0)]
    accepted: list[At] = []
    late: dict[str, list[int]] = {"left": [], "right": []}
    passed, number = 0, 0
    for further, rows in batches:
        passed += further
        elements.append(watermark(START + timedelta(seconds=passed)))
        for side, second in rows:
            number += 1
            name = {"left": "n", "right": "v"}[side]
            given_row = at(START + timedelta(seconds=second), side=side, item="a", **{name: number})
            elements.append(given_row)
            if second < passed:
                late[side].append(number)
            else:
                accepted.append(given_row)
        elements.append(batch())
    played = play(step.late(hr.side_output()), *elements, watermark(START + timedelta(days=1)))
    found = {row["n"]: row["v"] for row in played.main if row["item"] == "a"}
    truth = {}
    given_rows = model.Given(accepted)
    for row in given_rows.rows:
        # Of versions at one time the one that came last is valid.
        valid = [v for v in given_rows.versions if model.time_of(v) <= model.time_of(row)]
        last = max(enumerate(valid), key=lambda each: (model.time_of(each[1]), each[0]), default=None)
        truth[row.columns["n"]] = None if last is None else last[1].columns["v"]
    assert found == truth
    assert [row["n"] for row in played.late] == late["left"]
    assert [row["v"] for row in played.late_right] == late["right"]


@pytest.mark.parametrize("how", ["inner", "left"])
@examples(6)
@given(seed=seeds, places=st.sets(st.integers(1, ROWS - 1), min_size=2, max_size=12), ttl=st.sampled_from([None, 20]))
def test_a_delivered_version_is_met_by_every_row_that_is_emitted_after_it_came(
    how: Any, seed: int, places: set[int], ttl: int | None
) -> None:
    rows = model.make(seed, rows=ROWS, disorder=900, changelog=False, partitions=1).elements
    life: Any = {"keep_forever": True} if ttl is None else {"ttl": f"{ttl} minutes"}
    elements: list[Any] = []
    waiting: list[At] = []
    versions: list[At] = []
    truth: dict[int, int | None] = {}
    passed = 0
    for place, element in enumerate([*rows, at(START + timedelta(days=1), item=None, n=-1)]):
        if place in places or place == len(rows):
            passed = max(passed, max(model.time_of(each) for each in rows[:place]) - 5 * MINUTE)
            passed = passed if place < len(rows) else model.time_of(element)
            elements += [batch(), watermark(START + timedelta(microseconds=passed - micros(START)))]
            emitted = [each for each in waiting if model.time_of(each) < passed]
            waiting = [each for each in waiting if model.time_of(each) >= passed]
            truth |= {
                each.columns["n"]: model.met(each, versions, ttl=None if ttl is None else ttl * MINUTE)
                for each in emitted
            }
        if element.side == "right":
            versions.append(element)
        elif model.time_of(element) >= passed:
            waiting.append(element)
        elements.append(element)
    step = temporal_join("j", on="item", how=how, versions_late=hr.deliver(), **life).late(hr.drop())
    played = play(step, *elements)
    met = truth if how == "left" else {n: version for n, version in truth.items() if version is not None}
    assert {row["n"]: row["v"] for row in played.main} == met
