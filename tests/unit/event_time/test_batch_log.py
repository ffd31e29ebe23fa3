"""The log: a record before each batch, an outcome after it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

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
from headrace.reports import KeyGroupState


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
    outcome = BatchOutcome(
        {"payments": SavedWatermark(5, 9, {"t/0": 9, "t/1": BEGINNING})},
        {"hourly": {7: KeyGroupState(60, None, 3, 100), 63: KeyGroupState(None, END, 1, 8)}},
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
