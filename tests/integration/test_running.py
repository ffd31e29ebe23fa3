"""What ``start`` returns: it shows itself, in a terminal and in a notebook, and says how far it is."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import pytest
from pyspark.sql import DataFrame, SparkSession

import headrace as hr
from headrace.runtime.pipeline import Pipeline

pytestmark = pytest.mark.spark

SCHEMA = "id STRING, account STRING, amount BIGINT, at TIMESTAMP"


def _pipeline(place: Any, sink: Any) -> Pipeline:
    @hr.pipeline(name="spend")
    def spend(spark: SparkSession) -> None:
        rows = hr.read_files(spark, place.landing, format="json", schema=SCHEMA, name="payments")
        hr.write("spend", rows.transform(hr.event_time("at")), sink)

    return spend


class Refusing:
    """A sink that takes nothing."""

    guarantee: ClassVar[Any] = "at_least_once"

    def write(self, frame: DataFrame, batch: hr.BatchIdentity) -> hr.Written:
        """Fail with a text that must not become part of a page."""
        raise ValueError("<b>no</b> [red]room[/]")


def test_a_started_pipeline_shows_itself_and_its_times_are_times(place: Any, spark: SparkSession) -> None:
    place.land("1", ("1", "a", 1, "10:00:00"), ("2", "a", 1, "11:30:00"), "broken")
    running = _pipeline(place, hr.to_memory("shows itself")).start(checkpoint=place.checkpoint, spark=spark)
    try:
        while (now := running.status()["spend"]) is None or now.watermark is None:
            assert "spend" in repr(running)
            place.land(f"more {time.monotonic_ns()}", ("3", "a", 1, "11:30:00"))
            assert not running.wait(0.2)
        assert now.watermark == datetime(2025, 1, 1, 11, 30, tzinfo=UTC)
        assert now.lag is not None
        assert now.lag > timedelta(days=1)
        assert (now.dead, now.flow) == (1, "spend")
        text, html = repr(running), running._repr_html_()
        assert "running" in text
        assert "<td>running</td>" in html
        assert '<td class="number">2025-01-01 11:30:00</td>' in html
    finally:
        running.stop()
    assert "<td>stopped</td>" in running._repr_html_()


def test_a_flow_that_has_failed_says_why(place: Any, spark: SparkSession) -> None:
    place.land("1", ("1", "a", 1, "10:00:00"))
    running = _pipeline(place, Refusing()).start(checkpoint=place.checkpoint, spark=spark)
    with pytest.raises(ValueError, match="no"):
        running.wait()
    assert running.status() == {"spend": None}
    html = running._repr_html_()
    assert "<td>failed</td>" in html
    assert "&lt;b&gt;no&lt;/b&gt; [red]room[/]" in html
    assert "<b>no</b> [red]room[/]" in repr(running)
