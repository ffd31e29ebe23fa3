"""Steps without state: what becomes of a task's rows is counters, and rows that were gathered are in order again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from headrace.event_time.record import BatchRecord
from headrace.nodes import NodeId
from headrace.reports import StepReport
from headrace.wheel.codec import encode
from headrace.wheel.side_rows import read_rows
from headrace.wheel.spark import rows_in_order
from headrace.wheel.stateless import Passed, Stateless, pass_rows
from headrace.wheel.task import Task
from tests.tasks import state_in_memory


@dataclass(frozen=True)
class Halving:
    """Hands on even numbers, cannot use those below zero, and drops the others."""

    name: str = "halving"
    gathered_by: tuple[str, ...] = ()

    @property
    def output_schema(self) -> dict[str, pl.DataType]:
        """The number and its half."""
        return {"n": pl.Int64(), "half": pl.Int64()}

    def passed(self, frames: Iterable[pl.DataFrame], task: Task) -> Iterator[Passed]:
        """Frame by frame."""
        for rows in frames:
            failed, taken = rows.filter(pl.col("n") < 0), rows.filter(pl.col("n") >= 0)
            even = taken.filter(pl.col("n") % 2 == 0).with_columns(half=pl.col("n") // 2)
            letters = failed.select(reason=pl.lit("BELOW_ZERO"), detail=pl.lit(""), row=pl.col("n").cast(pl.String))
            yield Passed(even, even.height, letters, taken.height - even.height, {"frames": 1})

    def close(self) -> None:
        """Nothing is kept."""


def task(folder: Path, said: dict[Any, Any]) -> Task:
    return Task(BatchRecord(3, 0, {}, {}, {}, False), "flow", 2, said.__setitem__, state_in_memory())


def test_rows_are_handed_on_and_every_one_that_is_not_is_counted(tmp_path: Path) -> None:
    said: dict[Any, StepReport] = {}
    frames = [pl.DataFrame({"n": [1, 2, -3]}), pl.DataFrame({"n": [4]}), pl.DataFrame({"n": [5]})]
    assert isinstance(Halving(), Stateless)
    given = task(tmp_path, said)
    made = list(pass_rows(frames, Halving(), given))
    assert [frame.rows() for frame in made] == [[(2, 1)], [(4, 2)]]
    report = said["flow", 3, NodeId("step", "halving"), 2]
    counts = (report.in_, report.accepted, report.failed, report.dropped, report.late)
    assert counts == (5, 2, 1, 2, 0)
    assert report.counters == {"frames": 3}
    ((file, count),) = report.side["dead_letters"]
    assert count == 1
    letter = read_rows(given.state.storage, file).row(0, named=True)
    assert (letter["source"], letter["reason"], letter["raw"]) == ("halving", "BELOW_ZERO", b"-3")


def test_a_task_without_rows_reports_too(tmp_path: Path) -> None:
    said: dict[Any, StepReport] = {}
    assert list(pass_rows([], Halving(), task(tmp_path, said))) == []
    assert said["flow", 3, NodeId("step", "halving"), 2].in_ == 0


def test_gathered_rows_are_in_the_order_of_their_tasks_and_of_their_places_there() -> None:
    def blob(*rows: tuple[int, str]) -> bytes:
        return encode(pl.DataFrame(rows, schema={"__position": pl.UInt32, "x": pl.String}, orient="row"))

    given = [(1, blob((1, "d"), (4, "f"))), (0, blob((7, "c"))), (1, blob((2, "e"))), (0, blob((0, "a"), (6, "b")))]
    columns = {"slot": [0] * 4, "origin": [origin for origin, _ in given], "blob": [each for _, each in given]}
    batches = pa.Table.from_pydict(columns).to_batches(max_chunksize=3)
    (rows,) = rows_in_order(iter(batches))
    assert rows.columns == ["x"]
    assert rows["x"].to_list() == list("abcdef")
    assert list(rows_in_order(iter([]))) == []
