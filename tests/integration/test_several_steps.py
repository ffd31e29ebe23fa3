"""Flows with several steps: what they share is read once, and a batch is done in all sinks or in none."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headrace as hr
from headrace.observe import history
from headrace.observe.committed import committed_rows
from headrace.runtime.pipeline import Pipeline
from tests.integration.conftest import SCHEMA

pytestmark = pytest.mark.spark

ALL = hr.available_now(drain=True)


def _payments(place: Any, spark: SparkSession) -> DataFrame:
    rows = hr.read_files(spark, place.landing, format="json", schema=SCHEMA, name="payments", files_per_batch=1)
    return rows.transform(hr.event_time("at"))


def _window(name: str, size: str, spent: str = "sum(amount)") -> Any:
    return hr.tumbling(name, size=size, key="account").agg(spent=spent).late(hr.side_output())


def _land(place: Any) -> None:
    place.land("1", ("1", "a", 5, "10:05:00"), ("2", "b", 1, "10:30:00"), "broken")
    place.land("2", ("3", "a", 7, "10:50:00"), ("4", "a", 1, "11:30:00"))
    place.land("3", ("5", "a", 9, "10:55:00"), ("6", "b", 2, "12:10:00"))


def _spent(folder: Path) -> list[tuple[str, int, int]]:
    rows = committed_rows(folder).sort("account", "window").to_dicts()
    return [(row["account"], row["window"]["start"].hour, row["spent"]) for row in rows]


HOURLY = [("a", 10, 12), ("a", 11, 1), ("b", 10, 1), ("b", 12, 2)]
DAILY = [("a", 0, 22), ("b", 0, 3)]
"""Payment 5 is late for its hour and not for its day."""


def _two_windows(place: Any, hourly_sink: Any = None) -> Pipeline:
    @hr.pipeline(name="spend")
    def spend(spark: SparkSession) -> None:
        payments = _payments(place, spark)
        hourly = _window("hourly", "1 hour").outputs(payments)
        daily = _window("daily", "1 day").outputs(payments)
        hr.write(
            "spend",
            (hourly.main, hourly_sink or hr.to_files(place.root / "hourly", format="parquet")),
            (daily.main, hr.to_files(place.root / "daily", format="parquet")),
            (hourly.late, hr.to_files(place.root / "late", format="parquet")),
        )

    return spend


def test_two_windows_on_one_source_give_what_each_would_give_alone(place: Any, spark: SparkSession) -> None:
    _land(place)
    _two_windows(place).run(checkpoint=place.checkpoint, mode=ALL, spark=spark)
    assert _spent(place.root / "hourly") == HOURLY
    assert _spent(place.root / "daily") == DAILY
    assert committed_rows(place.root / "late")["id"].to_list() == ["5"]
    total = history.read(place.checkpoint / "spend")[-1].total
    assert (total.read, total.dead) == (7, 1)
    assert {name: (counts.in_, counts.late) for name, counts in total.steps.items()} == {
        "hourly": (6, 1),
        "daily": (6, 0),
    }
    assert {name: counts.out for name, counts in total.sinks.items()} == {
        "hourly.main": 4,
        "daily.main": 2,
        "hourly.late": 1,
        "payments.dead_letters": 1,
    }


def test_spark_s_ui_names_flow_batch_and_steps_of_every_job(place: Any, spark: SparkSession) -> None:
    _land(place)
    _two_windows(place).run(checkpoint=place.checkpoint, mode=ALL, spark=spark)
    context: Any = spark.sparkContext._jsc
    context.sc().listenerBus().waitUntilEmpty()
    jobs = context.sc().statusStore().jobsList(None)
    described = {
        job.description().get()
        for job in map(jobs.apply, range(jobs.size()))
        if job.jobGroup().isDefined() and job.jobGroup().get() == str(place.checkpoint / "spend")
    }
    batches = history.read(place.checkpoint / "spend")
    assert described == {f"spend, batch {entry.batch}: hourly, daily" for entry in batches}


def test_steps_on_one_frame_share_the_shuffle(place: Any, spark: SparkSession) -> None:
    _land(place)
    _two_windows(place).run(checkpoint=place.checkpoint, mode=hr.available_now(), spark=spark)
    context: Any = spark.sparkContext._jsc
    context.sc().listenerBus().waitUntilEmpty()
    store = context.sc().statusStore()
    jobs = store.jobsList(None)
    of_flow = [
        job
        for job in map(jobs.apply, range(jobs.size()))
        if job.jobGroup().isDefined() and job.jobGroup().get() == str(place.checkpoint / "spend")
    ]
    stages = {job.stageIds().apply(number) for job in of_flow for number in range(job.stageIds().size())}
    shuffles = [stage for stage in stages if store.lastStageAttempt(stage).shuffleWriteBytes()]
    assert len(shuffles) == len(history.read(place.checkpoint / "spend"))


class FailsOnce:
    """A sink that fails in a batch, after the sinks before it have been written."""

    guarantee = "exactly_once"

    def __init__(self, folder: Path, batch: int) -> None:
        self._files = hr.to_files(folder, format="parquet")
        self._batch = batch
        self.failed = False

    def write(self, frame: DataFrame, batch: hr.BatchIdentity) -> hr.Written:
        if batch.batch == self._batch and not self.failed:
            self.failed = True
            raise ConnectionError("the sink is away")
        return self._files.write(frame, batch)


def test_a_batch_that_failed_between_its_sinks_runs_again_for_all_of_them(place: Any, spark: SparkSession) -> None:
    _land(place)

    @hr.pipeline(name="spend")
    def spend(spark: SparkSession) -> None:
        payments = _payments(place, spark)
        hourly = _window("hourly", "1 hour").outputs(payments)
        daily = _window("daily", "1 day").outputs(payments)
        kept = hr.to_files(place.root / "hourly", format="parquet")
        hr.write("spend", (hourly.main, kept), (daily.main, failing))

    failing = FailsOnce(place.root / "daily", batch=2)
    with pytest.raises(ConnectionError, match="the sink is away"):
        spend.run(checkpoint=place.checkpoint, mode=ALL, spark=spark)
    spend.run(checkpoint=place.checkpoint, mode=ALL, spark=spark)
    assert failing.failed
    assert _spent(place.root / "hourly") == HOURLY
    assert _spent(place.root / "daily") == DAILY


Outputs = Callable[[DataFrame], list[tuple[Any, ...]]]


def _windows_only(rows: DataFrame) -> list[tuple[Any, ...]]:
    steps = [hr.tumbling(name, size=size, key="id").agg(n="count(*)").late(hr.drop()) for name, size in SIZES]
    return [(rows.transform(step), hr.to_memory(f"{step.name} of windows")) for step in steps]


def _windows_and_rows(rows: DataFrame) -> list[tuple[Any, ...]]:
    return [*_windows_only(rows), (rows.where("amount > 0"), hr.to_memory("rows beside windows"))]


def _windows_and_a_window_of_one(rows: DataFrame) -> list[tuple[Any, ...]]:
    outputs = _windows_only(rows)
    whole = hr.tumbling("whole", size="1 day", key=None).agg(n="sum(n)").late(hr.drop())
    return [*outputs, (outputs[0][0].transform(whole), hr.to_memory("window of a window"))]


SIZES = (("small", "1 minute"), ("large", "1 hour"))


@pytest.mark.parametrize("outputs", [_windows_only, _windows_and_rows, _windows_and_a_window_of_one])
def test_what_outputs_share_is_read_once(outputs: Outputs, spark: SparkSession, tmp_path: Path) -> None:
    @hr.pipeline
    def shared(spark: SparkSession) -> None:
        rows = hr.generate(spark, hr.Payments(seed=1), rate=1000, name="rows", start=datetime(2025, 1, 1))
        hr.write("shared", *outputs(rows.transform(hr.event_time("at"))))

    checkpoint = tmp_path / "checkpoint"
    running = shared.start(checkpoint=checkpoint, mode=hr.micro_batch("50 milliseconds"), spark=spark)
    while len(entries := [each for each in history.read(checkpoint / "shared") if each.account.read]) < 3:
        assert not running.wait(0.05)
    running.stop()
    entries = [each for each in history.read(checkpoint / "shared") if each.account.read]
    assert all(counts.in_ == entry.account.read for entry in entries for counts in _of_windows(entry))
    assert all(entry.account.read_once == {"rows": True} for entry in entries)


def _of_windows(entry: history.HistoryEntry) -> list[Any]:
    return [entry.account.steps[name] for name, _ in SIZES]


def test_a_window_and_a_join_share_what_they_read_and_each_has_its_own_shuffle(place: Any, spark: SparkSession) -> None:
    _land(place)
    _write_orders(place.root / "orders")

    @hr.pipeline(name="spend")
    def spend(spark: SparkSession) -> None:
        payments = _payments(place, spark)
        orders = hr.read_files(spark, place.root / "orders", format="json", schema=SCHEMA, name="orders")
        paid = hr.interval_join("paid", on="account", between=("0 seconds", "10 minutes")).late(hr.drop())
        joined = paid(payments, orders.transform(hr.event_time("at"))).select("id", F.col("id_right").alias("order"))
        hourly = _window("hourly", "1 hour")(payments)
        hr.write("spend", (hourly, hr.to_files(place.root / "hourly")), (joined, hr.to_memory("paid orders")))

    spend.run(checkpoint=place.checkpoint, mode=ALL, spark=spark)
    assert _spent(place.root / "hourly") == HOURLY
    assert sorted(map(tuple, (row.values() for row in hr.memory("paid orders")))) == [("1", "o1"), ("4", "o2")]
    total = history.read(place.checkpoint / "spend")[-1].total
    assert total.read_once == {"payments": True, "orders": True}
    assert (total.steps["hourly"].in_, total.steps["paid"].in_) == (6, 6)


def _write_orders(folder: Path) -> None:
    folder.mkdir()
    orders = [("o1", "a", "10:10:00"), ("o2", "a", "11:31:00"), ("o3", "b", "12:40:00")]
    lines = [json.dumps({"id": id, "account": account, "at": f"2025-01-01T{at}Z"}) for id, account, at in orders]
    (folder / "1.json").write_text("\n".join(lines))


def test_a_side_output_is_written_without_the_main_output_of_its_step(place: Any, spark: SparkSession) -> None:
    _land(place)

    @hr.pipeline(name="spend")
    def spend(spark: SparkSession) -> None:
        payments = _payments(place, spark)
        late = _window("hourly", "1 hour").outputs(payments).late
        hr.write("spend", (payments.select("id"), hr.to_memory("all of them")), (late, hr.to_memory("the late one")))

    spend.run(checkpoint=place.checkpoint, mode=ALL, spark=spark)
    assert sorted(row["id"] for row in hr.memory("all of them")) == ["1", "2", "3", "4", "5", "6"]
    assert [row["id"] for row in hr.memory("the late one")] == ["5"]


def test_a_source_that_is_read_with_its_time_and_without_it_is_refused(place: Any, spark: SparkSession) -> None:
    @hr.pipeline(name="spend")
    def spend(spark: SparkSession) -> None:
        raw = hr.read_files(spark, place.landing, format="json", schema=SCHEMA, name="payments")
        hourly = _window("hourly", "1 hour")(raw.transform(hr.event_time("at")))
        hr.write("spend", (raw, hr.to_memory("raw")), (hourly, hr.to_memory("timed")))

    with pytest.raises(hr.DefinitionError, match=r"\[SOURCE_READ_TWICE\].*'payments'"):
        spend.explain(spark=spark)


def test_a_long_chain_counts_every_row_whether_its_steps_share_tasks_or_not(place: Any, spark: SparkSession) -> None:
    place.land("1", ("1", "a", 5, "10:05:00"), ("2", "b", 1, "10:30:00"))
    place.land("2", ("3", "a", 7, "10:50:00"), ("4", "a", 1, "11:30:00"))

    def window(name: str, size: str, *key: str, n: str = "sum(n)") -> Any:
        return hr.tumbling(name, size=size, key=list(key)).agg(n=n).late(hr.drop())

    @hr.pipeline(name="spend")
    def spend(spark: SparkSession) -> None:
        rows = _payments(place, spark).transform(window("minutes", "1 minute", "account", "id", n="count(*)"))
        rows = rows.transform(window("hourly", "1 hour", "account", "id"))
        rows = rows.transform(window("both", "1 hour", "account")).transform(window("daily", "1 day", "account"))
        hr.write("spend", rows, hr.to_memory("a long chain"))

    spend.run(checkpoint=place.checkpoint, mode=hr.available_now(), spark=spark)
    spend.run(checkpoint=place.checkpoint, mode=ALL, spark=spark)
    assert sorted((row["account"], row["n"]) for row in hr.memory("a long chain")) == [("a", 3), ("b", 1)]
