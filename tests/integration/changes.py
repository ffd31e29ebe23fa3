"""A feed of changes without Spark: its log read back, and tables put together from it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headrace.connectors.postgres.changes.catalogue import full_name
from headrace.connectors.postgres.changes.change_log import ChangeLog
from headrace.connectors.postgres.changes.landing import read_metadata
from headrace.connectors.postgres.changes.log_reader import ChangeLogReader
from headrace.connectors.postgres.changes.replication import ReplicationFeed
from headrace.connectors.postgres.changes.slot import ReplicationSlot
from headrace.connectors.postgres.connection import PostgresServer
from headrace.schemas import parse_ddl, polars_schema
from headrace.services.service import Service


def feed_of(postgres: Service, folder: Path, slot: str, tables: Sequence[str]) -> ReplicationFeed:
    """A feed of tables into a folder."""
    own = ReplicationSlot(PostgresServer(postgres.dsn, None), slot, slot)
    return ReplicationFeed(own, folder, tables, lambda log: None)


def log_in(folder: Path) -> ChangeLog:
    """The log of a feed that has begun."""
    metadata = read_metadata(folder)
    assert metadata is not None
    return ChangeLog(folder / metadata.log)


def logged(folder: Path, table: str) -> list[dict[str, Any]]:
    """All rows of a table that are in the log, in order."""
    metadata = read_metadata(folder)
    assert metadata is not None
    ddl = metadata.by_name[full_name(table)].ddl
    reader = ChangeLogReader(folder, full_name(table), polars_schema(parse_ddl(ddl)), "dead_letter")
    entries = [(0, log_in(folder).next())]
    return [row for arrived in reader.read(entries, None) for row in arrived.rows.to_dicts()]  # type: ignore[arg-type]


def table_of(rows: Sequence[dict[str, Any]], key: str, columns: Sequence[str]) -> dict[Any, tuple[Any, ...]]:
    """The table that changes leave, played one after the other in the order of their positions."""
    table: dict[Any, tuple[Any, ...]] = {}
    for row in sorted(rows, key=lambda row: row["position"]):
        if row["change"] in ("insert", "update_after"):
            before = dict(zip(columns, table.get(row[key], ()), strict=False))
            unchanged = row["unchanged"] or []
            table[row[key]] = tuple(before[name] if name in unchanged else row[name] for name in columns)
        else:
            del table[row[key]]
    return table
