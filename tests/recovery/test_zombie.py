"""A driver that is frozen while another takes over, and wakes: it writes nothing more and ends with an error."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from polars.testing import assert_frame_equal

from headrace.checkpoint.lease import EXPIRES_SECONDS
from headrace.connectors.servers import running
from headrace.observe import history

pytestmark = [pytest.mark.spark, pytest.mark.full, pytest.mark.timeout(900)]

MOST_ROUNDS = 5
"""``make recovery`` has as many; the usual run one for each kill of the other tests."""


def test_of_a_frozen_driver_and_its_successor_exactly_one_writes(
    new_job: Callable[..., Any],
    prepared: Callable[..., Any],
    rows_in: Callable[..., Any],
    signal_session: Callable[..., None],
    request: pytest.FixtureRequest,
) -> None:
    rounds = min(request.config.getoption("--kills"), MOST_ROUNDS)
    with running("postgres") as service, ExitStack() as stack:
        job = new_job("zombie", "sink_job.py")
        arguments = ("--sink", "postgres", "--address", service.dsn)
        expected = prepared(job, "postgres", service.dsn, rows=60_000, files=60)
        driver = stack.enter_context(job.running(*arguments))
        for _ in range(rounds):
            _next_batch(job, driver)
            signal_session(driver, signal.SIGSTOP)
            frozen = driver
            time.sleep(EXPIRES_SECONDS + 0.5)
            driver = stack.enter_context(job.running(*arguments))
            _next_batch(job, driver)
            signal_session(frozen, signal.SIGCONT)
            assert frozen.wait(timeout=60) > 0, f"the driver that was frozen ended well: {job.said()}"
        assert driver.wait(timeout=300) == 0, job.said()
        said = (job.root / "output.txt").read_text(errors="replace")
        assert said.count("[LEASE_LOST]") + said.count("[FENCED]") >= rounds
        assert_frame_equal(
            rows_in("postgres", service.dsn, job.root), expected, check_exact=False, abs_tol=1e-6, rel_tol=0
        )


def _next_batch(job: Any, driver: subprocess.Popen[bytes]) -> None:
    before = len(history.read(job.log.parent))
    deadline = time.monotonic() + 120
    while len(history.read(job.log.parent)) <= before:
        assert driver.poll() is None, job.said()
        assert time.monotonic() < deadline, job.said()
        time.sleep(0.05)
