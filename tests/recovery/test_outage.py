"""A server that dies in mid-run and comes back: the flow waits, says so, and goes on by itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from polars.testing import assert_frame_equal

from headrace.connectors.servers import running
from headrace.observe import history
from headrace.observe.status import statuses

pytestmark = [pytest.mark.spark, pytest.mark.full, pytest.mark.timeout(600)]

TOLD_WITHIN, EXACT_WITHIN = 20, 120
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
            _until(lambda: _waits_for(job, kind), process, job, TOLD_WITHIN)
            time.sleep(3)
            batches = len(history.read(job.log.parent))
            service.start()
            _until(lambda: len(history.read(job.log.parent)) > batches, process, job, EXACT_WITHIN)
            assert process.wait(timeout=EXACT_WITHIN) == 0, job.said()
        assert_frame_equal(rows_in(kind, address, job.root), expected, check_exact=False, abs_tol=1e-6, rel_tol=0)
        assert [flow.waiting for flow in statuses(job.root / "checkpoint")] == [()]


def _waits_for(job: Any, kind: str) -> bool:
    return any(kind in sink for flow in statuses(job.root / "checkpoint") for sink in flow.waiting)


def _until(done: Callable[[], bool], process: Any, job: Any, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert process.poll() is None, job.said()
        assert time.monotonic() < deadline, f"not within {seconds} s: {job.said()}"
        time.sleep(0.1)
