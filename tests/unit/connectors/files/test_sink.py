"""``hr.to_files``: a batch is listed once, and only what is listed counts."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, Row, SparkSession

import headrace as hr
from headrace.connectors.files import sink as files
from headrace.connectors.files.sink import FileSink, _part_writer, _write_file
from headrace.event_time.record import MarkedBatch

pytestmark = pytest.mark.spark

BATCH = hr.BatchIdentity("spend", 0, 3, "main")
NAME = "spend.main-0000-0000000001"
FOLDER = f"headrace_batch={NAME}"
LATER = replace(BATCH, batch=4, last=MarkedBatch(3, count=1))


def _rows(spark: SparkSession, rows: int) -> DataFrame:
    return spark.range(0, rows, 1, 2)


def _listed(root: Path) -> list[int]:
    files = [
        root / file for commit in (root / "_commits").iterdir() for file in json.loads(commit.read_text())["files"]
    ]
    return sorted(pl.concat([pl.read_parquet(file) for file in files])["id"])


def test_a_batch_appears_as_one_folder_with_its_files_listed(spark: SparkSession, tmp_path: Path) -> None:
    assert hr.to_files(tmp_path).write(_rows(spark, 10), BATCH) == hr.Written(10, 10)
    assert _listed(tmp_path) == list(range(10))
    listing = json.loads((tmp_path / "_commits" / f"{NAME}.json").read_text())
    assert (listing["format"], listing["rows"], len(listing["files"])) == ("parquet", 10, 2)
    parts = sorted(f"{FOLDER}/{part.name}" for part in (tmp_path / FOLDER).glob("*.parquet"))
    assert sorted(listing["files"]) == parts


def test_a_batch_that_is_already_listed_is_not_written_again(spark: SparkSession, tmp_path: Path) -> None:
    sink = hr.to_files(tmp_path)
    sink.write(_rows(spark, 10), BATCH)
    before = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.parquet")}
    assert sink.write(_rows(spark, 10), BATCH) == hr.Written(10, 0, already_marked=10)
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.parquet")} == before
    assert list((tmp_path / "_staging").iterdir()) == []


def _left_over(spark: SparkSession, root: Path, batch: hr.BatchIdentity) -> None:
    """An attempt at a batch whose driver dies before it is moved into place."""
    with patch.object(FileSink, "publish", Mock(side_effect=KeyboardInterrupt)), pytest.raises(KeyboardInterrupt):
        hr.to_files(root).write(_rows(spark, 99), batch)


def _unlisted(spark: SparkSession, root: Path, rows: int, batch: hr.BatchIdentity) -> None:
    """A batch whose driver dies when it is in place and not in the list."""
    with patch.object(FileSink, "commit", Mock(side_effect=KeyboardInterrupt)), pytest.raises(KeyboardInterrupt):
        hr.to_files(root).write(_rows(spark, rows), batch)


def test_sparks_own_reader_sees_no_row_of_a_batch_that_is_not_done(spark: SparkSession, tmp_path: Path) -> None:
    sink = hr.to_files(tmp_path)
    sink.write(_rows(spark, 10), BATCH)
    _left_over(spark, tmp_path, LATER)
    assert spark.read.parquet(str(tmp_path)).count() == 10
    assert sink.write(_rows(spark, 7), LATER) == hr.Written(7, 7)
    assert spark.read.parquet(str(tmp_path)).count() == 17


def test_what_a_crash_left_of_an_attempt_is_removed_by_the_next_batch(spark: SparkSession, tmp_path: Path) -> None:
    _left_over(spark, tmp_path, BATCH)
    assert len(list((tmp_path / "_staging").iterdir())) == 1
    assert hr.to_files(tmp_path).write(_rows(spark, 10), replace(BATCH, batch=4)) == hr.Written(10, 10)
    assert _listed(tmp_path) == list(range(10))
    assert list((tmp_path / "_staging").iterdir()) == []


def test_a_batch_that_is_in_place_and_not_in_the_list_is_listed_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    _unlisted(spark, tmp_path, 10, BATCH)
    # Rows may be others where a lookup is asked again: those that were there first count.
    assert hr.to_files(tmp_path).write(_rows(spark, 3), BATCH) == hr.Written(3, 0, already_marked=10)
    assert _listed(tmp_path) == sorted(row.id for row in spark.read.parquet(str(tmp_path)).collect()) == list(range(10))


def test_a_batch_in_place_is_listed_even_if_it_has_no_rows_when_it_runs_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    _unlisted(spark, tmp_path, 10, BATCH)
    assert hr.to_files(tmp_path).write(_rows(spark, 0), BATCH) == hr.Written(0, 0, already_marked=10)
    assert _listed(tmp_path) == list(range(10))


def test_a_batch_costs_the_same_however_many_there_were(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[Path] = []

    def told(look: Callable[[Any], Any], path: Any) -> Any:
        # Folders that are removed are listed by their descriptors.
        listed.extend([] if isinstance(path, int) else [Path(path)])
        return look(path)

    for name in ("scandir", "listdir"):
        monkeypatch.setattr(os, name, partial(told, getattr(os, name)))
    for batch in range(3):
        last = MarkedBatch(batch - 1, count=batch) if batch else None
        assert hr.to_files(tmp_path).write(_rows(spark, 3), replace(BATCH, batch=batch, last=last)) == hr.Written(3, 3)
    assert tmp_path / "_staging" in listed
    assert not {tmp_path, tmp_path / "_commits"} & set(listed)


@pytest.mark.parametrize("wakes", ["publish", "commit"])
def test_a_driver_that_wakes_after_its_successor_listed_the_batch_leaves_the_successors_files(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wakes: str
) -> None:
    sink, original = FileSink(str(tmp_path), "parquet"), getattr(FileSink, wakes)
    counts, counted = hr.Written(10, 10), hr.Written(10, 0, already_marked=10)

    def asleep(self: FileSink, *given: Any) -> Any:
        monkeypatch.setattr(FileSink, wakes, original)
        assert self.write(_rows(spark, 10), BATCH) == (counts if wakes == "publish" else counted)
        return original(self, *given)

    monkeypatch.setattr(FileSink, wakes, asleep)
    if wakes == "publish":
        # The successor has removed what it had staged.
        with pytest.raises(hr.HeadraceError, match=r"\[FILES_REMOVED\].*another driver has taken over"):
            sink.write(_rows(spark, 10), BATCH)
    else:
        assert sink.write(_rows(spark, 10), BATCH) == counts
    assert _listed(tmp_path) == list(range(10))
    assert pl.read_parquet(tmp_path / FOLDER / "*.parquet").height == 10
    assert list((tmp_path / "_staging").iterdir()) == []


def test_of_two_drivers_that_have_both_staged_a_batch_the_first_to_move_it_into_place_counts(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish, beside = FileSink.publish, tmp_path / "_beside"

    def slow(self: FileSink, staging: Path, *given: Any) -> bool:
        monkeypatch.setattr(FileSink, "publish", publish)
        # The other one has looked for what is left over before this attempt began.
        staging.rename(beside)
        assert self.write(_rows(spark, 7), BATCH) == hr.Written(7, 7)
        beside.rename(staging)
        return publish(self, staging, *given)

    monkeypatch.setattr(FileSink, "publish", slow)
    assert hr.to_files(tmp_path).write(_rows(spark, 10), BATCH) == hr.Written(10, 0, already_marked=7)
    assert _listed(tmp_path) == list(range(7))
    assert list((tmp_path / "_staging").iterdir()) == []


def test_a_folder_that_is_removed_while_a_batch_is_written_is_an_error_though_tasks_make_it_anew(
    spark: SparkSession, tmp_path: Path
) -> None:
    sink, root = hr.to_files(tmp_path / "out"), str(tmp_path / "out")
    sink.write(_rows(spark, 10), BATCH)

    def remove(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import shutil

        shutil.rmtree(root)
        yield from batches

    removing = spark.range(0, 3, 1, 1).mapInArrow(remove, "id BIGINT")
    with pytest.raises(hr.HeadraceError, match=r"\[MARK_LOST\] folder '.*out': .* should be batch 3 or 4, found none"):
        sink.write(removing, LATER)
    assert not (tmp_path / "out" / "_commits").exists()


def test_files_that_are_removed_before_their_batch_is_listed_are_missed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, write_parts = FileSink(str(tmp_path), "parquet"), FileSink.write_parts

    def removed(self: FileSink, frame: DataFrame, staging: Path) -> list[Row]:
        parts = write_parts(self, frame, staging)
        (staging / parts[0].file).unlink()
        return parts

    monkeypatch.setattr(FileSink, "write_parts", removed)
    with pytest.raises(hr.HeadraceError, match="FILES_REMOVED"):
        sink.write(_rows(spark, 10), BATCH)
    assert not (tmp_path / "_commits").exists()


def test_a_batch_without_rows_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    assert hr.to_files(tmp_path).write(_rows(spark, 0), BATCH) == hr.Written(0, 0)
    assert list(tmp_path.iterdir()) == []


def test_outputs_batches_and_flows_do_not_touch_each_other(spark: SparkSession, tmp_path: Path) -> None:
    sink = hr.to_files(tmp_path)
    for identity in (
        BATCH,
        LATER,
        hr.BatchIdentity("spend", 0, 3, "hourly.late"),
        hr.BatchIdentity("audit", 0, 3, "main"),
        hr.BatchIdentity("spend", 1, 3, "main"),
    ):
        assert sink.write(_rows(spark, 3), identity) == hr.Written(3, 3)
    assert _listed(tmp_path) == sorted([0, 1, 2] * 5)


def test_lines_of_json_hold_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql("SELECT id, CAST(id AS STRING) AS name, named_struct('n', id) AS nested FROM range(0, 4, 1, 2)")
    assert hr.to_files(tmp_path, format="json").write(frame, BATCH) == hr.Written(4, 4)
    lines = [json.loads(line) for part in tmp_path.glob(f"{FOLDER}/part-*") for line in part.read_text().splitlines()]
    assert sorted(lines, key=lambda row: row["id"]) == [
        {"id": number, "name": str(number), "nested": {"n": number}} for number in range(4)
    ]


@pytest.mark.parametrize("has_written", [False, True])
def test_a_task_that_fails_is_tried_again_and_its_rows_are_there_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_written: bool
) -> None:
    marker = tmp_path / "failed"

    def fail_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        yield from batches
        context = TaskContext.get()
        assert context is not None
        if context.partitionId() == 1 and not marker.exists():
            marker.touch()
            raise RuntimeError("the first attempt fails")

    def failing_writer(*given: Any) -> Any:
        write = _part_writer(*given)
        return lambda batches: fail_once(write(batches))

    if has_written:
        monkeypatch.setattr(files, "_part_writer", failing_writer)
    frame = _rows(spark, 10) if has_written else _rows(spark, 10).mapInArrow(fail_once, "id BIGINT")
    assert hr.to_files(tmp_path / "out").write(frame, BATCH) == hr.Written(10, 10)
    assert Path(marker).exists()
    assert _listed(tmp_path / "out") == list(range(10))
    assert pl.read_parquet(tmp_path / "out" / FOLDER / "*.parquet").height == 10


def test_of_two_copies_of_a_checkpoint_only_one_can_write(spark: SparkSession, tmp_path: Path) -> None:
    sink = hr.to_files(tmp_path)
    assert sink.write(_rows(spark, 3), replace(BATCH, token="one")) == hr.Written(3, 3)
    with pytest.raises(hr.HeadraceError, match="CHECKPOINT_FORKED"):
        sink.write(_rows(spark, 3), replace(BATCH, token="other"))
    assert _listed(tmp_path) == [0, 1, 2]


def test_a_flow_with_a_new_checkpoint_does_not_take_the_batches_of_an_old_one_for_its_own(
    tmp_path: Path, spark: SparkSession
) -> None:
    sink = hr.to_files(tmp_path)
    old, new = (hr.BatchIdentity("spend", 0, 0, "main", id=f"spend-{number}") for number in (1, 2))
    assert sink.write(spark.range(3), old) == sink.write(spark.range(3), new) == hr.Written(3, 3)
    assert sink.write(spark.range(3), new) == hr.Written(3, 0, already_marked=3)
    assert len(list((tmp_path / "_commits").glob("*.json"))) == 2


def test_bytes_are_in_base_64_in_lines_of_json(tmp_path: Path) -> None:
    batch = pa.record_batch({"n": [1, 2], "raw": [b"\x00\xff", None], "list": [[b"a"], []]})
    assert _write_file(tmp_path / "part.json", [batch, batch], "json") == 4
    lines = [json.loads(line) for line in (tmp_path / "part.json").read_text().splitlines()]
    assert lines == [{"n": 1, "raw": "AP8=", "list": ["YQ=="]}, {"n": 2, "raw": None, "list": []}] * 2
