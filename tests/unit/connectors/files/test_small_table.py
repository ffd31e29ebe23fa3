"""Files as small tables."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

from headrace.connectors.base import conversion
from headrace.connectors.files.small_table import file_table
from headrace.errors import DefinitionError, HeadraceError
from headrace.schemas import MOMENT


def test_all_parquet_files_of_a_folder_are_one_table(tmp_path: Path) -> None:
    pl.DataFrame({"id": [1], "name": ["a"]}).write_parquet(tmp_path / "1.parquet")
    pl.DataFrame({"id": [2], "name": ["b"]}).write_parquet(tmp_path / "2.parquet")
    table = file_table(tmp_path)
    assert table.columns() == {"id": pl.Int64(), "name": pl.String()}
    assert table.read().rows() == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("name", ["in [x]", "in{a}", "in*", "in?"])
def test_a_file_or_folder_that_is_there_is_no_pattern(tmp_path: Path, name: str) -> None:
    for folder, id in ((name, 1), ("ina", 9), ("in x", 9)):
        for format in ("parquet", "csv"):
            (tmp_path / format / folder).mkdir(parents=True)
            getattr(pl.DataFrame({"id": [id]}), f"write_{format}")(tmp_path / format / folder / f"1[2].{format}")
    for part in (tmp_path / "parquet" / name, tmp_path / "parquet" / name / "1[2].parquet"):
        assert file_table(part).read().rows() == [(1,)]
    for part in (tmp_path / "csv" / name, tmp_path / "csv" / name / "1[2].csv"):
        assert file_table(part, format="csv", schema="id BIGINT").read().rows() == [(1,)]
    assert file_table(tmp_path / "parquet" / "in*" / "*").read().height == 3


def test_files_that_spark_leaves_beside_a_table_are_no_part_of_it(tmp_path: Path) -> None:
    for folder in ("parquet", "csv"):
        (tmp_path / folder).mkdir()
        for beside in ("_SUCCESS", f".part-0.{folder}.crc"):
            (tmp_path / folder / beside).write_bytes(b"crc")
    pl.DataFrame({"id": [1]}).write_parquet(tmp_path / "parquet" / "part-0.parquet")
    (tmp_path / "csv" / "part-0.csv").write_text("id\n1\n")
    assert file_table(tmp_path / "parquet").read().rows() == [(1,)]
    assert file_table(tmp_path / "csv", format="csv", schema="id BIGINT").read().rows() == [(1,)]


def test_csv_is_read_with_the_declared_types(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('id,name,at,more\n1,"a, b",2026-01-01T10:00:00Z,x\n2,,,\n')
    table = file_table(tmp_path / "t.csv", format="csv", schema="id INT, name STRING, at TIMESTAMP")
    assert table.read().rows() == [(1, "a, b", datetime(2026, 1, 1, 10, tzinfo=UTC)), (2, None, None)]
    assert table.read().schema == {"id": pl.Int32(), "name": pl.String(), "at": MOMENT}


@pytest.mark.parametrize(
    ("given", "error"),
    [({"format": "csv"}, "SCHEMA_MISSING"), ({"format": "xml"}, "FORMAT_UNKNOWN"), ({"schema": "id"}, "SCHEMA")],
)
def test_a_definition_that_makes_no_sense_is_refused(given: dict[str, str], error: str) -> None:
    with pytest.raises(DefinitionError, match=rf"\[{error}"):
        file_table("t", **given)  # type: ignore[arg-type]


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    table = file_table(tmp_path / "none.parquet", schema="id BIGINT")
    with pytest.raises(HeadraceError, match=r"\[TABLE_UNREADABLE\] small table .*none\.parquet"):
        table.read()
    with pytest.raises(HeadraceError, match=r"\[TABLE_UNREADABLE\]"):
        file_table(tmp_path / "none.parquet").columns()


def test_a_table_without_a_declared_column_or_with_another_type_is_told(tmp_path: Path) -> None:
    pl.DataFrame({"id": ["x"]}).write_parquet(tmp_path / "t.parquet")
    with pytest.raises(HeadraceError, match=r"\[TABLE_COLUMN_MISSING\] .*no column name, only id"):
        file_table(tmp_path / "t.parquet", schema="id STRING, name STRING").read()
    with pytest.raises(HeadraceError, match=r"\[TABLE_TYPE\]"):
        file_table(tmp_path / "t.parquet", schema="id BIGINT").read()


def test_a_table_that_is_not_small_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversion, "MOST_BYTES", 1 << 20)
    pl.DataFrame({"id": range(200_000)}).write_parquet(tmp_path / "t.parquet")
    with pytest.raises(HeadraceError, match=r"\[TABLE_TOO_LARGE\] .*takes 1 MiB"):
        file_table(tmp_path / "t.parquet").read()
