"""``hr.over``: steps over tables give what a stream of the same rows gives at its end."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession

import headrace as hr
from headrace.runtime import bounded
from headrace.testing import at, batch, play, watermark
from headrace.testing.elements import At, Side
from headrace.testing.engine import BY_HAND, SOURCES, TIME, Setting, schema_of
from headrace.testing.inline import InlineEngine
from tests.models.every_step import STEPS, elements_of, step_of
from tests.timelines.bounded import answers

pytestmark = pytest.mark.spark

HOURLY = hr.tumbling("hourly", size="1 hour", key="account").agg(spent="sum(amount)").late(hr.drop())
DAILY = hr.tumbling("daily", size="1 day", key="account").agg(spent="sum(spent)").late(hr.drop())
PAYMENTS = [("a", 5, "10:05"), ("b", 1, "10:30"), ("a", 7, "10:50"), ("a", 1, "11:30"), ("b", 2, "12:10")]


def moment(clock: str) -> datetime:
    return datetime.fromisoformat(f"2025-01-01T{clock}Z").astimezone(UTC)


def payments(spark: SparkSession, *more: tuple[str, int, str | None]) -> DataFrame:
    rows = [(account, amount, clock and moment(clock)) for account, amount, clock in (*PAYMENTS, *more)]
    schema = {"account": pl.String(), "amount": pl.Int64(), "at": pl.Datetime("us", "UTC")}
    return spark.createDataFrame(pl.DataFrame(rows, schema, orient="row").to_arrow())


def spent(frame: DataFrame) -> list[tuple[str, str, int]]:
    hour = "date_format(window.start, 'HH:mm') AS start"
    rows = frame.selectExpr("account", hour, "spent").collect()
    return sorted((row.account, row.start, row.spent) for row in rows)


@pytest.mark.parametrize("name", ["tumbling", *(pytest.param(each, marks=pytest.mark.full) for each in [*STEPS][1:])])
def test_every_step_gives_on_spark_what_one_bounded_batch_gives_inline(name: str, spark: SparkSession) -> None:
    step, rows = step_of(name), [each for each in elements_of(name) if isinstance(each, At)]
    schemas: dict[Side, Any] = {
        side: schema_of(given, partition=False)
        for side in SOURCES
        if (given := [row for row in rows if row.side == side])
    }
    setting = Setting((step,), BY_HAND, schemas)
    inline = InlineEngine(setting)
    inline.run(rows, drain=True)
    inline.close()
    tables = []
    for side, schema in schemas.items():
        (frame,) = setting.frames(rows, side).values()
        tables.append(spark.createDataFrame(frame.select(*schema).to_arrow()))
    for output in setting.outputs.keys() - {"late", "dead_letters"}:
        found = hr.over(tables, step, time=TIME, output=output).toArrow()
        table = pl.from_arrow(found)
        assert isinstance(table, pl.DataFrame)
        assert answers(output, table.rows(named=True), step) == answers(output, setting.outputs[output], step)


def test_results_of_a_step_over_a_table_are_a_table_for_the_next_step(spark: SparkSession) -> None:
    hours = hr.over(payments(spark), HOURLY, time="at")
    assert spent(hours) == [("a", "10:00", 12), ("a", "11:00", 1), ("b", "10:00", 1), ("b", "12:00", 2)]
    assert spent(hr.over(hours, DAILY)) == [("a", "00:00", 13), ("b", "00:00", 3)]


def test_the_authors_own_steps_stand_before_and_behind(spark: SparkSession) -> None:
    large = payments(spark).where("amount > 1")
    hours = hr.over(large, HOURLY, time="at").where("account = 'a'")
    assert spent(hours) == [("a", "10:00", 12)]


def test_a_table_without_rows_gives_none(spark: SparkSession) -> None:
    assert hr.over(payments(spark).where("FALSE"), HOURLY, time="at").collect() == []


def test_each_of_two_tables_has_its_own_time(spark: SparkSession) -> None:
    prices = spark.createDataFrame(
        [("a", 3, moment("10:00")), ("a", 4, moment("11:00"))], "account STRING, price BIGINT, since TIMESTAMP"
    )
    step = hr.temporal_join("priced", on="account", how="inner", ttl="1 day", versions_late=hr.drop()).late(hr.drop())
    joined = hr.over([payments(spark), prices], step, time=["at", "since"])
    assert sorted((row.amount, row.price) for row in joined.collect()) == [(1, 4), (5, 3), (7, 3)]


def test_a_lookup_and_a_join_with_a_small_table_pass_rows_and_their_time_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    async def person(key: str) -> dict[str, Any]:
        return {"name": key.upper()}

    pl.DataFrame({"account": ["a"], "rate": [2]}).write_parquet(tmp_path / "rates.parquet")
    rates = hr.file_table(tmp_path / "rates.parquet")
    named = hr.over(
        payments(spark),
        hr.lookup(
            "named", person, on="account", output="name STRING", timeout="1 minute", retries=0, on_failure="dead_letter"
        ),
        time="at",
    )
    rated = hr.over(named, hr.broadcast_join("rates", rates, on="account"))
    assert {(row.name, row.rate) for row in rated.collect()} == {("A", 2)}
    assert spent(hr.over(rated, HOURLY)) == [("a", "10:00", 12), ("a", "11:00", 1)]


def test_a_side_output_of_a_step_is_a_table_of_its_own(spark: SparkSession) -> None:
    step = (
        hr.pattern("doubled", key="account")
        .begin("first", where="amount = 5")
        .next("then", where="amount = 99")
        .within("10 minutes")
        .select(of="first.amount")
        .late(hr.drop())
    )
    assert hr.over(payments(spark), step, time="at").collect() == []
    assert [row.account for row in hr.over(payments(spark), step, time="at", output="timed_out").collect()] == ["a"]


def test_an_output_that_the_step_does_not_have_is_a_mistake(spark: SparkSession) -> None:
    with pytest.raises(hr.DefinitionError, match=r"\[OUTPUT_UNKNOWN\] step 'hourly' has no output 'odd'. It has main"):
        hr.over(payments(spark), HOURLY, time="at", output="odd")


def test_a_step_with_state_needs_a_column_with_event_time(spark: SparkSession) -> None:
    with pytest.raises(hr.DefinitionError, match=r"\[EVENT_TIME_MISSING\] step 'hourly' needs event time"):
        hr.over(payments(spark), HOURLY)
    with pytest.raises(hr.DefinitionError, match=r"\[COLUMN_UNKNOWN\] step 'hourly': time='on' is not a column. .*at"):
        hr.over(payments(spark), HOURLY, time="on")
    with pytest.raises(hr.DefinitionError, match=r"\[EVENT_TIME_TYPE\] step 'hourly': .*'amount' is bigint"):
        hr.over(payments(spark), HOURLY, time="amount")


def test_a_step_takes_as_many_tables_and_times_as_it_has_inputs(spark: SparkSession) -> None:
    with pytest.raises(hr.DefinitionError, match=r"\[INPUTS_MISMATCH\] window 'hourly' takes 1 frame, but got 2"):
        hr.over([payments(spark), payments(spark)], HOURLY, time="at")
    with pytest.raises(hr.DefinitionError, match=r"\[INPUTS_MISMATCH\] step 'hourly': .* 2 columns for 1"):
        hr.over(payments(spark), HOURLY, time=["at", "at"])


def test_a_stream_is_no_table(spark: SparkSession) -> None:
    with pytest.raises(hr.DefinitionError, match=r"\[OVER_A_STREAM\] step 'hourly'"):
        hr.over(spark.readStream.format("rate").load(), HOURLY, time="timestamp")


def test_a_row_without_event_time_stops_the_job_and_says_how_many_there_are(spark: SparkSession) -> None:
    hours = hr.over(payments(spark, ("c", 1, None)), HOURLY, time="at")
    with pytest.raises(PythonException, match=r"\[NO_EVENT_TIME\] step 'hourly': 1 rows of the table have no event"):
        hours.collect()


class Divides(hr.KeyedProcess):
    """Cannot take a row of 7."""

    def on_row(self, row: Any, context: Any) -> Iterator[Any]:
        yield {"account": context.key, "part": 10 // (row.amount - 7)}


def test_a_row_that_a_step_cannot_take_stops_the_job_and_says_why(spark: SparkSession) -> None:
    step = hr.process("divides", Divides, key="account", output="account STRING, part BIGINT", on_error="dead_letter")
    step = step.late(hr.drop())
    with pytest.raises(PythonException, match=r"(?s)\[ROW_FAILED\] step 'divides' .*ZeroDivisionError"):
        hr.over(payments(spark), step, time="at").collect()


@pytest.mark.full
def test_one_table_may_be_both_sides_of_a_join_as_one_source_may(spark: SparkSession) -> None:
    kinds = ("kind = 'order'", "kind = 'payment'")
    step = hr.interval_join("paid", on="id", between=("0 minutes", "10 minutes"), how="full").late(hr.drop())
    rows = [
        at(f"10:{minute:02d}", kind=("order", "payment", "refund")[minute % 3], id=str(minute % 7), n=minute)
        for minute in range(50)
    ]
    streamed = play(step, *rows, batch(), watermark("23:00"), engine="inline", split=kinds).main
    schema = schema_of(rows, partition=False)
    (frame,) = Setting((step,), BY_HAND, {"left": schema}).frames(rows, "left").values()
    table = spark.createDataFrame(frame.select(*schema).to_arrow())
    found = pl.from_arrow(hr.over([table.where(kind) for kind in kinds], step, time=TIME).toArrow())
    assert isinstance(found, pl.DataFrame)
    assert found.height > 10
    assert answers("main", found.rows(named=True), step) == answers("main", streamed, step)


@pytest.mark.full
def test_a_table_of_many_slots_gives_what_a_table_of_few_gives(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = pl.DataFrame({"account": [f"a{number % 97}" for number in range(20_000)], "amount": range(20_000)})
    frame = frame.with_columns(pl.lit(moment("10:05")).alias("at"))
    table = spark.createDataFrame(frame.to_arrow())
    few = hr.over(table, HOURLY, time="at")
    assert few.rdd.getNumPartitions() == int(spark.conf.get("spark.sql.shuffle.partitions") or 0)
    monkeypatch.setattr(bounded, "BYTES_OF_A_SLOT", 20_000)
    many = hr.over(table, HOURLY, time="at")
    most = hr.over(table, HOURLY, time="at", key_groups=7)
    assert many.rdd.getNumPartitions() > 10
    assert most.rdd.getNumPartitions() == 7
    assert spent(many) == spent(few) == spent(most)
    assert len(spent(many)) == 97
