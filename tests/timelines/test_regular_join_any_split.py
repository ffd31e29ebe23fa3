"""Regular joins: any split, any partitions, a crash anywhere, late rows on either side: the model's answer."""

from __future__ import annotations

import random
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
HOWS = ["inner", "left", "right", "full"]
places = st.sets(st.integers(1, ROWS - 1), max_size=6)
seeds = st.integers(0, 2**32)
lives = st.sampled_from([None, 1, 4, 15])
keys = st.sampled_from(["key", "nulls too"])


def join(how: Any, ttl: int | None, same: str) -> Any:
    life: dict[str, Any] = {"keep_forever": True} if ttl is None else {"ttl": spoken(ttl)}
    return hr.regular_join("j", on="user", how=how, nulls_equal=same == "nulls too", **life)


def alive(ttl: int | None) -> model.Meet:
    """Whether the earlier row still lives at the time of the later one."""
    return lambda left, right: ttl is None or abs(right.time - left.time) < ttl


@pytest.mark.parametrize("how", HOWS)
@examples(6)
@given(seed=seeds, life=lives, same=keys, batches=places, crashes=places, parts=st.integers(1, 4))
def test_rows_within_the_bound_come_to_the_answer_whatever_the_batches(
    how: str, seed: int, life: int | None, same: str, batches: set[int], crashes: set[int], parts: int
) -> None:
    ttl = None if life is None else life * MICROSECONDS["minute"]
    rows = model.make_sides(seed, rows=ROWS, pace=10, disorder=600, users="abcdefghi")
    chance = random.Random(seed)
    given_rows = [model.arriving(row, chance.randrange(parts)) for row in rows]
    time = hr.event_time("at", out_of_order="10 minutes", partition="partition")
    ending: list[Any] = [batch(), *model.end_of_sides(), batch(), batch()]
    played = play(
        join(how, ttl, same).late(hr.side_output()), *split(given_rows, batches, crashes), *ending, event_time=time
    )
    truth = model.answer(rows, alive(ttl), how, same=model.SAME[same])
    assert model.without_the_end(model.followed(played.main)) == truth
    assert (played.late, played.late_right) == ([], [])
    if how == "inner":
        assert all("change" not in row for row in played.main)


@pytest.mark.parametrize("how", HOWS)
@examples(6)
@given(
    seed=seeds,
    life=lives,
    late=st.sampled_from([hr.side_output(), hr.drop(), hr.update_for("4 seconds"), hr.update_for("1 minute")]),
    watermarks=st.lists(st.integers(0, 20), min_size=1, max_size=12),
)
def test_what_is_late_takes_no_part(how: str, seed: int, life: int | None, late: Any, watermarks: list[int]) -> None:
    """Watermarks by hand; rows at any second of the minute, so many are late."""
    second = MICROSECONDS["second"]
    ttl = None if life is None else life * second
    chance, base, passed, number = random.Random(seed), micros(START), 0, 0
    elements: list[Any] = [model.arriving(model.Row(side, f"first {side}", base, -1)) for side in ("left", "right")]
    taken: list[model.Row] = []
    missed: list[model.Row] = []
    for further in watermarks:
        passed += further
        elements.append(watermark(moment(passed)))
        for _ in range(chance.randrange(8)):
            time = base + chance.randrange(61) * second
            row = model.Row(chance.choice(["left", "right"]), chance.choice(["a", "b", None]), time, number)
            number += 1
            (taken if time >= base + passed * second - late.correctable else missed).append(row)
            elements.append(model.arriving(row))
        elements.append(batch())
    played = play(join(how, ttl, "key").late(late), *elements, watermark("2026-01-03T00:00"))
    assert model.without_the_end(model.followed(played.main)) == model.answer(taken, alive(ttl), how)
    if late.keeps_rows:
        for side, found in (("left", played.late), ("right", played.late_right)):
            assert numbers(found, f"{side}_number") == sorted(row.number for row in missed if row.side == side)
