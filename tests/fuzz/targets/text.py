"""Files and messages of text: JSON lines, CSV, and what Debezium's connectors write."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from headrace.changelog import DATABASE_CHANGELOG
from headrace.connectors.base.csv_lines import CsvLines
from headrace.connectors.base.decoding import Columns, Decoder
from headrace.connectors.base.json_lines import JsonLines
from headrace.connectors.base.messages import CsvMessages, JsonMessages, MessageDecoder, Payloads
from headrace.connectors.base.source import declared_columns
from headrace.connectors.debezium.changes import DebeziumChanges, debezium_changes
from headrace.connectors.debezium.decoder import DebeziumFiles, debezium_messages
from headrace.schemas import parse_ddl
from tests.fuzz.engine import Outcome, Target
from tests.fuzz.gate import Passed, in_file, passed

FLAT = parse_ddl(
    "id STRING NOT NULL, small TINYINT, whole BIGINT, amount DOUBLE, ratio FLOAT, price DECIMAL(6,2), "
    "exact DECIMAL(38,10), paid BOOLEAN, day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, seal BINARY"
)
NESTED = parse_ddl(
    "id STRING, größe STRING, whole BIGINT, marks ARRAY<INT>, tags ARRAY<STRING>, at TIMESTAMP, price DECIMAL(38,9), "
    "card STRUCT<kind: STRING, until: DATE, more: ARRAY<STRUCT<code: STRING, rate: DECIMAL(20,4), at: TIMESTAMP>>>"
)
SMALL_CHUNK = 64
"""Bytes of a chunk, in which a file must be what it is in one piece."""


def positions(data: bytes) -> list[int]:
    """The numbers of the lines that are not blank."""
    lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    return [number for number, line in enumerate(lines, 1) if line.strip(b" \t\r")]


def _lines(decoder: type[JsonLines] | type[CsvLines], schema: Any, **options: Any) -> Callable[[bytes], Outcome]:
    columns = declared_columns(schema)
    whole, pieces = decoder(columns, **options), decoder(columns, chunk_bytes=SMALL_CHUNK, **options)

    def read(decoder: Decoder) -> Callable[[str], Passed]:
        return lambda file: passed(decoder.decode(file), schema, time="at")

    def check(data: bytes) -> Outcome:
        found = in_file(data, read(whole))
        if options.get("header", True) and decoder is CsvLines:
            _check_with_header(found, data)
        else:
            found.check(positions(data))
        if len(data) < 20 * SMALL_CHUNK and zlib.crc32(data) % 8 == 0:
            again = in_file(data, read(pieces))
            assert (set(again.handed_on), set(again.dead)) == (set(found.handed_on), set(found.dead))
        return found.outcome

    return check


def _check_with_header(found: Passed, data: bytes) -> None:
    """The first line that is not blank is no row, and without it there is none."""
    if "FILE_UNREADABLE" in found.reasons:
        assert found == Passed((), ((0, "FILE_UNREADABLE"),), 0)
    else:
        found.check(positions(data)[1:])


def _messages(decoder: MessageDecoder, schema: Any) -> Callable[[bytes], Outcome]:
    def check(data: bytes) -> Outcome:
        payloads: list[bytes | None] = [part if part != MISSING else None for part in data.split(SEPARATOR)]
        offsets = np.arange(7, 7 + len(payloads))
        found = passed(decoder.read(Payloads.of(payloads, offsets)), schema, time="at")
        found.check(offsets.tolist())
        return found.outcome

    return check


SEPARATOR, MISSING = b"\x1e", b"\x00"
"""What is between two messages of a case, and a message without a payload."""


GOOD = (
    b'{"id": "caf\\u00e9 \\ud83d\\ude00", "small": -128, "whole": 9223372036854775807, "amount": 1e2, "ratio": 0.5, '
    b'"price": 12.50, "exact": 1234567890.0123456789, "paid": true, "day": "2026-05-01", '
    b'"at": "2026-05-01T10:00:00+02:00", "local": "2026-05-01 10:00:00", "seal": "YWI="}'
)
DEEP = (
    '{"id": {"a": [1.10, "\\\\u0000"]}, "größe": 1.50, "whole": 1, "marks": [1, null], "tags": ["x", 1e2, {"b": -0}], '
    '"at": "2026-05-01T10:00:00Z", "price": 0.123456789, "card": {"kind": 7, "until": "2027-01-31", '
    '"more": [{"code": 1.0, "rate": 2.5, "at": "2026-05-01"}, null]}, "other": [{}, [[]]]}'
).encode()
JSON_TOKENS = [
    *(
        b"null",
        b"true",
        b"NaN",
        b"-0",
        b"1e400",
        b"1E-9",
        b"9" * 45,
        b"0.1234567890123456789",
        b"[" * 200,
        b'{"a":' * 200,
    ),
    *(
        b'"id"',
        b'"price":',
        b"1.10",
        b"\\ud83d",
        b"\\u0000",
        b'\\"',
        b"\\\\",
        b"\xff",
        b"\xef\xbb\xbf",
        b"\r\n",
        b"\n\n",
    ),
    *(b'"2026-02-30"', b'"9999-12-31T23:59:59.999999999Z"', b'"0000-01-01"', b'"-"', b'""', b"{}", b"[]", b", ,"),
]
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**130)
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(["2026-01-01", "2026-01-01T10:00:00Z", "12.5", "YQ==", "1e5", "-1", "9" * 60])
    | st.decimals(allow_nan=False, allow_infinity=False).map(lambda number: f"{number:e}")
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)


def _objects(schema: Any) -> st.SearchStrategy[bytes]:
    """JSON objects with these fields and others, with any values, as different writers write them."""
    fields: dict[Any, Any] = dict.fromkeys([*schema.names, "other"], VALUES)
    objects = st.fixed_dictionaries({}, optional=fields)
    return st.one_of(
        objects.map(lambda value: json.dumps(value).encode()),
        objects.map(lambda value: json.dumps(value, ensure_ascii=False).encode(errors="replace")),
        objects.map(lambda value: json.dumps(value, indent=1, separators=(" , ", " : ")).replace("\n", " ").encode()),
    )


def _several(lines: st.SearchStrategy[bytes], between: bytes) -> st.SearchStrategy[bytes]:
    odd = st.sampled_from([b"", b" ", b"\r", b"oops", b"[1]"]) | st.binary(max_size=8)
    return st.lists(lines | odd, max_size=6).map(between.join)


def _json(name: str, check: Callable[[bytes], Outcome], schema: Any, between: bytes) -> Target:
    seeds = [between.join([GOOD, DEEP, b"{}", GOOD]), DEEP, GOOD, between.join([b"", b'{"id": 1.10}', b"oops", b""])]
    return Target(name, seeds, check, _several(_objects(schema), between), JSON_TOKENS, between)


RECORD = b"x,-1,5,1.5,0.25,12.50,7,true,2026-05-01,2026-05-01T10:00:00Z,2026-05-01 10:00:00,YWI="
FIELD = st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=5)
QUOTED = FIELD.map(lambda text: '"' + text.replace('"', '""') + '"')
RECORDS = st.lists(FIELD | QUOTED | SCALARS.map(str), min_size=10, max_size=13).map(
    lambda fields: ",".join(fields).replace("\n", " ").encode(errors="replace")
)
CSV_TOKENS = [
    b'"',
    b'""',
    b'","',
    b",",
    b",,",
    b"\n",
    b"\r\n",
    b'"\n"',
    b"\xff",
    b"\xef\xbb\xbf",
    b"\x00",
    b'5" pipe',
    b" ",
]


def _csv(name: str, check: Callable[[bytes], Outcome], between: bytes, first: Sequence[bytes] = ()) -> Target:
    quoted = b'"a ""b"", c"' + RECORD[1:]
    seeds = [between.join([*first, RECORD, quoted, b",,,,,,,,,,,", RECORD]), between.join([*first, quoted])]
    begins = b"".join(line + between for line in first)
    return Target(name, seeds, check, _several(RECORDS, between).map(lambda data: begins + data), CSV_TOKENS, between)


CHANGES = debezium_changes(
    "id BIGINT, name STRING, price DECIMAL(10,2), at TIMESTAMP, day DATE, ok BOOLEAN, tags ARRAY<STRING>, "
    "place STRUCT<x: DOUBLE, wkb: BINARY>",
    key="id",
)


def _debezium(changes: DebeziumChanges, *, keyed: bool) -> Callable[[bytes], Outcome]:
    struct = changes.struct
    columns = declared_columns(struct)
    messages = debezium_messages(changes, columns.types, "json")

    def check(data: bytes) -> Outcome:
        if keyed:
            given = [None if part == MISSING else part for part in data.split(SEPARATOR)]
            keys = [given[number - 1] for number in range(len(given))]
            expected = list(range(7, 7 + len(given)))
            payloads = Payloads.of(given, np.array(expected), keys, np.arange(len(given)))
            found = passed(messages.read(payloads), struct, time=None)
        else:
            expected = positions(data)
            found = in_file(data, lambda file: passed(DebeziumFiles(columns, messages).decode(file), struct, time=None))
        # A message gives up to two rows, or none and counts as skipped.
        once = Passed(tuple(set(found.handed_on)), found.dead, found.skipped)
        assert set(once.handed_on) | {position for position, _ in once.dead} <= set(expected)
        assert len(once.handed_on) + len(once.dead) + found.skipped == len(expected)
        assert "UNDECODABLE" not in found.reasons
        return *found.outcome, bool(found.skipped)

    return check


_ROW = {"id": 1, "name": "Ann", "price": "BNI=", "at": 1_767_323_045_678_000, "day": 20_000, "ok": 1, "tags": ["a"]}
_ROW |= {"place": {"x": 1.5, "wkb": "AQ=="}}
_SOURCES: Sequence[dict[str, Any]] = [
    {"connector": "postgresql", "ts_ms": 1_767_323_045_678, "lsn": 100, "sequence": '["90","100"]', "txId": 7},
    {"connector": "mysql", "ts_ms": 0, "file": "binlog.000003", "pos": 154, "row": 0},
    {"connector": "sqlserver", "ts_ms": 5, "commit_lsn": "00:1", "change_lsn": "00:2", "event_serial_no": 1},
    {"connector": "mongodb", "ts_ms": 5, "ord": 1},
]
_FIELDS = [
    {"type": "int64", "field": "id"},
    {"type": "bytes", "field": "price", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}},
    {"type": "int64", "field": "at", "name": "io.debezium.time.MicroTimestamp"},
]
_ROWS = st.fixed_dictionaries({}, optional=dict.fromkeys(_ROW, VALUES)) | st.just(_ROW)
_ENVELOPES = st.fixed_dictionaries(
    {"op": st.sampled_from("crudtmx") | VALUES},
    optional={
        "before": st.none() | _ROWS | VALUES,
        "after": st.none() | _ROWS | VALUES | _ROWS.map(json.dumps),
        "source": st.sampled_from(_SOURCES) | VALUES,
        "transaction": st.just({"id": "7:100"}) | VALUES,
        "ts_ms": VALUES,
    },
)
_UNWRAPPED = st.builds(
    lambda row, more: {**row, **more},
    _ROWS,
    st.fixed_dictionaries(
        {}, optional={"__op": VALUES, "__deleted": st.sampled_from(["true", "false"]), "__source_lsn": VALUES}
    ),
)
_PARTS = st.sampled_from(
    [
        {"type": "struct", "fields": [{"type": "struct", "fields": _FIELDS, "field": "after"}, {"field": "op"}]},
        {"type": "struct", "fields": _FIELDS},
        {"fields": 5},
    ]
)
_WITH_SCHEMA = st.builds(
    lambda schema, payload: {"schema": schema, "payload": payload}, _PARTS | VALUES, _ENVELOPES | _UNWRAPPED
)
_CHANGES = (_ENVELOPES | _UNWRAPPED | _WITH_SCHEMA).map(
    lambda message: json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode(errors="replace")
)
_DOCUMENT = '{"_id":{"$oid":"5"},"id":{"$numberLong":"4"},"price":{"$numberDecimal":"1.50"},"at":{"$date":1}}'
_RECORDED: Sequence[bytes] = [
    json.dumps(message, separators=(",", ":")).encode()
    for message in (
        {"before": None, "after": _ROW, "source": _SOURCES[0], "transaction": {"id": "7:9"}, "op": "c", "ts_ms": 5},
        {"before": _ROW, "after": {**_ROW, "id": 2, "price": 12.5}, "source": _SOURCES[1], "op": "u"},
        {"before": _ROW, "after": None, "source": _SOURCES[2], "op": "d"},
        {"before": None, "after": _DOCUMENT, "source": _SOURCES[3], "op": "r"},
        {"schema": {"type": "struct", "fields": _FIELDS}, "payload": {**_ROW, "__op": "u", "__deleted": "false"}},
        {"id": 5, "name": "__debezium_unavailable_value", "price": {"scale": 3, "value": "Fi4="}, "at": "infinity"},
        {"source": _SOURCES[0], "op": "t"},
    )
]
_DEBEZIUM_TOKENS = [
    *JSON_TOKENS,
    *(
        b'"op":"',
        b'"after":',
        b'"before":null',
        b'{"schema":',
        b',"payload":',
        b'"source":{"connector":',
        b"__debezium",
    ),
    *(
        b'{"$numberLong":"',
        b'{"$date":',
        b'{"scale":',
        b'"value":"',
        b"-infinity",
        b"10000-01-01",
        b'"lsn":',
        b"9" * 19,
    ),
]


def _changes(name: str, check: Callable[[bytes], Outcome], between: bytes) -> Target:
    seeds = [between.join([*_RECORDED, b"null"]), *_RECORDED]
    return Target(name, seeds, check, _several(_CHANGES, between), _DEBEZIUM_TOKENS, between)


def _columns(schema: Any) -> Columns:
    return declared_columns(schema)


TARGETS = [
    _json("json-flat", _lines(JsonLines, FLAT), FLAT, b"\n"),
    _json("json-nested", _lines(JsonLines, NESTED), NESTED, b"\n"),
    _json("json-messages", _messages(JsonMessages(JsonLines(_columns(NESTED))), NESTED), NESTED, SEPARATOR),
    _csv(
        "csv", _lines(CsvLines, FLAT, header=True), b"\n", [b",".join(name.encode() for name in [*FLAT.names, "more"])]
    ),
    _csv("csv-bare", _lines(CsvLines, FLAT, header=False), b"\n"),
    _csv("csv-messages", _messages(CsvMessages(CsvLines(_columns(FLAT), header=False)), FLAT), SEPARATOR),
    _changes("debezium", _debezium(CHANGES, keyed=False), b"\n"),
    _changes("debezium-keyed", _debezium(CHANGES, keyed=True), SEPARATOR),
]
assert set(DATABASE_CHANGELOG) < set(CHANGES.struct.names)
