from __future__ import annotations

import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import headrace as hr
from headrace.runtime.outputs import FlowOutputs


@pytest.mark.spark
@pytest.mark.parametrize(("problem", "ends"), [("SINK_UNREACHABLE", False), ("FENCED", True)])
def test_a_sink_that_is_away_when_marks_are_renewed_does_not_end_the_flow_and_a_fence_does(
    problem: str, ends: bool, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing, renewals = tmp_path / "landing", threading.Semaphore(0)
    landing.mkdir()

    @hr.pipeline
    def quiet(spark: SparkSession) -> None:
        hr.write("quiet", hr.read_files(spark, landing, format="json", schema="id STRING"), hr.to_console())

    monkeypatch.setattr("headrace.runtime.flow.CLAIMED_SECONDS", -1.0)
    prepare, started = FlowOutputs.prepare, threading.Event()

    def renew(outputs: FlowOutputs) -> None:
        if not started.is_set():
            started.set()
            prepare(outputs)
            return
        renewals.release()
        raise hr.HeadraceError(problem, "no.")

    monkeypatch.setattr(FlowOutputs, "prepare", renew)
    running = quiet.start(checkpoint=tmp_path / "checkpoint", spark=spark)
    assert renewals.acquire(timeout=30)
    if ends:
        with pytest.raises(hr.HeadraceError, match="FENCED"):
            running.wait(30)
    else:
        assert renewals.acquire(timeout=30)
        running.stop()
