"""Which steps of a chain run in one task."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import headrace as hr
from headrace.event_time.record import BatchRecord
from headrace.runtime.batch_plan import FlowPlan
from headrace.runtime.shared_rows import Sharing, shared_rows

pytestmark = pytest.mark.spark

Shape = Callable[[DataFrame], DataFrame]


def _window(name: str, size: str, key: Any = "account", n: str = "sum(n)") -> Any:
    return hr.tumbling(name, size=size, key=key).agg(n=n).late(hr.drop())


def _minutes(key: Any = "account") -> Any:
    return _window("minutes", "1 minute", key, "count(*)")


def _two(rows: DataFrame) -> DataFrame:
    return rows.transform(_minutes()).transform(_window("hourly", "1 hour"))


def _three(rows: DataFrame) -> DataFrame:
    return _two(rows).transform(_window("daily", "1 day"))


def _a_shuffle_in_the_middle(rows: DataFrame) -> DataFrame:
    both = rows.transform(_minutes(["account", "shop"])).transform(_window("hourly", "1 hour", ["account", "shop"]))
    return both.transform(_window("of_shops", "1 hour", "shop")).transform(_window("daily", "1 day", "shop"))


def _other_keys(rows: DataFrame) -> DataFrame:
    return rows.transform(_minutes(["account", "shop"])).transform(_window("hourly", "1 hour"))


def _code_in_between(rows: DataFrame) -> DataFrame:
    return rows.transform(_minutes()).where("n > 0").transform(_window("hourly", "1 hour"))


class Renamed(hr.KeyedProcess):
    """May give rows of any key."""

    def on_row(self, row: Any, context: Any) -> Any:
        """One row for each."""
        yield {"account": "another", "n": 1}


def _a_process(rows: DataFrame) -> DataFrame:
    renamed = hr.process("renamed", Renamed, key="account", output="account STRING, n BIGINT").late(hr.drop())
    return rows.transform(renamed).transform(_window("hourly", "1 hour"))


@pytest.mark.parametrize(
    ("shape", "shuffles"),
    [
        (_two, 1),
        (_three, 1),
        (_a_shuffle_in_the_middle, 2),
        (_other_keys, 2),
        (_code_in_between, 2),
        (_a_process, 2),
    ],
)
def test_rows_are_shuffled_only_where_their_key_changes(
    shape: Shape, shuffles: int, spark: SparkSession, tmp_path: Path
) -> None:
    @hr.pipeline
    def chain(spark: SparkSession) -> None:
        schema = "account STRING, shop STRING, at TIMESTAMP"
        rows = hr.read_files(spark, tmp_path, format="json", schema=schema, name="rows")
        hr.write("chain", rows.transform(hr.event_time("at")).transform(shape), hr.to_console())

    graph = chain.define(spark, tmp_path)
    # Each node is read once, so nothing is kept.
    assert shared_rows(graph, graph.flows["chain"]) == Sharing([], [], frozenset())
    plan = FlowPlan(graph, graph.flows["chain"], spark, {})
    with plan.of_batch(BatchRecord(0, 0, {}, {}, {}, False, tasks=2), {}) as frames:
        [frame] = frames.values()
        assert frame._jdf.queryExecution().executedPlan().toString().count("Exchange") == shuffles
