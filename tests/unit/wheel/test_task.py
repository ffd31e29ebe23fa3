"""What a task knows of its batch, and what it says about it."""

from __future__ import annotations

import threading

import pytest

from headrace.errors import HeadraceError
from headrace.event_time.record import BatchRecord, TimeBounds
from headrace.nodes import NodeId
from headrace.reports import KeyGroupState, Report, ReportKey, SourceReport, StateReport, StepReport
from headrace.wheel.task import ReportsByKey, Task, _read_property, current_task, property_text, take_reports

TENS = NodeId("step", "tens")
RECORD = BatchRecord(4, 99, {"payments": 5}, {"tens": TimeBounds(3, 5)}, {"tens": (1, 2)}, False)


def test_the_property_hands_over_the_whole_record() -> None:
    text = property_text(RECORD, flow="spend", side_folder="in/side")
    assert _read_property(text) == (RECORD, "spend", "in/side")


def test_outside_a_batch_there_is_no_time_and_no_default() -> None:
    with pytest.raises(HeadraceError, match=r"\[BATCH_UNKNOWN\]"):
        current_task(None)  # type: ignore[arg-type]


def test_a_step_without_time_bounds_in_the_record_has_no_time() -> None:
    task = Task(RECORD, "spend", "side", 0, 0, lambda key, values: None)
    assert task.time_bounds("tens") == TimeBounds(3, 5)
    with pytest.raises(KeyError):
        task.time_bounds("another")


def test_a_task_that_runs_again_replaces_what_it_said() -> None:
    said: dict[ReportKey, Report] = {}
    for attempt, count in ((0, 7), (1, 5)):
        task = Task(RECORD, "spend", "side", 2, attempt, lambda key, values: said.update({key: values}))
        task.report(TENS, StepReport(in_=count))
        task.report(NodeId("state", "tens"), StateReport(KeyGroupState(rows=count)), part=33)
    assert said == {
        ("spend", 4, TENS, 2): StepReport(in_=5),
        ("spend", 4, NodeId("state", "tens"), 33): StateReport(KeyGroupState(rows=5)),
    }


def test_reports_are_merged_by_replacing() -> None:
    first, second = StepReport(in_=1), StepReport(in_=2)
    merged = ReportsByKey().addInPlace(
        {("a", 0, TENS, 0): first}, {("a", 0, TENS, 0): first, ("a", 1, TENS, 0): second}
    )
    assert merged == {("a", 0, TENS, 0): first, ("a", 1, TENS, 0): second}


def test_a_batch_takes_its_own_reports_and_clears_those_of_older_ones() -> None:
    reports: dict[ReportKey, Report] = {
        ("spend", 3, TENS, 0): StepReport(in_=1),
        ("spend", 4, TENS, 0): StepReport(in_=2),
        ("spend", 4, TENS, 1): StepReport(in_=3),
        ("spend", 5, TENS, 0): StepReport(in_=4),
        ("other", 4, TENS, 0): StepReport(in_=5),
    }
    taken = take_reports(reports, flow="spend", batch=4)
    assert taken.inputs == {TENS: {0: StepReport(in_=2), 1: StepReport(in_=3)}}
    assert list(reports) == [("spend", 5, TENS, 0), ("other", 4, TENS, 0)]


def test_reports_have_one_order_whichever_task_ends_first() -> None:
    reports: dict[ReportKey, Report] = {
        ("flow", 1, NodeId("source", node), part): SourceReport() for node, part in (("b", 1), ("a", 2), ("b", 0))
    }
    taken = take_reports(reports, flow="flow", batch=1)
    assert [(name, list(parts)) for name, parts in taken.sources.items()] == [("a", [2]), ("b", [0, 1])]


def test_reports_are_taken_while_others_come() -> None:
    reports: dict[ReportKey, Report] = {}
    node = NodeId("source", "node")
    stop = threading.Event()

    def report() -> None:
        batch = 0
        while not stop.is_set():
            batch += 1
            reports.update({("other", batch, node, part): SourceReport() for part in range(20)})
            take_reports(reports, flow="other", batch=batch - 50)

    other = threading.Thread(target=report)
    other.start()
    try:
        for batch in range(2_000):
            reports["mine", batch, node, 0] = SourceReport(read=batch)
            assert take_reports(reports, flow="mine", batch=batch).of_source("node") == (SourceReport(read=batch),)
    finally:
        stop.set()
        other.join()
