"""Time as the planner decides it: time_bounds, wake-ups, idle clocks, drains and restarts."""

from __future__ import annotations

from collections.abc import Container, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.checkpoint.storage import LocalStorage, MemoryStorage, Storage
from headrace.event_time.record import BatchLog, BatchRecord, SourceRead
from headrace.event_time.strategy import BEGINNING, END, TimeStrategy
from headrace.event_time.time_keeper import TimeKeeper, Topology, rescaled
from headrace.nodes import NodeId
from headrace.reports import BatchReports, SlotSummary, SourceReport, StateReport
from headrace.runtime.planner import Planner, Writing
from headrace.state.group_range import GroupRange
from headrace.state.segment import SegmentRange

SECOND = 1_000_000
MINUTE = 60 * SECOND
SLOTS = 9
PAYMENTS, LEFT, RIGHT = (NodeId("source", name) for name in ("payments", "left", "right"))
advancing = hr.event_time("at", when_all_idle="advance", out_of_order="1 second")


class ClockByHand:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1_000 * MINUTE

    def __call__(self) -> int:
        return self.now


def read(*highest: int | None, source: str = "payments") -> BatchReports:
    """What the tasks of a source report, each with the highest time it has seen."""
    reports = BatchReports()
    for task, time in enumerate(highest):
        reports.add(NodeId("source", source), task, SourceReport(highest={} if time is None else {"": time}))
    return reports


def holds(step: str, slot: int, due: int | None) -> BatchReports:
    """What the slots of a step report when something is due in one of them."""
    reports = BatchReports()
    for each in range(SLOTS):
        reports.add(NodeId("state", step), each, StateReport(SlotSummary(due=due if each == slot else None)))
    return reports


def merged(*given: BatchReports) -> BatchReports:
    reports = BatchReports()
    for each in given:
        for node, parts in each.nodes():
            for part, report in parts.items():
                reports.add(node, part, report)
    return reports


def planner_of(
    topology: Topology,
    clock: ClockByHand,
    *,
    storage: Storage | None = None,
    interval: int = 0,
    away: Container[str] = (),
) -> Planner:
    time = TimeKeeper(topology, clock, interval=interval, is_away=away.__contains__)
    log = BatchLog(storage or MemoryStorage())
    log.take_over()
    return Planner(time, log, writing=Writing(slots=SLOTS))


def new(
    storage: Storage | None = None,
    clock: ClockByHand | None = None,
    strategy: TimeStrategy | None = None,
    interval: int = 0,
) -> Planner:
    topology = Topology(
        {"payments": strategy or hr.event_time("at")}, {"hourly": (PAYMENTS,), "daily": (NodeId("step", "hourly"),)}
    )
    return planner_of(topology, clock or ClockByHand(), storage=storage, interval=interval)


def decided(planner: Planner) -> BatchRecord:
    """What would be decided for the next batch now."""
    planner.time.pass_time()
    return planner.time.decide(1, drain=False)


def bounds(record: BatchRecord) -> dict[str, tuple[int, int, int]]:
    return {step: (each.late, each.fire, each.before) for step, each in record.time_bounds.items()}


def test_a_slot_is_woken_by_the_clock_when_what_is_due_in_it_is_due_by_the_clock() -> None:
    clock = ClockByHand()
    planner = new(clock=clock)
    planner.conclude(planner.plan(), read(10))
    held = {slot: SlotSummary(due_clock=clock.now + 10 if slot == 5 else None) for slot in range(SLOTS)}
    planner.time.slots["hourly"] = held
    assert not planner.time.wants_batch()
    clock.now += 10
    assert planner.time.wants_batch()
    record = planner.plan()
    assert record.wake["hourly"] == (5,)
    assert record.time_bounds["hourly"].clock == clock.now
    assert record.time_bounds["hourly"].clock_before == clock.now - 10


def test_a_steps_late_bound_is_what_the_step_before_it_fired_up_to_in_the_batch_before() -> None:
    planner = new()
    planner.conclude(planner.plan(), read(10))
    second = planner.plan()
    assert bounds(second) == {"hourly": (10, 10, BEGINNING), "daily": (BEGINNING, 10, BEGINNING)}
    planner.conclude(second, read(30))
    assert bounds(planner.plan()) == {"hourly": (30, 30, 10), "daily": (10, 30, 10)}


def test_the_lowest_of_several_inputs_decides() -> None:
    time = hr.event_time("at")
    both = Topology({"left": time, "right": time}, {"joined": (LEFT, RIGHT)})
    planner = planner_of(both, ClockByHand())
    planner.conclude(planner.plan(), both_read(30, 20))
    assert bounds(planner.plan()) == {"joined": (20, 20, BEGINNING)}


def two_sided(clock: ClockByHand, **after: tuple[NodeId, ...]) -> Planner:
    """A join of two sources that are idle after ten microseconds, before a step that reads it."""
    time = hr.event_time("at", idle="10 microseconds")
    steps = {"joined": (LEFT, RIGHT), **after}
    topology = Topology({"left": time, "right": time}, steps, holdbacks={"joined": 5})
    return planner_of(topology, clock, interval=1_000)


def both_read(left: int | None, right: int | None) -> BatchReports:
    return merged(read(left, source="left"), read(right, source="right"))


def test_an_idle_input_does_not_hold_up_the_other_and_does_not_bring_time_back_when_it_wakes() -> None:
    clock = ClockByHand()
    planner = two_sided(clock)
    planner.conclude(planner.plan(), both_read(30, 20))
    clock.now += 6
    planner.conclude(planner.plan(), both_read(40, None))
    clock.now += 6
    third = planner.plan()
    assert third.watermarks == {"left": 40, "right": 20}
    assert bounds(third) == {"joined": (40, 40, 20)}
    planner.conclude(third, both_read(50, 25))
    fourth = planner.plan()
    assert fourth.watermarks == {"left": 50, "right": 25}
    assert bounds(fourth) == {"joined": (40, 40, 40)}


def test_an_input_that_never_brought_a_row_holds_up_the_other_until_it_is_idle() -> None:
    clock = ClockByHand()
    planner = two_sided(clock)
    planner.conclude(planner.plan(), both_read(30, None))
    assert bounds(planner.plan()) == {"joined": (BEGINNING, BEGINNING, BEGINNING)}
    planner.conclude(planner.plan(), both_read(40, None))
    clock.now += 9
    assert bounds(planner.plan()) == {"joined": (BEGINNING, BEGINNING, BEGINNING)}
    planner.conclude(planner.plan(), both_read(50, None))
    clock.now += 1
    assert bounds(planner.plan()) == {"joined": (50, 50, BEGINNING)}


def test_when_both_inputs_are_idle_the_slower_decides_as_before() -> None:
    clock = ClockByHand()
    planner = two_sided(clock)
    planner.conclude(planner.plan(), both_read(30, 20))
    planner.conclude(planner.plan(), both_read(40, None))
    clock.now += 100
    assert bounds(planner.plan()) == {"joined": (20, 20, 20)}


def test_the_step_behind_one_that_holds_rows_back_is_as_far_behind() -> None:
    clock = ClockByHand()
    planner = two_sided(clock, hourly=(NodeId("step", "joined"),))
    planner.conclude(planner.plan(), both_read(30, 20))
    second = planner.plan()
    assert bounds(second) == {"joined": (20, 20, BEGINNING), "hourly": (BEGINNING, 15, BEGINNING)}
    planner.conclude(second, both_read(40, 40))
    assert bounds(planner.plan()) == {"joined": (40, 40, 20), "hourly": (15, 35, 15)}
    planner.conclude(planner.plan(), both_read(40, 40))
    drained = planner.plan(drain=True)
    assert bounds(drained) == {"joined": (40, END, 40), "hourly": (35, END, 35)}


def test_the_highest_time_of_all_tasks_counts() -> None:
    planner = new()
    planner.conclude(planner.plan(), read(30, 10, None))
    assert planner.plan().watermarks == {"payments": 30}


def test_a_slot_is_woken_exactly_when_the_watermark_reaches_what_is_due_in_it() -> None:
    planner = new()
    due = {3: 10, 4: 11}
    planner.time.slots["hourly"] = {slot: SlotSummary(due=due.get(slot)) for slot in range(SLOTS)}
    planner.conclude(planner.plan(), read(10))
    assert planner.plan().wake == {"hourly": (3,), "daily": ()}


def test_a_flow_wants_a_batch_only_while_something_is_due() -> None:
    planner = new()
    assert not planner.time.wants_batch()
    planner.conclude(planner.plan(), merged(read(10), holds("hourly", 3, 11)))
    assert not planner.time.wants_batch()
    planner.conclude(planner.plan(), read(11))
    assert planner.time.wants_batch()
    planner.conclude(planner.plan(), holds("hourly", 3, None))
    assert not planner.time.wants_batch()


def test_a_flow_wants_a_batch_once_idleness_makes_something_due() -> None:
    clock = ClockByHand()
    planner = new(clock=clock, strategy=advancing)
    planner.conclude(planner.plan(), merged(read(5 * SECOND), holds("hourly", 3, 5 * SECOND)))
    clock.now += MINUTE - 1
    assert not planner.time.wants_batch()
    clock.now += 1
    assert planner.time.wants_batch()
    assert planner.plan().wake["hourly"] == (3,)


def test_a_restart_takes_up_watermark_time_bounds_and_due_slots_from_the_files_of_the_log(tmp_path: Path) -> None:
    first = new(LocalStorage(tmp_path))
    first.conclude(first.plan(), merged(read(10), holds("hourly", 3, 25), holds("daily", 8, 25)))
    first.conclude(first.plan(), read(30))
    record = new(LocalStorage(tmp_path)).plan()
    assert record.watermarks == {"payments": 30}
    assert bounds(record) == {"hourly": (30, 30, 10), "daily": (10, 30, 10)}
    assert record.wake == {"hourly": (3,), "daily": (8,)}


def test_the_record_is_in_the_log_before_the_batch_runs_and_a_re_run_reads_it() -> None:
    clock, storage = ClockByHand(), MemoryStorage()
    planned = new(storage, clock).plan()
    assert (BatchLog(storage).record, BatchLog(storage).outcome) == (planned, None)
    clock.now += 99 * MINUTE
    assert new(storage, clock).plan() == planned


def test_a_drain_is_the_end_of_time_and_only_done_when_its_batch_is() -> None:
    storage = MemoryStorage()
    planner = new(storage)
    planner.conclude(planner.plan(), merged(read(10), holds("hourly", 3, 10**15), holds("daily", 4, None)))
    record = planner.plan(drain=True)
    assert record.watermarks == {"payments": END}
    assert bounds(record) == {"hourly": (10, END, BEGINNING), "daily": (BEGINNING, END, BEGINNING)}
    assert record.wake == {"hourly": (3,), "daily": ()}
    assert not planner.last.drained
    planner.conclude(record, BatchReports())
    assert planner.last.drained
    assert new(storage).last.drained


def test_idle_clocks_stand_still_while_a_batch_overruns() -> None:
    clock = ClockByHand()
    planner = new(clock=clock, strategy=advancing, interval=SECOND)
    planner.conclude(planner.plan(), read(10 * SECOND))
    record = planner.plan()
    clock.now += 10 * MINUTE
    planner.conclude(record, BatchReports())
    clock.now += MINUTE - 1
    assert decided(planner).watermarks == {"payments": 9 * SECOND}
    clock.now += 1
    assert decided(planner).watermarks == {"payments": 10 * SECOND}


def test_a_batch_within_its_interval_counts_as_waiting() -> None:
    clock = ClockByHand()
    planner = new(clock=clock, strategy=advancing, interval=10 * MINUTE)
    planner.conclude(planner.plan(), read(10 * SECOND))
    record = planner.plan()
    clock.now += MINUTE
    planner.conclude(record, BatchReports())
    assert planner.plan().watermarks == {"payments": 10 * SECOND}


def test_idle_clocks_start_again_with_the_process() -> None:
    clock, storage = ClockByHand(), MemoryStorage()
    planner = new(storage, clock, advancing)
    planner.conclude(planner.plan(), read(10 * SECOND))
    clock.now += 10 * MINUTE
    again = new(storage, clock, advancing)
    clock.now += MINUTE - 1
    assert decided(again).watermarks == {"payments": 9 * SECOND}
    clock.now += 1
    assert decided(again).watermarks == {"payments": 10 * SECOND}


def test_idle_clocks_stand_still_while_a_source_may_hold_rows_that_were_not_read() -> None:
    clock = ClockByHand()
    topology = Topology({"payments": advancing}, {"hourly": (PAYMENTS,)})
    planner = planner_of(topology, clock, interval=10 * MINUTE)

    def run(unread: int) -> int:
        record = planner.plan(reads={"payments": SourceRead(0, 1, {"": unread})})
        reports = BatchReports()
        highest = {"": 10 * SECOND} if record.batch == 0 else {}
        reports.add(PAYMENTS, 0, SourceReport(highest=highest))
        planner.conclude(record, reports)
        clock.now += 2 * MINUTE
        return record.watermarks["payments"]

    assert run(unread=2) == BEGINNING
    assert run(unread=1) == 9 * SECOND
    assert run(unread=0) == 9 * SECOND
    assert run(unread=0) == 10 * SECOND


def test_a_drain_that_crashed_is_one_when_its_batch_has_run_again_and_nothing_comes_behind_it() -> None:
    storage = MemoryStorage()
    planner = new(storage)
    planner.conclude(planner.plan(), read(10))
    planner.plan(drain=True)
    again = new(storage)
    assert not again.last.drained
    again.conclude(again.plan(), BatchReports())
    with pytest.raises(hr.HeadraceError, match="CHECKPOINT_DRAINED"):
        again.plan()
    assert new(storage).last.drained


def test_idle_clocks_stand_still_while_a_source_does_not_answer() -> None:
    clock, away = ClockByHand(), {"payments"}
    topology = Topology({"payments": advancing}, {"hourly": (PAYMENTS,)})
    planner = planner_of(topology, clock, away=away)
    planner.conclude(planner.plan(), merged(read(10 * SECOND), holds("hourly", 3, 10 * SECOND)))
    for _ in range(3):
        clock.now += MINUTE
        assert not planner.time.wants_batch()
    away.clear()
    clock.now += MINUTE - 1
    assert decided(planner).watermarks == {"payments": 9 * SECOND}
    clock.now += 1
    assert decided(planner).watermarks == {"payments": 10 * SECOND}


def test_a_partition_that_is_new_has_not_been_quiet_before_it_was_there() -> None:
    clock = ClockByHand()
    topology = Topology({"payments": hr.event_time("at")}, {}, divided=frozenset({"payments"}))
    planner = planner_of(topology, clock)
    first, second = BatchReports(), BatchReports()
    first.add(PAYMENTS, 0, SourceReport(highest={"t/0": 50}))
    second.add(PAYMENTS, 0, SourceReport(highest={"t/0": 90}))
    planner.conclude(planner.plan(reads={"payments": SourceRead(0, 1, partitions=("t/0",))}), first)
    clock.now += 10 * MINUTE
    planner.conclude(planner.plan(reads={"payments": SourceRead(1, 2, partitions=("t/0", "t/1"))}), second)
    clock.now += SECOND
    assert planner.plan().watermarks == {"payments": BEGINNING}


def test_a_batch_knows_the_clock_of_the_one_before_it_also_after_a_restart() -> None:
    clock, storage = ClockByHand(), MemoryStorage()
    planner = new(storage, clock)
    first = planner.plan()
    assert first.time_bounds["hourly"].clock_before == BEGINNING
    planner.conclude(first, BatchReports())
    clock.now += MINUTE
    for each in (planner, new(storage, clock)):
        each.time.pass_time()
        time = each.time.decide(1, drain=False).time_bounds["hourly"]
        assert (time.clock_before, time.clock) == (first.clock, first.clock + MINUTE)


KEY_GROUPS = 16
TIMES = st.none() | st.integers(0, 9)


def of_slot(slot: int, slots: int) -> GroupRange:
    return GroupRange.of_slot(slot, slots=slots, key_groups=KEY_GROUPS)


def written(file: str, groups: GroupRange, run: int = 0) -> SegmentRange:
    return SegmentRange(file, groups, 10, 100, 7, level=0, run=run, due=(5, 9))


@st.composite
def states(draw: st.DrawFn) -> dict[int, SlotSummary]:
    """A step's slots, of which some were never called."""
    count = draw(st.integers(1, 6))
    held = {}
    for slot in draw(st.sets(st.integers(0, count - 1), min_size=1)):
        runs = range(draw(st.integers(0, 2)))
        segments = tuple(written(f"{slot}-{run}", of_slot(slot, count), run) for run in runs)
        shared = (written("shared", GroupRange(0, KEY_GROUPS, KEY_GROUPS)),) if slot == 0 else ()
        held[slot] = SlotSummary(segments, shared, draw(TIMES), draw(TIMES), draw(st.integers(-3, 9)))
    return held


def places(held: Mapping[int, SlotSummary]) -> list[tuple[str, int]]:
    """Each key group of each segment, once for every slot that has it."""
    segments = [segment for each in held.values() for segment in each.segments]
    return sorted((each.file, group) for each in segments for group in range(each.groups.first, each.groups.end))


@given(states(), st.integers(1, 6))
def test_another_number_of_slots_holds_the_same_segments_and_shared_rows(
    held: dict[int, SlotSummary], slots: int
) -> None:
    made = rescaled(held, [of_slot(slot, slots) for slot in range(slots)])
    assert list(made) == list(range(slots))
    assert places(made) == places(held)
    for slot, each in made.items():
        assert all(not segment.groups.without(of_slot(slot, slots)) for segment in each.segments)
        assert each.shared == (() if slot else held[0].shared if 0 in held else ())


@given(states(), st.integers(1, 6))
def test_another_number_of_slots_loses_no_row_that_waits_and_nothing_that_is_due(
    held: dict[int, SlotSummary], slots: int
) -> None:
    made = rescaled(held, [of_slot(slot, slots) for slot in range(slots)])
    assert sum(each.waiting for each in made.values()) == sum(each.waiting for each in held.values())
    due = min((each.due for each in held.values() if each.due is not None), default=None)
    due_clock = min((each.due_clock for each in held.values() if each.due_clock is not None), default=None)
    assert {(each.due, each.due_clock) for each in made.values()} == {(due, due_clock)}


def test_what_was_due_in_one_of_many_slots_wakes_each_of_a_few_once() -> None:
    planner = new()
    planner.conclude(planner.plan(), merged(read(10), holds("hourly", 3, 10)))
    time = planner.time
    time.divide(2, KEY_GROUPS)
    record = time.decide(1, drain=False)
    assert record.wake == {"hourly": (0, 1), "daily": ()}
    reports = BatchReports()
    for slot in range(2):
        reports.add(NodeId("state", "hourly"), slot, StateReport(SlotSummary()))
    time.observe(record, reports)
    assert not time.wants_batch()


def test_state_in_the_number_of_slots_that_a_batch_has_is_left_as_it_is() -> None:
    time = new().time
    held = {slot: SlotSummary((written("a", of_slot(slot, 4)),), due=slot, waiting=slot) for slot in range(4)}
    time.slots["hourly"] = held
    time.divide(4, KEY_GROUPS)
    assert time.slots == {"hourly": held, "daily": {}}


@given(states(), st.integers(1, 6))
def test_after_any_division_every_slot_has_the_segments_of_its_key_groups_whichever_slots_were_called(
    held: dict[int, SlotSummary], slots: int
) -> None:
    time = new().time
    time.slots["hourly"] = dict(held)
    time.divide(slots, KEY_GROUPS)
    made = time.slots["hourly"]
    assert places(made) == places(held)
    assert all(each.lies_within(of_slot(slot, slots)) for slot, each in made.items())


def test_a_slot_that_was_never_called_does_not_hide_that_there_are_fewer_slots_now() -> None:
    time = new().time
    time.slots["hourly"] = {slot: SlotSummary((written("a", of_slot(slot, 3)),)) for slot in (0, 1)}
    time.divide(2, KEY_GROUPS)
    assert all(each.lies_within(of_slot(slot, 2)) for slot, each in time.slots["hourly"].items())
