"""``hr.source``: streams that Spark reads, each row once, with event time, dead letters and an account."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headrace as hr
from headrace.observe import history
from headrace.observe.committed import committed_rows
from headrace.runtime.pipeline import Pipeline, Running
from headrace.runtime.planner import Planner
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


def wait_for(fact: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not fact():
        assert time.monotonic() < deadline, f"{what} has not come after {PATIENCE} s"
        time.sleep(0.02)


def stop(running: Running) -> None:
    """Stop a flow that must not wait for its source."""
    stopping = threading.Thread(target=running.stop, daemon=True)
    stopping.start()
    stopping.join(PATIENCE / 4)
    assert not stopping.is_alive(), "the flow does not stop"


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


def test_a_checkpoint_of_spark_s_that_does_not_fit_the_log_is_refused_and_the_right_one_goes_on(
    tmp_path: Path, spark: SparkSession
) -> None:
    spark.dataSource.register(Numbers)
    passed, flow, kept = passing(tmp_path, numbers(tmp_path)), tmp_path / "checkpoint" / "passed", tmp_path / "kept"

    def run() -> None:
        passed.run(checkpoint=tmp_path / "checkpoint", mode=hr.available_now(), spark=spark)

    def put(part: str, copy: str) -> None:
        shutil.rmtree(flow / part, ignore_errors=True)
        if (kept / copy).exists():
            shutil.copytree(kept / copy / part, flow / part)

    for number in range(3):
        land(tmp_path, 10 * (number + 1))
        run()
        shutil.copytree(flow, kept / str(number))
    for copy in ("newer", "another"):
        shutil.copytree(kept / "2", kept / copy)
    for log in ("offsets", "commits"):
        folder = kept / "newer" / "pump" / "rows" / log
        shutil.copy(folder / "2", folder / "3")
    (kept / "another" / "pump" / "rows" / ".metadata.crc").unlink()
    other = "cfb0ed53-1c33-47d8-9afd-fd6ea8cfb2ff"
    (kept / "another" / "pump" / "rows" / "metadata").write_text(f'{{"id":"{other}"}}')
    for part, copy, why in (
        ("pump", "none", r"\[RANGE_CHANGED\] Spark's stream 'rows': .*no batch has begun.* one copy"),
        ("pump", "1", r"\[RANGE_CHANGED\] Spark's stream 'rows': .*batch 1 was the last to begin.* one copy"),
        ("pump", "newer", r"\[RANGE_CHANGED\] Spark's stream 'rows': .*batch 3 is done.* one copy"),
        # The sink has more than an older log knows, which is found before Spark is asked.
        ("log", "1", r"\[CHECKPOINT_FORKED\] .* has written batch 2"),
        ("pump", "another", rf"\[RANGE_CHANGED\] Spark's stream 'rows': .*its query is {other}.* one copy"),
    ):
        put(part, copy)
        with pytest.raises(hr.HeadraceError, match=f"^{why}"):
            run()
        put("log", "2")
        put("pump", "2")
    land(tmp_path, 40)
    run()
    assert sorted(committed_rows(tmp_path / "out")["n"]) == list(range(40))


def test_a_batch_that_was_not_recorded_or_not_committed_by_spark_is_taken_once(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark.dataSource.register(Numbers)
    passed, pump = passing(tmp_path, numbers(tmp_path)), tmp_path / "checkpoint" / "passed" / "pump" / "rows"

    def run() -> None:
        passed.run(checkpoint=tmp_path / "checkpoint", mode=hr.available_now(), spark=spark)

    def dying(*_: object, **__: object) -> None:
        raise ConnectionError("the driver dies")

    land(tmp_path, 10)
    with monkeypatch.context() as patched:
        patched.setattr(Planner, "plan", dying)
        with pytest.raises(ConnectionError):
            run()
    assert (pump / "offsets" / "0").exists()
    run()
    for name in ("0", ".0.crc"):
        (pump / "commits" / name).unlink()
    land(tmp_path, 20)
    run()
    assert sorted(committed_rows(tmp_path / "out")["n"]) == list(range(20))


def test_a_flow_stops_while_spark_waits_for_its_source(tmp_path: Path, spark: SparkSession) -> None:
    spark.dataSource.register(Numbers)
    passed, away, broken = passing(tmp_path, numbers(tmp_path)), tmp_path / "away", tmp_path / "broken"
    pump = tmp_path / "checkpoint" / "passed" / "pump" / "rows"

    def start() -> Running:
        return passed.start(checkpoint=tmp_path / "checkpoint", mode=hr.available_now(), spark=spark)

    def stop_in_vain() -> None:
        """The source does not answer: neither for a batch, nor for one that runs again."""
        (tmp_path / "asked").unlink(missing_ok=True)
        away.touch()
        running = start()
        wait_for((tmp_path / "asked").exists, "a question to the source")
        stop(running)
        away.unlink()

    land(tmp_path, 10)
    stop_in_vain()
    broken.touch()
    with pytest.raises(hr.HeadraceError, match="the numbers are gone"):
        start().wait()
    broken.unlink()
    assert (pump / "offsets" / "0").exists()
    stop_in_vain()
    start().wait()
    assert sorted(committed_rows(tmp_path / "out")["n"]) == list(range(10))


def test_a_batch_that_spark_offers_does_not_wait_for_the_next_look(tmp_path: Path, spark: SparkSession) -> None:
    spark.dataSource.register(Numbers)
    passed = passing(tmp_path, numbers(tmp_path))
    land(tmp_path, 10)
    running = passed.start(checkpoint=tmp_path / "checkpoint", mode=hr.micro_batch("1 hour"), spark=spark)
    # The first look comes before Spark offers anything, and the next one in an hour.
    wait_for_rows(running, tmp_path, 10)
    running.stop()
    assert sorted(committed_rows(tmp_path / "out")["n"]) == list(range(10))


SHAPES: dict[str, Callable[[DataFrame], DataFrame]] = {
    "uuid": lambda frame: frame.selectExpr("uuid() AS id"),
    "rand": lambda frame: frame.where("rand() < 0.5").withColumn("double", F.col("value") * 2),
    "monotonically_increasing_id": lambda frame: frame.select(F.monotonically_increasing_id().alias("id")),
    "the clock": lambda frame: frame.withColumn("seen", F.current_timestamp()),
    "dropDuplicates": lambda frame: frame.withWatermark("timestamp", "1 minute").dropDuplicates(["value", "timestamp"]),
    "groupBy": lambda frame: (
        frame.withWatermark("timestamp", "1 minute").groupBy(F.window("timestamp", "1 minute")).count()
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_function_that_spark_would_answer_anew_is_refused_in_the_frame_of_a_stream(
    shape: str, tmp_path: Path, spark: SparkSession
) -> None:
    shaped = passing(tmp_path, lambda spark: SHAPES[shape](spark.readStream.format("rate").load()))
    if shape in ("uuid", "rand", "monotonically_increasing_id"):
        with pytest.raises(hr.DefinitionError, match=rf"^\[SPARK_NOT_REPEATABLE\] source 'rows': {shape}\("):
            shaped.explain(spark=spark)
    else:
        assert "read by a query of Spark" in shaped.explain(spark=spark)
