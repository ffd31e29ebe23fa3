"""JSON lines: every reason, exact positions, and one answer whatever the chunks."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal, assert_series_equal

from headrace.connectors.base.decoding import DEAD_SCHEMA, POSITION, Columns, Decoded
from headrace.connectors.base.json_line import line_judge
from headrace.connectors.base.json_lines import JsonLines
from headrace.connectors.base.lines import read_lines
from headrace.rendering import json_lines
from tests.reasons import REASONS

COLUMNS = Columns(
    {
        "id": pl.String(),
        "small": pl.Int8(),
        "whole": pl.Int64(),
        "amount": pl.Float64(),
        "ratio": pl.Float32(),
        "price": pl.Decimal(6, 2),
        "paid": pl.Boolean(),
        "day": pl.Date(),
        "at": pl.Datetime("us", "UTC"),
        "local": pl.Datetime("us"),
        "seal": pl.Binary(),
        "marks": pl.List(pl.Int32()),
        "card": pl.Struct({"kind": pl.String(), "until": pl.Date()}),
    },
    required=frozenset({"id"}),
)


def decode(data: bytes, columns: Columns = COLUMNS, max_row_bytes: int = 10_000) -> Decoded:
    decoder = JsonLines(columns, max_row_bytes=max_row_bytes)
    chunks = [decoder.decode_lines(lines) for lines in read_lines(BytesIO(data), max_row_bytes=max_row_bytes)]
    return Decoded(pl.concat([chunk.rows for chunk in chunks]), pl.concat([chunk.dead for chunk in chunks]))


def line_with(field: str) -> bytes:
    return b'{"id": "x", ' + field.encode() + b"}"


GOOD = (
    b'{"id": "caf\\u00e9 \\ud83d\\ude00", "small": -128, "whole": 9223372036854775807, "amount": 1, "ratio": 0.5, '
    b'"price": 12.50, "paid": true, "day": "2026-05-01", "at": "2026-05-01T10:00:00+02:00", '
    b'"local": "2026-05-01 10:00:00", "seal": "YWI=", "marks": [1, null], '
    b'"card": {"kind": "debit", "until": "2027-01-31", "more": 1}, "ignored": {"a": [1]}}'
)
BROKEN = {
    b'{"id": "x", "small": 1': "NOT_JSON",
    b'{"id": "x"} x': "NOT_JSON",
    b'{"id": "x"}{"id": "y"}': "NOT_JSON",
    b"{'id': 'x'}": "NOT_JSON",
    b"hello": "NOT_JSON",
    line_with('"amount": NaN'): "NOT_JSON",
    line_with('"amount": Infinity'): "NOT_JSON",
    b'{"id": "a\tb"}': "NOT_JSON",
    b"[1]": "NOT_AN_OBJECT",
    b"5": "NOT_AN_OBJECT",
    b'"x"': "NOT_AN_OBJECT",
    b"null": "NOT_AN_OBJECT",
    b'{"id": "\xff"}': "NOT_UTF8",
    b'{"id": "\\ud83d"}': "NOT_UTF8",
    b'{"id": "\\\\\\udc00x"}': "NOT_UTF8",
    line_with('"whole": "1"'): "WRONG_TYPE",
    line_with('"whole": 1.5'): "WRONG_TYPE",
    line_with('"whole": true'): "WRONG_TYPE",
    line_with('"amount": "12,50"'): "WRONG_TYPE",
    line_with('"amount": "nan"'): "WRONG_TYPE",
    line_with('"amount": "1.5"'): "WRONG_TYPE",
    line_with('"amount": "NaN", "ratio": "1"'): "WRONG_TYPE",
    line_with('"amount": ["NaN"]'): "WRONG_TYPE",
    line_with('"whole": "NaN"'): "WRONG_TYPE",
    line_with('"amount": {"value": 1}'): "WRONG_TYPE",
    line_with('"paid": 1'): "WRONG_TYPE",
    line_with('"price": "cheap"'): "WRONG_TYPE",
    line_with('"seal": "?"'): "WRONG_TYPE",
    line_with('"marks": 5'): "WRONG_TYPE",
    line_with('"marks": [1, "x"]'): "WRONG_TYPE",
    line_with('"card": [1]'): "WRONG_TYPE",
    line_with('"small": 128'): "OUT_OF_RANGE",
    line_with('"whole": 9223372036854775808'): "OUT_OF_RANGE",
    line_with(f'"whole": {"9" * 60}'): "OUT_OF_RANGE",
    line_with('"amount": 1e400'): "OUT_OF_RANGE",
    line_with(f'"amount": {"9" * 60}'): "OUT_OF_RANGE",
    line_with('"ratio": 1e39'): "OUT_OF_RANGE",
    line_with('"price": 12.345'): "OUT_OF_RANGE",
    line_with('"price": "123456.00"'): "OUT_OF_RANGE",
    line_with('"price": 1.00000000000000000001'): "OUT_OF_RANGE",
    line_with('"marks": [3000000000]'): "OUT_OF_RANGE",
    line_with('"day": "2026-02-30"'): "BAD_TIMESTAMP",
    line_with('"at": "yesterday"'): "BAD_TIMESTAMP",
    line_with('"at": 1700000000'): "BAD_TIMESTAMP",
    line_with('"local": "2026-05-01T10:00:00Z"'): "BAD_TIMESTAMP",
    line_with('"card": {"until": "soon"}'): "BAD_TIMESTAMP",
    b"{}": "MISSING_VALUE",
    b'{"id": null}': "MISSING_VALUE",
    b'{"id": "' + b"x" * 10_000 + b'"}': "TOO_LARGE",
}


def test_a_good_line_is_read_in_the_declared_types() -> None:
    decoded = decode(GOOD)
    assert decoded.rows.schema == pl.Schema({**COLUMNS.types, POSITION: pl.Int64()})
    assert decoded.rows.rows() == [
        (
            "café 😀",
            -128,
            2**63 - 1,
            1.0,
            0.5,
            Decimal("12.50"),
            True,
            date(2026, 5, 1),
            datetime(2026, 5, 1, 8, tzinfo=UTC),
            datetime(2026, 5, 1, 10),
            b"ab",
            [1, None],
            {"kind": "debit", "until": date(2027, 1, 31)},
            1,
        )
    ]
    assert decoded.dead.height == 0


@pytest.mark.parametrize(("line", "reason"), BROKEN.items())
def test_a_broken_line_gets_its_reason_position_and_raw_text(line: bytes, reason: str) -> None:
    decoded = decode(b"\n".join([GOOD, b"", line, GOOD]))
    assert decoded.rows[POSITION].to_list() == [1, 4]
    assert decoded.dead.schema == pl.Schema(DEAD_SCHEMA)
    assert decoded.dead.select("position", "reason", "raw").rows() == [(3, reason, line)]
    assert reason in REASONS
    assert decoded.dead["detail"].item()


def test_the_detail_names_column_type_and_value() -> None:
    details = decode(b'{"id": "x", "amount": "12,50"}\n{"id": "x", "card": {"until": "soon"}}').dead["detail"]
    assert details.to_list() == ['column amount is DOUBLE, found "12,50"', 'column card.until is DATE, found "soon"']


def test_nothing_that_is_there_becomes_null() -> None:
    lines = [line for line, reason in BROKEN.items() if reason not in ("MISSING_VALUE", "TOO_LARGE")]
    assert decode(b"\n".join(lines)).rows.height == 0


def test_the_first_of_two_equal_keys_counts_on_both_paths() -> None:
    good, bad = b'{"id": "x", "whole": 1, "whole": "y"}', b'{"id": "x", "whole": "y", "whole": 1}'
    decoded = decode(b"\n".join([good, bad]))
    assert decoded.rows["whole"].to_list() == [1]
    assert decoded.dead["position"].to_list() == [2]
    assert decode(good).rows["whole"].to_list() == [1]


def test_a_nesting_beyond_any_limit_is_a_dead_row() -> None:
    deep = b'{"id": "x", "other": ' + b"[" * 4_000 + b"]" * 4_000 + b"}"
    assert decode(b"\n".join([GOOD, deep])).dead["reason"].to_list() == ["NOT_JSON"]


def test_a_broken_line_with_a_number_beyond_any_limit_is_a_dead_row() -> None:
    long = b'{"id": 1.10, "other": ' + b"9" * 5_000
    decoded = decode(b"\n".join([GOOD, long, long + b"}"]))
    assert decoded.dead.select("position", "reason").rows() == [(2, "OUT_OF_RANGE")]
    assert decoded.rows["id"].to_list() == ["café 😀", "1.10"]


def test_a_number_in_a_text_column_becomes_text() -> None:
    assert decode(b'{"id": 5}\n{"id": {"a": 1}}').rows["id"].to_list() == ["5", '{"a": 1}']


NUMBERS = ["1.10", "1e2", "1E+2", "-0", "-0.0", "0.1234567890123456789", "12345678901234567890123", "9" * 60, "1e400"]


@pytest.mark.parametrize("number", NUMBERS)
def test_a_number_in_a_text_column_keeps_its_text(number: str) -> None:
    columns = Columns(
        {
            "id": pl.String(),
            "größe": pl.String(),
            "tags": pl.List(pl.String()),
            "card": pl.Struct({"kind": pl.String(), "more": pl.List(pl.Struct({"code": pl.String()}))}),
            "amount": pl.Float64(),
        }
    )
    given = (
        f'{{"id": {number}, "größe":{number}, "tags": ["{number}", {number}, {{"a" : [{number}, null]}}], '
        f'"card": {{"kind" :  {number}, "more": [{{"code": {number}}}]}}, "amount": 1.10, "id": 2.50, '
        f'"other": {number}}}'
    )
    expected = (
        number,
        number,
        [number, number, f'{{"a": [{number}, null]}}'],
        {"kind": number, "more": [{"code": number}]},
        1.1,
    )
    for line in (given, given.replace("größe", "gr\\u00f6\\u00dfe")):
        decoded = decode(b"\n".join([b"{}", line.encode(), b"oops"]), columns)
        assert decoded.dead["position"].to_list() == [3]
        assert decoded.rows.drop(POSITION).rows() == [(None,) * 5, expected]


@pytest.mark.parametrize("number", ["1.10", "1e2", "-1234567890123456789012345678901.123456", "1234567890.1234567"])
def test_a_number_in_a_decimal_column_keeps_all_its_digits(number: str) -> None:
    columns = Columns({"price": pl.Decimal(38, 7), "prices": pl.List(pl.Decimal(38, 7))})
    decoded = decode(f'{{"price": {number}, "prices": [0.5, {number}]}}'.encode(), columns)
    assert decoded.rows.drop(POSITION).rows() == [(Decimal(number), [Decimal("0.5"), Decimal(number)])]


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("name", ["id", "i\\u0064"])
def test_a_number_alone_in_its_line_keeps_its_text(number: str, name: str) -> None:
    decoded = decode(f'{{"{name}": {number}}}\n{{"id": "x"}}'.encode())
    assert decoded.rows["id"].to_list() == [number, "x"]


def test_an_object_in_a_text_column_is_json_text_with_all_that_it_says() -> None:
    lines = [
        '{"id": {"a":1.10, "a":2, "b":[ "x\\u0000\\n\\"é", true, {}, [] ]}}',
        '{"id": {"a": 1, "b": "x"}}',
        '{"id": ["\\u0000"]}',
    ]
    assert decode("\n".join(lines).encode()).rows["id"].to_list() == [
        '{"a": 1.10, "a": 2, "b": ["x\\u0000\\n\\"é", true, {}, []]}',
        '{"a": 1, "b": "x"}',
        '["\\u0000"]',
    ]


def test_windows_line_ends_are_no_part_of_the_line() -> None:
    decoded = decode(b'{"id": "a"}\r\n\r\n{"id"\r\n')
    assert decoded.rows[POSITION].to_list() == [1]
    assert decoded.dead["raw"].to_list() == [b'{"id"']


def test_only_the_beginning_of_a_line_that_is_too_large_is_kept() -> None:
    decoded = decode(b'{"id": "' + b"x" * 200_000 + b'"}\n{"id": "b"}', max_row_bytes=100_000)
    assert decoded.dead["reason"].to_list() == ["TOO_LARGE"]
    assert len(decoded.dead["raw"].item()) == 64 * 1024
    assert decoded.rows[POSITION].to_list() == [2]


def test_a_file_that_cannot_be_opened_is_one_dead_row(tmp_path: Path) -> None:
    (chunk,) = JsonLines(COLUMNS).decode(str(tmp_path / "gone.json"))
    assert chunk.rows.schema == pl.Schema({**COLUMNS.types, POSITION: pl.Int64()})
    assert chunk.dead.select("position", "reason", "raw").rows() == [(0, "FILE_UNREADABLE", b"")]
    assert "gone.json" in chunk.dead["detail"].item()


def test_chunks_of_a_file_keep_counting_lines(tmp_path: Path) -> None:
    path = tmp_path / "part.json"
    path.write_bytes(b"".join(b'{"id": "%d"}\n' % number if number % 7 else b"oops\n" for number in range(1, 200)))
    chunks = list(JsonLines(COLUMNS, chunk_bytes=100).decode(str(path)))
    assert len(chunks) > 5
    dead = [position for chunk in chunks for position in chunk.dead["position"]]
    rows = [(position, id) for chunk in chunks for position, id in chunk.rows.select(POSITION, "id").rows()]
    assert dead == list(range(7, 200, 7))
    assert rows == [(number, str(number)) for number in range(1, 200) if number % 7]


def test_the_raw_text_of_a_good_row_can_be_had_afterwards() -> None:
    lines = next(read_lines(BytesIO(b'{"id": "a"}\n\n{"id": "b"}\n{"id": "c"}'), max_row_bytes=100))
    decoded = JsonLines(COLUMNS).decode_lines(lines)
    assert decoded.raw(decoded.rows.filter(pl.col("id") > "a")).to_list() == [b'{"id": "b"}', b'{"id": "c"}']


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=5), st.just("2026-01-01")
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner))
OBJECTS = st.fixed_dictionaries(
    {"id": st.text(min_size=1, max_size=4)}, optional=dict.fromkeys(COLUMNS.names[1:], VALUES)
)
LINES = st.one_of(
    st.sampled_from([GOOD, b"", b"  ", *BROKEN]),
    OBJECTS.map(lambda value: json.dumps(value).encode()),
    OBJECTS.map(lambda value: json.dumps(value, ensure_ascii=False).encode(errors="replace")),
    st.binary(max_size=12).map(lambda data: data.replace(b"\n", b"")),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(LINES, min_size=1, max_size=16))
def test_any_mixture_is_read_as_its_lines_alone_are(lines: list[bytes]) -> None:
    data = b"\n" + b"\n".join(lines) + b"\n"
    together = decode(data)
    assert together.rows.height + together.dead.height == sum(1 for line in lines if line.strip(b" \t\r"))
    alone = [decode(b"\n" * number + line + b"\n") for number, line in enumerate(lines, 1)]
    assert_frame_equal(together.rows, pl.concat([one.rows for one in alone]))
    assert_frame_equal(together.dead, pl.concat([one.dead for one in alone]))


@settings(max_examples=150, deadline=None)
@given(LINES.filter(lambda line: 0 < len(line.strip(b" \t\r")) < 10_000))
def test_the_judge_refuses_only_what_the_bulk_decoder_must_not_take(line: bytes) -> None:
    verdict = line_judge(COLUMNS)(line.removesuffix(b"\r"))
    decoded = decode(b"\n" + line)
    if verdict is not None:
        assert decoded.dead["reason"].to_list() == [verdict[0]]
    else:
        assert set(decoded.dead["reason"]) <= {
            "BAD_TIMESTAMP",
            "OUT_OF_RANGE",
            "MISSING_VALUE",
            "WRONG_TYPE",
            "NOT_JSON",
        }


DOUBLES = Columns(
    {
        "x": pl.Float64(),
        "small": pl.Float32(),
        "list": pl.List(pl.Float64()),
        "struct": pl.Struct({"x": pl.Float64(), "note": pl.String()}),
        "note": pl.String(),
        "n": pl.Int64(),
    }
)
NOTES = st.none() | st.text() | st.sampled_from(["NaN", "Infinity", '"NaN"'])


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "x": st.none() | st.floats(),
                "small": st.none() | st.floats(width=32),
                "list": st.none() | st.lists(st.none() | st.floats()),
                "struct": st.none() | st.fixed_dictionaries({"x": st.none() | st.floats(), "note": NOTES}),
                "note": NOTES,
                "n": st.none() | st.integers(-(2**63), 2**63 - 1),
            }
        ),
        min_size=1,
    )
)
def test_every_double_that_json_rows_write_is_read_as_it_was(given_rows: list[dict[str, object]]) -> None:
    rows = pl.DataFrame(given_rows, schema=dict(DOUBLES.types))
    decoded = decode(json_lines(rows), DOUBLES)
    assert decoded.dead.is_empty()
    assert_frame_equal(decoded.rows.drop(POSITION), rows, check_exact=True)
    for name in ("x", "small"):
        # Both zeros are equal, and not the same.
        given_zeros, read_zeros = (frame.select(1 / pl.col(name)).to_series() for frame in (rows, decoded.rows))
        assert_series_equal(given_zeros, read_zeros)
