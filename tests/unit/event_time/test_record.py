"""The batch record as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import HeadraceError
from headrace.event_time.record import (
    KEPT_BATCHES,
    BatchLog,
    BatchOutcome,
    BatchRecord,
    FileBatchLog,
    MemoryBatchLog,
    TimeBounds,
)
from headrace.event_time.strategy import BEGINNING, END
from headrace.event_time.tracker import SavedWatermark
from headrace.reports import SlotSummary
from headrace.state.group_range import GroupRange
from headrace.state.segment import SegmentRange

names = st.text("abcxyz_", min_size=1, max_size=5)
times = st.integers(-(2**63), 2**63 - 1)


@given(
    st.builds(
        BatchRecord,
        batch=st.integers(0, 10**10),
        clock=times,
        watermarks=st.dictionaries(names, times, max_size=3),
        time_bounds=st.dictionaries(names, st.builds(TimeBounds, times, times, times, times, times), max_size=3),
        wake=st.dictionaries(names, st.lists(st.integers(0, 500)).map(tuple), max_size=3),
        drain=st.booleans(),
        slots=st.integers(1, 128),
    )
)
def test_every_record_survives_as_one_line_of_json(record: BatchRecord) -> None:
    text = record.to_json()
    assert "\n" not in text
    assert BatchRecord.from_json(text) == record


def test_a_record_carries_its_format() -> None:
    assert json.loads(BatchRecord(0, 0, {}, {}, {}, False).to_json())["format"] == 1


def record(batch: int) -> BatchRecord:
    return BatchRecord(
        batch,
        1_767_261_600_000_000,
        {"payments": END},
        {"hourly": TimeBounds(BEGINNING, END)},
        {"hourly": (1, 63)},
        True,
    )


@pytest.fixture(params=["file", "memory"])
def reopened(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], BatchLog]:
    """Opens the same log again, as after a restart."""
    memory = MemoryBatchLog()
    return lambda: FileBatchLog(tmp_path / "log") if request.param == "file" else memory


def test_a_record_is_read_back_as_it_was_written(reopened: Callable[[], BatchLog]) -> None:
    reopened().write_record(record(3))
    assert reopened().record(3) == record(3)
    assert reopened().record(2) is None


def test_a_record_is_no_outcome(reopened: Callable[[], BatchLog]) -> None:
    reopened().write_record(record(3))
    assert reopened().outcome(3) is None
    assert reopened().last_outcome() is None


def test_the_last_outcome_is_that_of_the_highest_batch(reopened: Callable[[], BatchLog]) -> None:
    for batch in (9, 10, 11, 100):
        reopened().write_outcome(batch, BatchOutcome(fired={"hourly": batch}))
    assert reopened().last_outcome() == BatchOutcome(fired={"hourly": 100})
    assert reopened().outcome(10) == BatchOutcome(fired={"hourly": 10})


def test_every_part_of_an_outcome_is_read_back(reopened: Callable[[], BatchLog]) -> None:
    whole = SegmentRange("state/hourly/1-3-7.arrow", GroupRange(7, 9, 128), 3, 100, 77, level=0, run=3)
    merging = replace(whole, level=2, due=(60, 70), due_clock=(5, END), dead_at=90, merging=2)
    outcome = BatchOutcome(
        {"payments": SavedWatermark(5, 9, {"t/0": 9, "t/1": BEGINNING})},
        {
            "hourly": {
                0: SlotSummary((merging, whole), (whole,), 60, None, 4),
                63: SlotSummary((), (), None, END),
            }
        },
        77,
        {"hourly": 5},
        {"alerts": 2},
        True,
        3,
        {"main > kafka": {0: 4, 1: 5}},
    )
    reopened().write_outcome(3, outcome)
    assert reopened().outcome(3) == outcome


def test_an_outcome_written_again_replaces_the_first(reopened: Callable[[], BatchLog]) -> None:
    reopened().write_outcome(3, BatchOutcome(generation=1))
    reopened().write_outcome(3, BatchOutcome(generation=2))
    assert reopened().last_outcome() == BatchOutcome(generation=2)


def test_files_of_the_last_hundred_batches_are_kept(tmp_path: Path) -> None:
    log = FileBatchLog(tmp_path)
    for batch in range(250):
        log.write_record(record(batch))
        log.write_outcome(batch, BatchOutcome())
    assert len(list(tmp_path.iterdir())) == 2 * KEPT_BATCHES
    assert log.record(149) is None
    assert log.record(150) == record(150)


def test_a_file_that_a_crash_left_unfinished_is_not_read(tmp_path: Path) -> None:
    log = FileBatchLog(tmp_path)
    log.write_outcome(1, BatchOutcome(generation=1))
    (tmp_path / ".0000000002.outcome.json.5f3a").write_text('{"n":')
    assert log.last_outcome() == BatchOutcome(generation=1)


def test_an_outcome_of_another_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "0000000001.outcome.json").write_text('{"format":2}')
    with pytest.raises(HeadraceError, match=r"\[RECORD_FORMAT_UNKNOWN\] .* has format 2, this version"):
        FileBatchLog(tmp_path).last_outcome()
