"""The driver's side of broadcast tables: refreshed from time to time, kept in the versions that a batch may need."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from headrace.checkpoint.storage import Storage, incomplete
from headrace.connectors.base.conversion import fitted
from headrace.errors import HeadraceError
from headrace.event_time.record import BatchRecord
from headrace.observe.history import TableVersion
from headrace.operators.joins.broadcast_join import BroadcastJoin
from headrace.redaction import redacted
from headrace.wheel.side_rows import read_rows
from headrace.wheel.task import TABLES, table_file


@dataclass(slots=True)
class TableState:
    """The state of one step's table."""

    version: int
    """The newest version, 0 when there is none."""
    read_at: int | None = None
    """When it was tried last, by the clock of batches; a new process tries at once."""
    problem: str | None = None
    """Why the last reading failed."""


class BroadcastTables:
    """The tables of those steps of a flow that read one.

    A version is a file that is there before the first batch that names it, and stays while a batch may run again.
    """

    def __init__(self, storage: Storage, steps: Iterable[object]) -> None:
        self.storage = storage
        self.steps = {step.name: step for step in steps if isinstance(step, BroadcastJoin)}
        self._states = {name: TableState(max(self._stored(name), default=0)) for name in self.steps}

    def check(self, record: BatchRecord) -> None:
        """Fail when a version that a batch has read before is not there; before a new one gets its number."""
        for name, version in record.tables.items():
            if version not in self._stored(name):
                raise incomplete(self.storage, f"{table_file(name, version)} is missing")

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
                    self.storage.delete(table_file(name, old))

    def complete(self, record: BatchRecord) -> BatchRecord:
        """A batch's record with the versions it reads; a step added since it was logged reads the newest."""
        if self.steps.keys() <= record.tables.keys():
            return record
        return replace(record, tables={**self.versions(record.clock), **record.tables})

    def read_in(self, record: BatchRecord) -> dict[str, TableVersion]:
        return {name: TableVersion(version, self._states[name].problem) for name, version in record.tables.items()}

    def _stored(self, name: str) -> list[int]:
        return list(self.storage.numbers(f"{TABLES}/{name}", ".arrow"))

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
            said = redacted(str(problem))
            if kept.problem is None:
                warnings.warn(
                    f"step {step.name!r} goes on with version {kept.version} of its table: {said}",
                    RuntimeWarning,
                    stacklevel=2,
                )
            kept.problem = said
            return
        kept.problem = None
        if kept.version:
            stored = read_rows(self.storage, table_file(step.name, kept.version))
            if stored.schema == rows.schema and stored.equals(rows):
                return
        content = io.BytesIO()
        rows.write_ipc(content)
        kept.version += 1
        # A driver that does not know yet that it was replaced must not change what its successor has named.
        while not self.storage.create(table_file(step.name, kept.version), content.getvalue()):
            kept.version += 1
