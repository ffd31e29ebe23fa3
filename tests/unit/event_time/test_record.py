"""The batch record as JSON."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.checkpoint.log import Entry
from headrace.checkpoint.storage import LocalStorage, MemoryStorage, Storage
from headrace.errors import HeadraceError
from headrace.event_time.record import KEPT_BATCHES, BatchLog, BatchOutcome, BatchRecord, MarkedBatch, TimeBounds
from headrace.event_time.strategy import BEGINNING, END
from headrace.event_time.tracker import SavedWatermark
from headrace.json_codec import from_text, to_text
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
    text = to_text(record, format=1)
    assert "\n" not in text
    assert from_text(BatchRecord, text, format=1) == record


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
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return LocalStorage(tmp_path) if request.param == "file" else MemoryStorage()


def test_a_record_without_an_outcome_is_the_next_batch(storage: Storage) -> None:
    log = BatchLog(storage)
    log.write_outcome(BatchOutcome(2))
    log.write_record(record(3))
    again = BatchLog(storage)
    assert (again.record, again.outcome, again.next_batch) == (record(3), BatchOutcome(2), 3)


def test_an_outcome_ends_its_record(storage: Storage) -> None:
    log = BatchLog(storage)
    log.write_record(record(0))
    log.write_outcome(BatchOutcome(0))
    for each in (log, BatchLog(storage)):
        assert (each.record, each.outcome, each.next_batch) == (None, BatchOutcome(0), 1)


def test_a_record_survives_any_number_of_starts_that_came_to_nothing(storage: Storage) -> None:
    BatchLog(storage).write_record(record(0))
    assert [BatchLog(storage).take_over() for _ in range(3)] == [2, 3, 4]
    assert BatchLog(storage).record == record(0)


def test_a_record_that_was_completed_later_counts_as_it_is_now(storage: Storage) -> None:
    BatchLog(storage).write_record(record(0))
    BatchLog(storage).write_record(replace(record(0), tables={"rates": 3}))
    assert BatchLog(storage).record == replace(record(0), tables={"rates": 3})


def test_a_log_without_batches_has_no_outcome(storage: Storage) -> None:
    log = BatchLog(storage)
    assert (log.record, log.outcome, log.next_batch) == (None, None, 0)


def test_a_driver_that_takes_over_knows_what_another_wrote_meanwhile(storage: Storage) -> None:
    late, early = BatchLog(storage), BatchLog(storage)
    early.take_over()
    early.write_outcome(BatchOutcome(0))
    assert (late.take_over(), late.outcome) == (3, BatchOutcome(0))
    with pytest.raises(HeadraceError, match="LEASE_LOST"):
        early.write_record(record(1))


def test_every_part_of_an_outcome_is_read_back(storage: Storage) -> None:
    whole = SegmentRange("state/hourly/1-3-7.arrow", GroupRange(7, 9, 128), 3, 100, 77, level=0, run=3)
    merging = replace(whole, level=2, due=(60, 70), due_clock=(5, END), dead_at=90, merging=2)
    outcome = BatchOutcome(
        3,
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
        {"main > kafka": {0: MarkedBatch(4, "a"), 1: MarkedBatch(5, "b")}},
    )
    BatchLog(storage).write_outcome(outcome)
    assert BatchLog(storage).outcome == outcome
    assert outcome.files == {"state/hourly/1-3-7.arrow"}


def test_the_log_of_a_long_run_stays_short(tmp_path: Path) -> None:
    log = BatchLog(LocalStorage(tmp_path))
    for batch in range(50):
        log.write_record(record(batch))
        log.write_outcome(BatchOutcome(batch))
    files = sorted((tmp_path / "log").iterdir())
    assert len(files) == 2 * KEPT_BATCHES - 1
    assert Entry.from_bytes(files[0].read_bytes(), name=files[0].name).is_base
    assert BatchLog(LocalStorage(tmp_path)).outcome == BatchOutcome(49)


def test_drivers_that_die_after_a_batch_leave_a_short_log(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    for batch in range(30):
        for _ in range(3):
            BatchLog(storage).take_over()
        log = BatchLog(storage)
        log.take_over()
        log.write_record(record(batch))
        log.write_outcome(BatchOutcome(batch))
        assert BatchLog(storage).outcome == BatchOutcome(batch)
    assert len(list((tmp_path / "log").iterdir())) == 2 * KEPT_BATCHES - 1
