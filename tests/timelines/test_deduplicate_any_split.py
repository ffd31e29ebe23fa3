"""Deduplication: any batches, any partitions, a crash anywhere: the rows that the model keeps."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import batch, play
from tests.models import deduplicate as model
from tests.models import sliding
from tests.models.examples import examples
from tests.models.rows import make_input, split

ROWS = 200
SECOND = 1_000_000
places = st.sets(st.integers(1, ROWS - 1), max_size=10)
seeds = st.integers(0, 2**32)
durations = st.sampled_from([1, 7, 60, 300, 86_400])


def numbers(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(row["number"] for row in rows)


@examples(12)
@given(
    seed=seeds, within=durations, pace=st.sampled_from([1, 11]), cuts=places, crashes=places, parts=st.integers(1, 4)
)
def test_rows_within_the_bound_give_what_the_model_keeps_of_the_same_batches(
    seed: int, within: int, pace: int, cuts: set[int], crashes: set[int], parts: int
) -> None:
    rows = sliding.numbered(make_input(seed, rows=ROWS, pace=pace, disorder=600, partitions=parts))
    step = hr.deduplicate("once", key="account", within=f"{within} seconds").late(hr.side_output())
    time = hr.event_time("at", out_of_order="10 minutes")
    played = play(step, *split(rows, cuts, crashes), batch(), event_time=time)
    wanted = model.kept(model.batches(rows, cuts | crashes), within * SECOND)
    assert numbers(played.main) == numbers(wanted)
    assert played.late == []


@examples(8)
@given(seed=seeds, within=durations, cuts=places, crashes=places)
def test_rows_in_the_order_of_time_give_the_same_whatever_the_batches(
    seed: int, within: int, cuts: set[int], crashes: set[int]
) -> None:
    rows = sliding.numbered(make_input(seed, rows=ROWS, pace=3, disorder=0))
    step = hr.deduplicate("once", key="account", within=f"{within} seconds").late(hr.side_output())
    played = play(step, *split(rows, cuts, crashes), batch(), event_time=hr.event_time("at"))
    assert numbers(played.main) == numbers(model.kept([rows], within * SECOND))
    assert played.late == []


@examples(10)
@given(seed=seeds, cuts=places, crashes=places, parts=st.integers(1, 4))
def test_every_key_leaves_once_when_the_duration_covers_all_its_rows(
    seed: int, cuts: set[int], crashes: set[int], parts: int
) -> None:
    rows = make_input(seed, rows=ROWS, disorder=600, accounts="abcdefghij", partitions=parts).rows
    step = hr.deduplicate("once", key="account", within="1 day").late(hr.side_output())
    time = hr.event_time("at", out_of_order="10 minutes")
    played = play(step, *split(rows, cuts, crashes), batch(), event_time=time)
    assert sorted(row["account"] for row in played.main) == sorted({row.columns["account"] for row in rows})
