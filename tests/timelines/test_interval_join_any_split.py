"""Interval joins: any split, any partitions, a crash anywhere, late rows on either side: the model's answer."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.durations import MICROSECONDS, spoken
from headrace.operators.joins.interval_join import interval_join
from headrace.testing import batch, play, watermark
from headrace.testing.elements import Element
from tests.models import interval_join as model
from tests.models.examples import examples
from tests.models.rows import START, micros, split

ROWS = 100
SECOND, MINUTE = MICROSECONDS["second"], MICROSECONDS["minute"]
HOWS = ["inner", "left", "right", "full", "semi", "anti"]
KINDS = [*((how, "all") for how in HOWS), ("inner", "first"), ("left", "first"), ("inner", "last"), ("left", "last")]
places = st.sets(st.integers(1, ROWS - 1), max_size=6)
seeds = st.integers(0, 2**32)
intervals = st.sampled_from([(0, 0), (0, 5), (-5, 0), (-3, 7), (2, 6), (-6, -2)])
bounds = st.sampled_from(["[]", "[)", "(]", "()"])


def join(how: Any, match: Any, low: int, high: int, ends: Any) -> Any:
    """A join between two bounds in microseconds."""
    if low == high:
        ends = "[]"
    return interval_join("j", on="user", between=(spoken(low), spoken(high)), bounds=ends, how=how, match=match)


def numbers(rows: list[dict[str, Any]], name: str) -> list[int]:
    return sorted(row[name] for row in rows)


@pytest.mark.parametrize(("how", "match"), KINDS)
@examples(3)
@given(seed=seeds, interval=intervals, ends=bounds, batches=places, crashes=places, parts=st.integers(1, 4))
def test_rows_within_the_bound_give_every_couple_once_whatever_the_batches(
    how: str,
    match: str,
    seed: int,
    interval: tuple[int, int],
    ends: str,
    batches: set[int],
    crashes: set[int],
    parts: int,
) -> None:
    low, high = interval[0] * MINUTE, interval[1] * MINUTE
    step = join(how, match, low, high, ends)
    # Which of two rows with one time came first is told by their numbers only as long as there is one partition.
    parts = parts if match == "all" else 1
    rows = model.make_sides(seed, rows=ROWS, pace=10, disorder=600, users="abc")
    chance = random.Random(seed)
    given_rows = [model.arriving(row, chance.randrange(parts)) for row in rows]
    time = hr.event_time("at", out_of_order="10 minutes", partition="partition")
    ending: list[Element] = [batch(), *model.end_of_sides(), batch(), batch()]
    played = play(step.late(hr.side_output()), *split(given_rows, batches, crashes), *ending, event_time=time)
    truth = model.answer(rows, model.near(*((low, high, "[]") if low == high else (low, high, ends))), how, match)
    assert model.without_the_end(model.followed(played.main)) == truth
    assert all("change" not in row for row in played.main)
    assert (played.late, played.late_right) == ([], [])


@pytest.mark.parametrize(("how", "match"), KINDS)
@examples(4)
@given(
    seed=seeds,
    interval=intervals,
    ends=bounds,
    late=st.sampled_from([hr.side_output(), hr.drop(), hr.update_for("4 seconds"), hr.update_for("1 minute")]),
    watermarks=st.lists(
        st.tuples(st.sampled_from(["left", "right", None]), st.integers(0, 20)), min_size=1, max_size=12
    ),
)
def test_what_is_late_takes_no_part_and_all_else_comes_to_the_answer_by_changes(
    how: str,
    match: str,
    seed: int,
    interval: tuple[int, int],
    ends: str,
    late: Any,
    watermarks: list[tuple[Any, int]],
) -> None:
    """Watermarks by hand on either side; rows at any second of the minute, so many are late."""
    low, high = interval[0] * SECOND, interval[1] * SECOND
    step = join(how, match, low, high, ends).late(late)
    chance, base = random.Random(seed), micros(START)
    passed = {"left": 0, "right": 0}
    elements: list[Any] = [model.arriving(model.Row(side, f"first {side}", base, -1)) for side in ("left", "right")]
    taken: list[model.Row] = []
    missed: list[model.Row] = []
    number = 0
    for side, further in watermarks:
        for each in ("left", "right") if side is None else (side,):
            passed[each] += further
            elements.append(watermark(moment(passed[each]), side=each))
        time_bounds = base + min(passed.values()) * SECOND
        for _ in range(chance.randrange(8)):
            time = base + chance.randrange(61) * SECOND
            row = model.Row(chance.choice(["left", "right"]), chance.choice(["a", "b", None]), time, number)
            number += 1
            (taken if time >= time_bounds - late.correctable else missed).append(row)
            elements.append(model.arriving(row))
        elements.append(batch())
    played = play(step, *elements, watermark("2026-01-03T00:00"))
    truth = model.answer(taken, model.near(*((low, high, "[]") if low == high else (low, high, ends))), how, match)
    assert model.without_the_end(model.followed(played.main)) == truth
    if late.keeps_rows:
        for side, found in (("left", played.late), ("right", played.late_right)):
            assert numbers(found, f"{side}_number") == sorted(row.number for row in missed if row.side == side)


@pytest.mark.parametrize(("how", "match"), KINDS)
@examples(1)
@given(seed=seeds, interval=intervals, batches=places)
def test_no_joined_row_is_late_for_the_next_step(
    how: str, match: str, seed: int, interval: tuple[int, int], batches: set[int]
) -> None:
    low, high = interval[0] * MINUTE, interval[1] * MINUTE
    rows = model.make_sides(seed, rows=ROWS, pace=10, disorder=600, users="abc")
    per_second = hr.tumbling("n", size="1 second", key="user").agg(n="count(*)").late(hr.side_output())
    chain = (join(how, match, low, high, "[]").late(hr.side_output()), per_second)
    time = hr.event_time("at", out_of_order="10 minutes")
    ending: list[Element] = [batch(), *model.end_of_sides(), batch(), batch()]
    elements = [*split([model.arriving(row) for row in rows], batches), *ending]
    played = play(chain, *elements, event_time=time)
    truth = model.answer(rows, model.near(low, high, "[]"), how, match)
    users = {row.number: row.user for row in rows}
    found: Counter[str | None] = Counter()
    for row in played.main:
        found[row["user"]] += row["n"]
    assert found == Counter(users[right if left is None else left] for left, right in truth.elements())  # type: ignore[index]
    assert (played.late, played.late_right) == ([], [])


def moment(seconds: int) -> str:
    return f"2026-01-01T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
