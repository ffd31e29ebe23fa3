"""``hr.read_postgres_changes``: tables of PostgreSQL as changelogs, from a snapshot on, each change once."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, overload

import polars as pl
from pyspark.sql.types import StructType

from headrace.connectors.base.caps import FOLDER as CAPS
from headrace.connectors.base.gate import Gate
from headrace.connectors.base.source import Source, add_source, add_ticks
from headrace.connectors.files.landing import FOLDER as LANDING
from headrace.connectors.postgres.changes.birth import birth_of
from headrace.connectors.postgres.changes.catalogue import Table, find_table, full_name, split_name
from headrace.connectors.postgres.changes.checks import check_fit, check_server
from headrace.connectors.postgres.changes.feed import ChangesFeed
from headrace.connectors.postgres.changes.reader import METADATA, ChangesReader, OnTruncate
from headrace.connectors.postgres.changes.retention import Retention
from headrace.connectors.postgres.changes.server import Server
from headrace.connectors.postgres.changes.slot import Slot
from headrace.connectors.postgres.changes.stream import FORMAT, ChangeEntries
from headrace.connectors.postgres.changes.types import ddl_type
from headrace.durations import Duration, positive_microseconds
from headrace.errors import DefinitionError
from headrace.graph import Graph, active_graph
from headrace.outages import OutageMarker
from headrace.schemas import parse_ddl, polars_schema, spark_schema
from headrace.secrets import Secret

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@overload
def read_postgres_changes(
    spark: SparkSession,
    tables: str,
    *,
    dsn: str,
    slot: str,
    password: str | Secret | None = None,
    schema: str | None = None,
    publication: str | None = None,
    on_truncate: OnTruncate = "stop",
    retention: Duration | None = "1 day",
    retention_bytes: int | None = None,
    name: str | None = None,
) -> DataFrame: ...
@overload
def read_postgres_changes(
    spark: SparkSession,
    tables: list[str] | tuple[str, ...],
    *,
    dsn: str,
    slot: str,
    password: str | Secret | None = None,
    schema: Mapping[str, str] | None = None,
    publication: str | None = None,
    on_truncate: OnTruncate = "stop",
    retention: Duration | None = "1 day",
    retention_bytes: int | None = None,
    name: str | None = None,
) -> dict[str, DataFrame]: ...
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
    """The rows of a table as they are when the pipeline first starts, then every change of it: a changelog.

    Several tables share one slot and give a frame each, by their names. A frame has the table's columns, ``change``,
    ``position``, ``committed_at`` (its event time), ``transaction``, and ``unchanged``, which names columns whose
    values PostgreSQL did not send. ``schema`` chooses and types columns; without it they are the catalogue's. The slot
    is made by this pipeline and belongs to its checkpoint; so is the ``publication``, named like the slot, unless there
    is one. Changes land in a log under ``<checkpoint>/landing/<slot>`` before the server forgets them; entries that
    every flow has read are removed when they are older than ``retention`` (None: never), and from the oldest on when
    the log has more than ``retention_bytes`` (None: any number).
    """
    names = (tables,) if isinstance(tables, str) else tuple(tables)
    if on_truncate not in ("stop", "dead_letter"):
        raise DefinitionError(
            "ON_TRUNCATE_UNKNOWN", f"on_truncate={on_truncate!r} is not known. Use 'stop' or 'dead_letter'."
        )
    declared = {str(tables): schema} if isinstance(schema, str) else dict(schema or {})
    if not names or len({full_name(table) for table in names}) < len(names) or not declared.keys() <= set(names):
        raise DefinitionError(
            "TABLES_INVALID",
            f"read_postgres_changes: tables={tables!r} must name at least one table, each once, and schema= columns of "
            "these tables only, as in schema={'orders': 'id BIGINT, ...'}.",
        )
    kept = None if retention is None else positive_microseconds(retention, argument="retention")
    if retention_bytes is not None and retention_bytes < 1:
        raise DefinitionError(
            "RETENTION_INVALID",
            f"retention_bytes={retention_bytes!r} is no size. Give bytes, as in 10 * 2**30, or None.",
        )
    if any(node.fingerprint.get("slot") == slot for node in active_graph().sources.values()):
        raise DefinitionError(
            "SLOT_READ_TWICE",
            f"slot {slot!r} is read by two hr.read_postgres_changes(...), and what one takes the other would miss. "
            "Read all its tables in one call, as tables=['orders', 'customers'], or give each call a slot of its own.",
        )
    place = Slot(Server(dsn, password), slot, publication or slot)
    sources = {table: _source_name(name, table, alone=isinstance(tables, str)) for table in names}
    following = Following(active_graph(), place, sources, on_truncate)
    found = _tables(following, wanted=[table for table in names if table not in declared])
    feed = ChangesFeed(
        place,
        following.folder,
        lambda connection: [find_table(connection, table) for table in names],
        Retention(kept, following.readers, retention_bytes).clean,
        following.outage_markers,
    )
    frames: dict[str, DataFrame] = {}
    for table in names:
        ddl = declared.get(table) or _ddl(found[full_name(table)])
        # One feed for all tables: it stands beside the first.
        frames[table] = following.frame(spark, table, ddl, feed=feed if not frames else None)
    return frames[names[0]] if isinstance(tables, str) else frames


@dataclass(frozen=True, slots=True)
class Following:
    """Tables of one slot in the active pipeline, each a source of its own."""

    graph: Graph
    slot: Slot
    sources: Mapping[str, str]
    """The name of each table's source."""
    on_truncate: OnTruncate

    @property
    def folder(self) -> Path:
        """Where the log is."""
        return self.graph.checkpoint / LANDING / self.slot.name

    def readers(self) -> list[tuple[Path, str]]:
        """The folder of each flow that reads a table, with the table's source."""
        flows, sources = self.graph.flows.values(), self.sources.values()
        return [(self.graph.checkpoint / flow.name, each) for flow in flows for each in sources if each in flow.sources]

    def outage_markers(self) -> list[OutageMarker]:
        """The outage markers to write while the server is away."""
        server = f"PostgreSQL {self.slot.server.address}"
        return [OutageMarker(str(flow), f"source.{source}", server) for flow, source in self.readers()]

    def frame(self, spark: SparkSession, table: str, ddl: str, *, feed: ChangesFeed | None) -> DataFrame:
        """Record a table's source and return its rows."""
        struct, name = parse_ddl(ddl), self.sources[table]
        columns = polars_schema(struct)
        taken = sorted(columns.keys() & METADATA.keys())
        if taken:
            raise DefinitionError(
                "COLUMN_EXISTS",
                f"table {table!r} has a column {taken[0]!r} of its own, which every changelog has. Leave it out with "
                "schema='...', or rename it.",
            )
        caps, ticks = self.graph.checkpoint / CAPS / name, self.graph.checkpoint / "ticks" / name
        spark.dataSource.register(ChangeEntries)
        options = {"source": name, "table": full_name(table), "folder": str(self.folder), "caps": str(caps)}
        raw = spark.readStream.format(FORMAT).options(**options).load()
        gate = Gate(name, ChangesReader(self.folder, full_name(table), columns, self.on_truncate), None)
        rows = StructType([*struct.fields, *spark_schema(METADATA).fields])
        return add_source(
            Source(add_ticks(raw, ticks), gate, rows),
            {"kind": "postgres_changes", "table": full_name(table), "slot": self.slot.name, "schema": ddl},
            ticks,
            caps=caps,
            prepare=lambda: self.check(table, columns),
            feed=feed,
            changes=True,
        )

    def check(self, table: str, columns: Mapping[str, pl.DataType]) -> None:
        """Find, before the first batch, what would stop the reading of a table."""
        birth = birth_of(self.folder)
        with self.slot.server.asked() as connection:
            check_server(connection, self.slot.server)
            # Of a table that was altered since, what was logged before that is read first.
            known = find_table(connection, table) if birth is None else birth.by_name[full_name(table)]
            check_fit(known, columns)


def _tables(following: Following, *, wanted: Sequence[str]) -> dict[str, Table]:
    """The tables whose columns are not declared: as they were when this checkpoint began, else as they are now."""
    birth = birth_of(following.folder)
    if birth is not None:
        new = [table for table in following.sources if full_name(table) not in birth.by_name]
        if new:
            raise DefinitionError(
                "TABLES_CHANGED",
                f"table {new[0]!r} was not read when the log under {following.folder} began, so it has no snapshot of "
                "it. Read it with a slot of its own, or start with a new checkpoint and slot.",
            )
        return birth.by_name
    if not wanted:
        return {}
    with following.slot.server.asked() as connection:
        tables = [find_table(connection, table) for table in wanted]
    return {table.name: table for table in tables}


def _ddl(table: Table) -> str:
    return ", ".join(f"`{column.name.replace('`', '``')}` {ddl_type(column.shown)}" for column in table.columns)


def _source_name(name: str | None, table: str, *, alone: bool) -> str:
    own = re.sub(r"\W", "_", split_name(table)[1])
    return own if name is None else name if alone else f"{name}_{own}"
