"""Time is decided once for each batch, before it runs, and a batch that runs again is told the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import headrace as hr
from headrace.checkpoint.storage import LocalStorage, MemoryStorage, Storage
from headrace.errors import HeadraceError
from headrace.event_time.record import BatchLog, BatchRecord, MarkedBatch, SourceRead, TimeBounds
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
    storage: Storage,
    clock: Clock,
    strategy: TimeStrategy | None = None,
    interval: int = SECOND,
    slots: int = SLOTS,
) -> Planner:
    chosen = strategy or hr.event_time("at", out_of_order="1 second")
    steps = {"minutely": (PAYMENTS,), "hourly": (NodeId("step", "minutely"),)}
    time = TimeKeeper(Topology({"payments": chosen}, steps), clock, interval=interval)
    log = BatchLog(storage)
    log.take_over()
    return Planner(time, log, writing=Writing(slots=slots))


def _saw(time: int, *, due: int | None = None, slot: int = 3) -> BatchReports:
    """A batch that read up to a time, and after which something is due in one of the slots."""
    reports = BatchReports()
    reports.add(PAYMENTS, 0, SourceReport(highest={"": time}))
    for each in range(SLOTS):
        reports.add(NodeId("state", "minutely"), each, StateReport(SlotSummary(due=due if each == slot else None)))
    return reports


def test_the_first_batch_knows_nothing_of_time() -> None:
    record = _planner(MemoryStorage(), Clock()).plan()
    assert replace(record, token="") == BatchRecord(
        0,
        0,
        {"payments": BEGINNING},
        {"minutely": TimeBounds(BEGINNING, BEGINNING), "hourly": TimeBounds(BEGINNING, BEGINNING)},
        {"minutely": (), "hourly": ()},
        False,
        slots=SLOTS,
    )


def test_rows_move_the_watermark_of_the_next_batch_not_of_their_own() -> None:
    planner = _planner(MemoryStorage(), Clock())
    first = planner.plan()
    planner.conclude(first, _saw(10 * SECOND))
    assert first.watermarks == {"payments": BEGINNING}
    assert planner.plan().watermarks == {"payments": 9 * SECOND}


def test_a_step_behind_a_step_judges_lateness_by_what_the_first_has_already_fired() -> None:
    planner = _planner(MemoryStorage(), Clock())
    planner.conclude(planner.plan(), _saw(10 * SECOND))
    second = planner.plan()
    assert second.time_bounds == {
        "minutely": TimeBounds(9 * SECOND, 9 * SECOND, clock_before=0),
        "hourly": TimeBounds(BEGINNING, 9 * SECOND, clock_before=0),
    }
    planner.conclude(second, _saw(20 * SECOND))
    assert planner.plan().time_bounds == {
        "minutely": TimeBounds(19 * SECOND, 19 * SECOND, 9 * SECOND, clock_before=0),
        "hourly": TimeBounds(9 * SECOND, 19 * SECOND, 9 * SECOND, clock_before=0),
    }


def test_a_batch_that_runs_again_gets_the_logged_record_whatever_the_clock_says() -> None:
    storage, clock = MemoryStorage(), Clock()
    planner = _planner(storage, clock)
    planner.conclude(planner.plan(), _saw(10 * SECOND))
    logged = planner.plan()
    clock.now = 500 * SECOND
    assert _planner(storage, clock).plan(drain=True) == logged


def test_a_new_planner_takes_up_where_the_log_ended() -> None:
    storage, clock = MemoryStorage(), Clock()
    planner = _planner(storage, clock)
    planner.conclude(planner.plan(), _saw(10 * SECOND, due=60 * SECOND))
    planner.conclude(planner.plan(), BatchReports())
    watermarks = planner.time.decide(2, drain=False).watermarks
    again = _planner(storage, clock)
    held = {slot: SlotSummary(due=60 * SECOND if slot == 3 else None) for slot in range(SLOTS)}
    assert again.time.slots == {"minutely": held, "hourly": {}}
    assert (again.plan().batch, again.plan().watermarks) == (2, watermarks)


def test_the_account_of_all_batches_is_in_the_log() -> None:
    storage, so_far = MemoryStorage(), {"sources": {"payments": {"read": 5}}}
    first = _planner(storage, Clock())
    first.conclude(first.plan(), _saw(0), total=so_far)
    first.begin_at({"orders": 7})
    assert _planner(storage, Clock()).last.total == so_far


def test_positions_move_when_a_batch_is_done_and_a_batch_that_runs_again_reads_what_was_logged() -> None:
    storage, clock = MemoryStorage(), Clock()
    planner = _planner(storage, clock)
    planner.begin_at({"payments": 3})
    assert (planner.last.batch, _planner(storage, clock).last.positions) == (-1, {"payments": 3})
    planner = _planner(storage, clock)
    logged = planner.plan(reads={"payments": SourceRead(3, 7, {"": 2})})
    again = _planner(storage, clock)
    assert (again.runs_again, again.last.positions) == (True, {"payments": 3})
    assert again.plan(reads={"payments": SourceRead(3, 9)}) == logged
    again.conclude(logged, _saw(10 * SECOND))
    assert (again.runs_again, again.last.positions) == (False, {"payments": 7})
    assert _planner(storage, clock).last.positions == {"payments": 7}


def test_a_planner_that_was_replaced_logs_nothing_more() -> None:
    storage, clock = MemoryStorage(), Clock()
    asleep = _planner(storage, clock)
    record = asleep.plan()
    again = _planner(storage, clock)
    assert again.plan() == record
    with pytest.raises(HeadraceError, match="LEASE_LOST"):
        asleep.conclude(record, _saw(10 * SECOND))


def test_every_batch_has_a_token_of_its_own_which_it_keeps_when_it_runs_again() -> None:
    storage, clock = MemoryStorage(), Clock()
    planner = _planner(storage, clock)
    first = planner.plan()
    planner.conclude(first, _saw(10 * SECOND), {"main > table": {0, 2}})
    second = planner.plan()
    assert len({first.token, second.token, ""}) == 3
    again = _planner(storage, clock)
    assert again.plan().token == second.token
    assert again.last.marks == {"main > table": dict.fromkeys((0, 2), MarkedBatch(0, first.token))}


def test_slots_in_which_something_is_due_are_woken() -> None:
    planner = _planner(MemoryStorage(), Clock())
    planner.conclude(planner.plan(), _saw(61 * SECOND, due=60 * SECOND, slot=7))
    assert planner.time.wants_batch()
    record = planner.plan()
    assert record.wake == {"minutely": (7,), "hourly": ()}
    planner.conclude(record, _saw(61 * SECOND, due=None, slot=7))
    assert not planner.time.wants_batch()


def test_a_drain_ends_time_and_is_remembered() -> None:
    storage, clock = MemoryStorage(), Clock()
    planner = _planner(storage, clock)
    planner.conclude(planner.plan(), _saw(10 * SECOND, due=60 * SECOND))
    record = planner.plan(drain=True)
    assert (record.watermarks, record.drain) == ({"payments": END}, True)
    assert record.wake["minutely"] == (3,)
    planner.conclude(record, _saw(10 * SECOND))
    assert _planner(storage, clock).last.drained


def test_a_source_that_is_idle_lets_time_go_on_without_a_row() -> None:
    clock = Clock()
    strategy = hr.event_time("at", idle="10 seconds", when_all_idle="advance", out_of_order="1 second")
    planner = _planner(MemoryStorage(), clock, strategy)
    planner.conclude(planner.plan(), _saw(60 * SECOND, due=60 * SECOND))
    clock.now = 9 * SECOND
    assert not planner.time.wants_batch()
    clock.now = 11 * SECOND
    assert planner.time.wants_batch()
    assert planner.plan().watermarks == {"payments": 60 * SECOND}


def test_idle_clocks_stand_still_while_a_batch_overruns_its_interval() -> None:
    clock = Clock()
    strategy = hr.event_time("at", idle="10 seconds", when_all_idle="advance", out_of_order="1 second")
    planner = _planner(MemoryStorage(), clock, strategy)
    record = planner.plan()
    clock.now = 30 * SECOND
    planner.conclude(record, _saw(60 * SECOND, due=60 * SECOND))
    clock.now = 35 * SECOND
    assert not planner.time.wants_batch()
    clock.now = 41 * SECOND
    assert planner.time.wants_batch()


def test_a_log_of_files_gives_back_what_a_log_in_memory_does(tmp_path: Any) -> None:
    clock = Clock()
    records = []
    for storage in (MemoryStorage(), LocalStorage(tmp_path)):
        planner = _planner(storage, clock)
        planner.conclude(planner.plan(), _saw(10 * SECOND, due=60 * SECOND))
        planner = _planner(storage, clock)
        planner.conclude(planner.plan(), _saw(70 * SECOND, due=60 * SECOND))
        records.append(_planner(storage, clock).plan())
    assert replace(records[0], token="") == replace(records[1], token="")
    assert records[0].wake == {"minutely": (3,), "hourly": ()}


def test_a_batch_that_runs_again_has_the_slots_of_its_record_and_the_next_those_of_the_new_start() -> None:
    storage, clock = MemoryStorage(), Clock()
    planner = _planner(storage, clock)
    planner.conclude(planner.plan(), _saw(10 * SECOND, due=60 * SECOND))
    logged = planner.plan()
    again = _planner(storage, clock, slots=2)
    assert again.plan() == logged
    assert sorted(again.time.slots["minutely"]) == list(range(SLOTS))
    again.conclude(logged, BatchReports())
    assert (logged.slots, again.plan().slots) == (SLOTS, 2)
    assert again.time.slots == {"minutely": dict.fromkeys(range(2), SlotSummary(due=60 * SECOND)), "hourly": {}}
