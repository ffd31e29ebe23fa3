"""What a task does with the rows of any decoder, up to where Spark gets them, and the count of them all."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, cast

import polars as pl
from pyspark.sql.types import StructType

import headrace as hr
from headrace.connectors.base.decoding import DEAD_SCHEMA, POSITION, Decoded
from headrace.connectors.base.source import ROW_POSITION, Gate
from headrace.event_time.record import BatchRecord
from headrace.reports import SourceReport
from headrace.schemas import arrow_batches, parse_ddl, polars_schema, spark_schema
from headrace.wheel.side_rows import DEAD_LETTER_SCHEMA, DEAD_LETTERS, read_rows
from headrace.wheel.task import Task
from tests.reasons import REASONS
from tests.tasks import state_in_memory

CLOCK = 1_800_000_000_000_000
FAILED = "UNDECODABLE"
"""The reason of rows that a decoder has failed on: it should know what is wrong with them."""
_DEAD = spark_schema(DEAD_LETTER_SCHEMA)
_PLACED = parse_ddl(f"{ROW_POSITION} STRING").fields


@dataclass(frozen=True, slots=True)
class Passed:
    """What has become of all rows of a source."""

    handed_on: tuple[int, ...]
    """The positions of the rows that were handed on."""
    dead: tuple[tuple[int, str], ...]
    """Position and reason of the others."""
    skipped: int

    @property
    def reasons(self) -> frozenset[str]:
        return frozenset(reason for _, reason in self.dead)

    def check(self, positions: Collection[int]) -> None:
        """Every row of these positions is handed on or dead, each once."""
        assert FAILED not in self.reasons
        assert sorted([*self.handed_on, *(position for position, _ in self.dead)]) == sorted(positions)

    @property
    def outcome(self) -> tuple[bool, frozenset[str]]:
        return bool(self.handed_on), self.reasons


def passed(chunks: Iterator[Decoded], schema: StructType, *, time: str | None) -> Passed:
    """Rows and dead letters as they leave a task, of a source with this schema and event time."""
    reports: list[SourceReport] = []
    record = BatchRecord(0, CLOCK, {}, {}, {}, drain=False)
    task = Task(record, "flow", 0, lambda _, report: reports.append(cast(SourceReport, report)), state_in_memory())
    strategy = None if time is None else hr.event_time(time, out_of_order="1 minute")
    positions: list[int] = []
    for rows in Gate("rows", cast(Any, None), strategy, adds_position=True).admit(_checked(chunks, schema), task):
        sent = list(arrow_batches(rows, StructType([*schema.fields, *_PLACED])))
        assert sum(batch.num_rows for batch in sent) == rows.height
        positions += [int(place.rpartition(":")[2]) for place in rows[ROW_POSITION]]
    [report] = reports
    letters = [read_rows(task.state.storage, file) for file, _ in report.side[DEAD_LETTERS]]
    dead = pl.concat([pl.DataFrame(schema=DEAD_LETTER_SCHEMA), *letters])
    assert sum(batch.num_rows for batch in arrow_batches(dead, _DEAD)) == dead.height
    assert dead["detail"].null_count() == 0
    assert set(dead["reason"]) <= REASONS
    assert (report.read, report.handed_on, report.dead) == (len(positions) + dead.height, len(positions), dead.height)
    return Passed(tuple(positions), tuple(dead.select("position", "reason").rows()), report.skipped)


def _checked(chunks: Iterator[Decoded], schema: StructType) -> Iterator[Decoded]:
    for chunk in chunks:
        assert chunk.rows.schema == pl.Schema({**polars_schema(schema), POSITION: pl.Int64()})
        assert chunk.dead.schema == pl.Schema(DEAD_SCHEMA)
        # The gate may refuse any of them.
        assert len(chunk.raw(chunk.rows)) == chunk.rows.height
        yield chunk


_FOLDER = Path(mkdtemp(prefix="headrace-fuzz-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))  # noqa: S108


def in_file(data: bytes, read: Callable[[str], Passed]) -> Passed:
    """What becomes of a file with these bytes."""
    file = _FOLDER / "file"
    file.write_bytes(data)
    return read(str(file))
