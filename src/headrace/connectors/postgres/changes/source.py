"""``hr.read_postgres_changes``: PostgreSQL tables as changelogs, a snapshot first, then each change exactly once.

How a change travels: the server keeps it in the ``slot``. The feed (``replication``) fetches it as ``pgoutput``
messages, ``transactions`` makes rows of them, and ``change_log`` stores these in the ``landing`` folder; only then the
slot advances. In each flow ``log_reader`` reads the entries of the log, and ``text_values`` parses their values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Required, TypedDict, Unpack, overload

import psycopg
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headrace.changelog import DATABASE_CHANGELOG, OnTruncate, check_free
from headrace.checkpoint.outages import OutageMarker
from headrace.checkpoint.storage import LocalStorage
from headrace.connectors.base.source import LANDING, Gate, add_source, source_name
from headrace.connectors.postgres.changes.catalogue import SourceTable, find_table, full_name, split_name
from headrace.connectors.postgres.changes.landing import Retention, first_unread, read_metadata
from headrace.connectors.postgres.changes.log_reader import ChangeLogEnumerator, ChangeLogReader
from headrace.connectors.postgres.changes.replication import ReplicationFeed
from headrace.connectors.postgres.changes.slot import ReplicationSlot
from headrace.connectors.postgres.connection import PgConnection, PostgresServer, startup_error
from headrace.durations import Duration, positive_microseconds
from headrace.errors import DefinitionError, check_choice
from headrace.graph import Graph, active_graph
from headrace.schemas import parse_ddl, polars_schema, spark_schema
from headrace.secrets import Secret
from headrace.stability import stable


class SlotOptions(TypedDict, total=False):
    """The options that are the same for one table and for several."""

    dsn: Required[str]
    slot: Required[str]
    password: str | Secret | None
    publication: str | None
    on_truncate: OnTruncate
    retention: Duration | None
    retention_bytes: int | None
    name: str | None


@overload
def read_postgres_changes(
    spark: SparkSession, tables: str, *, schema: str | None = None, **options: Unpack[SlotOptions]
) -> DataFrame: ...
@overload
def read_postgres_changes(
    spark: SparkSession,
    tables: list[str] | tuple[str, ...],
    *,
    schema: Mapping[str, str] | None = None,
    **options: Unpack[SlotOptions],
) -> dict[str, DataFrame]: ...
@stable
def read_postgres_changes(
    spark: SparkSession,
    tables: str | Sequence[str],
    *,
    dsn: str,
    slot: str,
    password: str | Secret | None = None,
    schema: str | Mapping[str, str] | None = None,
    publication: str | None = None,
    on_truncate: OnTruncate = "stop",
    retention: Duration | None = "1 day",
    retention_bytes: int | None = None,
    name: str | None = None,
) -> DataFrame | dict[str, DataFrame]:
    """The rows of a table when the pipeline first starts, then every change of it, as a changelog.

    Several tables share one slot and give one frame each, by name. A frame has the table's columns, ``change``,
    ``position``, ``committed_at`` (its event time), ``transaction``, and ``unchanged``: the columns whose large values
    PostgreSQL did not send. ``schema`` selects and types columns; without it they come from the catalogue.

    The slot is created by this pipeline and belongs to its checkpoint; a missing ``publication`` is created too, under
    the slot's name. Changes are logged under ``<checkpoint>/landing/<slot>`` before the server may discard them.
    Entries that every flow has read are removed when they are older than ``retention`` (None: never), and, oldest
    first, while the log has more than ``retention_bytes`` (None: no limit).

    >>> import headrace as hr
    >>> @hr.pipeline
    ... def shop(spark):
    ...     orders = hr.read_postgres_changes(spark, "orders", dsn="host=db dbname=shop", slot="shop")
    ...     hr.write("orders", orders, hr.to_postgres("orders", dsn="host=replica dbname=shop", upsert_on="id"))
    >>> shop.name
    'shop'
    """
    names = (tables,) if isinstance(tables, str) else tuple(tables)
    declared = {str(tables): schema} if isinstance(schema, str) else dict(schema or {})
    _check_tables(names, declared, on_truncate)
    age = None if retention is None else positive_microseconds(retention, argument="retention")
    if retention_bytes is not None and retention_bytes < 1:
        raise DefinitionError(
            "RETENTION_INVALID", f"retention_bytes={retention_bytes!r} must be at least 1, as in 10 * 2**30, or None."
        )
    if any(node.fingerprint.get("slot") == slot for node in active_graph().sources.values()):
        raise DefinitionError(
            "SLOT_READ_TWICE",
            f"slot {slot!r} is read by two hr.read_postgres_changes(...). Read all its tables in one call, "
            "as tables=['orders', 'customers'], or give each call its own slot.",
        )
    replication_slot = ReplicationSlot(PostgresServer(dsn, password), slot, publication or slot)
    sources = {table: source_name(None, split_name(table)[1]) for table in names}
    if name is not None:
        sources = {table: name if table == tables else f"{name}_{own}" for table, own in sources.items()}
    reading = SlotSources(active_graph(), replication_slot, sources, on_truncate)
    found = reading.find_tables([table for table in names if table not in declared])
    feed = ReplicationFeed(
        replication_slot,
        reading.folder,
        names,
        Retention(age, reading.readers, retention_bytes).clean,
        reading.outage_markers,
        reading.was_read,
    )
    frames: dict[str, DataFrame] = {}
    for table in names:
        ddl = declared.get(table) or found[full_name(table)].ddl
        # All tables share one feed, which belongs to the first.
        frames[table] = reading.frame(spark, table, ddl, feed, owned=not frames)
    return frames[names[0]] if isinstance(tables, str) else frames


@dataclass(frozen=True, slots=True)
class SlotSources:
    """The tables of one slot in the active pipeline, each a source of its own."""

    graph: Graph
    slot: ReplicationSlot
    sources: Mapping[str, str]
    """The name of each table's source."""
    on_truncate: OnTruncate

    @property
    def folder(self) -> Path:
        return self.graph.checkpoint / LANDING / self.slot.name

    def readers(self) -> list[tuple[Path, str]]:
        flows, sources = self.graph.flows.values(), self.sources.values()
        return [(self.graph.checkpoint / flow.name, each) for flow in flows for each in sources if each in flow.sources]

    def was_read(self) -> bool:
        return any(first_unread(*reader) for reader in self.readers())

    def outage_markers(self) -> list[OutageMarker]:
        place = self.slot.server.place
        return [OutageMarker(LocalStorage(flow), f"source.{source}", place) for flow, source in self.readers()]

    def frame(self, spark: SparkSession, table: str, ddl: str, feed: ReplicationFeed, *, owned: bool) -> DataFrame:
        """Add a table's source to the pipeline and return its rows."""
        struct, name, full = parse_ddl(ddl), self.sources[table], full_name(table)
        columns = polars_schema(struct)
        check_free(columns, f"table {table!r}", "Leave it out with schema='...'")
        gate = Gate(name, ChangeLogReader(self.folder, full, columns, self.on_truncate), None)
        rows = StructType([*struct.fields, *spark_schema(DATABASE_CHANGELOG).fields])
        fingerprint = {"kind": "postgres_changes", "table": full, "slot": self.slot.name, "schema": ddl}

        def check() -> None:
            metadata = read_metadata(self.folder)
            with self._connection() as connection:
                self.slot.check_server(connection)
                # A table that was altered since is checked as it was: its log is read from there on.
                known = find_table(connection, table) if metadata is None else metadata.by_name[full]
            known.check_declared(columns)

        return add_source(
            spark,
            gate,
            lambda _: ChangeLogEnumerator(full, self.folder, lambda: feed.failure),
            rows,
            fingerprint,
            counts_rows=True,
            prepare=check,
            feed=feed if owned else None,
            changes=True,
        )

    @contextmanager
    def _connection(self) -> Iterator[PgConnection]:
        try:
            with self.slot.server.connect_for_changes() as connection:
                yield connection
        except psycopg.Error as problem:
            raise startup_error(problem, self.slot.server) from None

    def find_tables(self, undeclared: Sequence[str]) -> dict[str, SourceTable]:
        """Tables without a declared schema: as they were when the log began, else as they are now."""
        metadata = read_metadata(self.folder)
        if metadata is not None:
            new = [table for table in self.sources if full_name(table) not in metadata.by_name]
            if new:
                raise DefinitionError(
                    "TABLES_CHANGED",
                    f"the log of {self.slot!r} began without table {new[0]!r}. Give that its own slot, or start over.",
                )
            return metadata.by_name
        if not undeclared:
            return {}
        with self._connection() as connection:
            tables = [find_table(connection, table) for table in undeclared]
        return {table.name: table for table in tables}


def _check_tables(names: Sequence[str], declared: Mapping[str, str], on_truncate: OnTruncate) -> None:
    check_choice(OnTruncate, on_truncate=on_truncate)
    if not names or len({full_name(table) for table in names}) < len(names) or not declared.keys() <= set(names):
        raise DefinitionError(
            "TABLES_INVALID",
            f"read_postgres_changes: tables={list(names)!r} must name each table once, and schema= only columns of "
            "these, as in schema={'orders': 'id BIGINT, ...'}.",
        )
