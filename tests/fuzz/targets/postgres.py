"""Messages of a PostgreSQL slot, through the change log to rows."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import mkdtemp

from hypothesis import strategies as st
from pyspark.sql.types import StructType

from headrace.changelog import DATABASE_CHANGELOG
from headrace.connectors.base.decoding import Decoded
from headrace.connectors.postgres.changes.catalogue import SourceColumn, SourceTable
from headrace.connectors.postgres.changes.change_log import ChangeLog, LogEntry, LogWriter
from headrace.connectors.postgres.changes.landing import LandingMetadata
from headrace.connectors.postgres.changes.log_reader import ChangeLogReader
from headrace.connectors.postgres.changes.transactions import TransactionRecorder
from headrace.errors import HeadraceError
from headrace.schemas import parse_ddl, polars_schema, spark_schema
from tests.fuzz.engine import Outcome, Target
from tests.fuzz.gate import passed

COLUMNS = (
    SourceColumn("id", 23, -1, "integer"),
    SourceColumn("note", 25, -1, "text"),
    SourceColumn("price", 1700, 655_366, "numeric(10,2)"),
    SourceColumn("at", 1184, -1, "timestamp with time zone"),
    SourceColumn("tags", 1009, -1, "text[]"),
    SourceColumn("days", 1182, -1, "date[]"),
    SourceColumn("raw", 17, -1, "bytea"),
)
DECLARED = parse_ddl(
    "id INT, note STRING, price DECIMAL(10,2), at TIMESTAMP, tags ARRAY<STRING>, days ARRAY<DATE>, raw BINARY"
)
SCHEMA = StructType([*DECLARED.fields, *spark_schema(DATABASE_CHANGELOG).fields])
ORDERS = SourceTable("public.orders", COLUMNS, ("id",), whole=False, oid=1)
_FOLDER = Path(mkdtemp(prefix="headrace-fuzz-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))  # noqa: S108
_SIZE = struct.Struct(">H")


def framed(*messages: bytes) -> bytes:
    """Messages of a case, each with its size."""
    return b"".join(_SIZE.pack(len(message)) + message for message in messages)


def unframed(data: bytes) -> Iterator[bytes]:
    at = 0
    while at + 2 <= len(data):
        size = _SIZE.unpack_from(data, at)[0]
        yield data[at + 2 : at + 2 + size]
        at += 2 + size


def check(data: bytes) -> Outcome:
    """Messages that cannot be taken are refused with a reason, and all rows of the others can be read."""
    shutil.rmtree(_FOLDER, ignore_errors=True)
    _FOLDER.mkdir()
    LandingMetadata("shop", "shop", "log", (ORDERS,), ()).write(_FOLDER)
    log = ChangeLog(_FOLDER / "log")
    log.create()
    writer = LogWriter(log, 0)
    recorder = TransactionRecorder({ORDERS.name: ORDERS}, LogEntry(), writer)
    try:
        recorder.record(unframed(data))
        entry = recorder.entry()
        if entry is None:
            return "nothing"
        assert writer.publish(entry)
    except HeadraceError as error:
        writer.discard()
        return error.id
    rows = log.entry(0).rows_of(ORDERS.name)
    reader = ChangeLogReader(_FOLDER, ORDERS.name, polars_schema(DECLARED), "dead_letter")
    letters = ("COLUMN_ADDED", "TABLE_TRUNCATED")
    try:
        found = passed(_read(reader), SCHEMA, time=None)
    except HeadraceError as error:
        return error.id
    further = sum(reason in letters for _, reason in found.dead)
    found.check(range(rows + further))
    return found.outcome


def _read(reader: ChangeLogReader) -> Iterator[Decoded]:
    return reader.read([(0, 1)], None)  # type: ignore[arg-type]


def relation(columns: Sequence[SourceColumn] = COLUMNS, identity: bytes = b"d", id: int = 1) -> bytes:
    parts = [
        (b"\x01" if column.name == "id" else b"\0")
        + column.name.encode()
        + b"\0"
        + struct.pack(">Ii", column.type, column.modifier)
        for column in columns
    ]
    return (
        b"R" + struct.pack(">I", id) + b"public\0orders\0" + identity + struct.pack(">H", len(parts)) + b"".join(parts)
    )


def values(*given: bytes | None) -> bytes:
    parts = (
        b"n" if each is None else b"u" if each == b"..." else b"t" + struct.pack(">I", len(each)) + each
        for each in given
    )
    return struct.pack(">H", len(given)) + b"".join(parts)


def changed(kind: bytes, new: bytes = b"", old: bytes = b"") -> bytes:
    return kind + struct.pack(">I", 1) + old + (b"N" + new if new else b"")


def transaction(lsn: int, *messages: bytes) -> list[bytes]:
    return [b"B" + struct.pack(">QqI", lsn, 5, 7), *messages, b"C\0" + struct.pack(">QQq", lsn, lsn + 8, 5)]


ROW = (
    b"1",
    "ä".encode(),
    b"1.50",
    b"2026-01-01 10:00:00.5+00",
    b'{a,"b \\"c\\"",NULL}',
    b"{2026-01-01,infinity}",
    b"\\xff00",
)
_TEXTS = st.binary(max_size=6) | st.sampled_from(
    [
        *ROW,
        b"NaN",
        b"infinity",
        b"-infinity",
        b"0044-03-15 BC",
        b"10000-01-01 00:00:00+00",
        b"[0:1]={5,6}",
        b"{{1},{2}}",
        b"{",
        b"...",
    ]
)
_ROWS = st.lists(st.none() | _TEXTS, min_size=6, max_size=8).map(lambda given: values(*given)) | st.tuples(
    *(st.none() | st.just(each) | _TEXTS for each in ROW)
).map(lambda given: values(*given))
_OLD = st.just(b"") | st.builds(lambda kind, row: kind + row, st.sampled_from([b"K", b"O"]), _ROWS)
_MESSAGES = st.one_of(
    _ROWS.map(lambda row: changed(b"I", row)),
    st.builds(lambda new, old: changed(b"U", new, old), _ROWS, _OLD),
    _OLD.map(lambda old: changed(b"D", old=old)),
    st.just(relation()),
    st.just(relation((*COLUMNS, SourceColumn("more", 25, -1, "text")))),
    st.just(b"T" + struct.pack(">IBI", 1, 0, 1)),
)
_TRANSACTIONS = st.lists(_MESSAGES, max_size=5).map(lambda given: framed(*transaction(100, relation(), *given)))
_SEEDS = [
    framed(
        *transaction(
            100,
            relation(),
            changed(b"I", values(*ROW)),
            changed(b"U", values(b"2", *ROW[1:]), b"K" + values(b"1", *[None] * 6)),
        ),
        *transaction(200, changed(b"D", old=b"K" + values(b"2", *[None] * 6)), b"T" + struct.pack(">IBI", 1, 0, 1)),
    ),
    framed(
        *transaction(
            100, relation(identity=b"f"), changed(b"U", values(*ROW[:4], b"...", None, None), b"O" + values(*ROW))
        )
    ),
]
TARGETS = [
    Target("pgoutput", _SEEDS, check, _TRANSACTIONS, [b"t\0\0\0\1", b"n", b"u", b"N", b"K", b"O", b"infinity", b"\xff"])
]
