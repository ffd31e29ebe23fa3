"""Delta tables, exactly once: rows and the batch's mark are one commit of the table's own log."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.changelog import CHANGE
from headrace.connectors.base.sink import BatchIdentity, ChangelogMode, DriverSink, Guarantee, Written
from headrace.connectors.delta.fit import check_fit
from headrace.connectors.delta.log import DeltaLog, table_place
from headrace.connectors.delta.table import DeltaTable, TransactionId
from headrace.errors import DefinitionError
from headrace.keys import key_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True)
class DeltaSink(DriverSink):
    """A Delta table to which batches are appended, or into which they are merged by key."""

    path: str
    upsert_on: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()

    @property
    def guarantee(self) -> Guarantee:
        """A batch is in the table once, whatever crashed."""
        return "exactly_once"

    @property
    def why(self) -> str:
        """How the guarantee is kept."""
        return (
            "each batch is one commit that holds its rows and its number as a transaction identifier; Delta drops or "
            "refuses a second one, of a re-run or of a driver that lost its lease, as long as the table keeps "
            "identifiers (delta.setTransactionRetentionDuration, for ever unless set)"
        )

    def prepare(self, frame: DataFrame) -> None:
        """Before the first batch: Delta is there, and the columns fit the table where there is one."""
        for column in (*self.upsert_on, *self.partition_by):
            if column not in frame.columns:
                raise DefinitionError(
                    "COLUMN_UNKNOWN",
                    f"{self!r} needs column {column!r}, but the rows have {', '.join(frame.columns)}.",
                )
        check_fit(DeltaLog(frame.sparkSession, table_place(self.path)), self._columns(frame), self.partition_by)

    @property
    def changelog_mode(self) -> ChangelogMode:
        """Only a row with a key can be taken back."""
        return "upsert" if self.upsert_on else "append"

    def write(self, frame: DataFrame, batch: BatchIdentity) -> Written:
        """Run the frame once and commit its rows with the batch's mark, unless the table has that already."""
        table = DeltaTable(DeltaLog(frame.sparkSession, table_place(self.path)))
        mark = TransactionId(f"{batch.id}.{batch.output}.{batch.generation}", batch.batch)
        if table.has(mark):
            # The steps before this sink must keep what they learn from the batch, so it runs all the same.
            rows = frame.count()
            return Written(rows, 0, already_marked=rows)
        table.create_if_missing(self._columns(frame), self.partition_by)
        if not self.upsert_on:
            rows = table.append(frame, mark)
            return Written(rows, rows)
        rows, kept = table.upsert(frame, self.upsert_on, mark)
        return Written(rows, kept, superseded=rows - kept)

    def _columns(self, frame: DataFrame) -> StructType:
        """The columns that the table has; what a change does is not kept beside its result."""
        return frame.drop(CHANGE).schema if self.upsert_on else frame.schema

    def __repr__(self) -> str:
        said = [repr(self.path)]
        if self.upsert_on:
            said.append(f"upsert_on={list(self.upsert_on)!r}")
        if self.partition_by:
            said.append(f"partition_by={list(self.partition_by)!r}")
        return f"hr.to_delta({', '.join(said)})"


def to_delta(
    path: str | os.PathLike[str],
    *,
    upsert_on: str | Sequence[str] | None = None,
    partition_by: str | Sequence[str] | None = None,
) -> DeltaSink:
    """Write results to a Delta table, exactly once; a missing table is created, empty batches leave no commit.

    Without ``upsert_on`` rows are appended. With it a row takes the place of the one with its key, and rows whose
    column ``change`` is ``delete`` or ``update_before`` take it out; of several changes of a key in one batch the last
    one counts. ``partition_by`` names the columns of the folders of a table that is created.

    >>> to_delta("tables/spend", upsert_on=["account", "window"])
    hr.to_delta('tables/spend', upsert_on=['account', 'window'])
    """
    key, folders = _names("upsert_on", upsert_on), _names("partition_by", partition_by)
    if CHANGE in (*key, *folders):
        raise DefinitionError(
            "COLUMN_RESERVED", f"to_delta: column {CHANGE!r} says what a row does to its key, so it cannot be a key."
        )
    return DeltaSink(os.fspath(path), key, folders)


def _names(option: str, given: str | Sequence[str] | None) -> tuple[str, ...]:
    names = key_columns(given, argument=option)
    if given is not None and not names:
        raise DefinitionError("COLUMNS_MISSING", f"to_delta: {option}=[] names no column. Name one or leave it out.")
    return names
