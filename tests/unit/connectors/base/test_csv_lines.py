"""CSV lines: every reason with its position, and quotes."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from headrace.connectors.base.csv_lines import CsvLines
from headrace.connectors.base.decoding import DEAD_SCHEMA, POSITION, Columns, Decoded
from headrace.errors import DefinitionError

COLUMNS = Columns(
    {
        "id": pl.String(),
        "count": pl.Int16(),
        "amount": pl.Float64(),
        "price": pl.Decimal(6, 2),
        "paid": pl.Boolean(),
        "at": pl.Datetime("us", "UTC"),
        "seal": pl.Binary(),
    },
    required=frozenset({"id"}),
)
HEADER = b"id,count,amount,price,paid,at,seal"
GOOD = b"a,1,2.5,12.50,true,2026-05-01T10:00:00Z,ab"


def decode(path: Path, data: bytes, decoder: CsvLines | None = None) -> Decoded:
    path.write_bytes(data)
    chunks = list((CsvLines(COLUMNS) if decoder is None else decoder).decode(str(path)))
    return Decoded(pl.concat([chunk.rows for chunk in chunks]), pl.concat([chunk.dead for chunk in chunks]))


def test_a_good_line_is_read_in_the_declared_types(tmp_path: Path) -> None:
    decoded = decode(tmp_path / "part.csv", HEADER + b"\r\n" + GOOD + b"\r\n")
    assert decoded.rows.schema == pl.Schema({**COLUMNS.types, POSITION: pl.Int64()})
    moment = datetime(2026, 5, 1, 10, tzinfo=UTC)
    assert decoded.rows.rows() == [("a", 1, 2.5, Decimal("12.50"), True, moment, b"ab", 2)]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"a,1,2", "WRONG_FIELD_COUNT"),
        (b"a,1,2,3,true,,,", "WRONG_FIELD_COUNT"),
        (b'"a",1,2', "WRONG_FIELD_COUNT"),
        (b'"a,1,2,3,true,,', "NOT_CSV"),
        (b'"a"b,1,2,3,true,,', "NOT_CSV"),
        (b"\xff,1,2,3,true,,", "NOT_UTF8"),
        (b"a,x,2,3,true,,", "WRONG_TYPE"),
        (b"a,1.0,2,3,true,,", "WRONG_TYPE"),
        (b'a,"",2,3,true,,', "WRONG_TYPE"),
        (b"a,1,2 EUR,3,true,,", "WRONG_TYPE"),
        (b"a,1,2,cheap,true,,", "WRONG_TYPE"),
        (b"a,1,2,3,maybe,,", "WRONG_TYPE"),
        (b"a,40000,2,3,true,,", "OUT_OF_RANGE"),
        (b"a,1,1e400,3,true,,", "OUT_OF_RANGE"),
        (b"a,1,2,3.001,true,,", "OUT_OF_RANGE"),
        (b"a,1,2,3,true,soon,", "BAD_TIMESTAMP"),
        (b",1,2,3,true,,", "MISSING_VALUE"),
        (b"a" * 2_000 + b",1,2,3,true,,", "TOO_LARGE"),
    ],
)
def test_a_broken_line_gets_its_reason_position_and_raw_text(tmp_path: Path, line: bytes, reason: str) -> None:
    decoder = CsvLines(COLUMNS, max_row_bytes=1_000)
    decoded = decode(tmp_path / "part.csv", b"\n".join([HEADER, GOOD, b"", line, GOOD]), decoder)
    assert decoded.rows[POSITION].to_list() == [2, 5]
    assert decoded.dead.schema == pl.Schema(DEAD_SCHEMA)
    assert decoded.dead.select("position", "reason", "raw").rows() == [(4, reason, line)]


def test_an_empty_field_is_null_and_a_quoted_empty_one_is_empty_text(tmp_path: Path) -> None:
    names = Columns({"a": pl.String(), "b": pl.String()})
    decoded = decode(tmp_path / "part.csv", b'a,b\n,x\n"",x\n"say ""hi"", you",5" pipe\n', CsvLines(names))
    assert decoded.rows.rows() == [(None, "x", 2), ("", "x", 3), ('say "hi", you', '5" pipe', 4)]


def test_columns_are_matched_by_the_header_and_others_ignored(tmp_path: Path) -> None:
    names = Columns({"b": pl.Int64(), "a": pl.String()})
    decoded = decode(tmp_path / "part.csv", b"a,more,b\nx,?,1\n", CsvLines(names))
    assert decoded.rows.rows() == [(1, "x", 2)]


def test_without_a_header_fields_follow_the_declared_order(tmp_path: Path) -> None:
    names = Columns({"a": pl.String(), "b": pl.Int64()})
    decoded = decode(tmp_path / "part.csv", b'x,1\n"y,z",2', CsvLines(names, header=False))
    assert decoded.rows.rows() == [("x", 1, 1), ("y,z", 2, 2)]


def test_a_header_without_a_declared_column_makes_the_file_one_dead_row(tmp_path: Path) -> None:
    decoded = decode(
        tmp_path / "part.csv", b"id,total\na,1\nb,2\n", CsvLines(Columns({"id": pl.String(), "sum": pl.Int8()}))
    )
    assert decoded.rows.height == 0
    assert decoded.dead.rows() == [
        (0, "FILE_UNREADABLE", "the header id, total does not name sum once; expected id, sum", b"")
    ]


def test_a_file_that_cannot_be_opened_is_one_dead_row(tmp_path: Path) -> None:
    (chunk,) = CsvLines(COLUMNS).decode(str(tmp_path / "gone.csv"))
    assert chunk.dead["reason"].to_list() == ["FILE_UNREADABLE"]


def test_a_file_with_only_a_header_has_no_rows(tmp_path: Path) -> None:
    (tmp_path / "part.csv").write_bytes(HEADER + b"\n")
    assert list(CsvLines(COLUMNS).decode(str(tmp_path / "part.csv"))) == []


def test_a_nested_column_is_refused() -> None:
    with pytest.raises(DefinitionError, match="tags is ARRAY<STRING>"):
        CsvLines(Columns({"tags": pl.List(pl.String())}))


def test_blank_lines_at_the_end_of_a_chunk_are_no_rows(tmp_path: Path) -> None:
    columns = Columns({"a": pl.String(), "b": pl.Int16(), "c": pl.Float64()})
    decoded = decode(tmp_path / "part.csv", b"a,b,c\n,1,1\n\nx,1,1", CsvLines(columns, chunk_bytes=8))
    assert (decoded.rows.height, decoded.dead.height) == (2, 0)


FIELDS = st.sampled_from(["", "1", "x", '""', '"1"', '"a,b"', '"a""b"', '"', "2.5", "true", "99999", " "])


@settings(max_examples=60, deadline=None)
@given(
    lines=st.lists(st.lists(FIELDS, min_size=1, max_size=4).map(",".join), min_size=1, max_size=12),
    size=st.integers(8, 64),
)
def test_any_mixture_in_chunks_of_any_size_is_read_as_whole(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], size: int
) -> None:
    columns = Columns({"a": pl.String(), "b": pl.Int16(), "c": pl.Float64()})
    path = tmp_path_factory.mktemp("csv") / "part.csv"
    data = "\n".join(["a,b,c", *lines, "x,1,1"]).encode()
    whole = decode(path, data, CsvLines(columns))
    chunked = decode(path, data, CsvLines(columns, chunk_bytes=size))
    assert whole.rows.height + whole.dead.height == 1 + sum(1 for line in lines if line.strip(" \t"))
    assert_frame_equal(whole.rows, chunked.rows)
    assert_frame_equal(whole.dead, chunked.dead)
