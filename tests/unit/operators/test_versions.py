"""Which rows of an output replace others, as the sink is told: what the step says, through the author's own select."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headrace as hr
from headrace.nodes import ResultVersions

pytestmark = pytest.mark.spark

ROWS = "account STRING, amount BIGINT, at TIMESTAMP"
CHANGES = "account STRING, amount BIGINT, change STRING, position STRING, at TIMESTAMP"
TUMBLING = hr.tumbling("hourly", size="1 hour", key="account").agg(spent="sum(amount)")
CORRECTED = TUMBLING.late(hr.update_for("1 hour"))
SESSION = hr.session("visits", gap="1 hour", key="account").agg(n="count(*)").late(hr.update_for("1 hour"))
EVERY_TWO = hr.global_window("all", key="account", ttl="1 day").agg(n="count(*)").emit(hr.after_rows(2)).late(hr.drop())
SLIDING = hr.sliding("moving", size="1 hour", key="account").agg(n="count(*)")
AS_THEY_ARE: Callable[[DataFrame], DataFrame] = lambda frame: frame  # noqa: E731 - the usual shape


def told(
    spark: SparkSession, tmp_path: Path, define: Callable[[DataFrame], DataFrame], schema: str = ROWS
) -> ResultVersions | None:
    """What the sink of an output is told of its rows."""

    @hr.pipeline
    def written(spark: SparkSession) -> None:
        read = hr.debezium_changes("account STRING, amount BIGINT", key="account") if schema is CHANGES else schema
        rows = hr.read_files(spark, tmp_path, format="json", schema=read, name="rows")
        time = "committed_at" if schema is CHANGES else "at"
        hr.write("out", define(rows.transform(hr.event_time(time))), hr.to_files(tmp_path / "out"))

    sink: Any = written.define(spark, tmp_path / "checkpoint").flows["out"].mains[0].sinks[0]
    versions: ResultVersions | None = sink.versions
    return versions


def keyed(*path: str, revision: str | None = "revision", change: str | None = None) -> ResultVersions:
    return ResultVersions((("account",), path), revision, change)


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (CORRECTED, keyed("window")),
        # Also where no result is replaced: late rows may be allowed to, later.
        (TUMBLING.late(hr.drop()), keyed("window")),
        (TUMBLING.late(hr.drop()).panes(hr.retracting()), keyed("window", change="change")),
        (SESSION, keyed("session_id", change="change")),
        (EVERY_TWO, keyed("window", "start")),
        (EVERY_TWO.panes(hr.discarding()), None),
        (SLIDING.late(hr.drop()), None),
        (hr.deduplicate("once", key="account", within="1 hour").late(hr.drop()), None),
        (hr.counting("tens", rows=10, key="account", ttl="1 day").agg(n="count(*)").late(hr.drop()), None),
        (SLIDING.late(hr.update_for("1 hour")), "no column identifies a result of step 'moving'"),
        (
            TUMBLING.late(hr.drop()).panes(hr.discarding()).emit(hr.on_update()),
            "no column identifies a result of step 'hourly'",
        ),
    ],
    ids=str,
)
def test_what_identifies_a_result_is_known_from_the_step(
    step: Any, expected: ResultVersions | str | None, spark: SparkSession, tmp_path: Path
) -> None:
    unknown = ResultVersions(unknown=expected) if isinstance(expected, str) else expected
    assert told(spark, tmp_path, step) == unknown


GROUPS = hr.table_aggregate("groups", key=None, row_key="account").agg(spent="sum(amount)")


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (hr.materialize("current", key="account"), ResultVersions((("account",),), change="change")),
        (lambda rows: GROUPS(rows.drop("unchanged")), ResultVersions((), change="change")),
        (AS_THEY_ARE, ResultVersions(unknown="no column identifies a result of source 'rows'")),
        (lambda rows: rows.drop("change"), None),
    ],
)
def test_a_changelog_is_identified_by_the_key_of_its_table(
    step: Any, expected: ResultVersions | None, spark: SparkSession, tmp_path: Path
) -> None:
    assert told(spark, tmp_path, step, CHANGES) == expected


LOOKED_UP = hr.lookup(
    "levels", hr.redis_lookup("redis://h", key="level:{account}"), on="account", output="level INT", on_failure="null"
)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (lambda rows: rows.select("spent", F.col("account").alias("who"), "window", "revision"), "renamed"),
        (lambda rows: rows.where("spent > 3").repartition(2), keyed("window")),
        (lambda rows: rows.drop("pane", "revision"), "revision of step 'hourly' is missing or was computed anew"),
        (
            lambda rows: rows.withColumn("account", F.upper("account")).withColumn("window", F.col("window.end")),
            "account, window of step 'hourly' is missing or was computed anew",
        ),
        (lambda rows: rows.union(rows), keyed("window")),
        (LOOKED_UP, "no column identifies a result of step 'hourly', and step 'levels' comes after it"),
    ],
)
def test_it_is_followed_through_the_authors_own_select(
    shape: Any, expected: ResultVersions | str, spark: SparkSession, tmp_path: Path
) -> None:
    renamed = ResultVersions((("who",), ("window",)), "revision")
    unknown = ResultVersions(unknown=str(expected))
    wanted = expected if isinstance(expected, ResultVersions) else renamed if expected == "renamed" else unknown
    assert told(spark, tmp_path, lambda rows: rows.transform(CORRECTED).transform(shape)) == wanted


def test_results_of_two_steps_in_one_frame_are_not_told_apart(spark: SparkSession, tmp_path: Path) -> None:
    daily = hr.tumbling("daily", size="1 day", key="account").agg(spent="sum(amount)").late(hr.drop())

    def both(rows: DataFrame) -> DataFrame:
        return rows.transform(CORRECTED).union(rows.transform(daily))

    assert told(spark, tmp_path, both) == ResultVersions(unknown="results of 'hourly' are united with other rows")


def test_rows_of_a_chain_are_those_of_its_last_step(spark: SparkSession, tmp_path: Path) -> None:
    daily = hr.tumbling("daily", size="1 day", key="account").agg(spent="sum(spent)").late(hr.drop())
    chained = TUMBLING.late(hr.drop())
    assert told(spark, tmp_path, lambda rows: rows.transform(chained).transform(daily)) == keyed("window")
    plain = hr.deduplicate("once", key="account", within="1 hour").late(hr.drop())
    assert told(spark, tmp_path, lambda rows: rows.transform(chained).transform(plain)) is None
