"""A server that dies in mid-run and comes back: the flow waits, says so, and goes on by itself."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from polars.testing import assert_frame_equal
from pyspark.sql import SparkSession

import headrace as hr
from headrace.connectors.servers import running
from headrace.observe import history
from headrace.observe.committed import committed_rows
from headrace.observe.status import statuses
from tests.topics import create_topic

pytestmark = [pytest.mark.spark, pytest.mark.full, pytest.mark.timeout(600)]

NOTICED_WITHIN, EXACT_WITHIN = 20, 120
"""Twice what is promised, for a machine that does other things as well."""


@pytest.mark.parametrize("kind", ["kafka", "postgres", "redis"])
def test_a_server_killed_in_mid_run_is_waited_for(
    kind: str, new_job: Callable[..., Any], prepared: Callable[..., Any], rows_in: Callable[..., Any]
) -> None:
    with running(kind) as service:
        address = getattr(service, {"kafka": "address", "postgres": "dsn", "redis": "url"}[kind])
        job = new_job(f"outage-{kind}", "sink_job.py")
        expected = prepared(job, kind, address, rows=7_000, files=7)
        with job.running("--sink", kind, "--address", address, "--rows-per-batch", "1050") as process:
            _until(lambda: len(history.read(job.log.parent)) >= 3, process, job, 120)
            service.kill()
            _until(lambda: _waits_for(job, kind), process, job, NOTICED_WITHIN)
            time.sleep(3)
            batches = len(history.read(job.log.parent))
            service.start()
            _until(lambda: len(history.read(job.log.parent)) > batches, process, job, EXACT_WITHIN)
            assert process.wait(timeout=EXACT_WITHIN) == 0, job.said()
        assert_frame_equal(rows_in(kind, address, job.root), expected, check_exact=False, abs_tol=1e-6, rel_tol=0)
        assert [flow.waiting for flow in statuses(job.root / "checkpoint")] == [()]


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_flow_that_reads_live_waits_for_a_broker_that_went_away_and_loses_nothing(
    how: str, spark: SparkSession, tmp_path: Path
) -> None:
    with running("kafka") as service:
        create_topic(service.address, "numbers", 2)

        @hr.pipeline
        def copied(spark: SparkSession) -> None:
            rows = hr.read_kafka(spark, "numbers", servers=service.address, schema="id BIGINT", name="numbers")
            hr.write("copied", rows, hr.to_files(tmp_path / "out"))

        _produce(service.address, range(1000))
        started = copied.start(checkpoint=tmp_path / "checkpoint", mode=hr.micro_batch("100 milliseconds"), spark=spark)
        try:
            _until_in(lambda: _ids(tmp_path) == list(range(1000)), started, EXACT_WITHIN)
            # Rows that it has not read may be there when the broker goes.
            _produce(service.address, range(1000, 2000))
            service.kill() if how == "killed" else service.stop()
            _until_in(lambda: any("numbers" in each for each in _waiting(tmp_path)), started, NOTICED_WITHIN)
            waiting = _waiting(tmp_path)
            assert _ids(tmp_path) in (list(range(1000)), list(range(2000)))
            service.start()
            _produce(service.address, range(2000, 3000))
            _until_in(lambda: len(_ids(tmp_path)) >= 3000, started, EXACT_WITHIN)
            assert _ids(tmp_path) == list(range(3000)), waiting
            _until_in(lambda: not _waiting(tmp_path), started, NOTICED_WITHIN)
        finally:
            started.stop()


def _waiting(root: Path) -> tuple[str, ...]:
    return tuple(waited for flow in statuses(root / "checkpoint") for waited in flow.waiting)


def _ids(root: Path) -> list[int]:
    rows = committed_rows(root / "out")
    return [] if rows.is_empty() else sorted(rows["id"].to_list())


def _produce(address: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "log_level": 0})
    for number in numbers:
        producer.produce("numbers", json.dumps({"id": number}).encode(), partition=number % 2)
    assert producer.flush(EXACT_WITHIN) == 0


def _until_in(done: Callable[[], bool], started: Any, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert not started.wait(0.1), "the flow has ended"
        assert time.monotonic() < deadline, f"not within {seconds} s"


def _waits_for(job: Any, kind: str) -> bool:
    return any(kind in sink for flow in statuses(job.root / "checkpoint") for sink in flow.waiting)


def _until(done: Callable[[], bool], process: Any, job: Any, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert process.poll() is None, job.said()
        assert time.monotonic() < deadline, f"not within {seconds} s: {job.said()}"
        time.sleep(0.1)
