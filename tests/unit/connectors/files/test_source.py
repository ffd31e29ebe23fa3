"""What a landing folder is to the checkpoint, and how its Parquet files are decoded."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, cast
from unittest.mock import MagicMock

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.checkpoint.storage import LocalStorage
from headrace.connectors.base.decoding import DEAD_SCHEMA, POSITION, Columns, Decoded
from headrace.connectors.files.source import ParquetFiles
from headrace.graph import FlowNode, Graph, defining
from headrace.plan.identity import identity_of
from headrace.storage import COMMITS


def _defined(folder: Path) -> tuple[Graph, FlowNode]:
    """A flow that reads a folder."""
    graph = Graph("test", folder.parent / "checkpoint", cast(Any, None))
    with defining(graph):
        hr.read_files(MagicMock(), folder, format="json", schema="id STRING")
    return graph, FlowNode("copied", (), (), ("in",), ())


def test_a_folder_that_has_got_a_commit_list_is_another_source(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    graph, flow = _defined(folder)
    storage = LocalStorage(tmp_path / "checkpoint")
    stored = identity_of(graph, flow, stored=None, storage=storage)
    identity_of(*_defined(folder), stored=stored, storage=storage)
    (folder / COMMITS).mkdir()
    with pytest.raises(hr.HeadraceError, match=r"^\[SOURCE_CHANGED\] source 'in' has another listed "):
        identity_of(*_defined(folder), stored=stored, storage=storage)
    assert list(graph.sources["in"].fingerprint) == ["kind", "path", "format", "schema"]


@pytest.mark.parametrize("most", [0, -1])
def test_a_batch_that_could_take_no_file_is_refused(tmp_path: Path, most: int) -> None:
    with pytest.raises(hr.DefinitionError, match=rf"^\[FILES_PER_BATCH_INVALID\] .*files_per_batch={most} "):
        hr.read_files(MagicMock(), tmp_path, format="json", schema="id STRING", files_per_batch=most)


MOMENT = datetime(2026, 5, 1, 10, tzinfo=UTC)


def decode(path: Path, table: pa.Table, columns: Columns) -> Decoded:
    pq.write_table(table, path, row_group_size=2)
    chunks = list(ParquetFiles(columns).decode(str(path)))
    return Decoded(pl.concat([chunk.rows for chunk in chunks]), pl.concat([chunk.dead for chunk in chunks]))


def test_rows_are_numbered_from_zero_through_all_row_groups(tmp_path: Path) -> None:
    table = pa.table({"more": ["a", "b", "c", "d", "e"], "k": pa.array(range(5), pa.int64())})
    decoded = decode(tmp_path / "part.parquet", table, Columns({"k": pl.Int64()}))
    assert decoded.rows.rows() == [(number, number) for number in range(5)]
    assert decoded.rows.schema == pl.Schema({"k": pl.Int64(), POSITION: pl.Int64()})
    assert decoded.dead.height == 0


@pytest.mark.parametrize(
    ("held", "declared", "expected"),
    [
        (pa.array([1], pa.int32()), pl.Int64(), 1),
        (pa.array([1], pa.int64()), pl.Int8(), 1),
        (pa.array([0.5], pa.float32()), pl.Float64(), 0.5),
        (pa.array([2.0], pa.float64()), pl.Int32(), 2),
        (pa.array(["x"], pa.large_string()), pl.String(), "x"),
        (pa.array(["x"]).dictionary_encode(), pl.String(), "x"),
        (pa.array([b"x"]), pl.String(), "x"),
        (pa.array([5]), pl.String(), "5"),
        (pa.array([MOMENT], pa.timestamp("ns", "UTC")), pl.Datetime("us", "UTC"), MOMENT),
        (pa.array([MOMENT], pa.timestamp("ms")), pl.Datetime("us", "UTC"), MOMENT),
        (pa.array([MOMENT], pa.timestamp("us", "Europe/Paris")), pl.Datetime("us", "UTC"), MOMENT),
        (pa.array([[1, None]], pa.list_(pa.int32())), pl.List(pl.Int64()), [1, None]),
        (pa.array([{"a": 1}]), pl.Struct({"a": pl.Int32()}), {"a": 1}),
        (pa.array([[1, 2]], pa.list_(pa.int64(), 2)), pl.List(pl.Int32()), [1, 2]),
        (pa.array([[{"a": 1}, None]]), pl.List(pl.String()), ['{"a":1}', None]),
    ],
)
def test_a_value_that_keeps_its_meaning_is_taken(
    tmp_path: Path, held: pa.Array[Any], declared: pl.DataType, expected: object
) -> None:
    decoded = decode(tmp_path / "part.parquet", pa.table({"v": held}), Columns({"v": declared}))
    assert decoded.rows.rows() == [(expected, 0)]


@pytest.mark.parametrize(
    ("held", "text"),
    [
        (pa.array([{"a": 1, "b": None}]), '{"a":1,"b":null}'),
        (pa.array([[1, None]]), "[1,null]"),
        (pa.array([[1, 2]], pa.list_(pa.int64(), 2)), "[1,2]"),
        (
            pa.array([[("k", b"\xff"), ("l", None)]], pa.map_(pa.string(), pa.binary())),
            '[{"key":"k","value":"/w=="},{"key":"l","value":null}]',
        ),
        (pa.array([{"at": MOMENT}]), '{"at":"2026-05-01 10:00:00.000000+00:00"}'),
        (pa.array([{"day": MOMENT.date()}]), '{"day":"2026-05-01"}'),
        (
            pa.array([{"n": Decimal("1.50"), "t": time(1, 2, 3), "d": timedelta(1)}]),
            '{"n":"1.50","t":"01:02:03","d":"86400000000"}',
        ),
        (pa.array([[{"far": 2**31 - 1}]], pa.list_(pa.struct([("far", pa.date32())]))), '[{"far":"2147483647"}]'),
        (pa.array([[2**62]], pa.list_(pa.timestamp("ms", "UTC"))), '["4611686018427387904"]'),
        (pa.array([['é\n"', "x"]]), '["é\\n\\"","x"]'),
    ],
)
def test_nested_values_in_a_text_column_are_json_text(tmp_path: Path, held: pa.Array[Any], text: str) -> None:
    table = pa.table({"v": pa.concat_arrays([held, pa.nulls(1, held.type)])})
    decoded = decode(tmp_path / "part.parquet", table, Columns({"v": pl.String()}))
    assert decoded.rows["v"].to_list() == [text, None]
    assert decoded.dead.height == 0


@pytest.mark.parametrize(
    ("held", "declared"),
    [
        (pa.array([300, 1]), pl.Int8()),
        (pa.array([1.5, 1.0]), pl.Int64()),
        (pa.array(["x", "1"]), pl.Int64()),
        (pa.array([1e300, 1.0]), pl.Float32()),
        (pa.array([b"\xff", b"x"]), pl.String()),
        (pa.array(["soon", "2026-05-01T10:00:00Z"]), pl.Datetime("us", "UTC")),
    ],
)
def test_only_the_row_whose_value_does_not_fit_is_dead(
    tmp_path: Path, held: pa.Array[Any], declared: pl.DataType
) -> None:
    decoded = decode(
        tmp_path / "part.parquet", pa.table({"id": ["a", "b"], "v": held}), Columns({"id": pl.String(), "v": declared})
    )
    assert decoded.rows[POSITION].to_list() == [1]
    assert decoded.dead.schema == pl.Schema(DEAD_SCHEMA)
    assert decoded.dead.select("position", "reason").rows() == [(0, "WRONG_TYPE")]
    assert json.loads(decoded.dead["raw"].item())["id"] == "a"


@pytest.mark.parametrize(
    ("held", "declared"),
    [
        (pa.array([1]), pl.Datetime("us", "UTC")),
        (pa.array([True]), pl.Int64()),
        (pa.array([MOMENT]), pl.Int64()),
        (pa.array([{"a": 1}]), pl.Int64()),
        (pa.array([1]), pl.List(pl.Int64())),
    ],
)
def test_a_value_of_another_kind_is_never_guessed(tmp_path: Path, held: pa.Array[Any], declared: pl.DataType) -> None:
    decoded = decode(tmp_path / "part.parquet", pa.table({"v": held}), Columns({"v": declared}))
    assert decoded.dead["reason"].to_list() == ["WRONG_TYPE"]


def test_a_null_in_a_required_column_is_a_dead_row(tmp_path: Path) -> None:
    table = pa.table({"v": pa.array([1, None, 3])})
    decoded = decode(tmp_path / "part.parquet", table, Columns({"v": pl.Int64()}, frozenset({"v"})))
    assert decoded.dead.select("position", "reason", "raw").rows() == [(1, "MISSING_VALUE", b'{"v": null}')]
    assert decoded.rows["v"].to_list() == [1, 3]


def test_the_json_of_a_good_row_can_be_had_afterwards(tmp_path: Path) -> None:
    decoded = decode(tmp_path / "part.parquet", pa.table({"v": [1, 2]}), Columns({"v": pl.Int64()}))
    assert decoded.raw(decoded.rows.filter(pl.col("v") == 2)).to_list() == [b'{"v": 2}']


ENDLESS = 2**63 - 1
YEAR_10000 = 253_402_300_800_000_000


@pytest.mark.parametrize(
    ("micros", "written"),
    [
        (YEAR_10000, "+10000-01-01 "),
        (-YEAR_10000, "-6060-01-02 "),
        (ENDLESS, str(ENDLESS)),
        (-ENDLESS, str(-ENDLESS)),
    ],
)
@pytest.mark.parametrize(
    ("held", "holding"),
    [
        (pa.timestamp("us", "UTC"), lambda time: time),
        (pa.timestamp("us", "Europe/Paris"), lambda time: time),
        (pa.list_(pa.timestamp("us")), lambda time: [time, None]),
        (pa.list_(pa.timestamp("us"), 1), lambda time: [time]),
        (pa.struct([("at", pa.list_(pa.timestamp("us", "UTC")))]), lambda time: {"at": [time]}),
        (pa.list_(pa.struct([("at", pa.timestamp("us"))])), lambda time: [{"at": time}, None]),
    ],
)
def test_a_dead_row_may_hold_times_of_any_year(
    tmp_path: Path, held: pa.DataType, holding: Callable[[int], object], micros: int, written: str
) -> None:
    times = pa.array([holding(0), holding(micros), None], held)
    kind = pl.Series(pl.from_arrow(times[:0])).dtype
    table = pa.table({"at": times, "n": pa.array([1, None, None])})
    decoded = decode(tmp_path / "part.parquet", table, Columns({"at": kind, "n": pl.Int64()}, frozenset({"n"})))
    assert decoded.rows[POSITION].to_list() == [0]
    assert decoded.dead.select("position", "reason").rows() == [(1, "MISSING_VALUE"), (2, "MISSING_VALUE")]
    first, second = map(json.loads, decoded.dead["raw"])
    assert written in str(first["at"])
    assert second == {"at": None, "n": None}


@pytest.mark.parametrize(
    ("held", "declared"),
    [
        (pa.array([ENDLESS, 0], pa.timestamp("us", "Europe/Paris")), pl.Datetime("us")),
        (pa.array([ENDLESS, 0], pa.timestamp("ms")), pl.Datetime("us")),
        (pa.array([ENDLESS, 0], pa.timestamp("us")), pl.String()),
        (pa.array([2**31 - 1, 0], pa.date32()), pl.String()),
        (pa.array([2**31 - 1, 0], pa.date32()), pl.Datetime("us")),
    ],
)
def test_only_the_row_with_a_time_that_cannot_be_kept_is_dead(
    tmp_path: Path, held: pa.Array[Any], declared: pl.DataType
) -> None:
    decoded = decode(tmp_path / "part.parquet", pa.table({"v": held}), Columns({"v": declared}))
    assert decoded.rows[POSITION].to_list() == [1]
    assert decoded.dead.select("position", "reason").rows() == [(0, "WRONG_TYPE")]


def test_numbers_that_json_lacks_are_text_in_a_dead_row(tmp_path: Path) -> None:
    table = pa.table({"v": pa.array([None], pa.int64()), "x": [float("nan")], "l": [[1.5, float("-inf")]]})
    columns = Columns({"v": pl.Int64(), "x": pl.Float64(), "l": pl.List(pl.Float64())}, frozenset({"v"}))
    decoded = decode(tmp_path / "part.parquet", table, columns)
    assert decoded.dead["raw"].to_list() == [b'{"v": null, "x": "NaN", "l": [1.5, "-Infinity"]}']


def test_a_duration_that_no_column_can_take_is_a_dead_row(tmp_path: Path) -> None:
    held = pa.array([ENDLESS], pa.duration("ms"))
    decoded = decode(tmp_path / "part.parquet", pa.table({"v": held}), Columns({"v": pl.Datetime("us")}))
    assert decoded.dead.select("reason", "raw").rows() == [("WRONG_TYPE", b'{"v": "%d"}' % ENDLESS)]


def test_a_missing_column_makes_the_file_one_dead_row(tmp_path: Path) -> None:
    decoded = decode(tmp_path / "part.parquet", pa.table({"a": [1, 2]}), Columns({"b": pl.Int64()}))
    assert decoded.rows.height == 0
    assert decoded.dead.rows() == [(0, "FILE_UNREADABLE", "the file has columns a, but not the declared b", b"")]


@pytest.mark.parametrize("data", [b"", b"not parquet at all", b"PAR1" + b"\0" * 40 + b"PAR1"])
def test_a_file_that_is_not_parquet_is_one_dead_row(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "part.parquet").write_bytes(data)
    (chunk,) = ParquetFiles(Columns({"a": pl.Int64()})).decode(str(tmp_path / "part.parquet"))
    assert chunk.dead.select("position", "reason").rows() == [(0, "FILE_UNREADABLE")]


@pytest.mark.parametrize(
    ("held", "said"),
    [
        (pa.array([0], pa.timestamp("us", "Mars/Olympus")), "unable to parse time zone: 'Mars/Olympus'"),
        (pa.array([Decimal("1.5")], pa.decimal256(60, 2)), "operator does not support primitive `Int256`"),
    ],
)
def test_a_file_with_a_type_that_polars_does_not_know_is_one_dead_row(
    tmp_path: Path, held: pa.Array[Any], said: str
) -> None:
    decoded = decode(tmp_path / "part.parquet", pa.table({"v": held}), Columns({"v": pl.String()}))
    assert decoded.rows.height == 0
    [(position, reason, detail, raw)] = decoded.dead.rows()
    assert (position, reason, raw) == (0, "FILE_UNREADABLE", b"")
    assert detail.startswith(said)


def test_rows_before_a_damaged_page_are_kept_and_the_rest_is_one_dead_row(tmp_path: Path) -> None:
    path = tmp_path / "part.parquet"
    pq.write_table(pa.table({"a": list(range(4_000))}), path, row_group_size=2_000, use_dictionary=False)
    second = pq.ParquetFile(path).metadata.row_group(1).column(0).data_page_offset
    data = bytearray(path.read_bytes())
    data[second : second + 40] = b"\xff" * 40
    path.write_bytes(data)
    first, rest = ParquetFiles(Columns({"a": pl.Int64()}), chunk_rows=2_000).decode(str(path))
    assert first.rows.height == 2_000
    assert rest.dead["reason"].to_list() == ["FILE_UNREADABLE"]
