from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import numpy as np
import polars as pl
import pytest

import headrace as hr
from headrace.connectors.base.decoding import POSITION, Columns, Decoded
from headrace.connectors.base.messages import Payloads, message_decoder

COLUMNS = Columns({"id": pl.String(), "n": pl.Int64(), "at": pl.Datetime("us", "UTC")}, frozenset({"id"}))
AVRO: dict[str, Any] = {
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
    return message_decoder(format, COLUMNS, avro_schema=options.get("avro_schema")).decode(
        Payloads.of(payloads, positions)
    )


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


def _packed(schema: dict[str, Any] = AVRO, **record: Any) -> bytes:
    stream = BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), record)
    return stream.getvalue()


def test_avro_messages_are_read_with_the_given_schema() -> None:
    payloads = [_packed(id="a", n=1, at=MOMENT), _packed(id="b", n=None, at=MOMENT), b"\x00", None]
    decoded = _decoded("avro", payloads, avro_schema=json.dumps(AVRO))
    assert decoded.rows.select("id", "n", "at", POSITION).rows() == [("a", 1, MOMENT, 100), ("b", None, MOMENT, 101)]
    assert _dead(decoded) == {102: "NOT_AVRO", 103: "NO_VALUE"}


def test_bytes_behind_an_avro_record_make_it_a_dead_letter() -> None:
    whole = _packed(id="a", n=1, at=MOMENT)
    framed = b"\x00\x00\x00\x00\x07" + whole
    decoded = _decoded("avro", [whole, framed, whole + b"\x00"], avro_schema=AVRO)
    assert decoded.rows[POSITION].to_list() == [100]
    assert _dead(decoded) == {101: "NOT_AVRO", 102: "NOT_AVRO"}
    assert decoded.dead["detail"].to_list()[1] == "1 bytes are left over after the record"
    assert decoded.dead["raw"].to_list() == [framed, whole + b"\x00"]


def test_an_avro_header_whose_bytes_could_be_a_record_is_no_row() -> None:
    number = {"type": "record", "name": "Row", "fields": [{"name": "id", "type": "string"}]}
    decoded = _decoded("avro", [b"\x00\x00\x00\x00\x07\x02a"], avro_schema=number)
    assert decoded.rows.is_empty()
    assert _dead(decoded) == {100: "NOT_AVRO"}


@pytest.mark.parametrize(
    "strange",
    [
        b"\x02a\x00" + b"\xff" * 9 + b"\x01",  # a time beyond the years that Python knows
        b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01a",  # text as long as memory is not
    ],
)
def test_whatever_an_avro_message_leads_to_it_is_one_dead_letter(strange: bytes) -> None:
    good = _packed(id="a", n=1, at=MOMENT)
    decoded = _decoded("avro", [good, strange, good], avro_schema=AVRO)
    assert decoded.rows[POSITION].to_list() == [100, 102]
    assert _dead(decoded) == {101: "NOT_AVRO"}


def test_an_avro_decimal_with_too_many_digits_is_a_dead_letter_and_no_null() -> None:
    amount = {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 3}
    schema = {"type": "record", "name": "Row", "fields": [{"name": "amount", "type": amount}]}
    payloads = [_packed(schema, amount=Decimal(text)) for text in ("1.250", "123456.789")]
    decoder = message_decoder("avro", Columns({"amount": pl.Decimal(5, 2)}), avro_schema=schema)
    decoded = decoder.decode(Payloads.of(payloads, np.array([1, 2])))
    assert decoded.rows.rows() == [(Decimal("1.25"), 1)]
    assert decoded.dead.select("position", "reason", "detail").rows() == [
        (2, "NOT_AVRO", "column amount is DECIMAL(5,2), found 123456.789")
    ]


def test_a_null_in_a_required_column_of_avro_is_a_dead_letter() -> None:
    fields = [
        {**field, "type": ["null", field["type"]]} if field["name"] == "id" else field for field in AVRO["fields"]
    ]
    schema = {**AVRO, "fields": fields}
    payloads = [None, _packed(schema, id="a", n=1, at=MOMENT), _packed(schema, id=None, n=1, at=MOMENT)]
    decoded = _decoded("avro", payloads, avro_schema=schema)
    assert decoded.rows[POSITION].to_list() == [101]
    assert _dead(decoded) == {100: "NO_VALUE", 102: "MISSING_VALUE"}
    assert decoded.dead.row(1)[2:] == ("column id is STRING NOT NULL, found no value", payloads[2])


def test_an_unknown_format_and_avro_without_a_schema_are_refused() -> None:
    with pytest.raises(hr.DefinitionError, match=r"\[FORMAT_UNKNOWN\]"):
        _decoded("xml", [])
    with pytest.raises(hr.DefinitionError, match=r"\[AVRO_SCHEMA_MISSING\]"):
        _decoded("avro", [])


def test_no_messages_are_no_rows() -> None:
    for format in ("json", "csv", "raw"):
        assert _decoded(format, []).rows.is_empty()
