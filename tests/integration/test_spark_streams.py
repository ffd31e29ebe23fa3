"""``hr.source``: streams that Spark reads, each row once, with event time, dead letters and an account."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import headrace as hr
from headrace.observe import history
from headrace.observe.committed import committed_rows
from headrace.runtime.pipeline import Pipeline, Running
from tests.number_source import WITHOUT_TIME, Numbers, land

pytestmark = pytest.mark.spark

PATIENCE = 120.0


def counting(folder: Path, spark: SparkSession) -> Pipeline:
    """Counts numbers by the minute."""
    spark.dataSource.register(Numbers)

    @hr.pipeline
    def counts(spark: SparkSession) -> None:
        stream = spark.readStream.format("numbers").option("folder", str(folder)).load()
        numbers = hr.source(stream, name="numbers").transform(hr.event_time("at"))
        minutes = hr.tumbling("minutes", size="1 minute", key=None).agg(k="count(*)", total="sum(n)").late(hr.drop())
        hr.write("counts", numbers.transform(minutes), hr.to_files(folder / "out"))

    return counts


def passing(folder: Path, stream: Any) -> Pipeline:
    """Writes what a stream brings."""

    @hr.pipeline
    def passed(spark: SparkSession) -> None:
        hr.write("passed", hr.source(stream(spark), name="rows"), hr.to_files(folder / "out"))

    return passed


def numbers(folder: Path) -> Any:
    return lambda spark: spark.readStream.format("numbers").option("folder", str(folder)).load()


def wait_for_rows(running: Running, folder: Path, rows: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while not (folder / "out" / "_commits").exists() or committed_rows(folder / "out").height < rows:
        assert not running.wait(0.05), "the flow has ended"
        assert time.monotonic() < deadline, f"{rows} rows are not there after {PATIENCE} s"


def expected(rows: int) -> list[tuple[int, int, int]]:
    """Minute, numbers in it, and their sum; numbers without a time are in none."""
    good = [number for number in range(rows) if number % WITHOUT_TIME]
    minutes = [[number for number in good if number // 60 == minute] for minute in range(-(-rows // 60))]
    return [(minute, len(each), sum(each)) for minute, each in enumerate(minutes)]


def test_a_drained_run_gives_every_window_and_the_next_start_after_available_now_goes_on(
    tmp_path: Path, spark: SparkSession
) -> None:
    counts = counting(tmp_path, spark)
    land(tmp_path, 150)
    counts.run(checkpoint=tmp_path / "checkpoint", mode=hr.available_now(), spark=spark)
    land(tmp_path, 400)
    counts.run(checkpoint=tmp_path / "checkpoint", mode=hr.available_now(drain=True), spark=spark)
    rows = committed_rows(tmp_path / "out").sort("window").rows(named=True)
    starts = [row["window"]["start"] for row in rows]
    assert [
        (start.hour * 60 + start.minute, row["k"], row["total"]) for start, row in zip(starts, rows, strict=True)
    ] == (expected(400))
    flow = tmp_path / "checkpoint" / "counts"
    letters = committed_rows(flow / "dead_letters")
    assert letters.select("source", "reason", "detail").unique().rows() == [("numbers", "NO_EVENT_TIME", "at = null")]
    total = history.read(flow)[-1].total
    assert (total.read, total.dead, letters.height) == (400, 4, 4)


@pytest.mark.full
def test_rows_are_there_once_however_often_a_flow_is_stopped_and_started(tmp_path: Path, spark: SparkSession) -> None:
    spark.dataSource.register(Numbers)
    passed = passing(tmp_path, numbers(tmp_path))
    for newest in (70, 200):
        land(tmp_path, newest)
        running = passed.start(checkpoint=tmp_path / "checkpoint", spark=spark)
        wait_for_rows(running, tmp_path, newest)
        running.stop()
    assert sorted(committed_rows(tmp_path / "out")["n"]) == list(range(200))


@pytest.mark.full
def test_a_stream_without_an_end_goes_on_where_it_was_stopped(tmp_path: Path, spark: SparkSession) -> None:
    passed = passing(tmp_path, lambda spark: spark.readStream.format("rate").option("rowsPerSecond", 200).load())
    rows = 1
    for _ in range(2):
        running = passed.start(checkpoint=tmp_path / "checkpoint", spark=spark)
        wait_for_rows(running, tmp_path, rows)
        running.stop()
        values = sorted(committed_rows(tmp_path / "out")["value"])
        assert values == list(range(len(values)))
        rows = len(values) + 1


@pytest.mark.full
def test_a_drained_run_finishes_the_batch_that_failed_and_reads_what_came_after_it(
    tmp_path: Path, spark: SparkSession
) -> None:
    counts = counting(tmp_path, spark)
    land(tmp_path, 10)
    (tmp_path / "broken").touch()
    with pytest.raises(hr.HeadraceError, match=r"(?s)the numbers are gone"):
        counts.run(checkpoint=tmp_path / "checkpoint", mode=hr.available_now(drain=True), spark=spark)
    (tmp_path / "broken").unlink()
    land(tmp_path, 20)
    counts.run(checkpoint=tmp_path / "checkpoint", mode=hr.available_now(drain=True), spark=spark)
    assert committed_rows(tmp_path / "out")["k"].to_list() == [19]


@pytest.mark.full
def test_a_source_that_fails_stops_the_flow_with_the_reason(tmp_path: Path, spark: SparkSession) -> None:
    counts = counting(tmp_path, spark)
    (tmp_path / "newest").write_text("none")
    with pytest.raises(hr.HeadraceError, match=r"(?s)\[SOURCE_FAILED\] Spark's stream 'numbers' has failed: .*'none'"):
        counts.run(checkpoint=tmp_path / "checkpoint", mode=hr.available_now(drain=True), spark=spark)


def test_explain_says_what_only_spark_knows(tmp_path: Path, spark: SparkSession) -> None:
    said = counting(tmp_path, spark).explain(spark=spark)
    assert "read by a query of Spark: its partitions and how many rows wait are not known" in said
    assert "one for the whole source" in said


def test_rows_that_nobody_can_count_ahead_cannot_be_capped(tmp_path: Path, spark: SparkSession) -> None:
    with pytest.raises(hr.HeadraceError, match=r"\[MAX_ROWS_UNSUPPORTED\] .*source 'numbers' cannot count"):
        counting(tmp_path, spark).run(checkpoint=tmp_path / "c", mode=hr.available_now(max_rows=5), spark=spark)


def test_a_table_is_no_stream(tmp_path: Path, spark: SparkSession) -> None:
    with pytest.raises(hr.DefinitionError, match=r"\[NOT_A_STREAM\] source 'rows': the frame is a table"):
        passing(tmp_path, lambda spark: spark.range(5)).explain(spark=spark)
