"""``hr.read_results``: what was committed, with its types, and of each result its last version."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import headrace as hr
from headrace.connectors.files.results import Results
from headrace.connectors.files.sink import FileSink, Format
from headrace.event_time.record import MarkedBatch
from headrace.nodes import ResultVersions

pytestmark = pytest.mark.spark

BATCH = hr.BatchIdentity("spend", 0, 0, "main", id="spend-1")
WINDOWS = ResultVersions((("account",), ("window",)), "revision", "change")
COLUMNS = "account STRING, window STRUCT<start: TIMESTAMP, end: TIMESTAMP>, spent INT, revision INT, change STRING"
TEN, ELEVEN = (datetime(2026, 1, 1, hour, tzinfo=UTC) for hour in (10, 11))
Rows = list[tuple[Any, ...]]


def _batch(number: int, **changed: Any) -> hr.BatchIdentity:
    last = MarkedBatch(number - 1, count=number) if number else None
    return replace(BATCH, batch=number, last=last, **changed)


def _write(
    spark: SparkSession,
    root: Path,
    *batches: Rows,
    columns: str = COLUMNS,
    versions: ResultVersions | None = WINDOWS,
    format: Format = "parquet",
) -> None:
    sink = FileSink(str(root), format, versions)
    for number, rows in enumerate(batches):
        sink.write(spark.createDataFrame(rows, columns).coalesce(1), _batch(number))


def _row(spent: int, revision: int, change: str = "insert", hour: datetime = TEN) -> tuple[Any, ...]:
    return "a", (hour, hour.replace(hour=hour.hour + 1)), spent, revision, change


def _spent(frame: DataFrame) -> list[int]:
    return sorted(row.spent for row in frame.collect())


def test_all_rows_are_those_of_all_batches_as_sparks_own_reader_sees_them(spark: SparkSession, tmp_path: Path) -> None:
    _write(spark, tmp_path, [_row(1, 0), _row(5, 0, hour=ELEVEN)], [_row(1, 0, "update_before")])
    found = hr.read_results(spark, tmp_path)
    plain = spark.read.parquet(str(tmp_path))
    assert plain.select("headrace_batch").distinct().count() == 2
    assert sorted(found.collect()) == sorted(plain.drop("headrace_batch").collect())
    assert found.schema == plain.drop("headrace_batch").schema
    assert _spent(found) == [1, 1, 5]


@pytest.mark.parametrize("format", ["parquet", "json"])
def test_a_folders_name_is_not_a_pattern(spark: SparkSession, tmp_path: Path, format: Format) -> None:
    root = tmp_path / "out [1] {a,b} *? %20\\"
    _write(spark, root, [_row(1, 0)], [_row(2, 1)], format=format)
    assert _spent(hr.read_results(spark, root)) == [1, 2]
    assert _spent(hr.read_results(spark, root, latest=True)) == Results(root).latest()["spent"].to_list() == [2]


@pytest.mark.parametrize("format", ["parquet", "json"])
def test_the_latest_are_the_last_revisions_and_what_was_taken_back_is_gone(
    spark: SparkSession, tmp_path: Path, format: Format
) -> None:
    first = [_row(1, 0), _row(5, 0, hour=ELEVEN), ("b", (TEN, ELEVEN), 7, 0, "insert")]
    # Two versions in one batch, in no order; and a session that merged into another.
    second = [_row(3, 2, "update_after"), _row(2, 1, "update_before"), _row(2, 1, "update_after")]
    third = [("b", (TEN, ELEVEN), 7, 0, "delete")]
    _write(spark, tmp_path, first, second, third, format=format)
    latest = hr.read_results(spark, tmp_path, latest=True)
    assert sorted(tuple(row) for row in latest.collect()) == [
        ("a", (TEN.replace(tzinfo=None), ELEVEN.replace(tzinfo=None)), 3, 2),
        ("a", (ELEVEN.replace(tzinfo=None), datetime(2026, 1, 1, 12)), 5, 0),
    ]
    without_spark = Results(tmp_path).latest()
    assert without_spark.columns == latest.columns
    assert without_spark["spent"].to_list() == [5, 3]


def test_a_later_batch_counts_more_than_a_higher_revision(spark: SparkSession, tmp_path: Path) -> None:
    """A session that was taken back may be there again, and is then counted anew."""
    _write(spark, tmp_path, [_row(1, 4)], [_row(1, 4, "delete")], [_row(2, 0)])
    assert _spent(hr.read_results(spark, tmp_path, latest=True)) == [2]
    assert Results(tmp_path).latest()["spent"].to_list() == [2]


def test_within_a_batch_an_update_takes_the_row_before_back_first(spark: SparkSession, tmp_path: Path) -> None:
    groups = ResultVersions((), change="change")
    rows = [(4, "update_after"), (3, "update_before")]
    _write(spark, tmp_path, [(3, "insert")], rows, columns="spent INT, change STRING", versions=groups)
    assert _spent(hr.read_results(spark, tmp_path, latest=True)) == [4]
    assert Results(tmp_path).latest()["spent"].to_list() == [4]


def test_a_result_that_is_taken_back_in_its_own_batch_is_gone(spark: SparkSession, tmp_path: Path) -> None:
    _write(spark, tmp_path, [_row(1, 0), _row(1, 0, "delete"), _row(5, 0, hour=ELEVEN)])
    assert _spent(hr.read_results(spark, tmp_path, latest=True)) == [5]
    assert Results(tmp_path).latest()["spent"].to_list() == [5]


def test_a_field_of_a_column_can_identify_a_result(spark: SparkSession, tmp_path: Path) -> None:
    lives = ResultVersions((("account",), ("window", "start")), "revision")
    grown = "a", (TEN, datetime(2026, 1, 1, 13, tzinfo=UTC)), 9, 1, ""
    _write(spark, tmp_path, [_row(1, 0), _row(5, 0, hour=ELEVEN)], [grown], versions=lives)
    assert _spent(hr.read_results(spark, tmp_path, latest=True)) == [5, 9]
    assert Results(tmp_path).latest()["spent"].to_list() == [5, 9]


def test_without_versions_every_row_is_a_result_of_its_own(spark: SparkSession, tmp_path: Path) -> None:
    _write(spark, tmp_path, [(1,), (1,)], [(1,)], columns="spent INT", versions=None)
    assert _spent(hr.read_results(spark, tmp_path, latest=True)) == [1, 1, 1]
    assert Results(tmp_path).latest().height == 3


VALUES = (
    "1L AS n, 0.5D AS share, 12.30 AS price, X'00FF' AS raw, DATE'2026-01-01' AS day, true AS `true`, "
    "TIMESTAMP'2026-01-01 10:00:00.123456Z' AS at, TIMESTAMP_NTZ'2026-01-01 10:00:00.5' AS wall, "
    "array(named_struct('x', 1)) AS list, 'a' AS `odd name`, CAST(NULL AS INT) AS nothing"
)


@pytest.mark.parametrize("format", ["parquet", "json"])
def test_values_come_back_with_their_types(spark: SparkSession, tmp_path: Path, format: Format) -> None:
    written = spark.sql(f"SELECT {VALUES}")
    hr.to_files(tmp_path, format=format).write(written, BATCH)
    found = hr.read_results(spark, tmp_path)
    assert found.schema.simpleString() == written.schema.simpleString()
    assert found.collect() == written.collect()


def test_batches_with_other_columns_and_formats_are_read_together(spark: SparkSession, tmp_path: Path) -> None:
    _write(spark, tmp_path, [(1,)], columns="spent INT", versions=None)
    sink = FileSink(str(tmp_path), "json", None)
    sink.write(spark.createDataFrame([(2, "x")], "spent INT, note STRING"), _batch(1))
    found = hr.read_results(spark, tmp_path)
    assert sorted((row.spent, row.note) for row in found.collect()) == [(1, None), (2, "x")]
    assert Results(tmp_path).newest(5).to_dicts() == [{"spent": 1, "note": None}, {"spent": 2, "note": "x"}]


def test_a_value_that_no_longer_fits_its_column_is_an_error_and_not_null(spark: SparkSession, tmp_path: Path) -> None:
    _write(spark, tmp_path, [(1,)], columns="spent INT", versions=None, format="json")
    [part] = tmp_path.glob("headrace_batch=*/part-*")
    part.write_text('{"spent": "many"}\n')
    with pytest.raises(Exception, match="MALFORMED_RECORD_IN_PARSING"):
        hr.read_results(spark, tmp_path).collect()


def test_only_as_many_batches_are_read_as_are_shown(spark: SparkSession, tmp_path: Path) -> None:
    _write(spark, tmp_path, [(1,), (2,)], [(3,), (4,)], [(5,)], columns="spent INT", versions=None)
    [first] = tmp_path.glob("*-0000000001")
    first.rename(tmp_path / "_away")
    assert Results(tmp_path).newest(2)["spent"].to_list() == [4, 5]
    assert Results(tmp_path).rows == 5


def test_a_folder_without_results_says_what_to_give(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(hr.DefinitionError) as raised:
        hr.read_results(spark, tmp_path / "nowhere")
    assert str(raised.value).startswith(
        f"[RESULTS_MISSING] folder '{tmp_path}/nowhere' holds no results. Give the folder"
    )


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"versions": ResultVersions(unknown="window of step 'hourly' is missing")}, "window of step 'hourly' is miss"),
        ({"versions": None}, "not all batches have the columns that identify a result"),
        ({"output": "other"}, "it has results of 2 outputs or checkpoints, whose batches have no common order"),
    ],
)
def test_versions_that_are_not_known_are_not_guessed(
    spark: SparkSession, tmp_path: Path, changed: dict[str, Any], why: str
) -> None:
    versions = changed.get("versions", WINDOWS)
    if not why.startswith("window"):
        _write(spark, tmp_path, [_row(1, 0)])
    batch = (
        _batch(1) if why.startswith("not all") else replace(BATCH, output="other" if "output" in changed else "main")
    )
    FileSink(str(tmp_path), "parquet", versions).write(spark.createDataFrame([_row(2, 1)], COLUMNS), batch)
    with pytest.raises(hr.DefinitionError, match=r"\[RESULTS_NOT_IDENTIFIED\] .*" + why):
        hr.read_results(spark, tmp_path, latest=True)
    with pytest.raises(hr.DefinitionError, match=r"\[RESULTS_NOT_IDENTIFIED\] .*" + why):
        Results(tmp_path).latest()
    assert hr.read_results(spark, tmp_path).count() == Results(tmp_path).rows
