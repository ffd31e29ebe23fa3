"""Deduplication: any batches, any partitions, a crash anywhere: the rows that the model keeps."""

from __future__ import annotations

from dataclasses import replace
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


def last_step(within: int, late: Any) -> Any:
    return hr.deduplicate("last", key="account", within=f"{within} seconds", keep="last").late(late)


@examples(12)
@given(seed=seeds, within=durations, pace=st.sampled_from([1, 11]), cuts=places, crashes=places)
def test_the_last_row_of_a_key_is_corrected_as_the_model_says_whatever_the_batches(
    seed: int, within: int, pace: int, cuts: set[int], crashes: set[int]
) -> None:
    rows = sliding.numbered(make_input(seed, rows=ROWS, pace=pace, disorder=600))
    time = hr.event_time("at", out_of_order="10 minutes")
    played = play(last_step(within, hr.side_output()), *split(rows, cuts, crashes), batch(), event_time=time)
    assert numbers(model.standing(played.main, ["number"])) == numbers(model.last(rows, within * SECOND))
    changes = {(row["account"], row["position"], row["change"]) for row in played.main}
    assert len(changes) == len(played.main)
    assert played.late == []


@examples(8)
@given(seed=seeds, within=durations, cuts=places, crashes=places, parts=st.integers(1, 4))
def test_rows_that_are_late_correct_the_last_row_as_long_as_they_may(
    seed: int, within: int, cuts: set[int], crashes: set[int], parts: int
) -> None:
    """However partitions are mixed, what stands last of a key is its last row; no two rows have the same time."""
    given = sliding.numbered(make_input(seed, rows=ROWS, disorder=600, partitions=parts))
    rows = [replace(row, time=row.time + row.columns["number"]) for row in given]
    played = play(last_step(within, hr.update_for("10 minutes")), *split(rows, cuts, crashes), batch())
    table = {row["account"]: row["number"] for row in played.main if row["change"] != "update_before"}
    latest = sorted(rows, key=lambda row: row.time or 0)
    assert table == {row.columns["account"]: row.columns["number"] for row in latest}
    assert played.late == []
