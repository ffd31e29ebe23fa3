"""Windows written to real servers by a job that is killed again and again: each row is there once.

``make recovery`` runs the same with ``--kills=50 --rows=1000000``, ``make soak-kills`` goes on with other input
and other moments until its time is over.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from headrace.connectors.servers import running
from headrace.observe import history

pytestmark = [pytest.mark.spark, pytest.mark.full, pytest.mark.timeout(7200)]

SINKS = ("kafka", "delta", "postgres", "redis")


@contextmanager
def started(kind: str) -> Iterator[str]:
    """The address of a server of its own for one kind of sink."""
    if kind in ("delta", "files"):
        yield ""
        return
    with running(kind) as service:
        yield {"kafka": service.address, "postgres": service.dsn, "redis": service.url}[kind]


@pytest.fixture(scope="module", params=SINKS)
def server(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """A kind of sink and the address of its server."""
    with started(request.param) as address:
        yield request.param, address


@dataclass(frozen=True, slots=True)
class Kills:
    """Runs a job over rows of its own, kills it again and again, and compares what its sink holds."""

    new_job: Callable[..., Any]
    kill_a_worker: Callable[..., None]
    prepared: Callable[..., pl.DataFrame]
    rows_in: Callable[..., pl.DataFrame]
    report: Callable[..., None]

    def leave_every_row_once(self, kind: str, address: str, *, kills: int, rows: int, seed: str) -> None:
        """Kill a job that writes to one kind of sink; nothing is lost, nothing is there twice."""
        job = self.new_job(f"kills-{kind}", "sink_job.py")
        # Five batches for each kill: several may end until a job is killed that has lost a worker.
        files = 10 + 5 * kills
        expected = self.prepared(job, kind, address, rows=rows, files=files)
        arguments = ("--sink", kind, "--address", address, "--rows-per-batch", str(rows // files + 1))
        chance = random.Random(seed)
        began = time.monotonic()
        for number in range(kills):
            with job.running(*arguments) as process:
                job.wait_for_a_moment(process, chance)
                if chance.random() < 0.5:
                    self.kill_a_worker(process, chance)
                    time.sleep(chance.uniform(0, 3) * job.shortest_batch())
                assert process.poll() is None, f"the job ended before kill {number}: {job.said()}"
        assert job.run(*arguments, timeout=1800) == 0, job.said()
        late = sum(entry.account.steps["spend"].late for entry in history.read(job.log.parent))
        assert late == 0, "no row of the input is out of order by more than the bound"
        found = self.rows_in(kind, address, job.root)
        keys = found.select("account", "start")
        doubled = keys.height - keys.unique().height
        lost = expected.join(keys, on=["account", "start"], how="anti").height
        self.report(
            sink=kind, kills=kills, events=rows, windows=expected.height, lost=lost, doubled=doubled, began=began
        )
        assert (lost, doubled) == (0, 0)
        assert_frame_equal(found, expected, check_exact=False, abs_tol=1e-6, rel_tol=0)


@pytest.fixture
def kills(
    new_job: Callable[..., Any],
    kill_a_worker: Callable[..., None],
    prepared: Callable[..., pl.DataFrame],
    rows_in: Callable[..., pl.DataFrame],
    report: Callable[..., None],
) -> Kills:
    """What both tests do."""
    return Kills(new_job, kill_a_worker, prepared, rows_in, report)


def test_a_job_killed_at_any_moment_leaves_every_row_once(
    server: tuple[str, str], kills: Kills, pytestconfig: pytest.Config
) -> None:
    kind, address = server
    times, rows = pytestconfig.getoption("--kills"), pytestconfig.getoption("--rows")
    kills.leave_every_row_once(kind, address, kills=times, rows=rows, seed=kind)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_jobs_killed_for_hours_leave_every_row_once(kills: Kills, pytestconfig: pytest.Config) -> None:
    minutes, rows = pytestconfig.getoption("--soak"), pytestconfig.getoption("--rows")
    until = time.monotonic() + 60 * minutes
    rounds = 0
    while time.monotonic() < until or rounds == 0:
        kind = SINKS[rounds % len(SINKS)]
        with started(kind) as address:
            kills.leave_every_row_once(kind, address, kills=5, rows=rows, seed=f"{kind} {rounds}")
        rounds += 1
