"""Each operation of Spark that needs more rows than a batch has, and each function that a re-run would answer anew."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas import functions as vectorized
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

import headrace as hr

SCHEMA = "account STRING, spent DOUBLE, at TIMESTAMP"
pandas_udf: Any = vectorized.pandas_udf
HOUR = "window(timestamp_seconds(spent), '1 hour')"
SESSION = "session_window(timestamp_seconds(spent), '1 hour')"
READERS = {"before": "step 'hourly'", "behind": "flow 'spend'"}
Shape = Callable[[DataFrame], DataFrame]


def _source(spark: SparkSession, folder: Path, name: str) -> DataFrame:
    rows = hr.read_files(spark, folder, format="json", schema=SCHEMA, name=name)
    return rows.transform(hr.event_time("at"))


def _define(spark: SparkSession, folder: Path, *, before: Shape | None = None, behind: Shape | None = None) -> None:
    hourly = hr.tumbling("hourly", size="1 hour", key="account").agg(spent="sum(spent)").late(hr.drop())

    @hr.pipeline(name="spend")
    def spend(spark: SparkSession) -> None:
        rows = _source(spark, folder, "payments")
        windows = (rows if before is None else before(rows)).transform(hourly)
        hr.write("spend", windows if behind is None else behind(windows), hr.to_console())

    spend.define(spark, folder / "checkpoint")


def _refusal(spark: SparkSession, folder: Path, **shapes: Shape) -> str:
    with pytest.raises(hr.DefinitionError) as raised:
        _define(spark, folder, **shapes)
    return str(raised.value)


def _static(frame: DataFrame) -> DataFrame:
    return frame.sparkSession.createDataFrame([("a", 1), ("b", 2)], "account STRING, n INT")


class _Processor(StatefulProcessor):
    """Does nothing."""

    def init(self, handle: object) -> None:
        """Nothing."""

    def handleInputRows(self, key: object, rows: object, timer_values: object) -> Iterator[object]:
        """No rows."""
        return iter(())

    def close(self) -> None:
        """Nothing."""


def _sql(text: str) -> Shape:
    def query(frame: DataFrame) -> DataFrame:
        return frame.sparkSession.sql(text, rows=frame, static=_static(frame))

    return query


STATEFUL: dict[str, tuple[Shape, str]] = {
    "groupBy": (lambda frame: frame.groupBy("account", "spent").agg(F.max("spent")), "hr.table_aggregate"),
    "groupBy of a window": (
        lambda frame: frame.groupBy(F.expr(HOUR)).count(),
        "hr.tumbling",
    ),
    "session_window": (
        lambda frame: frame.groupBy(F.expr(SESSION)).count(),
        "hr.session",
    ),
    "agg": (lambda frame: frame.agg(F.count("*")), "hr.table_aggregate"),
    "rollup": (lambda frame: frame.rollup("account").count(), "hr.table_aggregate"),
    "cube": (lambda frame: frame.cube("account").count(), "hr.table_aggregate"),
    "pivot": (lambda frame: frame.groupBy("account").pivot("account", ["a"]).count(), "hr.table_aggregate"),
    "distinct": (lambda frame: frame.distinct(), "hr.deduplicate"),
    "SELECT DISTINCT": (_sql("SELECT DISTINCT account FROM {rows}"), "hr.deduplicate"),
    "dropDuplicates": (lambda frame: frame.dropDuplicates(["account"]), "hr.deduplicate"),
    "dropDuplicatesWithinWatermark": (lambda frame: frame.dropDuplicatesWithinWatermark(["account"]), "hr.deduplicate"),
    "a window function": (
        lambda frame: frame.withColumn("n", F.row_number().over(Window.partitionBy("account").orderBy("spent"))),
        "hr.sliding",
    ),
    "lag": (
        lambda frame: frame.withColumn("n", F.lag("spent").over(Window.partitionBy("account").orderBy("spent"))),
        "hr.process",
    ),
    "limit": (lambda frame: frame.limit(3), "where"),
    "offset": (lambda frame: frame.offset(3), "where"),
    "orderBy": (lambda frame: frame.orderBy("spent"), "hr.process"),
    "sortWithinPartitions": (lambda frame: frame.sortWithinPartitions("spent"), "hr.process"),
    "zipWithIndex": (lambda frame: frame.zipWithIndex(), "_position"),
    "TRANSFORM": (_sql("SELECT TRANSFORM(account) USING 'sort' AS (account STRING) FROM {rows}"), "hr.process"),
    "TABLESAMPLE": (_sql("SELECT * FROM {rows} TABLESAMPLE (10 ROWS)"), "where"),
    "sample": (lambda frame: frame.sample(0.5, seed=1), "hash"),
    "randomSplit": (lambda frame: frame.randomSplit([0.5, 0.5], seed=1)[0], "hash"),
    "intersect": (lambda frame: frame.intersect(frame), "hr.interval_join"),
    "intersectAll": (lambda frame: frame.intersectAll(frame), "hr."),
    "subtract": (lambda frame: frame.subtract(frame), "hr.interval_join"),
    "exceptAll": (lambda frame: frame.exceptAll(frame), "hr."),
    "applyInPandas": (lambda frame: frame.groupBy("account").applyInPandas(lambda rows: rows, frame.schema), "process"),
    "applyInArrow": (lambda frame: frame.groupBy("account").applyInArrow(lambda rows: rows, frame.schema), "process"),
    "cogroup": (
        lambda frame: (
            frame.groupBy("account")
            .cogroup(_static(frame).groupBy("account"))
            .applyInPandas(lambda left, right: left, frame.schema)
        ),
        "hr.process",
    ),
    "applyInPandasWithState": (
        lambda frame: frame.groupBy("account").applyInPandasWithState(
            lambda key, rows, state: rows, "account STRING", "n INT", "append", "NoTimeout"
        ),
        "hr.process",
    ),
    "transformWithState": (
        lambda frame: frame.groupBy("account").transformWithState(_Processor(), "account STRING", "append", "none"),
        "hr.process",
    ),
    "transformWithStateInPandas": (
        lambda frame: frame.groupBy("account").transformWithStateInPandas(
            _Processor(), "account STRING", "append", "none"
        ),
        "hr.process",
    ),
    "a join with itself": (lambda frame: frame.join(frame.select("account"), "account"), "hr.interval_join"),
    "IN (a stream)": (
        _sql("SELECT * FROM {rows} WHERE account IN (SELECT account FROM {rows})"),
        "hr.interval_join",
    ),
}


PLACES = pytest.mark.parametrize("place", ["before", "behind"])


@PLACES
@pytest.mark.parametrize("name", STATEFUL)
def test_an_operation_that_needs_more_than_one_row_is_refused_with_what_to_use_instead(
    spark: SparkSession, tmp_path: Path, name: str, place: str
) -> None:
    shape, instead = STATEFUL[name]
    said = _refusal(spark, tmp_path, **{place: shape})
    assert said.startswith(f"[SPARK_STATEFUL] {READERS[place]}: ")
    assert instead in said.partition("Use ")[2]
    assert "test_unsupported_operations.py" in said


def test_a_refusal_shows_what_the_author_wrote_why_it_is_wrong_and_where(spark: SparkSession, tmp_path: Path) -> None:
    said = _refusal(spark, tmp_path, before=lambda frame: frame.distinct())
    assert re.sub(r"\(at .*", "", said) == (
        "[SPARK_STATEFUL] step 'hourly': distinct or dropDuplicates needs more than one row of a stream, but Spark "
        "would see the rows of one batch only, and the result would depend on where batches begin. Use "
        "hr.deduplicate. In Spark's plan: Deduplicate [account, spent, at] "
    )


def _column(text: str) -> Shape:
    return lambda frame: frame.withColumn("chosen", F.expr(text))


UNREPEATABLE: dict[str, tuple[Shape, str]] = {
    "rand": (_column("rand()"), "hash"),
    "rand with a seed": (_column("rand(7)"), "hash"),
    "random": (_column("random()"), "hash"),
    "randn": (_column("randn()"), "hash"),
    "randstr": (_column("randstr(3)"), "hash"),
    "uniform": (_column("uniform(1, 10)"), "hash"),
    "uuid": (_column("uuid()"), "hash"),
    "shuffle": (_column("shuffle(array(1, 2))"), "sort_array"),
    "monotonically_increasing_id": (_column("monotonically_increasing_id()"), "_position"),
    "spark_partition_id": (_column("spark_partition_id()"), "_position"),
    "input_file_name": (_column("input_file_name()"), "_position"),
    "input_file_block_start": (_column("input_file_block_start()"), "_position"),
    "input_file_block_length": (_column("input_file_block_length()"), "_position"),
    "reflect": (_column("reflect('java.util.UUID', 'randomUUID')"), "the row's own columns"),
    "aes_encrypt": (_column("aes_encrypt(account, '0000111122223333')"), "vector of your own"),
    "current_time": (_column("current_time()"), "date_format"),
    "'now' as timestamp": (_column("cast('now' as timestamp)"), "current_timestamp()"),
    "'today' as date": (_column("cast('today' as date)"), "current_date()"),
    "to_date": (_column("to_date(' Yesterday ')"), "date_sub"),
    "to_timestamp": (_column("to_timestamp('tomorrow')"), "date_add"),
    "a comparison with 'now'": (lambda frame: frame.where("timestamp_seconds(spent) < 'now'"), "current_timestamp()"),
    "where": (lambda frame: frame.where("rand() < 0.5"), "hash"),
    "sampleBy": (lambda frame: frame.sampleBy("account", {"a": 0.5}), "hash"),
    "a static table": (lambda frame: frame.crossJoin(_static(frame).where("rand() < 0.5")), "hash"),
    "a subquery": (_sql("SELECT * FROM {rows} WHERE spent > (SELECT max(n) FROM {static} WHERE rand() < 0.5)"), "hash"),
    "a UDF": (
        lambda frame: frame.withColumn("chosen", F.udf(lambda name: name).asNondeterministic()("account")),
        "hr.lookup",
    ),
    "a pandas UDF": (
        lambda frame: frame.withColumn(
            "chosen", pandas_udf(lambda values: values, "double").asNondeterministic()("spent")
        ),
        "hr.lookup",
    ),
}


@PLACES
@pytest.mark.parametrize("name", UNREPEATABLE)
def test_a_function_that_a_re_run_would_answer_anew_is_refused_with_what_to_use_instead(
    spark: SparkSession, tmp_path: Path, name: str, place: str
) -> None:
    shape, instead = UNREPEATABLE[name]
    said = _refusal(spark, tmp_path, **{place: shape})
    assert said.startswith(f"[SPARK_NOT_REPEATABLE] {READERS[place]}: ")
    assert instead in said.partition("Use ")[2]


REPEATED: dict[str, Shape] = {
    "right": lambda frame: frame.join(_static(frame), "account", "right"),
    "full": lambda frame: frame.join(_static(frame), "account", "full"),
    "left, with the table on the left": lambda frame: _static(frame).join(frame, "account", "left"),
    "semi, with the table on the left": lambda frame: _static(frame).join(frame, "account", "semi"),
    "anti, with the table on the left": lambda frame: _static(frame).join(frame, "account", "anti"),
    "union": lambda frame: frame.unionByName(_static(frame), allowMissingColumns=True),
}


@PLACES
@pytest.mark.parametrize("name", REPEATED)
def test_an_operation_that_gives_rows_of_a_static_table_in_each_batch_is_refused(
    spark: SparkSession, tmp_path: Path, name: str, place: str
) -> None:
    said = _refusal(spark, tmp_path, **{place: REPEATED[name]})
    assert said.startswith(f"[STATIC_ROWS_REPEATED] {READERS[place]}: ")


SUPPORTED: dict[str, Shape] = {
    "where, select, withColumn": lambda frame: frame.where("spent > 1").withColumn("double", F.col("spent") * 2),
    "explode": lambda frame: frame.withColumn("each", F.explode(F.array(F.lit(1), F.lit(2)))),
    "LATERAL VIEW": _sql("SELECT * FROM {rows} LATERAL VIEW explode(array(1, 2)) AS each"),
    "unpivot": lambda frame: frame.withColumn("more", F.col("spent")).unpivot(
        [name for name in frame.columns if name != "spent"], ["spent", "more"], "name", "spent"
    ),
    "fillna, dropna, replace": lambda frame: frame.fillna(0.0).dropna().replace("a", "b"),
    "a window of time": lambda frame: frame.withColumn("hour", F.expr(HOUR)),
    "repartition, coalesce": lambda frame: frame.repartition(3, "account").coalesce(1),
    "repartitionByRange": lambda frame: frame.repartitionByRange(2, "account"),
    "a hint": lambda frame: frame.hint("rebalance"),
    "observe": lambda frame: frame.observe("seen", F.count("*").alias("n")),
    "alias": lambda frame: frame.alias("rows").select("rows.*"),
    "a union of two parts": lambda frame: frame.where("spent > 1").union(frame.where("spent <= 1")),
    "mapInPandas": lambda frame: frame.select("account", "spent", *_times(frame)).mapInPandas(
        lambda frames: frames, frame.select("account", "spent", *_times(frame)).schema
    ),
    "a UDF": lambda frame: frame.withColumn("name", F.udf(lambda name: name)("account")),
    "a pandas UDF": lambda frame: frame.withColumn("double", pandas_udf(lambda values: values * 2, "double")("spent")),
    "an inner join": lambda frame: frame.join(_static(frame), "account"),
    "an inner join, with the table on the left": lambda frame: _static(frame).join(frame, "account"),
    "a left join": lambda frame: frame.join(F.broadcast(_static(frame)), "account", "left"),
    "a right join, with the table on the left": lambda frame: _static(frame).join(frame, "account", "right"),
    "a semi join": lambda frame: frame.join(_static(frame), "account", "semi"),
    "an anti join": lambda frame: frame.join(_static(frame), "account", "anti"),
    "a table that is aggregated": lambda frame: frame.join(_static(frame).groupBy("account").count(), "account"),
    "a table that is sorted and limited": lambda frame: frame.join(_static(frame).orderBy("n").limit(1), "account"),
    "a table without duplicates": lambda frame: frame.join(_static(frame).distinct(), "account"),
    "a table with a rank": lambda frame: frame.join(
        _static(frame).withColumn("rank", F.rank().over(Window.orderBy("n"))), "account"
    ),
    "IN": _sql("SELECT * FROM {rows} WHERE account NOT IN (SELECT account FROM {static})"),
    "EXISTS": _sql("SELECT * FROM {rows} AS r WHERE EXISTS (SELECT 1 FROM {static} AS s WHERE s.account = r.account)"),
    "a scalar": _sql("SELECT *, (SELECT max(n) FROM {static}) AS most FROM {rows}"),
    "LATERAL": _sql(
        "SELECT r.*, n FROM {rows} AS r, LATERAL (SELECT n FROM {static} AS s WHERE s.account = r.account LIMIT 1)"
    ),
    "WITH": _sql("WITH big AS (SELECT * FROM {rows} WHERE spent > 1) SELECT * FROM big"),
    "a vector of one's own": _column("aes_encrypt(account, '0000111122223333', 'CBC', 'DEFAULT', '0123456789abcdef')"),
    "ECB": _column("aes_encrypt(account, '0000111122223333', 'ECB')"),
    "the clock": lambda frame: frame.where("now() > current_date()").withColumn("seen", F.localtimestamp()),
    "a fixed moment": _column("cast('2026-01-01' as timestamp)"),
}


def _times(frame: DataFrame) -> list[str]:
    return [name for name in ("at", "window") if name in frame.columns]


@PLACES
@pytest.mark.parametrize("name", SUPPORTED)
def test_an_operation_that_takes_rows_one_by_one_is_supported(
    spark: SparkSession, tmp_path: Path, name: str, place: str
) -> None:
    _define(spark, tmp_path, **{place: SUPPORTED[name]})


def test_a_join_of_two_sources_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    def joined(frame: DataFrame) -> DataFrame:
        return frame.join(_source(frame.sparkSession, tmp_path, "others").select("account"), "account")

    said = _refusal(spark, tmp_path, before=joined)
    assert said.startswith("[SPARK_STATEFUL] step 'hourly': a join of two streams")


def test_the_function_of_a_side_output_is_checked_too(spark: SparkSession, tmp_path: Path) -> None:
    hourly = hr.tumbling("hourly", size="1 hour", key="account").agg(n="count(*)").late(hr.side_output())

    def define(shape: Shape) -> None:
        @hr.pipeline(name="spend")
        def spend(spark: SparkSession) -> None:
            windows = hourly.outputs(_source(spark, tmp_path, "payments"))
            sink = hr.to_console()
            hr.write("spend", (windows.main, sink), (windows.late.transform(shape), sink))

        spend.define(spark, tmp_path / "checkpoint")

    define(lambda late: late.where("spent > 1"))
    with pytest.raises(hr.DefinitionError, match=r"^\[SPARK_STATEFUL\] flow 'spend': groupBy"):
        define(lambda late: late.groupBy("account").count())
    with pytest.raises(hr.DefinitionError, match=r"^\[SPARK_NOT_REPEATABLE\] flow 'spend': uuid"):
        define(lambda late: late.withColumn("id", F.expr("uuid()")))


def test_check_reports_what_is_not_supported_as_a_finding(spark: SparkSession, tmp_path: Path) -> None:
    @hr.pipeline
    def spend(spark: SparkSession) -> None:
        hr.write("spend", _source(spark, tmp_path, "payments").distinct(), hr.to_console())

    [finding] = spend.check(spark=spark)
    assert (finding.id, finding.severity) == ("SPARK_STATEFUL", "error")
