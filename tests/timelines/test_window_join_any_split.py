"""Window joins: any split, any partitions, a crash anywhere, late rows on either side: the model's answer."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.durations import MICROSECONDS
from headrace.operators.joins.window_join import hopping_window, tumbling_window, window_join
from headrace.testing import batch, play, watermark
from headrace.testing.elements import Element
from tests.models import interval_join as sides
from tests.models import window_join as model
from tests.models.examples import examples
from tests.models.rows import START, micros, split

ROWS = 100
SECOND, MINUTE = MICROSECONDS["second"], MICROSECONDS["minute"]
HOWS = ["inner", "left", "right", "full", "semi", "anti"]
places = st.sets(st.integers(1, ROWS - 1), max_size=6)
seeds = st.integers(0, 2**32)


def followed(rows: list[dict[str, Any]]) -> Counter[model.Place]:
    """What a reader holds at the end who follows every change, without the rows that end it all."""
    held: Counter[model.Place] = Counter()
    for row in rows:
        window = micros(row["window"]["start"]), micros(row["window"]["end"])
        couple = (*window, row.get("left_number"), row.get("right_number"))
        if row.get("change") == "delete":
            assert held[couple] > 0
            held[couple] -= 1
        elif -1 not in couple:
            held[couple] += 1
    return +held


@pytest.mark.parametrize("how", HOWS)
@examples(3)
@given(seed=seeds, every=st.sampled_from([5, 2]), batches=places, crashes=places, parts=st.integers(1, 4))
def test_rows_within_the_bound_give_every_couple_once_whatever_the_batches(
    how: Any, seed: int, every: int, batches: set[int], crashes: set[int], parts: int
) -> None:
    shape = tumbling_window("5 minutes") if every == 5 else hopping_window("5 minutes", every="2 minutes")
    rows = sides.make_sides(seed, rows=ROWS, pace=10, disorder=600, users="abc")
    chance = random.Random(seed)
    arriving = [sides.arriving(row, chance.randrange(parts)) for row in rows]
    step = window_join("w", on="user", window=shape, how=how).late(hr.side_output())
    time = hr.event_time("at", out_of_order="10 minutes", partition="partition")
    ending: list[Element] = [batch(), *sides.end_of_sides(), batch(), batch()]
    played = play(step, *split(arriving, batches, crashes), *ending, event_time=time)
    windows = {row.number: model.windows_of(row.time, 5 * MINUTE, every * MINUTE) for row in rows}
    assert followed(played.main) == model.answer(rows, windows, how)
    assert (played.late, played.late_right) == ([], [])


@pytest.mark.parametrize("how", HOWS)
@examples(4)
@given(
    seed=seeds,
    every=st.sampled_from([10, 4]),
    late=st.sampled_from([hr.side_output(), hr.update_for("7 seconds"), hr.update_for("1 minute")]),
    watermarks=st.lists(
        st.tuples(st.sampled_from(["left", "right", None]), st.integers(0, 20)), min_size=1, max_size=10
    ),
)
def test_a_row_takes_part_in_the_windows_that_still_take_it(
    how: Any, seed: int, every: int, late: Any, watermarks: list[tuple[Any, int]]
) -> None:
    """Watermarks by hand on either side; rows at any second of the minute, so many are late."""
    shape = tumbling_window("10 seconds") if every == 10 else hopping_window("10 seconds", every="4 seconds")
    step = window_join("w", on="user", window=shape, how=how).late(late)
    chance, base = random.Random(seed), micros(START)
    passed: dict[Any, int] = {"left": 0, "right": 0}
    elements: list[Any] = [sides.arriving(sides.Row(side, f"first {side}", base, -1)) for side in passed]
    rows: list[sides.Row] = []
    windows: dict[int, list[tuple[int, int]]] = {}
    for side, further in watermarks:
        for each in passed if side is None else (side,):
            passed[each] += further
            elements.append(watermark(moment(passed[each]), side=each))
        bounds = base + min(passed.values()) * SECOND
        for _ in range(chance.randrange(8)):
            time = base + chance.randrange(61) * SECOND
            row = sides.Row(chance.choice(["left", "right"]), chance.choice(["a", "b", None]), time, len(rows))
            rows.append(row)
            every_window = model.windows_of(time, 10 * SECOND, every * SECOND)
            windows[row.number] = [window for window in every_window if window[1] + late.correctable > bounds]
            elements.append(sides.arriving(row))
        elements.append(batch())
    played = play(step, *elements, watermark("2026-01-03T00:00"))
    assert followed(played.main) == model.answer(rows, windows, how)
    for side, found in (("left", played.late), ("right", played.late_right)):
        missed = [row.number for row in rows if row.side == side and not windows[row.number]]
        assert sorted(row[f"{side}_number"] for row in found) == missed


def moment(seconds: int) -> str:
    return f"2026-01-01T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
