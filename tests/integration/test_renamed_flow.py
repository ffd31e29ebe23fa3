"""A flow that is renamed in the pipeline: refused, renamed in the checkpoint, and then every row is there once."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import headrace as hr
from headrace.cli import app
from headrace.event_time.record import BatchLog
from headrace.observe.committed import committed_rows
from headrace.runtime.pipeline import Pipeline

pytestmark = pytest.mark.spark

SCHEMA = "id STRING, account STRING, amount BIGINT, at TIMESTAMP"


def _pipeline(place: Any, flow: str, name: str = "spend") -> Pipeline:
    @hr.pipeline(name=name)
    def spend(spark: SparkSession) -> None:
        rows = hr.read_files(spark, place.landing, format="json", schema=SCHEMA, name="payments")
        hourly = hr.tumbling("hourly", size="1 hour", key="account").agg(n="count(*)").late(hr.side_output())
        timed = rows.transform(hr.event_time("at"))
        hours = hourly.outputs(timed)
        hr.write(flow, (hours.main, hr.to_files(place.root / "out")), (timed, hr.to_files(place.root / "all")))

    return spend


def _run(pipeline: Pipeline, place: Any, spark: SparkSession) -> None:
    pipeline.run(checkpoint=place.checkpoint, mode=hr.available_now(), spark=spark)


def _hours(place: Any) -> list[tuple[int, int]]:
    rows = committed_rows(place.root / "out")
    return sorted(rows.select(pl.col("window").struct.field("start").dt.hour(), "n").rows())


class Died(Exception):
    """The driver has died."""


@pytest.mark.full
def test_a_renamed_flow_goes_on_in_the_middle_of_the_batch_that_it_died_in(
    place: Any, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last batch before is in the sink, in the late rows and in the dead letters, and not concluded."""
    place.land("1", ("1", "a", 1, "10:00:00"), ("2", "a", 1, "11:30:00"), "broken")
    _run(_pipeline(place, "spend"), place, spark)
    place.land("2", ("3", "a", 1, "12:30:00"), ("4", "a", 1, "10:30:00"), "broken too")

    def die(*_: object) -> None:
        raise Died

    with monkeypatch.context() as patched:
        patched.setattr(BatchLog, "write_outcome", die)
        with pytest.raises(Died):
            _run(_pipeline(place, "spend"), place, spark)
    assert sorted(committed_rows(place.root / "all")["id"]) == ["1", "2", "3", "4"]
    with pytest.raises(hr.HeadraceError, match=r"\[FLOW_RENAMED\] .* rename-flow .* spend per_hour"):
        _run(_pipeline(place, "per_hour"), place, spark)

    renamed = CliRunner().invoke(app, ["checkpoint", "rename-flow", str(place.checkpoint), "spend", "per_hour"])
    assert renamed.output == f"Flow 'spend' of checkpoint '{place.checkpoint}' is now 'per_hour'.\n"
    assert CliRunner().invoke(app, ["status", str(place.checkpoint), "--json"]).output.count('"flow": "per_hour"') == 1
    _run(_pipeline(place, "per_hour"), place, spark)
    place.land("3", ("5", "a", 1, "13:30:00"))
    _run(_pipeline(place, "per_hour"), place, spark)
    assert sorted(committed_rows(place.root / "all")["id"]) == ["1", "2", "3", "4", "5"]
    assert _hours(place) == [(10, 1), (11, 1), (12, 1)]
    letters = committed_rows(place.checkpoint / "per_hour" / "dead_letters")
    assert sorted(letters["raw"]) == [b"broken", b"broken too"]
    assert committed_rows(place.checkpoint / "per_hour" / "late" / "hourly")["id"].to_list() == ["4"]


def test_another_pipeline_with_other_flows_is_refused(place: Any, spark: SparkSession) -> None:
    place.land("1", ("1", "a", 1, "10:00:00"))
    _run(_pipeline(place, "spend"), place, spark)
    with pytest.raises(
        hr.HeadraceError, match=r"\[CHECKPOINT_OF_ANOTHER_PIPELINE\] .* pipeline 'spend', this is 'fraud'"
    ):
        _run(_pipeline(place, "alerts", "fraud"), place, spark)
    assert not (place.checkpoint / "alerts").exists()
