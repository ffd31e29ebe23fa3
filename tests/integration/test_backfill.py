"""``pipeline.backfill``: a pipeline over tables writes what the drained stream writes, once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pyspark.sql import DataFrame, SparkSession

import headrace as hr
from headrace.observe import history
from headrace.observe.committed import committed_rows
from headrace.runtime.pipeline import Pipeline
from tests.integration.conftest import SCHEMA

pytestmark = pytest.mark.spark

GOOD = [("1", "a", 5, "10:05:00"), ("2", "b", 1, "10:30:00"), ("3", "a", 7, "10:50:00"), ("4", "a", 1, "11:30:00")]
SPENT = [("a", 0, 13), ("b", 0, 1)]


class Stops:
    """A sink that fails once, behind one that has been written."""

    guarantee = "exactly_once"

    def __init__(self, folder: Path) -> None:
        self._files = hr.to_files(folder)
        self.fails = False

    def write(self, frame: DataFrame, batch: hr.BatchIdentity) -> hr.Written:
        if self.fails:
            self.fails = False
            raise ConnectionError("the sink is away")
        return self._files.write(frame, batch)


def pipeline(place: Any, out: Path, *, flows: int = 1, last: Stops | None = None) -> Pipeline:
    @hr.pipeline(name="spend")
    def spend(spark: SparkSession) -> None:
        payments = hr.read_files(spark, place.landing, format="json", schema=SCHEMA, name="payments")
        payments = payments.transform(hr.event_time("at"))
        hourly = hr.tumbling("hourly", size="1 hour", key="account").agg(spent="sum(amount)").late(hr.side_output())
        daily = hr.tumbling("daily", size="1 day", key="account").agg(spent="sum(spent)").late(hr.drop())
        hours = hourly.outputs(payments)
        days: Any = (hours.main.transform(daily), last or hr.to_files(out / "days"))
        if flows == 1:
            hr.write("spend", (hours.main, hr.to_files(out / "hours")), days, (hours.late, hr.to_files(out / "late")))
        else:
            hr.write("first", payments, hr.to_files(out / "payments"))
            hr.write("spend", days)

    return spend


def table(spark: SparkSession, *more: tuple[str, str, int, str | None]) -> DataFrame:
    rows = [(*row[:3], row[3] and f"2025-01-01T{row[3]}Z") for row in (*GOOD, *more)]
    frame = pl.DataFrame(rows, ["id", "account", "amount", "at"], orient="row")
    return spark.createDataFrame(frame.to_arrow()).selectExpr("id", "account", "amount", "TIMESTAMP(at) AS at")


def spent(folder: Path) -> list[tuple[str, int, int]]:
    rows = committed_rows(folder).sort("account", "window").rows(named=True)
    return [(row["account"], row["window"]["start"].hour, row["spent"]) for row in rows]


def test_a_backfill_writes_what_the_drained_stream_writes_with_its_dead_letters_and_its_account(
    place: Any, spark: SparkSession
) -> None:
    place.land("1", *GOOD, '{"id": "5", "account": "c", "amount": 1}')
    pipeline(place, place.root / "stream").run(
        checkpoint=place.root / "of_stream", mode=hr.available_now(drain=True), spark=spark
    )
    given = {"payments": table(spark, ("5", "c", 1, None))}
    pipeline(place, place.root / "tables").backfill(given, checkpoint=place.root / "of_tables", spark=spark)
    for output in ("hours", "days"):
        assert spent(place.root / "tables" / output) == spent(place.root / "stream" / output)
    assert spent(place.root / "tables" / "days") == SPENT
    of_stream, of_tables = (place.root / name / "spend" for name in ("of_stream", "of_tables"))
    letters = [committed_rows(folder / "dead_letters") for folder in (of_stream, of_tables)]
    assert [each.select("reason", "detail").rows() for each in letters] == [[("NO_EVENT_TIME", "at = null")]] * 2
    (batch,) = history.read(of_tables)
    streamed = history.read(of_stream)[-1].total
    assert (batch.total.sources, batch.total.steps) == (streamed.sources, streamed.steps)
    assert {name: sink.out for name, sink in batch.total.sinks.items()} == {
        name: sink.out for name, sink in streamed.sinks.items()
    }


def test_a_backfill_that_failed_between_its_sinks_is_run_again_and_every_row_is_there_once(
    place: Any, spark: SparkSession
) -> None:
    last = Stops(place.root / "days")
    last.fails = True
    spend, given = pipeline(place, place.root, last=last), {"payments": table(spark)}
    with pytest.raises(ConnectionError, match="the sink is away"):
        spend.backfill(given, checkpoint=place.checkpoint, spark=spark)
    spend.backfill(given, checkpoint=place.checkpoint, spark=spark)
    assert spent(place.root / "days") == SPENT
    assert spent(place.root / "hours") == [("a", 10, 12), ("a", 11, 1), ("b", 10, 1)]


@pytest.mark.full
def test_flows_that_are_done_are_not_run_again_with_those_that_are_not(place: Any, spark: SparkSession) -> None:
    last = Stops(place.root / "days")
    last.fails = True
    spend, given = pipeline(place, place.root, flows=2, last=last), {"payments": table(spark)}
    with pytest.raises(ConnectionError, match="the sink is away"):
        spend.backfill(given, checkpoint=place.checkpoint, spark=spark)
    for _ in range(2):
        spend.backfill(given, checkpoint=place.checkpoint, spark=spark)
        assert spent(place.root / "days") == SPENT
        assert sorted(committed_rows(place.root / "payments")["id"]) == ["1", "2", "3", "4"]


@pytest.mark.full
def test_after_a_backfill_a_stream_on_its_checkpoint_is_refused(place: Any, spark: SparkSession) -> None:
    spend = pipeline(place, place.root)
    spend.backfill({"payments": table(spark)}, checkpoint=place.checkpoint, spark=spark)
    with pytest.raises(hr.HeadraceError, match=r"\[CHECKPOINT_DRAINED\]"):
        spend.run(checkpoint=place.checkpoint, mode=hr.available_now(), spark=spark)


def test_tables_are_those_of_the_sources_with_their_columns(place: Any, spark: SparkSession) -> None:
    spend = pipeline(place, place.root)
    payments = table(spark)
    for given, named in (({}, "payments"), ({"payments": payments, "refunds": payments}, "refunds")):
        with pytest.raises(hr.DefinitionError, match=rf"\[TABLES_INVALID\] .* '{named}' is not both a source and"):
            spend.backfill(given, checkpoint=place.checkpoint, spark=spark)
    with pytest.raises(hr.DefinitionError, match=r"\[COLUMN_UNKNOWN\] .* 'payments' has no column 'amount'.*id, acc"):
        spend.backfill({"payments": payments.drop("amount")}, checkpoint=place.checkpoint, spark=spark)


def test_a_table_may_take_the_place_of_a_source_that_never_ends(place: Any, spark: SparkSession) -> None:
    @hr.pipeline
    def passing(spark: SparkSession) -> None:
        payments = hr.generate(spark, hr.Payments(seed=1), rate=10, name="payments")
        hr.write("passing", payments.select("account", "amount"), hr.to_files(place.root / "out"))

    columns = {field.name: "CAST(NULL AS " + field.dataType.simpleString() + ")" for field in _generated(spark).fields}
    columns |= {"account": "'a'", "amount": "5"}
    given = spark.range(3).selectExpr(*(f"{value} AS {name}" for name, value in columns.items()))
    passing.backfill({"payments": given}, checkpoint=place.checkpoint, spark=spark)
    assert committed_rows(place.root / "out").height == 3


def _generated(spark: SparkSession) -> Any:
    return spark.createDataFrame([], hr.Payments.schema).schema
