"""What a task knows of its batch, and what it says about it."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from headrace.checkpoint.storage import MemoryStorage
from headrace.checkpoint.sweep import FileName
from headrace.errors import HeadraceError
from headrace.event_time.record import BatchRecord, TimeBounds
from headrace.nodes import NodeId
from headrace.reports import Report, ReportKey, SlotSummary, SourceReport, StateReport, StepReport
from headrace.state.group_range import GroupRange
from headrace.state.segment import HASH, WORKER, SegmentRange
from headrace.wheel.task import ReportsByKey, Task, _read_property, current_task, property_text, take_reports
from tests.tasks import state_in_memory

TENS = NodeId("step", "tens")
RECORD = BatchRecord(4, 99, {"payments": 5}, {"tens": TimeBounds(3, 5)}, {"tens": (1, 2)}, False, slots=5)


HELD = {"tens": {3: SlotSummary((SegmentRange("a.arrow", GroupRange(76, 102, 128), 9, 99, 7, 0, 3),), (), 60, None, 2)}}

SPLITS = {"payments": [[["t", 0, 3, 7]], []]}


def test_the_property_hands_over_the_whole_record_and_what_every_slot_holds(tmp_path: Path) -> None:
    text = property_text(RECORD, flow="spend", folder=str(tmp_path), key_groups=128, epoch=6, slots=HELD, splits=SPLITS)
    record, flow, state, splits, runs_again = _read_property(text)
    assert (record, flow, splits, runs_again) == (RECORD, "spend", SPLITS, False)
    assert (state.key_groups, state.epoch, state.slots) == (128, 6, HELD)
    # The segments lie beside the side rows, and stay open in the worker from batch to batch.
    (tmp_path / "a.arrow").write_bytes(b"segment")
    assert state.storage.open("a.arrow").to_pybytes() == b"segment"
    assert state.opened is WORKER


def test_every_hash_is_in_one_slot() -> None:
    task = Task(RECORD, "spend", 0, lambda *_: None, state_in_memory())
    hashes = np.random.default_rng(7).integers(0, 2**64, 1_000, dtype=np.uint64)
    held = np.array([task.groups(slot).holds(hashes) for slot in range(5)])
    assert (held.sum(axis=0) == 1).all()
    assert held.any(axis=1).all()
    assert task.all_groups.holds(hashes).all()


def test_a_slot_that_was_never_called_holds_nothing() -> None:
    task = Task(RECORD, "spend", 0, lambda *_: None, state_in_memory(HELD))
    assert task.slot("tens", 3) == HELD["tens"][3]
    assert task.slot("tens", 0) == task.slot("another", 3) == SlotSummary()


def test_a_segment_is_named_for_who_wrote_it_and_never_twice() -> None:
    storage = MemoryStorage()
    task = Task(RECORD, "spend", 0, lambda *_: None, state_in_memory(storage=storage))
    rows = pl.DataFrame({HASH: [1, 2]}, schema={HASH: pl.UInt64()})
    names = {task.segment_files("tens", 3).write(rows, task.groups(3), level=0, run=4).file for _ in range(3)}
    assert set(storage.list("state/tens")) == names
    assert len(names) == 3
    assert {(name.epoch, name.batch, name.slot) for name in map(FileName.parse, names)} == {(1, 4, 3)}


def test_outside_a_batch_there_is_no_time_and_no_default() -> None:
    with pytest.raises(HeadraceError, match=r"\[BATCH_UNKNOWN\]"):
        current_task(None)  # type: ignore[arg-type]


def test_a_step_without_time_bounds_in_the_record_has_no_time() -> None:
    task = Task(RECORD, "spend", 0, lambda *_: None, state_in_memory())
    assert task.time_bounds("tens") == TimeBounds(3, 5)
    with pytest.raises(KeyError):
        task.time_bounds("another")


def test_a_task_that_runs_again_replaces_what_it_said() -> None:
    said: dict[ReportKey, Report] = {}
    for count in (7, 5):
        task = Task(RECORD, "spend", 2, said.__setitem__, state_in_memory())
        task.report(TENS, StepReport(in_=count))
        task.report(NodeId("state", "tens"), StateReport(SlotSummary(waiting=count)), part=3)
    assert said == {
        ("spend", 4, TENS, 2): StepReport(in_=5),
        ("spend", 4, NodeId("state", "tens"), 3): StateReport(SlotSummary(waiting=5)),
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
