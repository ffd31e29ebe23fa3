"""Messages in Avro."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import numpy as np
from hypothesis import strategies as st

from headrace.connectors.base.messages import Payloads, message_decoder
from headrace.connectors.base.source import declared_columns
from headrace.schemas import parse_ddl
from tests.fuzz.engine import Outcome, Target
from tests.fuzz.gate import passed

SCHEMA = parse_ddl(
    "id STRING NOT NULL, n BIGINT, small INT, x DOUBLE, y FLOAT, ok BOOLEAN, raw BINARY, price DECIMAL(12,3), "
    "at TIMESTAMP, day DATE, kind STRING, tags ARRAY<STRING>, "
    "inner STRUCT<a: BIGINT, b: STRING>, rows ARRAY<STRUCT<v: BIGINT>>"
)


def _type(kind: str, /, *symbols: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, **({"symbols": symbols} if symbols else {}), **more}


AVRO = {
    "type": "record",
    "name": "Row",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "n", "type": ["null", "long"]},
        {"name": "small", "type": ["null", "long", "string"]},
        {"name": "x", "type": "double"},
        {"name": "y", "type": "float"},
        {"name": "ok", "type": ["null", "boolean"]},
        {"name": "raw", "type": ["null", "bytes", _type("fixed", name="Four", size=4)]},
        {"name": "price", "type": ["null", _type("bytes", logicalType="decimal", precision=20, scale=3)]},
        {"name": "at", "type": _type("long", logicalType="timestamp-micros")},
        {"name": "day", "type": ["null", _type("int", logicalType="date")]},
        {"name": "kind", "type": _type("enum", "a", "b", name="Kind")},
        {"name": "tags", "type": _type("array", items="string")},
        {"name": "inner", "type": ["null", _type("record", name="In", fields=[{"name": "a", "type": "long"}])]},
        {
            "name": "rows",
            "type": _type("array", items=_type("record", name="V", fields=[{"name": "v", "type": "int"}])),
        },
        {"name": "more", "type": _type("map", values=["null", "long", "string"])},
        {"name": "next", "type": ["null", "Row"]},
    ],
}
_PARSED = fastavro.parse_schema(json.loads(json.dumps(AVRO)))
_DECODER = message_decoder("avro", declared_columns(SCHEMA), avro_schema=AVRO)


def packed(record: dict[str, Any]) -> bytes:
    """A record as its writer sends it."""
    stream = BytesIO()
    fastavro.schemaless_writer(stream, _PARSED, record)
    return stream.getvalue()


def record(**values: Any) -> dict[str, Any]:
    """A record with these values."""
    given: dict[str, Any] = {
        "id": "a", "n": 1, "small": None, "x": 0.5, "y": 0.25, "ok": True, "raw": b"\xff", "price": Decimal("1.250"),
        "at": datetime(2026, 1, 1, tzinfo=UTC), "day": date(2026, 1, 1), "kind": "b", "tags": ["x"], "inner": {"a": 1},
        "rows": [{"v": 1}, {"v": -2}], "more": {"k": None}, "next": None,
    }  # fmt: skip
    return {**given, **values}


GOOD = packed(record())


def check(data: bytes) -> Outcome:
    """A message between two good ones, which are handed on."""
    payloads = Payloads.of([GOOD, data, GOOD], np.arange(7, 10))
    found = passed(_DECODER.read(payloads), SCHEMA, time="at")
    found.check([7, 8, 9])
    assert {7, 9} <= set(found.handed_on)
    return found.outcome


_LONGS = st.integers(-(2**63), 2**63 - 1)
_TEXTS = st.text(st.characters(codec="utf-8"), max_size=5)
RECORDS = st.builds(
    record,
    id=_TEXTS,
    n=st.none() | _LONGS,
    small=st.none() | _LONGS | _TEXTS,
    x=st.floats(),
    y=st.floats(width=32),
    raw=st.none() | st.binary(max_size=5),
    price=st.none() | st.decimals(-(10**12), 10**12, places=3),
    at=_LONGS,
    day=st.none() | st.integers(-(2**31), 2**31 - 1),
    tags=st.lists(_TEXTS, max_size=3),
    inner=st.none() | st.builds(lambda a: {"a": a}, _LONGS),
    rows=st.lists(st.builds(lambda v: {"v": v}, st.integers(-(2**31), 2**31 - 1)), max_size=3),
    more=st.dictionaries(_TEXTS, st.none() | _LONGS | _TEXTS, max_size=2),
    next=st.none() | st.just(record()),
).map(packed)

_TOKENS = [b"\x00", b"\x01", b"\x02", b"\xff" * 9 + b"\x01", b"\xfe" + b"\xff" * 8 + b"\x01", b"\x80" * 20, b"\x7f"]
TARGETS = [
    Target("avro", [GOOD, packed(record(next=record())), b"", packed(record(n=None, tags=[]))], check, RECORDS, _TOKENS)
]
