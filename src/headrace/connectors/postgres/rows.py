"""Rows into a PostgreSQL table: by COPY, through a passing table for upserts, without the rows it refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import polars as pl
import psycopg
from psycopg import sql

from headrace.connectors.postgres.binary_copy import binary_parts
from headrace.connectors.postgres.connection import primary
from headrace.shaping import REFUSED, refused_rows

_STAGE_NAME = "headrace_stage"
_STAGE = sql.Identifier("pg_temp", _STAGE_NAME)
_ROWS_AT_ONCE = 50_000
# Values that do not fit, constraints, a view's check option, an exception raised by a trigger, more than an index or
# the parser's stack can hold; and two rows with one key, which only PostgreSQL may see: one after the other they fit.
_ROW_REFUSED = ("22", "23", "44000", "P0001", "54", "21000")


@dataclass(frozen=True, slots=True)
class Target:
    """A table, and the key by which its rows are replaced."""

    table: sql.Identifier
    key: tuple[str, ...]
    binary: bool = False
    """Whether its columns take the binary form of our rows."""

    def append(self, connection: psycopg.Connection[Any], rows: pl.DataFrame) -> None:
        """Add rows."""
        self.copy(connection, self.table, rows)

    def upsert(self, connection: psycopg.Connection[Any], rows: pl.DataFrame) -> None:
        """Add rows, each in the place of the one with its key; no two may have the same."""
        self.stage(connection, rows)
        changed = [name for name in rows.columns if name not in self.key]
        replace = sql.SQL(", ").join(sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in changed)
        action = sql.SQL("do update set {}").format(replace) if changed else sql.SQL("do nothing")
        connection.execute(
            sql.SQL("insert into {} ({names}) select {names} from {} on conflict ({key}) {}").format(
                self.table, _STAGE, action, names=_names(rows.columns), key=_names(self.key)
            )
        )
        connection.execute(sql.SQL("drop table {}").format(_STAGE))

    def delete(self, connection: psycopg.Connection[Any], keys: pl.DataFrame) -> None:
        """Take out the rows with these keys."""
        self.stage(connection, keys)
        same = sql.SQL(" and ").join(sql.SQL("t.{0} = s.{0}").format(sql.Identifier(name)) for name in self.key)
        connection.execute(sql.SQL("delete from {} t using {} s where {}").format(self.table, _STAGE, same))
        connection.execute(sql.SQL("drop table {}").format(_STAGE))

    def stage(self, connection: psycopg.Connection[Any], rows: pl.DataFrame) -> None:
        """Put rows into a passing table with the target's types and none of its constraints."""
        connection.execute(
            sql.SQL("create temporary table {} as select {} from {} with no data").format(
                sql.Identifier(_STAGE_NAME), _names(rows.columns), self.table
            )
        )
        # In one order two sessions cannot lock each other's rows crosswise, and the index is walked once.
        self.copy(connection, _STAGE, rows.sort(self.key))

    def copy(self, connection: psycopg.Connection[Any], table: sql.Identifier, rows: pl.DataFrame) -> None:
        """Add rows to this table or to one with its types."""
        form, parts = ("binary", binary_parts(rows)) if self.binary else ("csv", csv_parts(rows))
        statement = sql.SQL("copy {} ({}) from stdin with (format {})").format(
            table, _names(rows.columns), sql.SQL(form)
        )
        with connection.cursor() as cursor, cursor.copy(statement) as copy:
            for part in parts:
                copy.write(part)


Put = Callable[[psycopg.Connection[Any], pl.DataFrame], None]


def put_all_but_refused(connection: psycopg.Connection[Any], put: Put, rows: pl.DataFrame) -> pl.DataFrame:
    """Put rows; those that the table refuses for themselves are found by halving, left out and returned."""
    if rows.is_empty():
        return pl.DataFrame(schema=REFUSED)
    try:
        with connection.transaction():
            put(connection, rows)
    except psycopg.Error as problem:
        if problem.sqlstate is None or not problem.sqlstate.startswith(_ROW_REFUSED):
            raise
        if rows.height == 1:
            return refused_rows(rows, "ROW_REFUSED", f"{primary(problem)} (SQLSTATE {problem.sqlstate})")
        half = rows.height // 2
        parts = (rows.slice(0, half), rows.slice(half))
        return pl.concat([put_all_but_refused(connection, put, part) for part in parts])
    return pl.DataFrame(schema=REFUSED)


def csv_parts(rows: pl.DataFrame) -> Iterator[bytes]:
    r"""Rows as PostgreSQL's COPY reads CSV: text in quotes, nothing at all for null.

    >>> list(csv_parts(pl.DataFrame({"s": ["", None, 'a"b'], "n": [1, None, 3], "x": [[1, 2], [], None]})))
    [b'"",1,"{1,2}"\n,,"{}"\n"a""b",3,\n']
    """
    written = [_written(pl.col(name), kind).alias(name) for name, kind in rows.schema.items()]
    for part in rows.iter_slices(_ROWS_AT_ONCE):
        stream = BytesIO()
        # Unquoted, a text of \. would end the data, and an empty one would be null.
        part.select(written).write_csv(stream, include_header=False, quote_style="non_numeric")
        yield stream.getvalue()


def _written(value: pl.Expr, kind: pl.DataType) -> pl.Expr:
    match kind:
        case pl.Datetime(time_zone=None):
            return value.dt.to_string("%Y-%m-%d %H:%M:%S%.6f")
        case pl.Datetime():
            # Without a zone for the formatter: that takes half the time.
            return value.dt.convert_time_zone("UTC").dt.replace_time_zone(None).dt.to_string("%Y-%m-%d %H:%M:%S%.6fZ")
        case pl.Binary():
            return pl.lit("\\x") + value.bin.encode("hex")
        case pl.Duration():
            return value.dt.total_microseconds().cast(pl.String) + pl.lit(" microseconds")
        case pl.List():
            element = _element(pl.element(), kind.inner)
            return pl.lit("{") + value.list.eval(element).list.join(",") + pl.lit("}")
        case _:
            return value


def _element(value: pl.Expr, kind: Any) -> pl.Expr:
    text = _written(value, kind).cast(pl.String)
    if not isinstance(kind, pl.List) and not kind.is_numeric():
        escaped = text.str.replace_all("\\", "\\\\", literal=True).str.replace_all('"', '\\"', literal=True)
        text = pl.lit('"') + escaped + pl.lit('"')
    return text.fill_null("NULL")


def _names(columns: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, columns))
