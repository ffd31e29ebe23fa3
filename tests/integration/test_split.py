"""One source as both sides of a join in a whole flow: read once, counted once, refused where it would be read twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import headrace as hr
from headrace.errors import DefinitionError
from headrace.json_codec import encode
from headrace.observe import history
from headrace.runtime.pipeline import Pipeline
from tests.integration.conftest import SCHEMA

pytestmark = pytest.mark.spark

SMALL, LARGE = "amount < 5", "amount >= 5"
Sides = Callable[[DataFrame], tuple[DataFrame, DataFrame]]


def _payments(spark: SparkSession, place: Any) -> DataFrame:
    rows = hr.read_files(spark, place.landing, format="json", schema=SCHEMA, name="payments", files_per_batch=1)
    return rows.transform(hr.event_time("at"))


def _probed(place: Any, sides: Sides) -> Pipeline:
    @hr.pipeline(name="probed")
    def probed(spark: SparkSession) -> None:
        step = hr.interval_join("probe", on="account", between=("0 seconds", "10 minutes")).late(hr.side_output())
        found = step.outputs(*sides(_payments(spark, place)))
        hr.write(
            "probed",
            (found.main, hr.to_memory(f"{place.root}")),
            (found.late_right, hr.to_memory(f"{place.root}/late")),
        )

    return probed


def _land(place: Any) -> None:
    place.land("1", ("1", "a", 1, "10:00:00"), ("2", "b", 2, "10:30:00"), "broken")
    place.land("2", ("3", "a", 9, "10:35:00"), ("4", "b", 7, "10:40:00"), ("5", "b", 8, "10:10:00"))


def test_the_source_is_read_once_and_both_sides_are_counted(place: Any, spark: SparkSession) -> None:
    _land(place)
    pipeline = _probed(place, lambda rows: hr.split(rows, SMALL, LARGE))
    pipeline.run(checkpoint=place.checkpoint, mode=hr.available_now(drain=True), spark=spark)
    assert [(row["id"], row["id_right"]) for row in hr.memory(f"{place.root}")] == [("2", "4")]
    assert [row["id"] for row in hr.memory(f"{place.root}/late")] == ["5"]
    batches = history.read(place.checkpoint / "probed")
    counts = [
        sum(encode(entry.account)[kind].get(name, {}).get(count, 0) for entry in batches)
        for kind, name, count in (
            ("sources", "payments", "read"),
            ("sources", "payments", "dead"),
            ("steps", "probe", "in"),
            ("steps", "probe.right", "in"),
            ("steps", "probe.right", "late"),
        )
    ]
    assert counts == [6, 1, 2, 3, 1]


def test_a_part_may_be_split_again_and_the_plan_names_the_source_once(place: Any, spark: SparkSession) -> None:
    _land(place)

    def sides(rows: DataFrame) -> tuple[DataFrame, DataFrame]:
        small, large = hr.split(rows, SMALL, LARGE)
        return small, hr.split(large, "amount < 8", "amount >= 8")[0]

    pipeline = _probed(place, sides)
    assert "reads source.payments on both sides; columns" in pipeline.explain(spark=spark)
    assert pipeline.draw(spark=spark).count("source.payments --> step.probe") == 1
    pipeline.run(checkpoint=place.checkpoint, mode=hr.available_now(drain=True), spark=spark)
    assert [(row["id"], row["id_right"]) for row in hr.memory(f"{place.root}")] == [("2", "4")]
    assert hr.memory(f"{place.root}/late") == []


def test_one_part_alone_feeds_a_step(place: Any, spark: SparkSession) -> None:
    @hr.pipeline(name="large")
    def large(spark: SparkSession) -> None:
        _, many = hr.split(_payments(spark, place), SMALL, LARGE)
        hourly = hr.tumbling("hourly", size="1 hour", key="account").agg(spent="sum(amount)").late(hr.drop())
        hr.write("large", hourly(many), hr.to_memory("large"))

    place.land("1", ("1", "a", 1, "10:00:00"), ("2", "a", 6, "10:01:00"), ("3", "b", 5, "10:02:00"))
    large.run(checkpoint=place.checkpoint, mode=hr.available_now(drain=True), spark=spark)
    assert sorted((row["account"], row["spent"]) for row in hr.memory("large")) == [("a", 6), ("b", 5)]


@pytest.mark.parametrize(
    "sides",
    [
        lambda rows: (rows.where(SMALL), rows.where(LARGE)),
        lambda rows: tuple(part.withColumn("amount", part.amount + 1) for part in hr.split(rows, SMALL, LARGE)),
    ],
    ids=["two filters", "changed after the split"],
)
def test_one_source_on_both_sides_that_would_be_read_twice_is_refused(
    sides: Sides, place: Any, spark: SparkSession
) -> None:
    with pytest.raises(DefinitionError, match=r"\[SOURCE_ON_BOTH_SIDES\].*hr.split"):
        _probed(place, sides).explain(spark=spark)


def test_a_condition_over_a_column_that_is_not_there_is_refused(place: Any, spark: SparkSession) -> None:
    with pytest.raises(DefinitionError, match="price"):
        _probed(place, lambda rows: hr.split(rows, "price > 1", LARGE)).explain(spark=spark)
    with pytest.raises(DefinitionError, match=r"\[EXPRESSION_UNREADABLE\].*it is a Column, not text"):
        _probed(place, lambda rows: hr.split(rows, rows.amount > 1, LARGE)).explain(spark=spark)  # type: ignore[arg-type]
