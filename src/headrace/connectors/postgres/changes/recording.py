"""Transactions on their way from the server into the log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import polars as pl

from headrace.changelog import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from headrace.connectors.postgres.changes.alterations import check_same
from headrace.connectors.postgres.changes.catalogue import Column, Table
from headrace.connectors.postgres.changes.change_log import HEAD, Entry
from headrace.connectors.postgres.changes.draft import Draft
from headrace.connectors.postgres.changes.pgoutput import (
    Begin,
    Commit,
    Delete,
    Insert,
    Relation,
    Truncate,
    Update,
    Values,
    understood,
)

PIECE_ROWS, PIECE_BYTES = 100_000, 64 << 20
BYTES, TEXT = pl.Binary(), pl.String()
Row = tuple[object, ...]


def position(lsn: int, index: int) -> str:
    """Where a change stands among all: its transaction's commit, then its place in the transaction.

    >>> position(0x16B374D848, 3)
    '00000016B374D848-0000000003'
    """
    return f"{lsn:016X}-{index:010X}"


class Recorder:
    """Takes messages and writes the rows of the tables that are read into a draft."""

    def __init__(self, tables: Mapping[str, Table], before: Entry, draft: Draft) -> None:
        """``tables`` are as they were at the beginning; ``before`` says what is logged already, and how they became."""
        self.last = before.last
        self.end = 0
        self.rows = 0
        self.truncated: dict[str, str] = {}
        self.altered: dict[str, tuple[str, ...]] = {}
        self._tables = tables
        self._by_number = {table.oid: table for table in tables.values() if table.oid}
        self._seen = dict(before.seen)
        self._draft = draft
        self._pages: dict[int, _Page] = {}
        self._bytes = 0

    def record(self, messages: Iterable[bytes]) -> None:
        """Take whole transactions; those up to the last one that is logged have come again and are passed over."""
        begin, index, skipping = Begin(0, 0, 0), 0, True
        for message in messages:
            said = understood(message)
            match said:
                case Insert() | Update() | Delete():
                    page = self._pages.get(said.relation)
                    if skipping or page is None:
                        continue
                    page.add(said, begin, index)
                    index += 1
                    self.rows += 1
                    self._bytes += len(message)
                    if len(page.rows) >= PIECE_ROWS or self._bytes >= PIECE_BYTES:
                        self.write_out()
                case Begin():
                    begin, index, skipping = said, 0, said.lsn <= self.last
                case Commit():
                    self.last, self.end = max(self.last, said.lsn), said.end
                case Relation():
                    self._turn_page(said, again=skipping)
                case Truncate() if not skipping:
                    emptied = [self._pages[id].table.name for id in said.relations if id in self._pages]
                    self.truncated |= {name: position(begin.lsn, index) for name in emptied}
                    index += 1
        self.write_out()

    def entry(self) -> Entry | None:
        """What has been recorded, beside its files; None when none of it concerns the tables."""
        if not self.rows and not self.truncated:
            return None
        return Entry(truncated=self.truncated, altered=self.altered, last=self.last, end=self.end, seen=self._seen)

    def write_out(self) -> None:
        """Hand what has been gathered to the draft."""
        for page in self._pages.values():
            if page.rows:
                self._draft.write(page.table.name, page.columns, framed(page.rows, len(page.columns)))
                page.rows = []
        self._bytes = 0

    def _turn_page(self, relation: Relation, *, again: bool) -> None:
        # By its number first: a publication follows a table that is renamed, and what comes of it must not be dropped.
        table = self._by_number.get(relation.id) or self._tables.get(relation.table)
        if table is not None:
            check_same(table, relation)
            self._by_number[relation.id] = table
            self.write_out()
            page = self._pages[relation.id] = _Page(table, relation)
            before = self._seen.get(table.name, table.columns)
            # What comes again has been told; where it ends the table is as it was seen last.
            if page.columns != before and not again:
                names = {column.name for column in before}
                new = (column.name for column in page.columns if column.name not in names)
                self.altered[table.name] = (*self.altered.get(table.name, ()), *new)
                self._seen[table.name] = page.columns


class _Page:
    """Rows of one table, as its columns are now."""

    def __init__(self, table: Table, relation: Relation) -> None:
        self.table = table
        known = {column.name: column.shown for column in table.columns}
        self.columns = tuple(
            Column(name, kind, modifier, known.get(name, "")) for name, kind, modifier in relation.columns
        )
        self.rows: list[Row] = []
        self._names = [name for name, *_ in relation.columns]
        self._key = [self._names.index(name) for name in table.key if name in self._names]

    def add(self, said: Insert | Update | Delete, begin: Begin, index: int) -> None:
        head = (position(begin.lsn, index), begin.committed_at, begin.transaction)
        match said:
            case Insert():
                self.rows.append((INSERT, *head, None, *said.new))
            case Delete():
                self.rows.append((DELETE, *head, None, *said.old))
            case Update():
                self._add_update(said, head)

    def _add_update(self, said: Update, head: Row) -> None:
        new, old = said.new, said.old
        # Of the old row the server has sent all, or the key alone, or nothing.
        sent = () if old is None else range(len(new)) if said.whole else self._key
        for column in set(said.unsent).intersection(sent):
            new[column] = old[column]  # type: ignore[index]  # there is an old row where something of it was sent
        unsent = [self._names[column] for column in said.unsent if column not in sent] or None
        moved = old is not None and self._has_moved(old, new)
        # A key that is stored apart is sent also when it stays as it is; it is no row before this one.
        if old is not None and (moved or said.whole):
            self.rows.append((DELETE if moved else UPDATE_BEFORE, *head, None, *old))
        self.rows.append((INSERT if moved else UPDATE_AFTER, *head, unsent, *new))

    def _has_moved(self, old: Values, new: Values) -> bool:
        return any(old[column] != new[column] for column in self._key)


def framed(rows: list[Row], columns: int, kind: pl.DataType = BYTES) -> pl.DataFrame:
    """Rows, whose values are texts or their bytes, as a frame of texts.

    >>> framed([("insert", position(1, 0), 0, 7, None, b"a", None)], 2).select("kind", "0", "1").row(0)
    ('insert', 'a', None)
    """
    heads = [*HEAD.items(), *((str(number), kind) for number in range(columns))]
    parts = zip(*rows, strict=True)
    series = [pl.Series(name, part, dtype=kind) for (name, kind), part in zip(heads, parts, strict=True)]
    return pl.DataFrame(series).with_columns(pl.col(pl.Binary).cast(pl.String))
