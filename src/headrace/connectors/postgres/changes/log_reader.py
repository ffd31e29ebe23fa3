"""Reads the change log: a batch is a range of entries, which tasks turn into rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from headrace.changelog import CHANGE, COMMITTED_AT, DATABASE_CHANGELOG, POSITION, TRANSACTION, UNCHANGED, OnTruncate
from headrace.checkpoint.storage import incomplete
from headrace.connectors.base.conversion import from_bytes, settle
from headrace.connectors.base.decoding import POSITION as ROW
from headrace.connectors.base.decoding import Columns, Decoded, as_json, decode_apart
from headrace.connectors.base.enumerator import Planned, divided
from headrace.connectors.base.lines import Integers
from headrace.connectors.postgres.changes.catalogue import SCHEMA_CHANGED, START_OVER, SourceColumn
from headrace.connectors.postgres.changes.change_log import HEAD, KIND, PLACE, UNSENT, ChangeLog, LogEntry, LogFile
from headrace.connectors.postgres.changes.landing import open_log
from headrace.connectors.postgres.changes.text_values import parse_values
from headrace.errors import HeadraceError
from headrace.event_time.tracker import WHOLE
from headrace.schemas import MOMENT
from headrace.wheel.task import Task

ROWS_AT_ONCE = 100_000


@dataclass(frozen=True, slots=True)
class LoggedRows:
    """Rows of a file of the log, their values still text."""

    file: LogFile
    frame: pl.DataFrame
    positions: Integers

    def __len__(self) -> int:
        return self.frame.height

    def __getitem__(self, rows: slice) -> LoggedRows:
        return replace(self, frame=self.frame[rows], positions=self.positions[rows])

    @property
    def values(self) -> pl.DataFrame:
        """The table's columns under their names."""
        columns = enumerate(self.file.columns)
        return self.frame.select(pl.col(str(number)).cast(pl.Binary).alias(each.name) for number, each in columns)

    def raw(self) -> list[bytes]:
        values = self.values
        return as_json(self.frame.select(name for name in HEAD if name not in values.columns).hstack(values)).to_list()


class ChangeLogEnumerator:
    """Finds new entries of one table's change log. A position is the number of the next entry."""

    def __init__(self, table: str, folder: Path, failure: Callable[[], HeadraceError | None] = lambda: None) -> None:
        self._table, self._folder, self._failure = table, folder, failure
        self._target: int | None = None
        self._waiting: dict[int, int] = {}
        """The rows of entries after the last batch: there may be hundreds of thousands, so each is read once."""

    @property
    def place(self) -> str:
        return f"the change log of {self._table}"

    @property
    def _log(self) -> ChangeLog:
        return open_log(self._folder)[1]

    def _entry(self, log: ChangeLog, number: int) -> LogEntry:
        try:
            return log.entry(number)
        except FileNotFoundError:
            # Retention waits only for flows that are in the pipeline.
            raise self._shortened(
                f"entry {number}, up to which this flow has read {self._table}: it was removed while the flow was not "
                "in the pipeline, so changes would be missing"
            ) from None

    def _shortened(self, missing: str) -> HeadraceError:
        return HeadraceError(
            "LOG_SHORTENED",
            f"the log under {self._folder} no longer has {missing}. Start with a new checkpoint and slot; "
            "retention=None keeps the log for flows that come later.",
        )

    def initial(self) -> int:
        """A new flow begins with the snapshot."""
        if self._log.first() > 0:
            raise self._shortened(f"the snapshot of {self._table}, so a new flow would begin in the middle")
        return 0

    def stop_at_newest(self) -> None:
        self._target = self._log.next()

    def plan(self, since: int, *, most: int | None) -> Planned:
        log = self._log
        # What was logged before the feed failed is read first.
        failure = self._failure()
        newest = log.next() if self._target is None else self._target
        if since > log.next():
            # The slot has gone on since, so what is missing here is nowhere else.
            raise incomplete(self._folder, f"a flow has read {since} entries of its log, and {log.next()} are there")
        if failure is not None and since >= newest:
            raise failure
        rows, until = 0, since
        while until < newest and (until == since or most is None or rows < most):
            entry = self._entry(log, until)
            # The flow may have to stop at this entry; the batch before it is then complete.
            if until > since and entry.alters(self._table):
                break
            rows += entry.rows_of(self._table)
            until += 1
        self._waiting = {
            number: self._waiting[number] if number in self._waiting else self._entry(log, number).rows_of(self._table)
            for number in range(until, newest)
        }
        unread = sum(self._waiting.values())
        # An entry that says something else than rows is read too.
        return Planned(until, {WHOLE: max(unread, 1)} if until < newest else {})

    def splits(self, since: int, until: int, *, tasks: int) -> list[list[tuple[int, int]]]:
        log = self._log
        runs = divided([self._entry(log, number).rows_of(self._table) for number in range(since, until)], tasks)
        return [[(since + run.start, since + run.stop)] if run.stop > run.start else [] for run in runs]


@dataclass(frozen=True, slots=True)
class ChangeLogReader:
    """Reads ranges of entries for one table, in tasks."""

    folder: Path
    table: str
    columns: Mapping[str, pl.DataType]
    on_truncate: OnTruncate

    def read(self, given: Sequence[tuple[int, int]], task: Task) -> Iterator[Decoded]:
        for first, until in given:
            metadata, log = open_log(self.folder)
            then = {column.name: column for column in metadata.by_name[self.table].columns}
            for number in range(first, until):
                entry = log.entry(number)
                origin = f"{self.table} entry {number}"
                for decoded in self._decoded(log, entry, then):
                    yield replace(decoded, origin=origin, arrived=entry.logged_at)

    def _decoded(self, log: ChangeLog, entry: LogEntry, then: Mapping[str, SourceColumn]) -> Iterator[Decoded]:
        # Letters that concern no single row are numbered after all rows, so that no two letters share a number.
        first, behind = 0, entry.rows_of(self.table)
        types = {**self.columns, **DATABASE_CHANGELOG}
        for file in entry.files:
            if file.table == self.table:
                self._check_columns(file, then)
                with pq.ParquetFile(log.data(file)) as parquet:
                    for batch in parquet.iter_batches(batch_size=ROWS_AT_ONCE, use_threads=False):
                        positions = np.arange(first, first + batch.num_rows, dtype=np.int64)
                        yield from decode_apart(self._rows, LoggedRows(file, pl.DataFrame(batch), positions))
                        first += batch.num_rows
        added = sorted(set(entry.altered.get(self.table, ())) - then.keys())
        if added:
            detail = f"table {self.table} now has a column {', '.join(added)}, which is not read. {START_OVER}"
            yield Decoded.of_letter(types, "COLUMN_ADDED", detail, position=behind)
            behind += 1
        if self.table in entry.truncated:
            emptied = f"table {self.table} was emptied with TRUNCATE at {entry.truncated[self.table]}"
            if self.on_truncate == "stop":
                raise HeadraceError(
                    "TABLE_TRUNCATED",
                    f"{emptied}, which does not name the removed rows. Start with a new checkpoint, or keep the rows "
                    "with on_truncate='dead_letter'.",
                )
            yield Decoded.of_letter(types, "TABLE_TRUNCATED", f"{emptied}; rows are kept", position=behind)

    def _rows(self, logged: LoggedRows) -> Decoded:
        positions = pl.Series(ROW, logged.positions)
        # The declared columns among those that were not sent.
        declared = pl.lit(pl.Series([list(self.columns)], dtype=pl.List(pl.String)))
        unchanged = pl.col(UNSENT).list.set_intersection(declared)
        head = logged.frame.select(
            pl.col(KIND).alias(CHANGE),
            pl.col(PLACE).alias(POSITION),
            pl.col(COMMITTED_AT).cast(MOMENT),
            pl.col(TRANSACTION).cast(pl.String),
            pl.when(unchanged.list.len() > 0).then(unchanged).alias(UNCHANGED),
            positions,
        )
        values = logged.values
        texts = pl.DataFrame([from_bytes(values[name]) for name in self.columns])
        strange = [_not_utf8(positions, values[name], texts[name]) for name in self.columns]
        # No decimal column holds NaN.
        decimals = [name for name, kind in self.columns.items() if isinstance(kind, pl.Decimal)]
        texts = texts.with_columns(positions, pl.col(decimals).replace({"NaN": None}))
        rows, misfits = settle(texts, Columns(self.columns), lambda text, kind, _: parse_values(text, kind))
        found = pl.concat([*strange, misfits.with_columns(reason=pl.lit("WRONG_TYPE"))])
        problems = found.unique("position", keep="first").sort("position")
        broken = positions.is_in(problems["position"].implode())
        whole = rows.filter(~pl.col(ROW).is_in(problems["position"].implode())).drop(ROW).hstack(head.filter(~broken))
        raw = pl.Series("raw", replace(logged, frame=logged.frame.filter(broken)).raw(), dtype=pl.Binary)
        return Decoded(whole, problems.with_columns(raw))

    def _check_columns(self, file: LogFile, then: Mapping[str, SourceColumn]) -> None:
        now = {column.name: column for column in file.columns}
        for name, kind in self.columns.items():
            if name not in now:
                change = "was removed or renamed"
            elif now[name].is_other(then[name], kind):
                change = f"is no longer {then[name].shown}, the type it was declared for"
            else:
                continue
            raise HeadraceError(SCHEMA_CHANGED, f"table {self.table}: column {name!r} {change}. {START_OVER}")


def _not_utf8(positions: pl.Series, values: pl.Series, texts: pl.Series) -> pl.DataFrame:
    """The rows of which a value is no text; a database with the encoding SQL_ASCII may hold any bytes."""
    strange = positions.filter(texts.is_null() & values.is_not_null()).alias("position").to_frame()
    detail = pl.lit(f"column {values.name} holds bytes that are not UTF-8")
    return strange.with_columns(reason=pl.lit("NOT_UTF8"), detail=detail)
