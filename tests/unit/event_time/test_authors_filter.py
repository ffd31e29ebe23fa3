"""What the author's own ``where`` removes still moves time; a timeline has no filter, so this is a whole pipeline."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import headrace as hr

hourly = hr.tumbling("hourly", size="1 hour", key="account").agg(n="count(*)").late(hr.side_output())


@hr.pipeline
def only_a(spark: SparkSession, folder: Path) -> None:
    """Counts the rows of one account."""
    rows = hr.read_files(spark, folder, format="json", schema="account STRING, at TIMESTAMP")
    kept = rows.transform(hr.event_time("at")).where("account = 'a'")
    hr.write("filtered", (kept.transform(hourly), hr.to_memory("authors_filter")))


@pytest.mark.spark
def test_rows_that_the_authors_filter_removes_move_the_watermark(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "in").mkdir()
    given = [{"account": "a", "at": "2026-01-01T10:05:00Z"}, {"account": "b", "at": "2026-01-01T11:00:00Z"}]
    (tmp_path / "in" / "rows.json").write_text("\n".join(map(json.dumps, given)) + "\n")
    only_a.run(checkpoint=tmp_path / "checkpoint", mode=hr.available_now(), spark=spark, folder=tmp_path / "in")
    assert [(row["account"], row["n"]) for row in hr.memory("authors_filter")] == [("a", 1)]
