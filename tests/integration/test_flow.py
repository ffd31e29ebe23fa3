"""Whole flows on Spark: several outputs, failing tasks and sinks, restarts in one process."""

from __future__ import annotations

import json
import shutil
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import headrace as hr
from headrace.checkpoint.storage import LocalStorage
from headrace.event_time.record import BatchLog
from headrace.observe import history
from headrace.observe.committed import committed_rows
from headrace.runtime.pipeline import Pipeline

pytestmark = pytest.mark.spark

SCHEMA = "id STRING, account STRING, amount BIGINT, at TIMESTAMP"
ALL = hr.available_now(drain=True)
Shape = Callable[[DataFrame], DataFrame]


def _pipeline(place: Any, *sinks: Any, late: tuple[Any, ...] = (), before: Shape | None = None) -> Pipeline:
    @hr.pipeline(name="spend")
    def spend(spark: SparkSession) -> None:
        payments = hr.read_files(
            spark, place.landing, format="json", schema=SCHEMA, name="payments", files_per_batch=1
        ).transform(hr.event_time("at"))
        shaped = payments if before is None else payments.transform(before)
        hourly = (
            hr.tumbling("hourly", size="1 hour", key="account")
            .agg(spent="sum(amount)", n="count(*)")
            .late(hr.side_output())
            .outputs(shaped)
        )
        beside = [(hourly.late, *late)] if late else []
        hr.write("spend", (hourly.main, *sinks), *beside)

    return spend


def _land(place: Any) -> None:
    place.land("1", ("1", "a", 5, "10:05:00"), ("2", "b", 1, "10:30:00"), "broken")
    place.land("2", ("3", "a", 7, "10:50:00"), ("4", "a", 1, "11:30:00"))
    place.land("3", ("5", "a", 9, "10:55:00"), ("6", "b", 2, "12:10:00"))


EXPECTED = [("a", 10, 12, 2), ("a", 11, 1, 1), ("b", 10, 1, 1), ("b", 12, 2, 1)]
"""account, hour, spent, number: payment 5 is late, because payment 4 had closed its hour."""


def _windows(name: str) -> list[tuple[str, int, int, int]]:
    rows = hr.memory(name)
    return sorted((row["account"], row["window"]["start"].hour, row["spent"], row["n"]) for row in rows)


def test_a_flow_with_several_outputs_runs_its_plan_once_and_ends_with_a_drain(place: Any, spark: SparkSession) -> None:
    _land(place)
    seen = place.root / "seen"
    seen.mkdir()
    folder = str(seen)

    def counting(frame: DataFrame) -> DataFrame:
        def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            import uuid

            for batch in batches:
                for identity in batch.column("id").to_pylist():
                    (Path(folder) / f"{identity}-{uuid.uuid4().hex}").touch()
                yield batch

        return frame.mapInArrow(count, frame.schema)

    out = hr.to_files(place.root / "out")
    pipeline = _pipeline(
        place,
        *(out, hr.to_memory("first"), hr.to_memory("second")),
        late=(hr.to_memory("late"), hr.to_files(place.root / "late")),
        before=counting,
    )
    pipeline.run(checkpoint=place.checkpoint, mode=ALL, spark=spark)
    assert _windows("first") == _windows("second") == EXPECTED
    [late] = hr.memory("late")
    assert (late["id"], late["late_by"].total_seconds()) == ("5", 35 * 60)
    listed = [json.loads(file.read_text())["rows"] for file in (place.root / "out" / "_commits").iterdir()]
    assert sum(listed) == len(EXPECTED)
    assert sorted(file.name.split("-")[0] for file in seen.iterdir()) == ["1", "2", "3", "4", "5", "6"]
    batches = history.read(place.checkpoint / "spend")
    assert {len(entry.account.sinks) for entry in batches} >= {3, 5}
    with pytest.raises(hr.HeadraceError) as raised:
        pipeline.start(checkpoint=place.checkpoint, spark=spark)
    assert raised.value.id == "CHECKPOINT_DRAINED"


def test_a_copied_checkpoint_cannot_write_what_the_first_has_written(place: Any, spark: SparkSession) -> None:
    place.land("1", ("1", "a", 5, "10:05:00"))
    place.land("2", ("2", "a", 7, "10:50:00"))
    pipeline = _pipeline(place, hr.to_files(place.root / "out"))
    pipeline.run(checkpoint=place.checkpoint, mode=hr.available_now(), spark=spark)
    copy = place.root / "copy"
    shutil.copytree(place.checkpoint, copy)
    place.land("3", ("3", "a", 9, "15:55:00"))
    place.land("4", ("4", "a", 9, "16:55:00"))
    pipeline.run(checkpoint=place.checkpoint, mode=hr.available_now(), spark=spark)
    written = sorted((place.root / "out" / "_commits").iterdir())
    with pytest.raises(hr.HeadraceError, match=r"\[CHECKPOINT_FORKED\] folder .* has written batch"):
        pipeline.run(checkpoint=copy, mode=hr.available_now(), spark=spark)
    assert sorted((place.root / "out" / "_commits").iterdir()) == written


class Custom:
    """A sink that keeps what it gets, and does one thing more that a test asks for."""

    guarantee = "exactly_once"

    def __init__(self, name: str, write: Callable[[DataFrame, hr.BatchIdentity, Any], hr.Written]) -> None:
        self._kept = hr.to_memory(name)
        self._write = write

    def write(self, frame: DataFrame, batch: hr.BatchIdentity) -> hr.Written:
        return self._write(frame, batch, self._kept)


@pytest.mark.parametrize(
    ("lie", "numbers"),
    [
        (hr.Written(3, 2), "out 3 != written 2 + already marked 0 + superseded 0 + refused 0 + skipped 0"),
        (
            hr.Written(3, 3, already_marked=3),
            "out 3 != written 3 + already marked 3 + superseded 0 + refused 0 + skipped 0",
        ),
    ],
)
def test_a_sink_that_lies_in_its_numbers_makes_the_batch_fail(
    lie: hr.Written, numbers: str, place: Any, spark: SparkSession
) -> None:
    _land(place)

    def lying(frame: DataFrame, batch: hr.BatchIdentity, kept: Any) -> hr.Written:
        kept.write(frame, batch)
        return lie

    with pytest.raises(hr.HeadraceError) as raised:
        _pipeline(place, Custom("lying", lying)).run(checkpoint=place.checkpoint, mode=ALL, spark=spark)
    assert str(raised.value) == (
        f"[ACCOUNT_BROKEN] flow 'spend', batch 0: sink of main: {numbers}. The batch is not done; this "
        "is a defect in Headrace or in a sink, please report it with these numbers."
    )
    assert BatchLog(LocalStorage(place.checkpoint / "spend")).next_batch == 0
    assert history.read(place.checkpoint / "spend") == []


def test_a_query_that_failed_is_started_again_in_the_same_process_without_its_uncommitted_state(
    place: Any, spark: SparkSession
) -> None:
    """Workers live on between the two queries and may have segments of the batch that was never committed open."""
    _land(place)
    failures: list[hr.BatchIdentity] = []

    def failing(frame: DataFrame, batch: hr.BatchIdentity, kept: Any) -> hr.Written:
        result: hr.Written = kept.write(frame, batch)
        if batch.batch == 1 and len(failures) < 2:
            failures.append(batch)
            raise ConnectionError("the sink is away")
        return result

    pipeline = _pipeline(place, Custom("restarted", failing))
    for _ in range(2):
        with pytest.raises(ConnectionError, match="the sink is away"):
            pipeline.run(checkpoint=place.checkpoint, mode=ALL, spark=spark)
    pipeline.run(checkpoint=place.checkpoint, mode=ALL, spark=spark)
    assert _windows("restarted") == EXPECTED
    kept = place.checkpoint / "spend" / "late" / "hourly" / "_commits"
    assert [json.loads(file.read_text())["rows"] for file in kept.iterdir()] == [1]


def test_a_task_that_fails_after_its_state_is_computed_is_tried_again_without_counting_twice(
    place: Any, spark: SparkSession
) -> None:
    _land(place)
    markers = str(place.root)

    def failing_once(frame: DataFrame, batch: hr.BatchIdentity, kept: Any) -> hr.Written:
        number = batch.batch

        def fail_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            from pyspark import TaskContext

            # All input is taken first, so the state of every key group has been computed.
            taken = list(batches)
            context = TaskContext.get()
            assert context is not None
            marker = Path(markers) / f"{number}-{context.partitionId()}.failed"
            if not marker.exists():
                marker.touch()
                raise RuntimeError("the first attempt fails")
            yield from taken

        result: hr.Written = kept.write(frame.mapInArrow(fail_once, frame.schema), batch)
        return result

    _pipeline(place, Custom("retried", failing_once)).run(checkpoint=place.checkpoint, mode=ALL, spark=spark)
    assert _windows("retried") == EXPECTED
    batches = history.read(place.checkpoint / "spend")
    assert len(list(place.root.glob("*.failed"))) == 2 * len(batches)
    assert sum(entry.account.steps["hourly"].accepted for entry in batches) == 5


def test_a_second_pipeline_reads_only_what_the_first_has_listed(place: Any, spark: SparkSession) -> None:
    _land(place)
    out = place.root / "out"
    _pipeline(place, hr.to_files(out)).run(checkpoint=place.checkpoint, mode=ALL, spark=spark)
    [some, *_] = [folder for folder in out.iterdir() if not folder.name.startswith("_")]
    unlisted = out / "spend.main-0000-0000000099"
    unlisted.mkdir()
    for part in some.iterdir():
        (unlisted / part.name).write_bytes(part.read_bytes())
        (out / "_staging" / part.name).write_bytes(part.read_bytes())

    @hr.pipeline(name="second")
    def second(session: SparkSession) -> None:
        schema = "account STRING, window STRUCT<start TIMESTAMP, end TIMESTAMP>, spent BIGINT, n BIGINT"
        hr.write("copied", hr.read_files(session, out, format="parquet", schema=schema), hr.to_memory("copied"))

    second.run(checkpoint=place.root / "second", mode=hr.available_now(), spark=spark)
    assert _windows("copied") == EXPECTED


def test_micro_batches_go_on_until_the_pipeline_is_stopped(place: Any, spark: SparkSession) -> None:
    _land(place)
    running = _pipeline(place, hr.to_memory("going on")).start(
        checkpoint=place.checkpoint, mode=hr.micro_batch("200 milliseconds"), spark=spark
    )
    try:
        for _ in range(600):
            status = running.status()["spend"]
            if (status is not None and len(_windows("going on")) == 3) or running.wait(0.1):
                break
    finally:
        running.stop()
    assert _windows("going on") == EXPECTED[:3]
    assert history.read(place.checkpoint / "spend")[-1].watermarks["payments"] > 0


def test_a_row_can_say_where_it_came_from(place: Any, spark: SparkSession) -> None:
    _land(place)

    @hr.pipeline
    def placed(spark: SparkSession) -> None:
        rows = hr.read_files(spark, place.landing, format="json", schema="id STRING, _position STRING", name="rows")
        hr.write("placed", rows, hr.to_files(place.root / "out"))

    placed.run(checkpoint=place.checkpoint, mode=ALL, spark=spark)
    found = committed_rows(place.root / "out")
    files = sorted(file.as_uri().replace("file:///", "file:/") for file in place.landing.glob("*.json"))
    assert found["_position"].n_unique() == found.height > 2
    assert {position.rpartition(":")[0] for position in found["_position"]} == set(files)


def test_the_state_of_a_running_flow_is_read_from_outside(place: Any, spark: SparkSession) -> None:
    _land(place)
    running = _pipeline(place, hr.to_memory("read from outside")).start(
        checkpoint=place.checkpoint, mode=hr.micro_batch("200 milliseconds"), spark=spark
    )
    try:
        while running.status().get("spend") is None or len(_windows("read from outside")) < 3:
            assert not running.wait(0.1)
        state = hr.read_state(place.checkpoint, "spend", "hourly")
        assert state.select("account", "spent.sum").rows() == [("b", 2)]
        assert not list((place.checkpoint / "spend" / "pins").glob("*.json"))
    finally:
        running.stop()
    with pytest.raises(hr.DefinitionError, match=r"no step 'daily' with state. It has: hourly."):
        hr.read_state(place.checkpoint, "spend", "daily")
    with pytest.raises(hr.DefinitionError, match="is not the folder of a flow that has run a batch"):
        hr.read_state(place.checkpoint, "other", "hourly")


def test_a_task_that_fails_is_told_with_the_author_s_traceback_and_its_batch_runs_again(
    place: Any, spark: SparkSession
) -> None:
    _land(place)
    corrected = place.root / "corrected"
    folder = str(corrected)

    def halving(frame: DataFrame) -> DataFrame:
        def halve_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                if 7 in batch.column("amount").to_pylist() and not Path(folder).exists():
                    raise ValueError("seven cannot be halved")
                yield batch

        return frame.mapInArrow(halve_all, frame.schema)

    pipeline = _pipeline(place, hr.to_memory("halved"), before=halving)
    with pytest.raises(hr.HeadraceError, match=r"^\[BATCH_FAILED\] flow 'spend', batch 1: a task failed") as raised:
        pipeline.run(checkpoint=place.checkpoint, mode=ALL, spark=spark)
    said = str(raised.value)
    assert "in halve_all" in said
    assert said.endswith("ValueError: seven cannot be halved")
    assert "\tat " not in "".join(traceback.format_exception(raised.value))
    begun = BatchLog(LocalStorage(place.checkpoint / "spend")).record
    assert begun is not None
    assert begun.batch == 1
    corrected.touch()
    pipeline.run(checkpoint=place.checkpoint, mode=ALL, spark=spark)
    assert _windows("halved") == EXPECTED
    assert history.read(place.checkpoint / "spend")[1].clock == begun.clock


def test_a_task_that_fails_because_another_driver_has_taken_over_is_told_as_that(
    place: Any, spark: SparkSession
) -> None:
    _land(place)
    taken = str(place.checkpoint / "lease" / "0000000002.json")

    def ousting(frame: DataFrame) -> DataFrame:
        def oust(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                if 7 in batch.column("amount").to_pylist():
                    first = Path(taken).with_name("0000000001.json")
                    Path(taken).write_bytes(first.read_bytes())
                    raise ValueError("the state is gone")
                yield batch

        return frame.mapInArrow(oust, frame.schema)

    pipeline = _pipeline(place, hr.to_memory("ousted"), before=ousting)
    with pytest.raises(hr.HeadraceError, match=r"^\[LEASE_LOST\]"):
        pipeline.run(checkpoint=place.checkpoint, mode=ALL, spark=spark)


def test_a_job_that_somebody_cancels_is_told_as_cancelled_and_its_batch_runs_again(
    place: Any, spark: SparkSession
) -> None:
    _land(place)
    reached, goes_on = str(place.root / "reached"), place.root / "goes on"
    free = str(goes_on)

    def halting(frame: DataFrame) -> DataFrame:
        def halt(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            import time

            for batch in batches:
                while 7 in batch.column("amount").to_pylist() and not Path(free).exists():
                    Path(reached).touch()
                    time.sleep(0.02)
                yield batch

        return frame.mapInArrow(halt, frame.schema)

    pipeline = _pipeline(place, hr.to_memory("cancelled"), before=halting)
    running = pipeline.start(checkpoint=place.checkpoint, mode=ALL, spark=spark)
    while not Path(reached).exists():
        assert not running.wait(0.05)
    spark.sparkContext.cancelAllJobs()
    with pytest.raises(hr.HeadraceError) as raised:
        running.wait()
    assert str(raised.value).startswith(
        "[BATCH_FAILED] flow 'spend', batch 1: its job was cancelled, in Spark's UI or by a call, and the "
        "batch is not done. Start again: the same batch runs.\n"
    )
    goes_on.touch()
    pipeline.run(checkpoint=place.checkpoint, mode=ALL, spark=spark)
    assert _windows("cancelled") == EXPECTED


def test_a_failure_in_the_author_s_sql_is_told_without_the_frames_of_java(place: Any, spark: SparkSession) -> None:
    _land(place)
    strict = "amount < 7 or raise_error('seven is too much') is null"
    pipeline = _pipeline(place, hr.to_memory("strict"), before=lambda frame: frame.where(strict))
    with pytest.raises(hr.HeadraceError, match=r"\[BATCH_FAILED\] flow 'spend', batch 1") as raised:
        pipeline.run(checkpoint=place.checkpoint, mode=ALL, spark=spark)
    assert "seven is too much" in str(raised.value)
    assert "\tat " not in str(raised.value)


def test_a_flow_that_fails_and_one_beside_it_each_go_on_from_their_own_log(place: Any, spark: SparkSession) -> None:
    _land(place)
    written: dict[str, list[int]] = {"steady": [], "failing": []}

    def write(frame: DataFrame, batch: hr.BatchIdentity, kept: Any) -> hr.Written:
        written[batch.flow].append(batch.batch)
        if batch.flow == "failing" and batch.batch == 1 and written["failing"] == [0, 1]:
            raise ConnectionError("the sink is away")
        result: hr.Written = kept.write(frame, batch)
        return result

    @hr.pipeline(name="two")
    def two(spark: SparkSession) -> None:
        rows = hr.read_files(spark, place.landing, format="json", schema=SCHEMA, name="payments", files_per_batch=1)
        timed = rows.transform(hr.event_time("at"))
        for name in written:
            step = hr.tumbling(f"hourly_{name}", size="1 hour", key="account").agg(spent="sum(amount)", n="count(*)")
            windows = timed.transform(step.late(hr.side_output()))
            hr.write(name, windows, Custom(f"two {name}", write))

    with pytest.raises(ConnectionError, match="the sink is away"):
        two.run(checkpoint=place.checkpoint, mode=ALL, spark=spark)
    assert BatchLog(LocalStorage(place.checkpoint / "failing")).next_batch == 1
    two.run(checkpoint=place.checkpoint, mode=ALL, spark=spark)
    for name in written:
        assert _windows(f"two {name}") == EXPECTED
        batches = history.read(place.checkpoint / name)
        assert [entry.batch for entry in batches] == list(range(len(batches)))
    assert written["steady"] == sorted(set(written["steady"]))
    assert written["failing"] == sorted([*set(written["failing"]), 1])


def test_two_flows_that_fail_at_once_each_go_on_from_their_own_log(place: Any, spark: SparkSession) -> None:
    _land(place)
    fails, both = {"early": 1, "later": 2}, threading.Barrier(2, timeout=60)
    written: dict[str, list[tuple[int, str]]] = {name: [] for name in fails}

    def write(frame: DataFrame, batch: hr.BatchIdentity, kept: Any) -> hr.Written:
        name = batch.flow
        written[name].append((batch.batch, batch.token))
        if [number for number, _ in written[name]] == list(range(fails[name] + 1)):
            both.wait()
            raise ConnectionError(f"the sink of {name} is away")
        result: hr.Written = kept.write(frame, batch)
        return result

    @hr.pipeline(name="two")
    def two(spark: SparkSession) -> None:
        rows = hr.read_files(spark, place.landing, format="json", schema=SCHEMA, name="payments", files_per_batch=1)
        timed = rows.transform(hr.event_time("at"))
        for name in fails:
            step = hr.tumbling(f"hourly_{name}", size="1 hour", key="account").agg(spent="sum(amount)", n="count(*)")
            hr.write(name, timed.transform(step.late(hr.side_output())), Custom(f"both {name}", write))

    with pytest.raises(ConnectionError, match=r"the sink of \w+ is away"):
        two.run(checkpoint=place.checkpoint, mode=ALL, spark=spark)
    for name, batch in fails.items():
        log = BatchLog(LocalStorage(place.checkpoint / name))
        assert (log.next_batch, log.record.token if log.record else None) == (batch, written[name][-1][1])
        assert [number for number, _ in written[name]] == list(range(batch + 1))
        assert len(history.read(place.checkpoint / name)) == batch
    two.run(checkpoint=place.checkpoint, mode=ALL, spark=spark)
    for name, batch in fails.items():
        assert _windows(f"both {name}") == EXPECTED
        batches = [entry.batch for entry in history.read(place.checkpoint / name)]
        assert batches == list(range(len(batches)))
        assert [number for number, _ in written[name]] == sorted([*batches, batch])
        assert written[name][batch] == written[name][batch + 1], "a batch that runs again keeps its token"


def test_of_spark_s_streaming_checkpoint_there_is_only_that_of_a_pump(place: Any, spark: SparkSession) -> None:
    _land(place)

    @hr.pipeline(name="both")
    def both(spark: SparkSession) -> None:
        stream = hr.source(spark.readStream.schema(SCHEMA).json(str(place.landing)), name="stream")
        files = hr.read_files(spark, place.landing, format="json", schema=SCHEMA, name="files")
        for name, rows in (("pumped", stream), ("read", files)):
            step = hr.tumbling(name, size="1 hour", key="account").agg(spent="sum(amount)").late(hr.side_output())
            hr.write(name, rows.transform(hr.event_time("at")).transform(step), hr.to_files(place.root / name))

    both.run(checkpoint=place.checkpoint, mode=ALL, spark=spark)
    pump = place.checkpoint / "pumped" / "pump" / "stream"
    of_spark = {"commits", "metadata", "offsets"}
    assert of_spark <= {each.name for each in pump.iterdir()}
    found = [each for each in place.checkpoint.rglob("*") if each.name.strip(".").removesuffix(".crc") in of_spark]
    assert {each.parent for each in found} == {pump}


def test_a_column_that_a_sink_lacks_is_an_error_at_the_line_that_writes_it(place: Any, spark: SparkSession) -> None:
    _land(place)
    table = hr.to_postgres("spend", dsn="host=127.0.0.1 port=1", upsert_on="acount")
    with pytest.raises(hr.DefinitionError) as raised:
        _pipeline(place, table).run(checkpoint=place.checkpoint, mode=ALL, spark=spark)
    assert str(raised.value).startswith(
        "[COLUMN_UNKNOWN] postgres table 'spend' at 127.0.0.1:1 of flow 'spend' needs column 'acount', which the rows "
        "do not have. Existing columns: account, window, window_start, window_end, "
    )
    assert "Correct hr.to_postgres('spend', dsn='host=127.0.0.1 port=1', upsert_on=['acount'])" in str(raised.value)
    assert str(raised.value).endswith(': hr.write("spend", (hourly.main, *sinks), *beside))')
