"""Whatever PySpark an author writes around steps: each row of a source is read, counted and kept once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import polars as pl
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headrace as hr
from headrace.observe import history
from headrace.observe.account import SourceCounts
from headrace.observe.committed import committed_rows
from tests.integration.conftest import SCHEMA
from tests.integration.test_backfill import table

pytestmark = pytest.mark.spark

Shape = Callable[[DataFrame], DataFrame]
FILES = 4


def _window(name: str, n: str = "sum(n)", size: str = "1 hour") -> Any:
    return hr.tumbling(name, size=size, key="account").agg(n=n).late(hr.side_output())


async def _name(account: str) -> dict[str, str]:
    return {"name": account.upper()}


class Accounts:
    """A small table of names."""

    def columns(self) -> dict[str, pl.DataType]:
        """Accounts and their names."""
        return {"account": pl.String(), "name": pl.String()}

    def read(self) -> pl.DataFrame:
        """Two of them."""
        return pl.DataFrame({"account": ["a", "b"], "name": ["A", "B"]})


def _named(name: str) -> Any:
    return hr.broadcast_join(name, Accounts(), on="account")


def _lookup(name: str) -> Any:
    return hr.lookup(name, _name, on="account", output="name STRING", on_failure="dead_letter")


def _coalesced(rows: DataFrame) -> DataFrame:
    return rows.coalesce(1)


def _coalesced_before_a_step(rows: DataFrame) -> DataFrame:
    return rows.coalesce(1).transform(_window("hourly", "count(*)"))


def _coalesced_behind_a_step(rows: DataFrame) -> DataFrame:
    return rows.transform(_window("hourly", "count(*)")).coalesce(1)


def _coalesced_behind_a_chain(rows: DataFrame) -> DataFrame:
    return _chain(rows).coalesce(1)


def _chain(rows: DataFrame) -> DataFrame:
    return rows.transform(_window("minutes", "count(*)", "1 minute")).transform(_window("hourly"))


def _coalesced_in_a_chain(rows: DataFrame) -> DataFrame:
    minutes = rows.transform(_window("minutes", "count(*)", "1 minute")).coalesce(1)
    return minutes.transform(_window("hourly")).hint("coalesce", 1)


def _united(rows: DataFrame) -> DataFrame:
    return rows.where("amount > 2").union(rows.where("amount <= 2"))


def _united_before_a_step(rows: DataFrame) -> DataFrame:
    return _united(rows).transform(_window("hourly", "count(*)"))


def _united_before_a_chain(rows: DataFrame) -> DataFrame:
    return _chain(_united(rows))


def _united_behind_a_step(rows: DataFrame) -> DataFrame:
    hours = rows.transform(_window("hourly", "count(*)"))
    return hours.where("n > 2").union(hours.where("n <= 2"))


def _united_and_coalesced(rows: DataFrame) -> DataFrame:
    return rows.where("amount > 2").coalesce(1).union(rows.where("amount <= 2").coalesce(1))


def _united_in_sql(rows: DataFrame) -> DataFrame:
    query = "WITH given AS (SELECT * FROM {rows}) SELECT * FROM given WHERE amount > 2 UNION ALL "
    return rows.sparkSession.sql(query + "SELECT * FROM given WHERE amount <= 2", rows=rows)


def _two_steps(rows: DataFrame) -> DataFrame:
    hours, minutes = (rows.transform(_window(name, "count(*)")) for name in ("hourly", "again"))
    return hours.where("account = 'a'").union(minutes.where("account != 'a'"))


def _a_step_and_rows(rows: DataFrame) -> DataFrame:
    hours = rows.transform(_window("hourly", "count(*)")).selectExpr("account", "0L AS amount")
    return hours.where("false").union(rows.select("account", "amount"))


def _steps_behind_a_chain(rows: DataFrame) -> DataFrame:
    hours = _chain(rows)
    days = [hours.transform(_window(name, "sum(n)", "1 day")) for name in ("daily", "again")]
    return days[0].where("account = 'a'").union(days[1].where("account != 'a'"))


def _a_chain_and_its_middle(rows: DataFrame) -> DataFrame:
    minutes = rows.transform(_window("minutes", "count(*)", "1 minute"))
    return minutes.where("false").union(minutes.transform(_window("hourly")))


def _coalesced_behind_a_lookup(rows: DataFrame) -> DataFrame:
    return rows.transform(_lookup("names")).coalesce(1)


def _coalesced_behind_a_small_table(rows: DataFrame) -> DataFrame:
    return rows.transform(_named("names")).coalesce(1)


def _two_small_tables(rows: DataFrame) -> DataFrame:
    first, second = (rows.transform(_named(name)).select("account", "name") for name in ("names", "again"))
    return first.where("account = 'a'").union(second.where("account != 'a'"))


def _a_small_table_and_lookup_behind_another(rows: DataFrame) -> DataFrame:
    behind = rows.transform(_named("names")).drop("name", "names_version").transform(_lookup("again"))
    return behind.where("false").select("account", "name").union(rows.selectExpr("account", "'' AS name"))


def _lookups_and_a_step_behind_a_lookup(rows: DataFrame) -> DataFrame:
    named = rows.transform(_named("names")).drop("name", "names_version")
    hours = named.transform(_window("hourly", "count(*)")).selectExpr("account", "0L AS amount")
    again = named.transform(_lookup("again")).select("account", "amount")
    return hours.where("false").union(again)


def _a_lookup_and_a_step(rows: DataFrame) -> DataFrame:
    hours = rows.transform(_window("hourly", "count(*)")).selectExpr("account", "0L AS amount")
    return hours.where("false").union(rows.transform(_lookup("names")).select("account", "amount"))


def _a_lookup_of_a_part(rows: DataFrame) -> DataFrame:
    left, right = hr.split(rows, "amount > 2", "amount <= 2")
    return left.transform(_named("names")).drop("name", "names_version").select(*rows.columns).union(right)


def _multiplied(rows: DataFrame) -> DataFrame:
    table = rows.sparkSession.range(0, 4, 1, 4).withColumnRenamed("id", "number")
    return rows.crossJoin(table).where("number = 0").drop("number")


def _multiplied_behind_a_small_table(rows: DataFrame) -> DataFrame:
    return _multiplied(rows.transform(_named("names")))


def _multiplied_by_a_hinted_table(rows: DataFrame) -> DataFrame:
    table = rows.sparkSession.range(0, 4, 1, 4).withColumnRenamed("id", "number")
    return F.broadcast(table).join(rows, F.expr("number <= amount AND number < 1")).drop("number")


SHAPES = [
    _coalesced,
    _coalesced_before_a_step,
    _coalesced_behind_a_step,
    _coalesced_behind_a_chain,
    _coalesced_in_a_chain,
    _united,
    _united_before_a_step,
    _united_before_a_chain,
    _united_behind_a_step,
    _united_and_coalesced,
    _united_in_sql,
    _two_steps,
    _a_step_and_rows,
    _steps_behind_a_chain,
    _a_chain_and_its_middle,
    _coalesced_behind_a_lookup,
    _coalesced_behind_a_small_table,
    _two_small_tables,
    _a_small_table_and_lookup_behind_another,
    _lookups_and_a_step_behind_a_lookup,
    _a_lookup_and_a_step,
    _a_lookup_of_a_part,
    _multiplied,
    _multiplied_behind_a_small_table,
    _multiplied_by_a_hinted_table,
]


def _cases(*first_tier: Shape) -> list[Any]:
    return [pytest.param(each, marks=[] if each in first_tier else [pytest.mark.full]) for each in SHAPES]


def _land(place: Any) -> None:
    for number in range(FILES):
        good = [(f"{number}{row}", "ab"[row % 2], row, f"1{number}:0{row}:00") for row in range(5)]
        place.land(str(number), *good, "broken")


def _spend(place: Any, shape: Shape) -> Any:
    @hr.pipeline(name="spend")
    def spend(spark: SparkSession) -> None:
        rows = hr.read_files(spark, place.landing, format="json", schema=SCHEMA, name="payments")
        hr.write("spend", shape(rows.transform(hr.event_time("at"))), hr.to_files(place.root / "out"))

    return spend


def _check(place: Any, *, once: dict[str, bool]) -> None:
    """Five good rows and a dead one of every file are there once."""
    total = history.read(place.checkpoint / "spend")[-1].total
    assert total.sources == {"payments": SourceCounts(6 * FILES, 5 * FILES, FILES)}
    assert total.read_once == once
    assert committed_rows(place.checkpoint / "spend" / "dead_letters").height == FILES
    rows = committed_rows(place.root / "out")
    assert (rows["n"].sum() if "n" in rows.columns else rows.height) == 5 * FILES
    # A step gets the rows, or a part of them, or the windows of the step before it.
    assert {counts.in_ for counts in total.steps.values()} <= {5 * FILES, 2 * FILES, 3 * FILES}


@pytest.fixture
def without_broadcasts(spark: SparkSession) -> Iterator[None]:
    """Spark broadcasts no table that is not hinted."""
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    yield
    spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")


@pytest.mark.usefixtures("without_broadcasts")
@pytest.mark.parametrize(
    "shape", _cases(_coalesced_in_a_chain, _united_before_a_step, _united_behind_a_step, _two_small_tables)
)
def test_rows_that_tasks_read_count_once_whatever_the_authors_plan_is(
    shape: Shape, place: Any, spark: SparkSession
) -> None:
    for number in range(FILES):
        good = [(f"{number}{row}", "ab"[row % 2], row, f"1{number}:0{row}:00") for row in range(5)]
        place.land(str(number), *good, "broken")
    _spend(place, shape).run(checkpoint=place.checkpoint, mode=hr.available_now(drain=True), spark=spark)
    _check(place, once={"payments": True})


@pytest.mark.usefixtures("without_broadcasts")
@pytest.mark.parametrize("shape", _cases(_coalesced, _united, _multiplied))
def test_rows_that_spark_reads_count_once_whatever_the_authors_plan_is(
    shape: Shape, place: Any, spark: SparkSession
) -> None:
    files = range(FILES)
    good = [(f"{file}{row}", "ab"[row % 2], row, f"1{file}:0{row}:00") for file in files for row in range(5)]
    given = table(spark, *good, *((str(file), "a", 1, None) for file in files))
    given = given.where("length(id) = 2 OR at IS NULL")
    _spend(place, shape).backfill({"payments": given.repartition(FILES)}, checkpoint=place.checkpoint, spark=spark)
    _check(place, once={})


@pytest.mark.full
def test_a_side_output_may_be_coalesced(place: Any, spark: SparkSession) -> None:
    place.land("1", ("1", "a", 5, "10:05:00"), ("2", "b", 1, "12:30:00"))
    place.land("2", *((str(number), "a", 1, "10:06:00") for number in range(3, 7)))

    @hr.pipeline(name="spend")
    def spend(spark: SparkSession) -> None:
        rows = hr.read_files(
            spark, place.landing, format="json", schema=SCHEMA, name="payments", files_per_batch=1
        ).transform(hr.event_time("at"))
        hours = _window("hourly", "count(*)").outputs(rows.coalesce(1))
        late = hours.late.transform(lambda late: late.coalesce(1))
        hr.write("spend", (hours.main, hr.to_memory("hours")), (late, hr.to_files(place.root / "late")))

    spend.run(checkpoint=place.checkpoint, mode=hr.available_now(drain=True), spark=spark)
    total = history.read(place.checkpoint / "spend")[-1].total
    assert (total.read, total.late, total.out("hourly.late")) == (6, 4, 4)
    assert committed_rows(place.root / "late").height == 4


class Waits:
    """A sink that waits for the other flow, while the rows of this one are kept."""

    guarantee = "exactly_once"

    def __init__(self, both: threading.Barrier) -> None:
        self._both = both

    def write(self, frame: DataFrame, batch: hr.BatchIdentity) -> hr.Written:
        """Count the rows."""
        self._both.wait(60)
        return hr.Written(rows := frame.count(), rows)


@pytest.mark.parametrize("several", ["outputs", pytest.param("sinks", marks=pytest.mark.full)])
def test_each_flow_of_a_backfill_reads_its_table_itself(several: str, place: Any, spark: SparkSession) -> None:
    both = threading.Barrier(2)

    @hr.pipeline(name="spend")
    def spend(spark: SparkSession) -> None:
        rows = hr.read_files(spark, place.landing, format="json", schema=SCHEMA, name="payments")
        rows = rows.transform(hr.event_time("at"))
        for name in ("first", "second"):
            files = hr.to_files(place.root / name)
            if several == "sinks":
                hr.write(name, (rows, files, Waits(both)))
            else:
                hr.write(name, (rows.select("id"), files), (rows.select("account"), Waits(both)))

    spend.backfill({"payments": table(spark, ("5", "a", 1, None))}, checkpoint=place.checkpoint, spark=spark)
    for name in ("first", "second"):
        (batch,) = history.read(place.checkpoint / name)
        assert batch.account.sources == {"payments": SourceCounts(5, 4, 1)}
        assert committed_rows(place.checkpoint / name / "dead_letters").height == 1
        assert committed_rows(place.root / name).height == 4
