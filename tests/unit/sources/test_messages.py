from __future__ import annotations

import json
from datetime import UTC, datetime
from io import BytesIO
from typing import Any

import fastavro
import numpy as np
import polars as pl
import pytest

import headrace as hr
from headrace.sources.decoding import POSITION, Columns, Decoded
from headrace.sources.messages import message_decoder

COLUMNS = Columns({"id": pl.String(), "n": pl.Int64(), "at": pl.Datetime("us", "UTC")}, frozenset({"id"}))
AVRO = {
    "type": "record",
    "name": "Row",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "n", "type": ["null", "long"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ],
}
MOMENT = datetime(2025, 1, 1, 10, 30, tzinfo=UTC)


def _decoded(format: Any, payloads: list[bytes | None], **options: Any) -> Decoded:
    positions = np.arange(100, 100 + len(payloads), dtype=np.int64)
    return message_decoder(format, COLUMNS, avro_schema=options.get("avro_schema")).decode(payloads, positions)


def _dead(decoded: Decoded) -> dict[int, str]:
    return dict(decoded.dead.select("position", "reason").rows())


def test_json_messages_become_rows_with_their_offsets() -> None:
    decoded = _decoded("json", [b'{"id":"a","n":1,"at":"2025-01-01T10:30:00Z"}', b'{"id":"b"}'])
    assert decoded.rows.rows() == [("a", 1, MOMENT, 100), ("b", None, None, 101)]
    assert _dead(decoded) == {}


def test_json_over_several_lines_is_one_row() -> None:
    decoded = _decoded("json", [b'{"id": "x"}', b'{\n  "id": "a",\n  "n": 1\n}\n', b'{"id":"two\\nlines"}'])
    assert decoded.rows["id"].to_list() == ["x", "a", "two\nlines"]
    assert _dead(decoded) == {}


def test_what_is_no_json_object_is_a_dead_letter_with_its_offset() -> None:
    payloads = [
        b'{"id":"a"}',
        b"",
        b"[1]",
        None,
        b'{"id":"a"} {"id":"b"}',
        b"\xff\xfe",
        b'{"n":1}',
        b'{"id":"z","n":"x"}',
    ]
    decoded = _decoded("json", payloads)
    assert decoded.rows["id"].to_list() == ["a"]
    assert _dead(decoded) == {
        101: "NOT_JSON",
        102: "NOT_AN_OBJECT",
        103: "NO_VALUE",
        104: "NOT_JSON",
        105: "NOT_UTF8",
        106: "MISSING_VALUE",
        107: "WRONG_TYPE",
    }


def test_csv_messages_have_fields_in_the_order_of_the_columns() -> None:
    payloads = [b"a,1,2025-01-01T10:30:00Z", b'"b ""q""",,\r\n', b"c,1", b"d,1\n,2", None]
    decoded = _decoded("csv", payloads)
    assert decoded.rows.rows() == [("a", 1, MOMENT, 100), ('b "q"', None, None, 101)]
    assert _dead(decoded) == {102: "WRONG_FIELD_COUNT", 103: "NOT_CSV", 104: "NO_VALUE"}


def test_raw_messages_are_kept_as_they_are() -> None:
    decoded = _decoded("raw", [b"\x00\xff", None, b""])
    assert decoded.rows.rows() == [(b"\x00\xff", 100), (None, 101), (b"", 102)]


def test_avro_messages_are_read_with_the_given_schema() -> None:
    def packed(**record: Any) -> bytes:
        stream = BytesIO()
        fastavro.schemaless_writer(stream, fastavro.parse_schema(AVRO), record)
        return stream.getvalue()

    payloads = [packed(id="a", n=1, at=MOMENT), packed(id="b", n=None, at=MOMENT), b"\x00", None]
    decoded = _decoded("avro", payloads, avro_schema=json.dumps(AVRO))
    assert decoded.rows.select("id", "n", "at", POSITION).rows() == [("a", 1, MOMENT, 100), ("b", None, MOMENT, 101)]
    assert _dead(decoded) == {102: "NOT_AVRO", 103: "NO_VALUE"}


def test_an_unknown_format_and_avro_without_a_schema_are_refused() -> None:
    with pytest.raises(hr.DefinitionError, match=r"\[FORMAT_UNKNOWN\]"):
        _decoded("xml", [])
    with pytest.raises(hr.DefinitionError, match=r"\[AVRO_SCHEMA_MISSING\]"):
        _decoded("avro", [])


def test_no_messages_are_no_rows() -> None:
    for format in ("json", "csv", "raw"):
        assert _decoded(format, []).rows.is_empty()
