"""The driver's side of broadcast tables: refreshed from time to time, kept in the versions that a batch may need."""

from __future__ import annotations

import os
import uuid
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import polars as pl

from headrace.connectors.base.conversion import fitted
from headrace.errors import HeadraceError
from headrace.event_time.record import BatchRecord
from headrace.observe.history import TableVersion
from headrace.operators.joins.broadcast_join import BroadcastJoin
from headrace.storage import named_first
from headrace.wheel.task import table_file


@dataclass(slots=True)
class TableState:
    """The state of one step's table."""

    version: int
    """The newest version, 0 when there is none."""
    read_at: int | None = None
    """When it was tried last, by the clock of batches; a new process tries at once."""
    problem: str | None = None
    """Why the last reading failed."""


@dataclass(slots=True)
class BroadcastTables:
    """The tables of a flow's steps.

    A version is a file that is there before the first batch that names it, and stays while a batch may run again.
    """

    folder: Path
    steps: Mapping[str, BroadcastJoin]
    _states: dict[str, TableState] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._states = {name: TableState(max(self._stored(name), default=0)) for name in self.steps}

    def versions(self, clock: int) -> dict[str, int]:
        """The version of each table for a batch at this time; a table is read when it has not been for long enough."""
        for name, step in self.steps.items():
            kept = self._states[name]
            if kept.read_at is None or not 0 <= clock - kept.read_at < step.refresh:
                self._refresh(step, kept)
                kept.read_at = clock
        return {name: kept.version for name, kept in self._states.items()}

    def forget(self, needed: Mapping[str, int]) -> None:
        """Remove versions older than those of a batch that is done: no earlier one runs again."""
        for name, version in needed.items():
            for old in self._stored(name):
                if old < version:
                    table_file(self.folder, name, old).unlink(missing_ok=True)

    def complete(self, record: BatchRecord) -> BatchRecord:
        """A batch's record with the versions it reads; a step added since it was logged reads the newest."""
        if self.steps.keys() <= record.tables.keys():
            return record
        return replace(record, tables={**self.versions(record.clock), **record.tables})

    def read_in(self, record: BatchRecord) -> dict[str, TableVersion]:
        return {name: TableVersion(version, self._states[name].problem) for name, version in record.tables.items()}

    def _stored(self, name: str) -> list[int]:
        return [int(file.stem) for file in (self.folder / name).glob("[!.]*.parquet")]

    def _refresh(self, step: BroadcastJoin, kept: TableState) -> None:
        """Read a table; when that fails the last version stays, and without one nothing can begin."""
        try:
            rows = fitted(step.table.read(), step.table_columns, table=repr(step.table))
        # Whatever a user's table or a database driver raises: rows that come meanwhile need not wait for it.
        except Exception as problem:
            if not kept.version:
                if isinstance(problem, HeadraceError):
                    raise
                raise HeadraceError(
                    "TABLE_UNREADABLE",
                    f"step {step.name!r}: {step.table!r} cannot be read ({type(problem).__name__}: {problem}), and no "
                    "earlier version of it is kept. Make it readable, then start again.",
                ) from problem
            if kept.problem is None:
                warnings.warn(
                    f"step {step.name!r} goes on with version {kept.version} of its table: {problem}",
                    RuntimeWarning,
                    stacklevel=2,
                )
            kept.problem = str(problem)
            return
        kept.problem = None
        if kept.version:
            stored = pl.read_parquet(table_file(self.folder, step.name, kept.version))
            if stored.schema == rows.schema and stored.equals(rows):
                return
        kept.version += 1
        while not _stored_first(table_file(self.folder, step.name, kept.version), rows):
            kept.version += 1


def broadcast_tables(folder: Path, steps: Iterable[object]) -> BroadcastTables:
    """The tables of those steps that read one."""
    return BroadcastTables(folder, {step.name: step for step in steps if isinstance(step, BroadcastJoin)})


def _stored_first(file: Path, rows: pl.DataFrame) -> bool:
    """Write a version that appears whole and stays after a crash of the machine, unless there is one of its number.

    A driver that does not know yet that it was replaced must not change what its successor has named.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_name(f".{uuid.uuid4().hex}")
    rows.write_parquet(unfinished)
    with unfinished.open("rb") as stream:
        os.fsync(stream.fileno())
    return named_first(unfinished, file)
