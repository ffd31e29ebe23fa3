"""Keys that most rows have are named, in history and by check."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from pyspark.sql import SparkSession

import headrace as hr
from headrace.nodes import NodeId
from headrace.observe.hot_keys import hot_keys
from headrace.reports import BatchReports, KeyCounts, StepReport
from headrace.wheel.pack import KeySample


def counted(frame: pl.DataFrame, *key: str) -> KeyCounts:
    sample = KeySample(key)
    for part in frame.iter_slices(40_000):
        sample.take(part)
    return sample.report()


def reports(*tasks: KeyCounts) -> BatchReports:
    made = BatchReports()
    for task, keys in enumerate(tasks):
        made.add(NodeId("step", "spend"), task, StepReport(keys=keys))
    return made


def test_the_share_of_a_hot_key_is_right_within_a_few_hundredths_even_where_keys_come_in_turns() -> None:
    """Ten keys in turns, of which one also has every other row."""
    numbers = np.arange(200_000)
    keys = np.where(numbers % 2 == 0, 7, numbers // 2 % 10)
    (hot,) = hot_keys(reports(counted(pl.DataFrame({"account": keys}), "account"), KeyCounts()))["spend"]
    assert hot.key == ("7",)
    assert hot.share == pytest.approx(0.55, abs=0.03)


def test_even_keys_are_not_hot() -> None:
    frame = pl.DataFrame({"account": np.arange(100_000) % 50})
    assert hot_keys(reports(counted(frame, "account"))) == {}


def test_keys_of_several_columns_and_types_are_told_as_text() -> None:
    frame = pl.DataFrame({"a": [None, b"\xff", b"\xff"], "b": [1.5, 2.5, 2.5]})
    assert counted(frame, "a", "b") == KeyCounts(3, ((("ff", "2.5"), 2), ((None, "1.5"), 1)))


def test_a_key_that_is_an_interval_is_told_in_hours_and_minutes() -> None:
    frame = pl.DataFrame({"wait": [timedelta(minutes=90), timedelta(minutes=90), None]})
    assert counted(frame, "wait") == KeyCounts(3, ((("1h 30m",), 2), ((None,), 1)))


def test_windows_without_a_key_have_no_hot_key() -> None:
    assert counted(pl.DataFrame({"a": [1, 1]})) == KeyCounts()


@pytest.mark.spark
@pytest.mark.parametrize(
    ("step", "severity", "advice"),
    [
        (
            hr.tumbling("spend", size="1 hour", key="account"),
            "note",
            "combined before the shuffle, so this costs little",
        ),
        (hr.sliding("spend", size="1 hour", key="account"), "warning", "Use spread="),
        (hr.counting("spend", rows=10, key="account", ttl="1 hour"), "warning", "has them all. Use a finer key"),
    ],
)
def test_check_names_hot_keys_of_a_checkpoint(
    step: Any, severity: str, advice: str, spark: SparkSession, tmp_path: Path
) -> None:
    landing = tmp_path / "in"
    landing.mkdir()
    rows = [{"account": "a" if number % 4 else f"k{number}", "at": "2025-01-01T10:00:00Z"} for number in range(400)]
    (landing / "one.json").write_text("\n".join(map(json.dumps, rows)) + "\n")

    @hr.pipeline(name="spend")
    def spend(spark: SparkSession) -> None:
        payments = hr.read_files(spark, landing, format="json", schema="account STRING, at TIMESTAMP", name="payments")
        timed = payments.transform(hr.event_time("at"))
        windows = timed.transform(step.agg(n="count(*)").late(hr.side_output()))
        hr.write("spend", windows, hr.to_files(str(tmp_path / "out")))

    checkpoint = tmp_path / "checkpoint"
    spend.run(checkpoint=checkpoint, mode=hr.available_now(), spark=spark)
    (finding,) = [each for each in spend.check(checkpoint=checkpoint, spark=spark) if each.id == "HOT_KEY"]
    assert finding.severity == severity
    assert "key 'a' had about 75% of a recent batch's rows" in finding.message
    assert advice in finding.message
