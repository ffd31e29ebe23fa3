"""Whatever a decoder raises is a dead letter of the row that it fails on, or of the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from headrace.connectors.base.csv_lines import CsvLines
from headrace.connectors.base.decoding import (
    POSITION,
    RAW_BYTES,
    Columns,
    Decoded,
    Decoder,
    decode_apart,
    first,
)
from headrace.connectors.base.json_lines import JsonLines
from headrace.connectors.base.lines import Lines, read_lines
from headrace.connectors.base.messages import Payloads, message_decoder
from headrace.connectors.debezium.changes import debezium_changes
from headrace.connectors.debezium.decoder import DebeziumFiles, debezium_messages
from headrace.connectors.files.source import ParquetFiles
from headrace.errors import HeadraceError
from headrace.schemas import polars_schema
from tests.reasons import REASONS

BAD = "poison"
COLUMNS = Columns({"id": pl.String()})
FAILURES = [
    ValueError("it is poison\nin two lines"),
    RecursionError("it is poison"),
    pl.exceptions.ComputeError("it is poison"),
    pl.exceptions.PanicException("it is poison"),
    pa.ArrowMemoryError("it is poison"),
]


def lines_of(*texts: str) -> Lines:
    return next(read_lines(BytesIO("\n".join(texts).encode()), max_row_bytes=100_000))


def decode(lines: Lines, error: BaseException = FAILURES[0]) -> Decoded:
    """The lines as rows; fails where one of them is bad."""
    texts = [line.decode() for line in lines.raw()]
    if any(BAD in text for text in texts):
        raise error
    return Decoded(pl.DataFrame({"id": pl.Series(texts, dtype=pl.String), POSITION: lines.positions}))


def read(chunks: Iterator[Decoded]) -> tuple[list[Any], list[Any]]:
    found = list(chunks)
    rows, dead = (pl.concat(getattr(chunk, name) for chunk in found) for name in ("rows", "dead"))
    return rows.select("id", POSITION).rows(), dead.drop("detail").rows()


@pytest.mark.parametrize("error", FAILURES, ids=repr)
def test_only_the_row_that_a_decoder_fails_on_is_dead(error: BaseException) -> None:
    chunks = list(decode_apart(lambda lines: decode(lines, error), lines_of("a", "b", BAD, "c", BAD, "d", "e")))
    rows, dead = read(iter(chunks))
    assert rows == [("a", 1), ("b", 2), ("c", 4), ("d", 6), ("e", 7)]
    assert dead == [(3, "UNDECODABLE", BAD.encode()), (5, "UNDECODABLE", BAD.encode())]
    assert {detail for chunk in chunks for detail in chunk.dead["detail"]} == {"it is poison"}
    assert "UNDECODABLE" in REASONS


def test_only_the_beginning_of_a_long_row_is_kept() -> None:
    [chunk] = decode_apart(decode, lines_of(BAD * 20_000))
    assert chunk.dead["raw"].to_list() == [(BAD * 20_000).encode()[:RAW_BYTES]]


@pytest.mark.parametrize(
    "error", [HeadraceError("TABLE_TRUNCATED", "it was."), MemoryError(), KeyboardInterrupt(), SystemExit()], ids=repr
)
def test_what_does_not_speak_of_the_bytes_is_raised(error: BaseException, tmp_path: Path) -> None:
    class Failing(Decoder):
        def chunks(self, stream: BinaryIO, name: str) -> Iterator[Decoded]:
            raise error

    (tmp_path / "file").write_text("x")
    with pytest.raises(type(error)):
        list(decode_apart(lambda lines: decode(lines, error), lines_of("a", BAD)))
    with pytest.raises(type(error)):
        list(Failing(COLUMNS).decode(str(tmp_path / "file")))


@pytest.mark.parametrize("error", FAILURES, ids=repr)
def test_a_file_that_its_decoder_fails_on_is_one_dead_row(error: BaseException, tmp_path: Path) -> None:
    class Failing(Decoder):
        def chunks(self, stream: BinaryIO, name: str) -> Iterator[Decoded]:
            yield decode(lines_of("a"))
            raise error

    (tmp_path / "file").write_text("x")
    rows, dead = read(Failing(COLUMNS).decode(str(tmp_path / "file")))
    assert (rows, dead) == ([("a", 1)], [(0, "FILE_UNREADABLE", b"")])


CHANGES = debezium_changes("id STRING", key="id")
DEBEZIUM = debezium_messages(CHANGES, polars_schema(CHANGES.struct), "json")
AVRO = {"type": "record", "name": "Row", "fields": [{"name": "id", "type": "string"}]}


@pytest.fixture
def poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last thing that every decoder does fails with a panic."""

    def settle(read: pl.DataFrame, *_: object) -> tuple[pl.DataFrame, pl.DataFrame]:
        if BAD in read["id"].to_list():
            raise pl.exceptions.PanicException("it is poison")
        return settled(read, *_)

    from headrace.connectors.base import conversion

    settled: Callable[..., tuple[pl.DataFrame, pl.DataFrame]] = conversion.settle
    for module in ("base.json_lines", "base.csv_lines", "base.messages", "debezium.decoder", "files.source"):
        monkeypatch.setattr(f"headrace.connectors.{module}.settle", settle)


@pytest.mark.usefixtures("poison")
@pytest.mark.parametrize(
    ("decoder", "written"),
    [
        (JsonLines(COLUMNS), '{"id": "%s"}'),
        (CsvLines(COLUMNS, header=False), "%s"),
        (DebeziumFiles(Columns(polars_schema(CHANGES.struct)), DEBEZIUM), '{"id": "%s"}'),
    ],
    ids=["JSON", "CSV", "Debezium"],
)
def test_a_panic_over_one_line_of_a_file_costs_only_that_line(decoder: Decoder, written: str, tmp_path: Path) -> None:
    lines = [written % id for id in ("a", BAD, "b", "c")]
    (tmp_path / "file").write_text("\n".join(lines))
    rows, dead = read(decoder.decode(str(tmp_path / "file")))
    assert rows == [("a", 1), ("b", 3), ("c", 4)]
    assert dead == [(2, "UNDECODABLE", lines[1].encode())]


@pytest.mark.usefixtures("poison")
@pytest.mark.parametrize(
    ("decoder", "written"),
    [
        (message_decoder("json", COLUMNS, avro_schema=None), b'{"id": "%s"}'),
        (message_decoder("csv", COLUMNS, avro_schema=None), b"%s"),
        (message_decoder("avro", COLUMNS, avro_schema=AVRO), b"%c%s"),
        (DEBEZIUM, b'{"id": "%s"}'),
    ],
    ids=["JSON", "CSV", "Avro", "Debezium"],
)
def test_a_panic_over_one_message_costs_only_that_message(decoder: Any, written: bytes) -> None:
    ids = (b"a", BAD.encode(), b"b", None, b"c")
    messages = [
        None if id is None else written % ((2 * len(id), id) if written.startswith(b"%c") else id) for id in ids
    ]
    rows, dead = read(decoder.read(Payloads.of(messages, np.arange(7, 12), [None] * 5, np.arange(5))))
    assert rows == [("a", 7), ("b", 9), ("c", 11)]
    assert [letter for letter in dead if letter[1] != "NO_VALUE"] == [(8, "UNDECODABLE", messages[1])]


@pytest.mark.usefixtures("poison")
def test_a_panic_over_parquet_is_one_dead_row_of_the_file(tmp_path: Path) -> None:
    pl.DataFrame({"id": ["a", BAD, "b"]}).write_parquet(tmp_path / "file")
    rows, dead = read(ParquetFiles(COLUMNS, chunk_rows=1).decode(str(tmp_path / "file")))
    assert (rows, dead) == ([("a", 0)], [(0, "FILE_UNREADABLE", b"")])


@pytest.mark.parametrize("most", range(1, 8))
def test_the_first_rows_are_the_good_and_the_dead_ones_and_no_chunk_behind_them_is_read(most: int) -> None:
    def chunks() -> Iterator[Decoded]:
        for begin in (0, 3, 6):
            assert begin < most
            dead = pl.DataFrame({"position": [begin + 1], "reason": ["R"], "detail": [""], "raw": [b""]})
            rows = pl.DataFrame({"id": [f"{begin}", f"{begin + 2}"], POSITION: [begin, begin + 2]})
            yield Decoded(rows, dead, arrived=pl.Series([begin, begin + 2]))

    taken = list(first(chunks(), most))
    positions = [*pl.concat([*(each.rows[POSITION] for each in taken), *(each.dead["position"] for each in taken)])]
    assert sorted(positions) == list(range(most))
    for each in taken:
        assert isinstance(each.arrived, pl.Series)
        assert each.arrived.to_list() == each.rows[POSITION].to_list()
