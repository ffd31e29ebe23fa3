"""Entries of the log as rows of a changelog, in the tasks that need them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from headrace.changelog import CHANGE, POSITION, UNCHANGED
from headrace.connectors.base.decoding import (
    COLUMN_ADDED,
    DEAD_SCHEMA,
    FOUND_CHARACTERS,
    TABLE_TRUNCATED,
    WRONG_TYPE,
    Decoded,
    as_json,
    mismatch,
)
from headrace.connectors.base.decoding import POSITION as ROW
from headrace.connectors.base.gate import Arrived
from headrace.connectors.postgres.changes.alterations import ANEW, SCHEMA_CHANGED
from headrace.connectors.postgres.changes.birth import birth_of
from headrace.connectors.postgres.changes.catalogue import Column
from headrace.connectors.postgres.changes.change_log import (
    COMMITTED,
    KIND,
    PLACE,
    TRANSACTION,
    UNSENT,
    ChangeLog,
    Entry,
    File,
)
from headrace.connectors.postgres.changes.types import is_other
from headrace.connectors.postgres.changes.values import converted, unreadable
from headrace.errors import HeadraceError
from headrace.schemas import MOMENT
from headrace.wheel.task import Task

OnTruncate = Literal["stop", "dead_letter"]
METADATA: Mapping[str, pl.DataType] = {
    CHANGE: pl.String(),
    POSITION: pl.String(),
    COMMITTED: MOMENT,
    TRANSACTION: pl.String(),
    UNCHANGED: pl.List(pl.String()),
}
"""The columns that every table's frame has behind its own."""
CHUNK_ROWS = 100_000


@dataclass(frozen=True, slots=True)
class ChangesReader:
    """Reads the entries that Spark names, for one table."""

    folder: Path
    table: str
    columns: Mapping[str, pl.DataType]
    """The table's own columns, as declared."""
    on_truncate: OnTruncate

    def read(self, raw: pl.DataFrame, task: Task) -> Iterator[Arrived]:
        """The changes in each entry, in order."""
        for first, until in raw.drop_nulls("first").sort("first").select("first", "until").rows():
            birth = birth_of(self.folder)
            assert birth is not None  # a flow reads only what a feed has logged
            log = ChangeLog(self.folder / birth.log)
            then = {column.name: column for column in birth.by_name[self.table].columns}
            for number in range(first, until):
                entry = log.entry(number)
                origin = f"{self.table} entry {number}"
                for decoded in self._decoded(log, entry, then):
                    yield Arrived(decoded, origin, entry.logged_at)

    def _decoded(self, log: ChangeLog, entry: Entry, then: Mapping[str, Column]) -> Iterator[Decoded]:
        # What concerns no single row has a place behind all rows, so that no two dead letters share one.
        first, behind = 0, entry.rows_of(self.table)
        for file in entry.files:
            if file.table != self.table:
                continue
            self._check_columns(file, then)
            yield from self._file(log, file, first)
            first += file.rows
        added = sorted(set(entry.altered.get(self.table, ())) - then.keys())
        if added:
            detail = f"table {self.table} now has a column {', '.join(added)}, which is not read. {ANEW}"
            yield self._note(behind, COLUMN_ADDED, detail)
            behind += 1
        if self.table in entry.truncated:
            yield self._truncated(behind, entry.truncated[self.table])

    def _file(self, log: ChangeLog, file: File, first: int) -> Iterator[Decoded]:
        with pq.ParquetFile(log.data(file)) as parquet:
            for batch in parquet.iter_batches(batch_size=CHUNK_ROWS, use_threads=False):
                yield self._rows(pl.DataFrame(batch), file, first)
                first += batch.num_rows

    def _rows(self, texts: pl.DataFrame, file: File, first: int) -> Decoded:
        places = {column.name: str(number) for number, column in enumerate(file.columns)}
        positions = pl.Series(ROW, np.arange(first, first + texts.height, dtype=np.int64))
        head = texts.select(
            pl.col(KIND).alias(CHANGE),
            pl.col(PLACE).alias(POSITION),
            pl.col(COMMITTED).cast(MOMENT),
            pl.col(TRANSACTION).cast(pl.String),
            self._unchanged(texts[UNSENT]),
        )
        values, details = [], []
        for name, kind in self.columns.items():
            text = texts[places[name]]
            value = converted(text, kind).alias(name)
            wrong = unreadable(text, value)
            if wrong.any():
                said = pl.lit(mismatch(name, kind, "")) + text.str.slice(0, FOUND_CHARACTERS)
                details.append(pl.when(wrong).then(said))
            values.append(value)
        rows = pl.DataFrame(values).hstack(head).with_columns(positions)
        if not details:
            return Decoded(rows, pl.DataFrame(schema=DEAD_SCHEMA))
        problems = rows.select(pl.coalesce(details).alias("detail")).to_series()
        broken = problems.is_not_null()
        raw = texts.rename({place: name for name, place in places.items()}).filter(broken)
        dead = pl.DataFrame(
            {
                "position": positions.filter(broken),
                "reason": [WRONG_TYPE] * raw.height,
                "detail": problems.filter(broken),
                "raw": as_json(raw),
            },
            schema=DEAD_SCHEMA,
        )
        return Decoded(rows.filter(~broken), dead)

    def _unchanged(self, unsent: pl.Series) -> pl.Series:
        """The declared columns among those that were not sent."""
        if unsent.null_count() == unsent.len():
            return unsent.alias(UNCHANGED)
        declared = pl.Series([list(self.columns)], dtype=pl.List(pl.String))
        known = unsent.to_frame().select(pl.col(UNSENT).list.set_intersection(pl.lit(declared)).alias(UNCHANGED))
        return known.select(pl.when(pl.col(UNCHANGED).list.len() > 0).then(UNCHANGED)).to_series()

    def _check_columns(self, file: File, then: Mapping[str, Column]) -> None:
        """An error for columns that are read and gone, or have become others."""
        now = {column.name: column for column in file.columns}
        for name, kind in self.columns.items():
            if name not in now:
                raise HeadraceError(
                    SCHEMA_CHANGED, f"table {self.table}: column {name!r} was removed or renamed. {ANEW}"
                )
            if is_other(now[name], then[name], kind):
                raise HeadraceError(
                    SCHEMA_CHANGED,
                    f"table {self.table}: column {name!r} is no longer {then[name].shown}, for which it was declared. "
                    + ANEW,
                )

    def _truncated(self, place: int, position: str) -> Decoded:
        if self.on_truncate == "stop":
            raise HeadraceError(
                TABLE_TRUNCATED,
                f"table {self.table} was emptied with TRUNCATE at {position}, which says nothing of its single rows, "
                "so what was made from them can no longer be kept right. Start with a new checkpoint, or go on with "
                "on_truncate='dead_letter', which keeps the rows.",
            )
        detail = f"table {self.table} was emptied with TRUNCATE at {position}; rows are kept"
        return self._note(place, TABLE_TRUNCATED, detail)

    def _note(self, place: int, reason: str, detail: str) -> Decoded:
        """One dead letter for something that concerns no single row."""
        row = {"position": [place], "reason": [reason], "detail": [detail], "raw": [b""]}
        empty = pl.DataFrame(schema={**self.columns, **METADATA, ROW: pl.Int64()})
        return Decoded(empty, pl.DataFrame(row, schema=DEAD_SCHEMA))
