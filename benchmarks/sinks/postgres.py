"""PostgreSQL: rows added, beside Spark's JDBC; rows replaced by key, beside COPY alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

import headrace as hr
from benchmarks.sinks.cases import Case, Digest, Way
from benchmarks.sinks.ours import delivery
from benchmarks.sinks.rows import Rows
from headrace.connectors.servers import running
from headrace.services.service import Service

JDBC_SETTINGS: Mapping[str, Mapping[str, str]] = {
    "as it comes": {},
    "batchsize=10000": {"batchsize": "10000"},
    "batchsize=10000, rewriting": {"batchsize": "10000", "reWriteBatchedInserts": "true"},
}
ROWS_AT_ONCE = 50_000


@contextmanager
def append_case(rows: Rows, root: Path) -> Iterator[Case]:
    """Rows added to a table."""
    with running("postgres") as server:
        write_ours = delivery(hr.to_postgres("ours", dsn=server.dsn), rows, root / "append")
        tables = {f"jdbc {number}": name for number, name in enumerate(JDBC_SETTINGS)}
        for table in tables:
            _create_like_ours(server, table)
        yield Case(
            "postgres_vs_spark_jdbc",
            Way("to_postgres", write_ours, _digest(server, _all("ours"))),
            tuple(
                Way(
                    f"Spark JDBC, {name}", _jdbc(rows, server, table, JDBC_SETTINGS[name]), _digest(server, _all(table))
                )
                for table, name in tables.items()
            ),
            least_ratio=3,
        )


@contextmanager
def upsert_case(rows: Rows, root: Path) -> Iterator[Case]:
    """Rows of which half take the place of others, beside one connection that only adds them, without an index."""
    with running("postgres") as server:
        write_ours = delivery(hr.to_postgres("ours", dsn=server.dsn, upsert_on="id"), rows, root / "upsert")
        _create_like_ours(server, "copied")
        yield Case(
            "postgres_upsert_vs_copy",
            Way("to_postgres, upsert_on", write_ours, _digest(server, _all("ours"))),
            (Way("COPY alone", _copying(rows, server, "copied"), _digest(server, _last("copied"))),),
            least_ratio=0.5,
            enough=50_000,
        )


def _create_like_ours(server: Service, table: str) -> None:
    with psycopg.connect(server.dsn) as connection:
        connection.execute(sql.SQL("create table {} (like ours)").format(sql.Identifier(table)))


def _jdbc(rows: Rows, server: Service, table: str, settings: Mapping[str, str]) -> Callable[[int], None]:
    given = conninfo_to_dict(server.dsn)
    access = {name: str(given[name]) for name in ("user", "password")} | {"driver": "org.postgresql.Driver"}
    url = f"jdbc:postgresql://{server.address}/{given['dbname']}"

    def write(batch: int) -> None:
        rows.frame(batch).write.jdbc(url, f'"{table}"', mode="append", properties={**access, **settings})

    return write


def _copying(rows: Rows, server: Service, table: str) -> Callable[[int], None]:
    """COPY by one connection of rows that are in its process already."""
    batch_of = rows.in_memory()
    connection = psycopg.connect(server.dsn)
    statement = sql.SQL("copy {} from stdin with (format csv)").format(sql.Identifier(table))

    def write(batch: int) -> None:
        with connection.transaction(), connection.cursor() as cursor, cursor.copy(statement) as copy:
            for part in batch_of(batch).iter_slices(ROWS_AT_ONCE):
                stream = BytesIO()
                part.write_csv(stream, include_header=False, datetime_format="%Y-%m-%d %H:%M:%SZ")
                copy.write(stream.getvalue())

    return write


def _digest(server: Service, rows: sql.Composable) -> Callable[[], Digest]:
    query = sql.SQL("select count(*), sum(hashtextextended(r::text, 0)::numeric) from ({}) r").format(rows)

    def digest() -> Digest:
        with psycopg.connect(server.dsn) as connection:
            number, total = connection.execute(query).fetchone() or (0, 0)
        return int(number), str(total)

    return digest


def _all(table: str) -> sql.Composable:
    return sql.SQL("select * from {}").format(sql.Identifier(table))


def _last(table: str) -> sql.Composable:
    return sql.SQL("select distinct on (id) * from {} order by id, batch desc").format(sql.Identifier(table))
