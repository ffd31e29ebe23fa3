"""Tables as they are at the very place where a slot begins, as the first entries of a log."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import chain, islice
from typing import Any

import psycopg
from psycopg import sql

from headrace.changelog import INSERT
from headrace.connectors.postgres.changes.catalogue import Table, split_name
from headrace.connectors.postgres.changes.change_log import ChangeLog, Entry, Overtaken
from headrace.connectors.postgres.changes.draft import Draft
from headrace.connectors.postgres.changes.recording import PIECE_BYTES, PIECE_ROWS, TEXT, Row, framed, position
from headrace.connectors.postgres.changes.slot import Slot
from headrace.storage import write_durably

FILE = "snapshot.json"
ROWS_OF_AN_ENTRY = 1_000_000


def take_snapshot(slot: Slot, session: str, tables: Sequence[Table], log: ChangeLog) -> None:
    """Make the slot and copy the tables as every transaction before it left them.

    The slot's first change is that of the first transaction which the exported snapshot does not see: no gap and no
    overlap. Nothing of it is seen before all of it is there.
    """
    with slot.server.connect(session) as reader:
        # Asked before the slot is made: no change behind it was committed earlier.
        began = int(reader.execute("select extract(epoch from clock_timestamp()) * 1000000").fetchall()[0][0])
        holder, point, name = slot.create(session)
        entries: list[Entry] = []
        with holder:
            reader.execute("begin transaction isolation level repeatable read, read only")
            reader.execute(sql.SQL("set transaction snapshot {}").format(sql.Literal(name)))
            for table in tables:
                for pieces in _entries(reader, table, point, began):
                    draft = Draft(log, len(entries))
                    for rows in pieces:
                        draft.write(table.name, table.columns, framed(rows, len(table.columns), TEXT))
                    entries.append(Entry(draft.finish(), last=point - 1, end=point, logged_at=began))
    entries = entries or [Entry(last=point - 1, end=point, logged_at=began)]
    write_durably(log.folder / FILE, json.dumps([asdict(entry) for entry in entries]))


def is_taken(log: ChangeLog) -> bool:
    """Whether the snapshot is there as a whole."""
    return (log.folder / FILE).exists()


def show_snapshot(log: ChangeLog) -> None:
    """Publish the entries of a snapshot, also where a crash has left some out."""
    entries = json.loads((log.folder / FILE).read_text(encoding="utf-8"))
    for number in range(log.next(), len(entries)):
        with suppress(Overtaken):
            log.publish(number, Entry.from_json(json.dumps(entries[number])))


def _entries(reader: psycopg.Connection[Any], table: Table, point: int, began: int) -> Iterator[Iterator[list[Row]]]:
    """The rows of a table in pieces that fit into memory, so many pieces for an entry."""
    query = sql.SQL("copy (select {} from {}) to stdout").format(
        sql.SQL(", ").join(map(sql.Identifier, table.names)), sql.Identifier(*split_name(table.name))
    )
    with reader.cursor().copy(query) as copy:
        # One byte before the slot begins is before every change.
        rows = (
            (INSERT, position(point - 1, index), began, None, None, *values) for index, values in enumerate(copy.rows())
        )
        pieces = _pieces(rows)
        for first in pieces:
            yield chain([first], islice(pieces, ROWS_OF_AN_ENTRY // PIECE_ROWS - 1))


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
