"""Interval joins with bounds from columns, the best match, null-safe and keyless ones: the model's answer."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.durations import MICROSECONDS, spoken
from headrace.testing import batch, play, watermark
from tests.models import interval_join as model
from tests.models.examples import examples
from tests.models.rows import START, micros, split
from tests.timelines.test_interval_join_any_split import moment, numbers

ROWS = 100
SECOND, MINUTE = MICROSECONDS["second"], MICROSECONDS["minute"]
KINDS = [("inner", "all"), ("left", "all"), ("right", "all"), ("full", "all")]
KINDS += [(how, match) for how in ("inner", "left") for match in ("first", "last", "highest", "lowest")]
places = st.sets(st.integers(1, ROWS - 1), max_size=6)
seeds = st.integers(0, 2**32)
lows = st.sampled_from([None, -3, 0, 2])
bounds = st.sampled_from(["[]", "[)", "(]", "()"])
keys = st.sampled_from(sorted(model.SAME))
LEFT = "user STRING, left_number BIGINT, begins TIMESTAMP, ends TIMESTAMP, at TIMESTAMP, partition INT"
RIGHT = "user STRING, right_number BIGINT, price BIGINT, at TIMESTAMP, partition INT"
SCHEMAS = {"schema": LEFT, "right_schema": RIGHT}


def join(how: Any, match: Any, low: int | None, ends: Any, same: str, high: str = "ends") -> Any:
    """A join up to the end that a left row has, from a time after it, in microseconds, or the begin that it has."""
    by = "price" if match in ("highest", "lowest") else None
    interval = ("begins" if low is None else spoken(low), high)
    on, nulls_equal = None if same == "no key" else "user", same == "nulls too"
    return hr.interval_join(
        "j", on=on, between=interval, bounds=ends, how=how, match=match, by=by, nulls_equal=nulls_equal
    )


@pytest.mark.parametrize(("how", "match"), KINDS)
@examples(4)
@given(seed=seeds, low=lows, ends=bounds, same=keys, batches=places, crashes=places, parts=st.integers(1, 4))
def test_rows_within_the_bound_give_every_couple_once_whatever_the_batches(
    how: str, match: str, seed: int, low: int | None, ends: str, same: str, batches: set[int], crashes: set[int],
    parts: int,
) -> None:  # fmt: skip
    low = None if low is None else low * MINUTE
    parts = parts if match == "all" else 1
    sides = model.make_sides(seed, rows=ROWS, pace=10, disorder=600, users="abc")
    rows = model.with_own_intervals(sides, seed, longest=1_200)
    chance = random.Random(seed)
    given_rows = [model.arriving(row, chance.randrange(parts)) for row in rows]
    time = hr.event_time("at", out_of_order="10 minutes", partition="partition")
    step = join(how, match, low, ends, same).late(hr.side_output())
    ending = [batch(), *model.end_of_sides(), batch(), batch()]
    played = play(step, *split(given_rows, batches, crashes), *ending, event_time=time, **SCHEMAS)  # type: ignore[arg-type]
    found = model.without_the_end(model.followed(played.main))
    assert found == model.answer(rows, model.within_own(low, ends), how, match, model.SAME[same])
    assert all("change" not in row for row in played.main)
    assert (played.late, played.late_right) == ([], [])


@pytest.mark.parametrize(("how", "match"), KINDS)
@examples(4)
@given(
    seed=seeds,
    low=lows,
    ends=bounds,
    same=keys,
    late=st.sampled_from([hr.side_output(), hr.update_for("4 seconds"), hr.update_for("1 minute")]),
    watermarks=st.lists(st.integers(0, 20), min_size=1, max_size=12),
)
def test_what_is_late_takes_no_part_and_all_else_comes_to_the_answer_by_changes(
    how: str, match: str, seed: int, low: int | None, ends: str, same: str, late: Any, watermarks: list[int]
) -> None:
    """Watermarks by hand; rows at any second of the minute, so many are late."""
    low = None if low is None else low * SECOND
    chance, base, passed, number = random.Random(seed), micros(START), 0, 0
    elements: list[Any] = []
    taken: list[model.Row] = []
    missed: list[model.Row] = []
    for further in watermarks:
        passed += further
        elements.append(watermark(moment(passed)))
        for _ in range(chance.randrange(8)):
            time = base + chance.randrange(61) * SECOND
            row = model.Row(chance.choice(["left", "right"]), chance.choice(["a", "b", None]), time, number)
            (row,) = model.with_own_intervals([row], chance.randrange(10**6), longest=20)
            number += 1
            (taken if time >= base + passed * SECOND - late.correctable else missed).append(row)
            elements.append(model.arriving(row))
        elements.append(batch())
    step = join(how, match, low, ends, same).late(late)
    played = play(step, *elements, watermark("2026-01-03T00:00"), **SCHEMAS)  # type: ignore[arg-type]
    truth = model.answer(taken, model.within_own(low, ends), how, match, model.SAME[same])
    assert model.followed(played.main) == truth
    for side, found in (("left", played.late), ("right", played.late_right)):
        assert numbers(found, f"{side}_number") == sorted(row.number for row in missed if row.side == side)


@pytest.mark.parametrize(("how", "match"), KINDS)
@examples(1)
@given(seed=seeds, low=lows, batches=places)
def test_no_joined_row_is_late_for_the_next_step(
    how: str, match: str, seed: int, low: int | None, batches: set[int]
) -> None:
    low = None if low is None else low * MINUTE
    sides = model.make_sides(seed, rows=ROWS, pace=10, disorder=600, users="abc")
    rows = model.with_own_intervals(sides, seed, longest=1_200)
    per_second = hr.tumbling("n", size="1 second", key="user").agg(n="count(*)").late(hr.side_output())
    chain = (join(how, match, low, "[]", "key").late(hr.side_output()), per_second)
    time = hr.event_time("at", out_of_order="10 minutes")
    ending = [batch(), *model.end_of_sides(), batch(), batch()]
    elements = [*split([model.arriving(row) for row in rows], batches), *ending]
    played = play(chain, *elements, event_time=time, **SCHEMAS)  # type: ignore[arg-type]
    found: Counter[str | None] = Counter()
    for row in played.main:
        found[row["user"]] += row["n"]
    users = {row.number: row.user for row in rows}
    truth = model.answer(rows, model.within_own(low, "[]"), how, match)
    assert found == Counter(users[right if left is None else left] for left, right in truth.elements())  # type: ignore[index]
    assert (played.late, played.late_right) == ([], [])
