"""Parser of ``pgoutput``, the logical replication protocol: transactions, their tables, and rows as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct, error

from headrace.errors import HeadraceError

Values = list[bytes | None]
"""The text of each column of a row, in the order of the table's columns."""

_BEGIN, _COMMIT = Struct(">QqI"), Struct(">xQQq")
_OID, _COUNT, _LENGTH, _TYPE = Struct(">I"), Struct(">H"), Struct(">I"), Struct(">Ii")
_TEXT, _NULL, _UNCHANGED = b"tnu"
_KEY, _OLD = b"KO"
_FULL, _IN_KEY = ord("f"), 1
EPOCH_2000 = 946_684_800_000_000
"""Microseconds between the epochs of Unix and PostgreSQL."""


@dataclass(frozen=True, slots=True)
class Begin:
    """A transaction begins; ``lsn`` is that of its commit, by which transactions are ordered."""

    lsn: int
    committed_at: int
    transaction: int


@dataclass(frozen=True, slots=True)
class Commit:
    """A transaction ends; ``end`` is the LSN right after it."""

    lsn: int
    end: int


@dataclass(frozen=True, slots=True)
class Relation:
    """A table as it is from here on: its columns, each with OID and modifier of its type."""

    id: int
    table: str
    columns: tuple[tuple[str, int, int], ...]
    key: tuple[str, ...]
    """The columns of the replica identity: those sent of an old row."""
    whole: bool
    """Whether that is the whole row (REPLICA IDENTITY FULL)."""


@dataclass(slots=True)
class RowChange:
    """A row that was inserted (I), updated (U) or deleted (D)."""

    kind: bytes
    relation: int
    new: Values
    """The new row; empty for a delete."""
    unsent: tuple[int, ...] = ()
    """Columns whose large (TOAST) values were not sent because they are unchanged."""
    old: Sequence[bytes | None] = ()
    """What was sent of the old row: nothing, its key, or (``whole``) all of it."""
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Truncate:
    """Tables that were truncated together."""

    relations: tuple[int, ...]


Message = Begin | Commit | Relation | RowChange | Truncate | None


def parse_message(message: bytes) -> Message:
    """A message of protocol version 1; None for kinds that concern no row."""
    try:
        return _parsed(message)
    except (error, IndexError, ValueError) as problem:
        raise unreadable(message[:1], str(problem)) from None


def unreadable(kind: bytes, problem: str) -> HeadraceError:
    """The error for a message that no server sends: rows behind it might be taken for others, so nothing is skipped."""
    return HeadraceError(
        "CHANGES_UNREADABLE",
        f"the slot returned a message of kind {kind!r} that is not pgoutput's ({problem}). Nothing is lost: the slot "
        "keeps it. Correct what is between the database and Headrace, then start again.",
    )


def _parsed(message: bytes) -> Message:
    match message[:1]:
        case b"I":
            return RowChange(b"I", _OID.unpack_from(message, 1)[0], _row(message, 6)[0])
        case b"U" | b"D" as kind:
            old: Sequence[bytes | None] = ()
            at, sent = 6, message[5]
            if sent in (_KEY, _OLD):
                old, _, at = _row(message, at)
                at += 1
            new, unsent, _ = _row(message, at) if kind == b"U" else ([], (), at)
            return RowChange(kind, _OID.unpack_from(message, 1)[0], new, unsent, old, sent == _OLD)
        case b"B":
            lsn, time, transaction = _BEGIN.unpack_from(message, 1)
            return Begin(lsn, time + EPOCH_2000, transaction)
        case b"C":
            lsn, end, _ = _COMMIT.unpack_from(message, 1)
            return Commit(lsn, end)
        case b"R":
            return _relation(message)
        case b"T":
            # The number of tables and the statement's options come first.
            return Truncate(tuple(oid for (oid,) in _OID.iter_unpack(message[6:])))
        case _:
            return None


def _row(message: bytes, at: int) -> tuple[Values, tuple[int, ...], int]:
    """The values of a row, the columns that were not sent, and where the row ends."""
    (count,) = _COUNT.unpack_from(message, at)
    at += 2
    values: Values = []
    unsent: tuple[int, ...] = ()
    for _ in range(count):
        kind = message[at]
        if kind == _TEXT:
            start = at + 5
            at = start + _LENGTH.unpack_from(message, at + 1)[0]
            values.append(message[start:at])
            continue
        if kind == _UNCHANGED:
            unsent = (*unsent, len(values))
        values.append(None)
        at += 1
    if at > len(message):
        raise IndexError("a value ends behind it")
    return values, unsent, at


def _relation(message: bytes) -> Relation:
    (id,) = _OID.unpack_from(message, 1)
    schema, at = _string(message, 5)
    name, at = _string(message, at)
    whole = message[at] == _FULL
    (count,) = _COUNT.unpack_from(message, at + 1)
    at += 3
    columns, key = [], []
    for _ in range(count):
        flags = message[at]
        column, at = _string(message, at + 1)
        columns.append((column, *_TYPE.unpack_from(message, at)))
        at += _TYPE.size
        if flags & _IN_KEY:
            key.append(column)
    return Relation(id, f"{schema}.{name}", tuple(columns), tuple(key), whole)


def _string(message: bytes, at: int) -> tuple[str, int]:
    """A zero-terminated string, and the offset after it."""
    end = message.index(b"\0", at)
    return message[at:end].decode(), end + 1
