"""Time as the planner decides it: time_bounds, wake-ups, idle clocks, drains and restarts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.event_time.record import BatchLog, BatchRecord, FileBatchLog, MemoryBatchLog
from headrace.event_time.strategy import BEGINNING, END, TimeStrategy
from headrace.runtime.planner import Planner, Topology

SECOND = 1_000_000
MINUTE = 60 * SECOND
advancing = hr.event_time("at", when_all_idle="advance", out_of_order="1 second")


class ClockByHand:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1_000 * MINUTE

    def __call__(self) -> int:
        return self.now


def read(highest: int) -> dict[str, Any]:
    return {"source.payments": {0: {"highest": {"": highest}}}}


def holds(step: str, group: int, due: int | None) -> dict[str, Any]:
    return {f"state.{step}": {group: {"due": due, "due_clock": None, "rows": 1, "bytes": 1}}}


def new(
    log: BatchLog | None = None,
    clock: ClockByHand | None = None,
    strategy: TimeStrategy | None = None,
    interval: int = 0,
) -> Planner:
    topology = Topology(
        {"payments": strategy or hr.event_time("at")}, {"hourly": ("source.payments",), "daily": ("step.hourly",)}
    )
    return Planner(topology, log or MemoryBatchLog(), clock or ClockByHand(), interval=interval)


def bounds(record: BatchRecord) -> dict[str, tuple[int, int, int]]:
    return {step: (each.late, each.fire, each.before) for step, each in record.time_bounds.items()}


def test_a_group_is_woken_by_the_clock_when_what_is_due_in_it_is_due_by_the_clock() -> None:
    clock = ClockByHand()
    planner = new(clock=clock)
    planner.conclude(planner.plan(0), read(10))
    planner.groups["hourly"][5] = {"due": None, "due_clock": clock.now + 10, "rows": 1, "bytes": 1}
    assert not planner.wants_batch()
    clock.now += 10
    assert planner.wants_batch()
    record = planner.plan(1)
    assert record.wake["hourly"] == (5,)
    assert record.time_bounds["hourly"].clock == clock.now


def test_a_steps_late_bound_is_what_the_step_before_it_fired_up_to_in_the_batch_before() -> None:
    planner = new()
    planner.conclude(planner.plan(0), read(10))
    second = planner.plan(1)
    assert bounds(second) == {"hourly": (10, 10, BEGINNING), "daily": (BEGINNING, 10, BEGINNING)}
    planner.conclude(second, read(30))
    assert bounds(planner.plan(2)) == {"hourly": (30, 30, 10), "daily": (10, 30, 10)}


def test_the_lowest_of_several_inputs_decides() -> None:
    time = hr.event_time("at")
    both = Topology({"left": time, "right": time}, {"joined": ("source.left", "source.right")})
    planner = Planner(both, MemoryBatchLog(), ClockByHand())
    highest = {"source.left": {0: {"highest": {"": 30}}}, "source.right": {0: {"highest": {"": 20}}}}
    planner.conclude(planner.plan(0), highest)
    assert bounds(planner.plan(1)) == {"joined": (20, 20, BEGINNING)}


def two_sided(clock: ClockByHand, **after: tuple[str, ...]) -> Planner:
    """A join of two sources that are idle after ten microseconds, before a step that reads it."""
    time = hr.event_time("at", idle="10 microseconds")
    steps = {"joined": ("source.left", "source.right"), **after}
    topology = Topology({"left": time, "right": time}, steps, holdbacks={"joined": 5})
    return Planner(topology, MemoryBatchLog(), clock, interval=1_000)


def both_read(left: int | None, right: int | None) -> dict[str, Any]:
    return {
        f"source.{name}": {0: {"highest": {} if time is None else {"": time}}}
        for name, time in (("left", left), ("right", right))
    }


def test_an_idle_input_does_not_hold_up_the_other_and_does_not_bring_time_back_when_it_wakes() -> None:
    clock = ClockByHand()
    planner = two_sided(clock)
    planner.conclude(planner.plan(0), both_read(30, 20))
    clock.now += 6
    planner.conclude(planner.plan(1), both_read(40, None))
    clock.now += 6
    third = planner.plan(2)
    assert third.watermarks == {"left": 40, "right": 20}
    assert bounds(third) == {"joined": (40, 40, 20)}
    planner.conclude(third, both_read(50, 25))
    fourth = planner.plan(3)
    assert fourth.watermarks == {"left": 50, "right": 25}
    assert bounds(fourth) == {"joined": (40, 40, 40)}


def test_an_input_that_never_brought_a_row_holds_up_the_other_until_it_is_idle() -> None:
    clock = ClockByHand()
    planner = two_sided(clock)
    planner.conclude(planner.plan(0), both_read(30, None))
    assert bounds(planner.plan(1)) == {"joined": (BEGINNING, BEGINNING, BEGINNING)}
    planner.conclude(planner.plan(1), both_read(40, None))
    clock.now += 9
    assert bounds(planner.plan(2)) == {"joined": (BEGINNING, BEGINNING, BEGINNING)}
    planner.conclude(planner.plan(2), both_read(50, None))
    clock.now += 1
    assert bounds(planner.plan(3)) == {"joined": (50, 50, BEGINNING)}


def test_when_both_inputs_are_idle_the_slower_decides_as_before() -> None:
    clock = ClockByHand()
    planner = two_sided(clock)
    planner.conclude(planner.plan(0), both_read(30, 20))
    planner.conclude(planner.plan(1), both_read(40, None))
    clock.now += 100
    assert bounds(planner.plan(2)) == {"joined": (20, 20, 20)}


def test_the_step_behind_one_that_holds_rows_back_is_as_far_behind() -> None:
    clock = ClockByHand()
    planner = two_sided(clock, hourly=("step.joined",))
    planner.conclude(planner.plan(0), both_read(30, 20))
    second = planner.plan(1)
    assert bounds(second) == {"joined": (20, 20, BEGINNING), "hourly": (BEGINNING, 15, BEGINNING)}
    planner.conclude(second, both_read(40, 40))
    assert bounds(planner.plan(2)) == {"joined": (40, 40, 20), "hourly": (15, 35, 15)}
    planner.conclude(planner.plan(2), both_read(40, 40))
    drained = planner.plan(3, drain=True)
    assert bounds(drained) == {"joined": (END, END, 40), "hourly": (35, END, 35)}


def test_the_highest_time_of_all_tasks_counts() -> None:
    planner = new()
    reports = {"source.payments": {0: {"highest": {"": 30}}, 1: {"highest": {"": 10}}, 2: {"highest": {}}}}
    planner.conclude(planner.plan(0), reports)
    assert planner.plan(1).watermarks == {"payments": 30}


def test_a_group_is_woken_exactly_when_the_watermark_reaches_what_is_due_in_it() -> None:
    planner = new()
    for group, due in ((3, 10), (4, 11), (5, None)):
        planner.groups["hourly"][group] = {"due": due, "due_clock": None, "rows": 1, "bytes": 1}
    planner.conclude(planner.plan(0), read(10))
    assert planner.plan(1).wake == {"hourly": (3,), "daily": ()}


def test_a_flow_wants_a_batch_only_while_something_is_due() -> None:
    planner = new()
    assert not planner.wants_batch()
    planner.conclude(planner.plan(0), {**read(10), **holds("hourly", 3, 11)})
    assert not planner.wants_batch()
    planner.conclude(planner.plan(1), read(11))
    assert planner.wants_batch()
    planner.conclude(planner.plan(2), holds("hourly", 3, None))
    assert not planner.wants_batch()


def test_a_flow_wants_a_batch_once_idleness_makes_something_due() -> None:
    clock = ClockByHand()
    planner = new(clock=clock, strategy=advancing)
    planner.conclude(planner.plan(0), {**read(5 * SECOND), **holds("hourly", 3, 5 * SECOND)})
    clock.now += MINUTE - 1
    assert not planner.wants_batch()
    clock.now += 1
    assert planner.wants_batch()
    assert planner.plan(1).wake["hourly"] == (3,)


def test_a_restart_takes_up_watermark_time_bounds_and_due_groups_from_the_files_of_the_log(tmp_path: Path) -> None:
    first = new(FileBatchLog(tmp_path))
    first.conclude(first.plan(0), {**read(10), **holds("hourly", 3, 25), **holds("daily", 8, 25)})
    first.conclude(first.plan(1), read(30))
    record = new(FileBatchLog(tmp_path)).plan(2)
    assert record.watermarks == {"payments": 30}
    assert bounds(record) == {"hourly": (30, 30, 10), "daily": (10, 30, 10)}
    assert record.wake == {"hourly": (3,), "daily": (8,)}


def test_the_record_is_in_the_log_before_the_batch_runs_and_a_re_run_reads_it() -> None:
    clock, log = ClockByHand(), MemoryBatchLog()
    planned = new(log, clock).plan(0)
    assert log.record(0) == planned
    assert log.outcome(0) is None
    clock.now += 99 * MINUTE
    assert new(log, clock).plan(0) == planned


def test_a_drain_is_the_end_of_time_and_only_done_when_its_batch_is() -> None:
    log = MemoryBatchLog()
    planner = new(log)
    planner.conclude(planner.plan(0), {**read(10), **holds("hourly", 3, 10**15), **holds("daily", 4, None)})
    record = planner.plan(1, drain=True)
    assert record.watermarks == {"payments": END}
    assert bounds(record) == {"hourly": (END, END, BEGINNING), "daily": (BEGINNING, END, BEGINNING)}
    assert record.wake == {"hourly": (3,), "daily": ()}
    assert not planner.drained
    planner.conclude(record, {})
    assert planner.drained
    assert new(log).drained


def test_idle_clocks_stand_still_while_a_batch_overruns() -> None:
    clock = ClockByHand()
    planner = new(clock=clock, strategy=advancing, interval=SECOND)
    planner.conclude(planner.plan(0), read(10 * SECOND))
    record = planner.plan(1)
    clock.now += 10 * MINUTE
    planner.conclude(record, {})
    clock.now += MINUTE - 1
    assert planner.plan(2).watermarks == {"payments": 9 * SECOND}
    clock.now += 1
    assert planner.plan(3).watermarks == {"payments": 10 * SECOND}


def test_a_batch_within_its_interval_counts_as_waiting() -> None:
    clock = ClockByHand()
    planner = new(clock=clock, strategy=advancing, interval=10 * MINUTE)
    planner.conclude(planner.plan(0), read(10 * SECOND))
    record = planner.plan(1)
    clock.now += MINUTE
    planner.conclude(record, {})
    assert planner.plan(2).watermarks == {"payments": 10 * SECOND}


def test_idle_clocks_start_again_with_the_process() -> None:
    clock, log = ClockByHand(), MemoryBatchLog()
    planner = new(log, clock, advancing)
    planner.conclude(planner.plan(0), read(10 * SECOND))
    clock.now += 10 * MINUTE
    again = new(log, clock, advancing)
    clock.now += MINUTE - 1
    assert again.plan(1).watermarks == {"payments": 9 * SECOND}
    clock.now += 1
    assert again.plan(2).watermarks == {"payments": 10 * SECOND}


def test_idle_clocks_stand_still_while_a_source_may_hold_rows_that_were_not_read() -> None:
    clock = ClockByHand()
    topology = Topology({"payments": advancing}, {"hourly": ("source.payments",)}, {"payments": 2})
    planner = Planner(topology, MemoryBatchLog(), clock, interval=10 * MINUTE)

    def run(batch: int, files: int) -> int:
        record = planner.plan(batch)
        planner.conclude(
            record, {"source.payments": {0: {"highest": {"": 10 * SECOND} if batch == 0 else {}, "origins": files}}}
        )
        clock.now += 2 * MINUTE
        return record.watermarks["payments"]

    assert run(0, files=2) == BEGINNING
    assert run(1, files=2) == 9 * SECOND
    assert run(2, files=1) == 9 * SECOND
    assert run(3, files=0) == 10 * SECOND


def test_a_drain_that_crashed_is_one_when_its_batch_has_run_again_and_nothing_comes_behind_it() -> None:
    log = MemoryBatchLog()
    planner = new(log)
    planner.conclude(planner.plan(0), read(10))
    planner.plan(1, drain=True)
    again = new(log)
    assert not again.drained
    again.conclude(again.plan(1), {})
    with pytest.raises(hr.HeadraceError, match="CHECKPOINT_DRAINED"):
        again.plan(2)
    assert new(log).drained


def test_idle_clocks_stand_still_while_a_source_does_not_answer() -> None:
    clock, away = ClockByHand(), {"payments"}
    topology = Topology({"payments": advancing}, {"hourly": ("source.payments",)})
    planner = Planner(topology, MemoryBatchLog(), clock, is_away=away.__contains__)
    planner.conclude(planner.plan(0), {**read(10 * SECOND), **holds("hourly", 3, 10 * SECOND)})
    for _ in range(3):
        clock.now += MINUTE
        assert not planner.wants_batch()
    away.clear()
    clock.now += MINUTE - 1
    assert planner.plan(1).watermarks == {"payments": 9 * SECOND}
    clock.now += 1
    assert planner.plan(2).watermarks == {"payments": 10 * SECOND}


def test_a_partition_that_is_new_has_not_been_quiet_before_it_was_there() -> None:
    clock = ClockByHand()
    topology = Topology({"payments": hr.event_time("at")}, {}, divided=frozenset({"payments"}))
    planner = Planner(topology, MemoryBatchLog(), clock)
    seen = {"source.payments": {0: {"highest": {"t/0": 50}}}}
    planner.conclude(planner.plan(0, partitions={"payments": ["t/0"]}), seen)
    clock.now += 10 * MINUTE
    planner.conclude(
        planner.plan(1, partitions={"payments": ["t/0", "t/1"]}), {"source.payments": {0: {"highest": {"t/0": 90}}}}
    )
    clock.now += SECOND
    assert planner.plan(2).watermarks == {"payments": BEGINNING}
