"""Rows into a table by COPY: through a staging table for upserts, without the rows that the table rejects."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any, LiteralString

import numpy as np
import polars as pl
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from headrace.connectors.base.decoding import inner_type
from headrace.connectors.postgres.connection import PgConnection, is_of_server, is_transient, summary
from headrace.connectors.postgres.target_table import TargetColumn, sql_type
from headrace.rendering import REFUSED, refused_rows

_STAGE_NAME = "headrace_stage"
_STAGE = sql.Identifier("pg_temp", _STAGE_NAME)
_ROWS_AT_ONCE = 50_000
# Values that do not fit, constraints, a view's check option, an exception raised by a trigger, more than an index or
# the parser's stack can hold; and two rows with a key that only PostgreSQL sees as one: written singly both fit.
_ROW_REFUSED = ("22", "23", "44000", "P0", "54", "21000")
# The server's functions whose errors are about a row, with any SQLSTATE: RAISE in a trigger, row-level security.
_REFUSING = ("exec_stmt_raise", "ExecWithCheckOptions")
PAUSES = (0.1, 0.2, 0.4, 0.8)
TRIED = 32
"""So many rows are tried alone before an error that may be of the table is taken for one of rows."""

HEADER, TRAILER = b"PGCOPY\n\xff\r\n\0" + bytes(8), b"\xff\xff"
_NULL = -1
# PostgreSQL counts days and microseconds from the year 2000.
_FIRST_DAY, _FIRST_MICROSECOND = 10_957, 946_684_800_000_000
_FIXED_SIZE: Mapping[type[pl.DataType], str] = {
    pl.Boolean: "u1",
    pl.Int8: ">i2",
    pl.Int16: ">i2",
    pl.Int32: ">i4",
    pl.Int64: ">i8",
    pl.Float32: ">f4",
    pl.Float64: ">f8",
    pl.Date: ">i4",
    pl.Datetime: ">i8",
}


@dataclass(frozen=True, slots=True)
class CopyTarget:
    """A table, the key by which its rows are replaced, and whether COPY takes them in its binary format."""

    table: sql.Identifier
    key: tuple[str, ...]
    binary: bool = False

    def append(self, connection: PgConnection, rows: pl.DataFrame) -> int:
        return rows.height - self._copy(connection, self.table, rows)

    def upsert(self, connection: PgConnection, rows: pl.DataFrame) -> int:
        """Add rows or replace those with their keys; the keys must be distinct."""
        changed = [name for name in rows.columns if name not in self.key]
        replace = sql.SQL(", ").join(sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in changed)
        action = sql.SQL("do update set {}").format(replace) if changed else sql.SQL("do nothing")
        statement = sql.SQL("insert into {} ({names}) select {names} from {} on conflict ({key}) {}").format(
            self.table, _STAGE, action, names=_names(rows.columns), key=_names(self.key)
        )
        # Nothing is done for keys that are there already, if there is nothing but keys.
        return self._apply(connection, rows, statement, None if changed else "not exists")

    def delete(self, connection: PgConnection, keys: pl.DataFrame) -> int:
        statement = sql.SQL("delete from {} t using {} s where {}").format(self.table, _STAGE, self._same_key)
        return self._apply(connection, keys, statement, "exists")

    @property
    def _same_key(self) -> sql.Composed:
        return sql.SQL(" and ").join(sql.SQL("t.{0} = s.{0}").format(sql.Identifier(name)) for name in self.key)

    def _apply(
        self, connection: PgConnection, rows: pl.DataFrame, statement: sql.Composed, undone: LiteralString | None
    ) -> int:
        """Run a statement on rows in a staging table, which has the target's types and none of its constraints.

        Returns how many rows the server has skipped: all that it did not affect, or only those whose key is ``undone``,
        which then ``exists`` or does ``not exists``.
        """
        connection.execute(
            sql.SQL("create temporary table {} as select {} from {} with no data").format(
                sql.Identifier(_STAGE_NAME), _names(rows.columns), self.table
            )
        )
        # Sorted, two sessions cannot deadlock on each other's rows, and the index is walked once.
        self._copy(connection, _STAGE, rows.sort(self.key))
        skipped = rows.height - connection.execute(statement).rowcount
        if skipped > 0 and undone is not None:
            query = sql.SQL("select count(*) from {} s where {} (select from {} t where {})").format(
                _STAGE, sql.SQL(undone), self.table, self._same_key
            )
            [(skipped,)] = connection.execute(query)
        connection.execute(sql.SQL("drop table {}").format(_STAGE))
        return skipped

    def _copy(self, connection: PgConnection, table: sql.Identifier, rows: pl.DataFrame) -> int:
        """Copy rows into a table; returns how many the server has written."""
        form, parts = ("binary", binary_parts(rows)) if self.binary else ("csv", csv_parts(rows))
        statement = sql.SQL("copy {} ({}) from stdin with (format {})").format(
            table, _names(rows.columns), sql.SQL(form)
        )
        with connection.cursor() as cursor:
            with cursor.copy(statement) as copy:
                for part in parts:
                    copy.write(part)
            return cursor.rowcount


Put = Callable[[PgConnection, pl.DataFrame], int]
"""Writes rows; returns how many of them the server has skipped without an error."""


@dataclass(frozen=True, slots=True)
class RowWriter:
    """Writes rows in savepoints, without those that the table rejects."""

    connection: PgConnection
    put: Put

    def write(self, rows: pl.DataFrame) -> tuple[pl.DataFrame, int]:
        """Write rows; those that the table rejects are returned, and how many the server has skipped."""
        if rows.is_empty():
            return pl.DataFrame(schema=REFUSED), 0
        result = self._try(rows)
        for pause in PAUSES:
            if isinstance(result, int) or not is_transient(result):
                break
            time.sleep(pause)
            result = self._try(rows)
        if not isinstance(result, int):
            self._check_rows_at_fault(rows, result)
        return self._bisect(rows, result)

    def _try(self, rows: pl.DataFrame, *, keep: bool = True) -> int | psycopg.Error:
        """How many rows were skipped, or the error that left the table as it was and may be due to the rows."""
        try:
            with self.connection.transaction(force_rollback=not keep):
                return self.put(self.connection, rows)
        except psycopg.Error as problem:
            if problem.sqlstate is None or (is_transient(problem) and not _is_refusal(problem)):
                raise
            return problem

    def _check_rows_at_fault(self, rows: pl.DataFrame, problem: psycopg.Error) -> None:
        """Raise an error that is not due to single rows: it comes without rows too, or the table takes none of many."""
        without = self._try(rows.clear(), keep=False)
        if not isinstance(without, int):
            raise without
        if str(problem.sqlstate).startswith(_ROW_REFUSED) or (_is_refusal(problem) and not is_transient(problem)):
            return
        some = rows.gather_every(-(-rows.height // TRIED))
        taken = any(isinstance(self._try(row, keep=False), int) for row in some.iter_slices(1))
        if not taken and (rows.height > TRIED or is_of_server(problem)):
            raise problem

    def _bisect(self, rows: pl.DataFrame, result: int | psycopg.Error) -> tuple[pl.DataFrame, int]:
        if isinstance(result, int):
            return pl.DataFrame(schema=REFUSED), result
        if rows.height == 1:
            return refused_rows(rows, "ROW_REFUSED", f"{summary(result)} (SQLSTATE {result.sqlstate})"), 0
        half = rows.height // 2
        parts = [self._bisect(part, self._try(part)) for part in (rows.slice(0, half), rows.slice(half))]
        return pl.concat([refused for refused, _ in parts]), sum(skipped for _, skipped in parts)


def _is_refusal(problem: psycopg.Error) -> bool:
    """Whether the server raised an error on purpose, for what is in a row."""
    return problem.diag.source_function in _REFUSING


def _names(columns: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, columns))


def takes_binary(existing: Mapping[str, TargetColumn], columns: Mapping[str, pl.DataType]) -> bool:
    """Whether the binary format fits: each column has exactly our type. From text PostgreSQL converts other types too.

    Binary costs the server half of what text does.

    >>> bigint, uuid = TargetColumn("bigint", "N", "bigint", False), TargetColumn("uuid", "U", "uuid", False)
    >>> takes_binary({"n": bigint}, {"n": pl.Int64()}), takes_binary({"n": uuid}, {"n": pl.String()})
    (True, False)
    """
    return all(name in existing and _is_same(existing[name].type, kind) for name, kind in columns.items())


def _is_same(existing: str, kind: pl.DataType) -> bool:
    if isinstance(kind, pl.String):
        return existing in ("text", "character varying")
    if isinstance(kind, pl.Datetime) and kind.time_unit != "us":
        return False
    return isinstance(kind, (pl.Binary, *_FIXED_SIZE)) and existing == sql_type(kind)


def binary_parts(rows: pl.DataFrame) -> Iterator[bytes | memoryview]:
    r"""Rows in COPY's binary format, for columns that pass ``takes_binary``.

    >>> b"".join(binary_parts(pl.DataFrame({"s": ["a", None]})))[len(HEADER) :]
    b'\x00\x01\x00\x00\x00\x01a\x00\x01\xff\xff\xff\xff\xff\xff'
    """
    yield HEADER
    nothing = pa.scalar(b"", pa.large_binary())
    for part in rows.iter_slices(_ROWS_AT_ONCE):
        width = _records(np.full(part.height, rows.width, ">i2"))
        fields = [array for column in part.iter_columns() for array in _field(column)]
        joined = pc.binary_join_element_wise(width, *fields, nothing)
        _, ends, joint = joined.buffers()
        # The values lie one after the other without a gap: their buffer is the stream.
        yield memoryview(joint)[: np.frombuffer(ends, np.int64)[len(joined)]]
    yield TRAILER


def _field(column: pl.Series) -> list[pa.Array]:
    """The length of each value, and the value."""
    present = column.is_not_null()
    if isinstance(column.dtype, pl.String | pl.Binary):
        values = column.cast(pl.Binary)
        lengths = values.bin.size().cast(pl.Int32).fill_null(_NULL)
        body = values.fill_null(b"").to_arrow(compat_level=pl.CompatLevel.oldest())
        return [_records(lengths.to_numpy().astype(">i4")), body.cast(pa.large_binary())]
    code = _FIXED_SIZE[type(column.dtype)]
    record = np.empty(len(column), [("length", ">i4"), ("value", code)])
    record["length"], record["value"] = np.dtype(code).itemsize, _numbers(column).fill_null(0).to_numpy()
    if present.all():
        return [_records(record)]
    return [pc.if_else(present.to_arrow(), _records(record), pa.scalar(b"\xff" * 4, pa.large_binary()))]


def _numbers(column: pl.Series) -> pl.Series:
    match column.dtype:
        case pl.Boolean():
            return column.cast(pl.UInt8)
        case pl.Date():
            return column.to_physical() - _FIRST_DAY
        case pl.Datetime():
            # A time before PostgreSQL's first must neither wrap around nor become "-infinity".
            return column.to_physical().clip(lower_bound=_FIRST_MICROSECOND + 1 - 2**63) - _FIRST_MICROSECOND
        case _:
            return column


def _records(values: np.ndarray[Any, Any]) -> pa.Array:
    """Values of one size as bytes."""
    size = values.dtype.itemsize
    ends = np.arange(0, size * (len(values) + 1), size, dtype=np.int64)
    return pa.Array.from_buffers(pa.large_binary(), len(values), [None, pa.py_buffer(ends), pa.py_buffer(values)])


def csv_parts(rows: pl.DataFrame) -> Iterator[bytes]:
    r"""Rows in COPY's CSV format: text in quotes, nothing at all for null.

    >>> list(csv_parts(pl.DataFrame({"s": ["", None, 'a"b'], "n": [1, None, 3], "x": [[1, 2], [], None]})))
    [b'"",1,"{1,2}"\n,,"{}"\n"a""b",3,\n']
    """
    written = [_as_text(pl.col(name), kind).alias(name) for name, kind in rows.schema.items()]
    for part in rows.iter_slices(_ROWS_AT_ONCE):
        stream = BytesIO()
        # Unquoted, a text of \. would end the data, and an empty one would be null.
        part.select(written).write_csv(stream, include_header=False, quote_style="non_numeric")
        yield stream.getvalue()


def _as_text(value: pl.Expr, kind: pl.DataType) -> pl.Expr:
    match kind:
        case pl.Datetime(time_zone=None):
            return value.dt.to_string("%Y-%m-%d %H:%M:%S%.6f")
        case pl.Datetime():
            # Formatting without a zone takes half the time.
            return value.dt.convert_time_zone("UTC").dt.replace_time_zone(None).dt.to_string("%Y-%m-%d %H:%M:%S%.6fZ")
        case pl.Binary():
            return pl.lit("\\x") + value.bin.encode("hex")
        case pl.Duration():
            return value.dt.total_microseconds().cast(pl.String) + pl.lit(" microseconds")
        case pl.List():
            inner = inner_type(kind)
            element = _as_text(pl.element(), inner).cast(pl.String)
            if not isinstance(inner, pl.List) and not inner.is_numeric():
                escaped = element.str.replace_all("\\", "\\\\", literal=True).str.replace_all('"', '\\"', literal=True)
                element = pl.lit('"') + escaped + pl.lit('"')
            return pl.lit("{") + value.list.eval(element.fill_null("NULL")).list.join(",") + pl.lit("}")
        case _:
            return value
