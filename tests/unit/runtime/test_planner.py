"""Time is decided once for each batch, before it runs, and a batch that runs again is told the same."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace.event_time.record import BatchLog, BatchRecord, FileBatchLog, MemoryBatchLog, TimeBounds
from headrace.event_time.strategy import BEGINNING, END, TimeStrategy
from headrace.event_time.time_keeper import TimeKeeper, Topology
from headrace.nodes import NodeId
from headrace.reports import BatchReports, SlotSummary, SourceReport, StateReport
from headrace.runtime.planner import Planner, Writing

SECOND = 1_000_000
PAYMENTS = NodeId("source", "payments")
SLOTS = 8


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


def _planner(
    log: BatchLog,
    clock: Clock,
    strategy: TimeStrategy | None = None,
    interval: int = SECOND,
    slots: int = SLOTS,
) -> Planner:
    chosen = strategy or hr.event_time("at", out_of_order="1 second")
    steps = {"minutely": (PAYMENTS,), "hourly": (NodeId("step", "minutely"),)}
    time = TimeKeeper(Topology({"payments": chosen}, steps), clock, interval=interval)
    return Planner(time, log, writing=Writing(slots=slots))


def _saw(time: int, *, due: int | None = None, slot: int = 3) -> BatchReports:
    """A batch that read up to a time, and after which something is due in one of the slots."""
    reports = BatchReports()
    reports.add(PAYMENTS, 0, SourceReport(highest={"": time}))
    for each in range(SLOTS):
        reports.add(NodeId("state", "minutely"), each, StateReport(SlotSummary(due=due if each == slot else None)))
    return reports


def test_the_first_batch_knows_nothing_of_time() -> None:
    record = _planner(MemoryBatchLog(), Clock()).plan(0)
    assert record == BatchRecord(
        0,
        0,
        {"payments": BEGINNING},
        {"minutely": TimeBounds(BEGINNING, BEGINNING), "hourly": TimeBounds(BEGINNING, BEGINNING)},
        {"minutely": (), "hourly": ()},
        False,
        slots=SLOTS,
    )


def test_rows_move_the_watermark_of_the_next_batch_not_of_their_own() -> None:
    planner = _planner(MemoryBatchLog(), Clock())
    first = planner.plan(0)
    planner.conclude(first, _saw(10 * SECOND))
    assert first.watermarks == {"payments": BEGINNING}
    assert planner.plan(1).watermarks == {"payments": 9 * SECOND}


def test_a_step_behind_a_step_judges_lateness_by_what_the_first_has_already_fired() -> None:
    planner = _planner(MemoryBatchLog(), Clock())
    planner.conclude(planner.plan(0), _saw(10 * SECOND))
    second = planner.plan(1)
    assert second.time_bounds == {
        "minutely": TimeBounds(9 * SECOND, 9 * SECOND, clock_before=0),
        "hourly": TimeBounds(BEGINNING, 9 * SECOND, clock_before=0),
    }
    planner.conclude(second, _saw(20 * SECOND))
    assert planner.plan(2).time_bounds == {
        "minutely": TimeBounds(19 * SECOND, 19 * SECOND, 9 * SECOND, clock_before=0),
        "hourly": TimeBounds(9 * SECOND, 19 * SECOND, 9 * SECOND, clock_before=0),
    }


def test_a_batch_that_runs_again_gets_the_logged_record_whatever_the_clock_says() -> None:
    log, clock = MemoryBatchLog(), Clock()
    planner = _planner(log, clock)
    planner.conclude(planner.plan(0), _saw(10 * SECOND))
    logged = planner.plan(1)
    clock.now = 500 * SECOND
    assert _planner(log, clock).plan(1, drain=True) == logged


def test_a_new_planner_takes_up_where_the_log_ended() -> None:
    log, clock = MemoryBatchLog(), Clock()
    planner = _planner(log, clock)
    planner.conclude(planner.plan(0), _saw(10 * SECOND, due=60 * SECOND))
    planner.conclude(planner.plan(1), BatchReports())
    again = _planner(log, clock)
    held = {slot: SlotSummary(due=60 * SECOND if slot == 3 else None) for slot in range(SLOTS)}
    assert again.time.slots == {"minutely": held, "hourly": {}}
    assert again.plan(2) == planner.plan(2)


def test_a_crash_between_outcome_and_commit_changes_nothing_when_the_batch_runs_again() -> None:
    log, clock = MemoryBatchLog(), Clock()
    planner = _planner(log, clock)
    planner.conclude(planner.plan(0), _saw(10 * SECOND))
    planner.conclude(planner.plan(1), _saw(20 * SECOND))
    expected = planner.plan(2)
    again_log = MemoryBatchLog()
    for batch in (0, 1):
        record, outcome = log.record(batch), log.outcome(batch)
        assert record is not None
        assert outcome is not None
        again_log.write_record(record)
        again_log.write_outcome(batch, outcome)
    again = _planner(again_log, clock)
    again.conclude(again.plan(1), _saw(20 * SECOND))
    assert again.plan(2) == expected


def test_slots_in_which_something_is_due_are_woken() -> None:
    planner = _planner(MemoryBatchLog(), Clock())
    planner.conclude(planner.plan(0), _saw(61 * SECOND, due=60 * SECOND, slot=7))
    assert planner.time.wants_batch()
    record = planner.plan(1)
    assert record.wake == {"minutely": (7,), "hourly": ()}
    planner.conclude(record, _saw(61 * SECOND, due=None, slot=7))
    assert not planner.time.wants_batch()


def test_a_drain_ends_time_and_is_remembered() -> None:
    log, clock = MemoryBatchLog(), Clock()
    planner = _planner(log, clock)
    planner.conclude(planner.plan(0), _saw(10 * SECOND, due=60 * SECOND))
    record = planner.plan(1, drain=True)
    assert (record.watermarks, record.drain) == ({"payments": END}, True)
    assert record.wake["minutely"] == (3,)
    planner.conclude(record, _saw(10 * SECOND))
    assert _planner(log, clock).drained


def test_a_source_that_is_idle_lets_time_go_on_without_a_row() -> None:
    clock = Clock()
    strategy = hr.event_time("at", idle="10 seconds", when_all_idle="advance", out_of_order="1 second")
    planner = _planner(MemoryBatchLog(), clock, strategy)
    planner.conclude(planner.plan(0), _saw(60 * SECOND, due=60 * SECOND))
    clock.now = 9 * SECOND
    assert not planner.time.wants_batch()
    clock.now = 11 * SECOND
    assert planner.time.wants_batch()
    assert planner.plan(1).watermarks == {"payments": 60 * SECOND}


def test_idle_clocks_stand_still_while_a_batch_overruns_its_interval() -> None:
    clock = Clock()
    strategy = hr.event_time("at", idle="10 seconds", when_all_idle="advance", out_of_order="1 second")
    planner = _planner(MemoryBatchLog(), clock, strategy)
    record = planner.plan(0)
    clock.now = 30 * SECOND
    planner.conclude(record, _saw(60 * SECOND, due=60 * SECOND))
    clock.now = 35 * SECOND
    assert not planner.time.wants_batch()
    clock.now = 41 * SECOND
    assert planner.time.wants_batch()


def test_a_log_of_files_gives_back_what_a_log_in_memory_does(tmp_path: Any) -> None:
    clock = Clock()
    records = []
    for log in (MemoryBatchLog(), FileBatchLog(tmp_path / "log")):
        planner = _planner(log, clock)
        planner.conclude(planner.plan(0), _saw(10 * SECOND, due=60 * SECOND))
        planner = _planner(log, clock)
        planner.conclude(planner.plan(1), _saw(70 * SECOND, due=60 * SECOND))
        records.append(_planner(log, clock).plan(2))
    assert records[0] == records[1]
    assert records[0].wake == {"minutely": (3,), "hourly": ()}


@pytest.mark.parametrize("kind", [MemoryBatchLog, None])
def test_a_log_without_batches_has_no_outcome(kind: type[MemoryBatchLog] | None, tmp_path: Any) -> None:
    log: BatchLog = FileBatchLog(tmp_path / "log") if kind is None else kind()
    assert (log.record(0), log.outcome(0), log.last_outcome()) == (None, None, None)


def test_a_batch_that_runs_again_has_the_slots_of_its_record_and_the_next_those_of_the_new_start() -> None:
    log, clock = MemoryBatchLog(), Clock()
    planner = _planner(log, clock)
    planner.conclude(planner.plan(0), _saw(10 * SECOND, due=60 * SECOND))
    logged = planner.plan(1)
    again = _planner(log, clock, slots=2)
    assert again.plan(1) == logged
    assert sorted(again.time.slots["minutely"]) == list(range(SLOTS))
    again.conclude(logged, BatchReports())
    assert (logged.slots, again.plan(2).slots) == (SLOTS, 2)
    assert again.time.slots == {"minutely": dict.fromkeys(range(2), SlotSummary(due=60 * SECOND)), "hourly": {}}
