"""The snapshot: the tables exactly as they are where the slot begins, as the first entries of the change log."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import chain, islice

from psycopg import sql

from headrace.changelog import INSERT
from headrace.connectors.postgres.changes.catalogue import SourceTable, split_name
from headrace.connectors.postgres.changes.change_log import ChangeLog, EntryExists, LogEntry, LogWriter
from headrace.connectors.postgres.changes.slot import ReplicationSlot
from headrace.connectors.postgres.changes.transactions import PIECE_BYTES, PIECE_ROWS, TEXT, Row, position, text_frame
from headrace.connectors.postgres.connection import PgConnection
from headrace.storage import write_durably

FILE = "snapshot.json"
ROWS_PER_ENTRY = 1_000_000


def take_snapshot(slot: ReplicationSlot, session: str, tables: Sequence[SourceTable], log: ChangeLog) -> None:
    """Create the slot and copy the tables as of that moment.

    The slot's first change belongs to the first transaction that the exported snapshot does not see: no gap and no
    overlap. Nothing of the snapshot is visible before all of it is there.
    """
    with slot.server.connect_for_changes(session) as reader:
        # Read before the slot is created: every change in the slot was committed later.
        began = int(reader.execute("select extract(epoch from clock_timestamp()) * 1000000").fetchall()[0][0])
        holder, start, name = slot.create(session)
        entries: list[LogEntry] = []
        with holder:
            reader.execute("begin transaction isolation level repeatable read, read only")
            reader.execute(sql.SQL("set transaction snapshot {}").format(sql.Literal(name)))
            for table in tables:
                for pieces in _entries(reader, table, start, began):
                    writer = LogWriter(log, len(entries))
                    for rows in pieces:
                        writer.write(table.name, table.columns, text_frame(rows, len(table.columns), TEXT))
                    entries.append(LogEntry(writer.finish(), last=start - 1, end=start, logged_at=began))
    entries = entries or [LogEntry(last=start - 1, end=start, logged_at=began)]
    write_durably(log.folder / FILE, json.dumps([asdict(entry) for entry in entries]))


def is_taken(log: ChangeLog) -> bool:
    """Whether the snapshot is complete."""
    return (log.folder / FILE).exists()


def publish_snapshot(log: ChangeLog) -> None:
    """Publish the entries of a snapshot, from where a crash may have interrupted it."""
    entries = json.loads((log.folder / FILE).read_text(encoding="utf-8"))
    for number in range(log.next(), len(entries)):
        with suppress(EntryExists):
            log.publish(number, LogEntry.from_json(entries[number]))


def _entries(reader: PgConnection, table: SourceTable, start: int, began: int) -> Iterator[Iterator[list[Row]]]:
    """The rows of a table: for each entry some pieces that fit into memory."""
    columns = sql.SQL(", ").join(sql.Identifier(column.name) for column in table.columns)
    query = sql.SQL("copy (select {} from {}) to stdout").format(columns, sql.Identifier(*split_name(table.name)))
    with reader.cursor().copy(query) as copy:
        # One byte before the slot begins, so before every change.
        rows = (
            (INSERT, position(start - 1, index), began, None, None, *values) for index, values in enumerate(copy.rows())
        )
        pieces = _pieces(rows)
        for first in pieces:
            yield chain([first], islice(pieces, ROWS_PER_ENTRY // PIECE_ROWS - 1))


def _pieces(rows: Iterator[Row]) -> Iterator[list[Row]]:
    piece: list[Row] = []
    size = 0
    for row in rows:
        piece.append(row)
        size += sum(len(value) for value in row if isinstance(value, str))
        if len(piece) >= PIECE_ROWS or size >= PIECE_BYTES:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece
