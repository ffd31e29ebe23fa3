"""What a task reads of a source, and rows whose time is not to be believed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import polars as pl
import pyarrow as pa
import pytest

import headrace as hr
from headrace.connectors.base.decoding import POSITION, Decoded
from headrace.connectors.base.source import SPLIT_LEAF, SPLIT_TASKS, Gate
from headrace.event_time.record import BatchRecord
from headrace.event_time.tracker import WHOLE
from headrace.schemas import MOMENT
from headrace.wheel.side_rows import read_rows
from headrace.wheel.task import Task
from tests.tasks import state_in_memory


@pytest.mark.parametrize(
    ("micros", "reason", "written"),
    [
        (253_402_300_800_000_000, "EVENT_TIME_IN_FUTURE", "+10000-01-01 00:00:00.000000+00:00"),
        (2**63 - 1, "EVENT_TIME_IN_FUTURE", "9223372036854775807"),
        (-(2**63) + 1, "EVENT_TIME_TOO_OLD", "-9223372036854775807"),
        (-10_000_000, "EVENT_TIME_TOO_OLD", "1969-12-31 23:59:50.000000+00:00"),
    ],
)
def test_a_time_of_any_year_is_refused_row_by_row(tmp_path: Path, micros: int, reason: str, written: str) -> None:
    reports: list[Any] = []
    record = BatchRecord(0, 0, {}, {}, {}, drain=False)
    task = Task(record, "flow", 0, lambda *report: reports.append(report), state_in_memory())
    accepted = hr.valid_times(not_before="1970-01-01T00:00:00Z", max_future="1 hour")
    gate = Gate("rows", cast(Any, None), hr.event_time("at", out_of_order="1 second", accept=accepted))
    rows = pl.DataFrame({"at": [5, micros], POSITION: [0, 1]}).with_columns(pl.col("at").cast(MOMENT))
    (kept,) = gate.admit([Decoded(rows, origin="file")], task)
    assert kept["at"].to_physical().to_list() == [5]
    [(_, report)] = reports
    [(file, _)] = report.side["dead_letters"]
    letter = read_rows(task.state.storage, file).row(0, named=True)
    assert (letter["position"], letter["reason"], letter["detail"]) == (1, reason, f"at = {written}")
    assert json.loads(letter["raw"]) == {"at": written}


@pytest.mark.parametrize(("arrived", "taken"), [(7, [7, 7]), (2**62, [1_000, 1_000]), ([7, 2**62], [7, 1_000])])
def test_what_is_read_has_arrived_whatever_its_file_or_broker_says(arrived: Any, taken: list[int]) -> None:
    reports: list[Any] = []
    record = BatchRecord(0, 1_000, {}, {}, {}, drain=False)
    task = Task(record, "flow", 0, lambda *report: reports.append(report), state_in_memory())
    gate = Gate("rows", cast(Any, None), hr.ingestion_time("arrived"))
    given = arrived if isinstance(arrived, int) else pl.Series(arrived)
    (rows,) = gate.admit([Decoded(pl.DataFrame({"n": [1, 2], POSITION: [0, 1]}), arrived=given)], task)
    assert rows["arrived"].to_physical().to_list() == taken
    [(_, report)] = reports
    assert report.highest == {WHOLE: max(taken)}


class Numbers:
    """Reads what a task is given, numbers, each as two rows."""

    def read(self, given: list[int], task: Task) -> Iterator[Decoded]:
        for first in given:
            yield Decoded(pl.DataFrame({"n": [first, first + 1], POSITION: [0, 1]}), origin=f"part {first}")


def tasks_of(*numbers: int) -> Iterator[pa.RecordBatch]:
    """What Spark hands a task: its number."""
    return iter([pa.RecordBatch.from_pydict({"id": pa.array(numbers, pa.int64())})])


def reading(splits: dict[str, list[list[int]]]) -> tuple[Task, list[Any]]:
    """A task of a batch that reads so, and what it reports."""
    reports: list[Any] = []
    record = BatchRecord(0, 0, {}, {}, {}, drain=False)
    task = Task(record, "flow", 5, lambda *report: reports.append(report), state_in_memory(), splits, stage=7)
    return task, reports


@pytest.mark.parametrize("leaf", [0, 3 * SPLIT_TASKS, SPLIT_LEAF])
def test_a_task_reads_its_own_split_in_whichever_plan_it_runs(leaf: int) -> None:
    gate = Gate("rows", Numbers(), None)
    task, reports = reading({"others": [[40], [50]], "rows": [[10], [20, 30], []]})
    found = [frame["n"].to_list() for frame in gate.read_splits(tasks_of(leaf + 1), task)]
    assert found == [[20, 21], [30, 31]]
    [(key, report)] = reports
    assert (report.read, report.handed_on) == (4, 4)
    # It is known by its number, whichever partition and stage it is in.
    assert (key[3], report.readings) == (1, {(7, 5)})


@pytest.mark.parametrize("splits", [{}, {"rows": []}, {"rows": [[10]]}, {"rows": [[10], []]}])
def test_a_task_without_a_split_reports_that_it_has_read_nothing(splits: dict[str, list[list[int]]]) -> None:
    task, reports = reading(splits)
    assert list(Gate("rows", Numbers(), None).read_splits(tasks_of(SPLIT_LEAF + 1), task)) == []
    [(_, report)] = reports
    assert (report.read, report.handed_on) == (0, 0)


def test_a_row_may_say_where_it_came_from() -> None:
    task, _ = reading({"rows": [[10]]})
    [rows] = Gate("rows", Numbers(), None, adds_position=True).read_splits(tasks_of(0), task)
    assert rows.rows() == [(10, "part 10:0"), (11, "part 10:1")]
