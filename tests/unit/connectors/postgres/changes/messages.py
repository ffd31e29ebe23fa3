"""Messages as ``pgoutput`` writes them, for tables whose key is ``id``, a number, and whose other columns are texts."""

from __future__ import annotations

import struct

IDENTITY_KEY = b"\1"


def relation(
    *columns: str, id: int = 1, table: str = "orders", key: tuple[str, ...] = ("id",), identity: str = "d"
) -> bytes:
    """A table as it is from here on; a column may name the number of its type, as in ``large:23``."""
    parts = []
    for column in columns:
        name, _, type = column.partition(":")
        flag = IDENTITY_KEY if name in key or identity == "f" else b"\0"
        number = int(type) if type else 23 if name == "id" else 25
        parts.append(flag + name.encode() + b"\0" + struct.pack(">Ii", number, -1))
    head = f"public\0{table}\0{identity}".encode() + struct.pack(">H", len(columns))
    return b"R" + struct.pack(">I", id) + head + b"".join(parts)


def values(*given: str | None) -> bytes:
    """A row; ``None`` is null, ``...`` was not sent."""
    parts = [
        b"n" if each is None else b"u" if each == "..." else b"t" + struct.pack(">I", len(each)) + each.encode()
        for each in given
    ]
    return struct.pack(">H", len(given)) + b"".join(parts)


def insert(*given: str | None, id: int = 1) -> bytes:
    """A new row."""
    return b"I" + struct.pack(">I", id) + b"N" + values(*given)


def update(new: bytes, old: bytes = b"") -> bytes:
    """A row that was changed."""
    return b"U" + struct.pack(">I", 1) + old + b"N" + new


def truncate(id: int = 1) -> bytes:
    """A table that was emptied."""
    return b"T" + struct.pack(">IBI", 1, 0, id)


def transaction(lsn: int, *messages: bytes) -> list[bytes]:
    """A transaction that was committed at a place of the server's log; behind it the log goes on 8 bytes later."""
    begin = b"B" + struct.pack(">QqI", lsn, 5, 7)
    return [begin, *messages, b"C\0" + struct.pack(">QQq", lsn, lsn + 8, 5)]
