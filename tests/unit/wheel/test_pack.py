"""Rows into blobs before the shuffle."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import headrace as hr
from headrace.checkpoint.storage import MemoryStorage
from headrace.event_time.lateness import Lateness
from headrace.event_time.record import BatchRecord, TimeBounds
from headrace.event_time.strategy import BEGINNING
from headrace.key_hash import hashes_of
from headrace.nodes import NodeId
from headrace.reports import ReportKey
from headrace.wheel import pack as module
from headrace.wheel.codec import decode
from headrace.wheel.operator import Joined, Operator
from headrace.wheel.pack import Blob, Input, pack
from headrace.wheel.side_rows import read_rows
from headrace.wheel.task import Task
from tests.tasks import state_in_memory

SLOTS = 8
SCHEMA = {"key": pl.String(), "x": pl.Float64(), "at": pl.Datetime("us", "UTC")}


def operator(late: Lateness | None = None) -> Operator:
    step = hr.tumbling("tens", size="10 microseconds", key="key").agg(n="count(*)", total="sum(x)")
    return step.late(late or hr.side_output()).bind(SCHEMA, "at")


def rows(*given: tuple[str, float, int]) -> pl.DataFrame:
    frame = pl.DataFrame(given, schema={"key": pl.String, "x": pl.Float64, "at": pl.Int64}, orient="row")
    return frame.cast({"at": SCHEMA["at"]})


class Here:
    """A batch whose tasks run here."""

    def __init__(self, folder: Path, bounds: TimeBounds, wake: tuple[int, ...] = ()) -> None:
        self.said: dict[ReportKey, Any] = {}
        self.record = BatchRecord(4, 0, {}, {"tens": bounds}, {"tens": wake}, False, slots=SLOTS)
        self.folder = folder
        self.storage = MemoryStorage()

    def task(self, partition: int = 0) -> Task:
        state = state_in_memory(storage=self.storage)
        return Task(self.record, "spend", partition, self.said.__setitem__, state)


OPEN = TimeBounds(BEGINNING, BEGINNING)


def carried(frames: Iterable[pl.DataFrame], inputs: Sequence[Input], task: Task) -> list[Blob]:
    """The blobs with rows."""
    return [blob for blob in pack(frames, inputs, task) if blob.blob]


def test_every_blob_holds_the_partials_of_one_slot(tmp_path: Path) -> None:
    given = rows(*((f"k{number % 50}", 1.0, number) for number in range(500)))
    task = Here(tmp_path, OPEN).task(partition=5)
    blobs = list(carried([given], [Input(operator())], task))
    assert sorted(blob.slot for blob in blobs) == list(range(SLOTS))
    for blob in blobs:
        partials = decode([blob.blob])
        assert task.groups(blob.slot).holds(hashes_of(partials, ["key"])).all()
        assert dict(partials.schema) == operator().partial_schema
        assert (blob.origin, blob.sequence) == (5, 0)
    assert sum(decode([blob.blob])["n.count"].sum() for blob in blobs) == 500


def test_frames_of_one_task_are_combined_before_they_travel(tmp_path: Path) -> None:
    frames = [rows(*[("a", 1.0, 1)] * 3), rows(), rows(*[("a", 2.0, 2)] * 3)]
    (blob,) = carried(frames, [Input(operator())], Here(tmp_path, OPEN).task())
    assert decode([blob.blob]).select("n.count", "total.sum").rows() == [(6, 9.0)]


def test_frames_of_which_each_brings_other_keys_travel_as_they_are(tmp_path: Path) -> None:
    frames = [rows(("a", 1.0, 1)), rows(("a", 2.0, 2))]
    (blob,) = carried(frames, [Input(operator())], Here(tmp_path, OPEN).task())
    assert decode([blob.blob]).select("n.count", "total.sum").rows() == [(1, 1.0), (1, 2.0)]


def test_too_many_pending_rows_leave_in_several_sequences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PENDING_ROWS", 2)
    frames = [rows(("a", float(number), 10 * number)) for number in range(7)]
    blobs = list(carried(frames, [Input(operator())], Here(tmp_path, OPEN).task()))
    assert [blob.sequence for blob in blobs] == [0, 1, 2]
    assert [decode([blob.blob]).height for blob in blobs] == [3, 3, 1]


def test_the_first_task_tells_which_slots_there_are(tmp_path: Path) -> None:
    here = Here(tmp_path, OPEN)
    expected = [Blob(slot, -1, 0, b"") for slot in range(SLOTS)]
    assert list(pack([], [Input(operator())], here.task(partition=0))) == expected
    assert list(pack([], [Input(operator())], here.task(partition=1))) == []


def test_late_rows_are_written_by_the_task_and_named_in_its_report(tmp_path: Path) -> None:
    here = Here(tmp_path, TimeBounds(20, 20))
    blobs = list(carried([rows(("a", 1.0, 3), ("a", 2.0, 25)), rows(("b", 3.0, 9))], [Input(operator())], here.task(2)))
    assert len(blobs) == 1
    (report,) = here.said.values()
    assert (report.in_, report.accepted, report.late) == (3, 1, 2)
    ((file, count),) = report.side["late"]
    assert list(here.storage.list("side/tens/late")) == [file]
    assert count == 2
    assert sorted(read_rows(here.storage, file)["key"].to_list()) == ["a", "b"]
    assert list(here.said) == [("spend", 4, NodeId("step", "tens"), 2)]


def test_dropped_rows_are_counted_and_not_written(tmp_path: Path) -> None:
    here = Here(tmp_path, TimeBounds(20, 20))
    assert list(carried([rows(("a", 1.0, 3))], [Input(operator(hr.drop()))], here.task())) == []
    (report,) = here.said.values()
    assert (report.in_, report.late, report.side) == (1, 1, {"late": (), "dead_letters": ()})
    assert list(tmp_path.iterdir()) == []


def test_a_task_without_rows_reports_too(tmp_path: Path) -> None:
    here = Here(tmp_path, OPEN)
    assert list(carried([], [Input(operator())], here.task())) == []
    assert [report.in_ for report in here.said.values()] == [0]


class Counts(hr.KeyedProcess):
    """Does nothing."""

    def on_row(self, row: Any, context: Any) -> None:
        """Nothing."""


def test_rows_of_a_broadcast_go_to_every_slot(tmp_path: Path) -> None:
    step = hr.process("tens", Counts, key="key", output="key STRING", rules=hr.rules(key="key")).late(hr.drop())
    operator = step.bind(SCHEMA, "at", SCHEMA, "at")
    assert isinstance(operator, Joined)
    here = Here(tmp_path, OPEN)
    blobs = list(carried([rows(("a", 1.0, 1), ("b", 2.0, 2))], [Input(operator, second=True)], here.task()))
    assert sorted(blob.slot for blob in blobs) == list(range(SLOTS))
    assert all(blob.second and decode([blob.blob]).height == 2 for blob in blobs)
    assert here.said["spend", 4, NodeId("step", "tens", "rules"), 0].accepted == 2


def test_rows_go_to_both_inputs_of_a_step_and_each_tells_of_its_own(tmp_path: Path) -> None:
    step = hr.interval_join("tens", on="key", between=("0 seconds", "1 second")).late(hr.side_output())
    operator = step.bind(SCHEMA, "at", SCHEMA, "at")
    assert isinstance(operator, Joined)
    here = Here(tmp_path, TimeBounds(20, 20))
    frames = [rows(("a", 1.0, 30), ("a", 2.0, 31), ("a", 5.0, 32)), rows(("a", 2.0, 4), ("a", 7.0, 33))]
    left, right = pl.col("x") < 3, pl.col("x").is_between(2, 5)
    inputs = [Input(operator, condition=left), Input(operator, second=True, condition=right)]
    blobs = list(carried(frames, inputs, here.task()))
    held = {blob.second: decode([blob.blob])["x"].to_list() for blob in blobs}
    assert held == {False: [1.0, 2.0], True: [2.0, 5.0]}
    first, second = (here.said["spend", 4, NodeId("step", "tens", name), 0] for name in ("", "right"))
    assert [(each.in_, each.accepted, each.late) for each in (first, second)] == [(3, 2, 1), (3, 2, 1)]
    assert first.side["late"] != second.side["late_right"]


def test_steps_that_are_packed_together_get_their_own_blobs_from_one_pass(tmp_path: Path) -> None:
    here = Here(tmp_path, OPEN)
    passes = iter([rows(("a", 1.0, 3))])
    blobs = list(carried(passes, [Input(operator(), step=0), Input(operator(), step=1)], here.task(0)))
    assert sorted((blob.step, blob.origin) for blob in blobs) == [(0, 0), (1, 0)]
