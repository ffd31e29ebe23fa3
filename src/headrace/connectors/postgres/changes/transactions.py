"""Transactions on their way from the slot into the change log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.changelog import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from headrace.connectors.postgres.changes.catalogue import SourceColumn, SourceTable
from headrace.connectors.postgres.changes.change_log import LogEntry, LogWriter, Row
from headrace.connectors.postgres.changes.pgoutput import (
    Begin,
    Commit,
    Relation,
    RowChange,
    Truncate,
    parse_message,
    unreadable,
)


def position(lsn: int, index: int) -> str:
    """The position of a change, as text that sorts: its transaction's commit LSN, then its index in the transaction.

    >>> position(0x16B374D848, 3)
    '00000016B374D848-0000000003'
    """
    return f"{lsn:016X}-{index:010X}"


class TransactionRecorder:
    """Takes messages and hands the rows of the tables that are read to a log writer."""

    def __init__(self, tables: Mapping[str, SourceTable], before: LogEntry, writer: LogWriter) -> None:
        """``tables`` are as they were when the log began; ``before`` is the newest entry of the log."""
        self.last, self.end = before.last, 0
        self.rows = 0
        self.truncated: dict[str, str] = {}
        self.altered: dict[str, tuple[str, ...]] = {}
        self._tables = tables
        self._by_oid = {table.oid: table for table in tables.values()}
        self._seen = dict(before.seen)
        self._writer = writer
        self._relations: dict[int, _KnownRelation] = {}

    def record(self, messages: Iterable[bytes]) -> None:
        """Take whole transactions; those that are logged already have come again and are skipped."""
        begin, index, skipping = Begin(0, 0, 0), 0, True
        for message in messages:
            parsed = parse_message(message)
            match parsed:
                case RowChange():
                    known = self._relations.get(parsed.relation)
                    if skipping or known is None:
                        continue
                    rows = known.rows(parsed, begin, index)
                    self._writer.write(known.table.name, known.columns, rows, len(message))
                    index += 1
                    self.rows += 1
                case Begin():
                    begin, index, skipping = parsed, 0, parsed.lsn <= self.last
                case Commit():
                    self.last, self.end = max(self.last, parsed.lsn), parsed.end
                case Relation():
                    self._take_relation(parsed, again=skipping)
                case Truncate() if not skipping:
                    emptied = [self._relations[id].table.name for id in parsed.relations if id in self._relations]
                    self.truncated |= {name: position(begin.lsn, index) for name in emptied}
                    index += 1

    def entry(self) -> LogEntry | None:
        """The entry for what was recorded, without its files; None when nothing concerns the tables."""
        if not self.rows and not self.truncated:
            return None
        return LogEntry(truncated=self.truncated, altered=self.altered, last=self.last, end=self.end, seen=self._seen)

    def _take_relation(self, relation: Relation, *, again: bool) -> None:
        # By OID first: a publication follows a renamed table, and its changes must not be dropped.
        table = self._by_oid.get(relation.id) or self._tables.get(relation.table)
        if table is None:
            return
        table.check_same(relation)
        known = self._relations[relation.id] = _KnownRelation(table, relation)
        before = self._seen.get(table.name, table.columns)
        # A relation that comes again was reported before; after it the table has the columns seen last.
        if known.columns != before and not again:
            names = {column.name for column in before}
            new = (column.name for column in known.columns if column.name not in names)
            self.altered[table.name] = (*self.altered.get(table.name, ()), *new)
            self._seen[table.name] = known.columns


class _KnownRelation:
    """A table with the columns that it has now."""

    def __init__(self, table: SourceTable, relation: Relation) -> None:
        self.table = table
        known = {column.name: column.shown for column in table.columns}
        self.columns = tuple(SourceColumn(*column, shown=known.get(column[0], "")) for column in relation.columns)
        self._names = [column.name for column in self.columns]
        self._key = [self._names.index(name) for name in table.key if name in self._names]

    def rows(self, change: RowChange, begin: Begin, index: int) -> list[Row]:
        head = (position(begin.lsn, index), begin.committed_at, begin.transaction)
        new, old, width = change.new, change.old, len(self.columns)
        deleted = change.kind == b"D"
        if len(new) != (0 if deleted else width) or len(old) not in ((width,) if deleted else (0, width)):
            raise unreadable(change.kind, f"its rows have {len(new)} and {len(old)} columns, its table has {width}")
        if change.kind == b"I":
            return [(INSERT, *head, None, *new)]
        if deleted:
            return [(DELETE, *head, None, *old)]
        sent = range(len(old)) if change.whole else self._key if old else ()
        for column in change.unsent:
            if column in sent:
                new[column] = old[column]
        unsent = [self._names[column] for column in change.unsent if column not in sent] or None
        moved = bool(old) and any(old[column] != new[column] for column in self._key)
        after = (INSERT if moved else UPDATE_AFTER, *head, unsent, *new)
        # A key that is stored out of line (TOAST) is sent even when unchanged; that is not an old row.
        if moved or change.whole:
            return [(DELETE if moved else UPDATE_BEFORE, *head, None, *old), after]
        return [after]
