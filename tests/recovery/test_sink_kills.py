"""Windows written to real servers by a job that is killed again and again: each row is there once.

``make recovery`` runs the same with ``--kills=50 --rows=1000000``.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from headrace.connectors.servers import running
from headrace.observe import history

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(7200)]

SINKS = ("kafka", "delta", "postgres", "redis")


@pytest.fixture(scope="module", params=SINKS)
def server(request: pytest.FixtureRequest) -> Iterator[tuple[str, str, Any]]:
    """A kind of sink, the address of a server of its own, and the server."""
    if request.param == "delta":
        yield "delta", "", None
        return
    with running(request.param) as service:
        address = {"kafka": "address", "postgres": "dsn", "redis": "url"}[request.param]
        yield request.param, getattr(service, address), service


def test_a_job_killed_at_any_moment_leaves_every_row_once(
    server: tuple[str, str, Any],
    new_job: Callable[..., Any],
    kill_a_worker: Callable[..., None],
    request: pytest.FixtureRequest,
    told: Callable[..., None],
    prepared: Callable[..., pl.DataFrame],
    rows_in: Callable[..., pl.DataFrame],
) -> None:
    kind, address, _ = server
    kills, rows = request.config.getoption("--kills"), request.config.getoption("--rows")
    job = new_job(f"kills-{kind}", "sink_job.py")
    files = max(12, kills + 10)
    expected = prepared(job, kind, address, rows=rows, files=files)
    arguments = ("--sink", kind, "--address", address, "--rows-per-batch", str(rows // files + 1))
    chance = random.Random(kind)
    began = time.monotonic()
    for number in range(kills):
        with job.running(*arguments) as process:
            job.wait_for_a_moment(process, chance)
            if chance.random() < 0.5:
                kill_a_worker(process, chance)
                time.sleep(chance.uniform(0, 1.5))
            assert process.poll() is None, f"the job ended before kill {number}: {job.said()}"
    assert job.run(*arguments, timeout=1800) == 0, job.said()
    late = sum(entry["account"]["steps"]["spend"]["late"] for entry in history.read(job.log.parent))
    assert late == 0, "no row of the input is out of order by more than the bound"
    found = rows_in(kind, address, job.root)
    keys = found.select("account", "start")
    doubled = keys.height - keys.unique().height
    lost = expected.join(keys, on=["account", "start"], how="anti").height
    told(sink=kind, kills=kills, events=rows, windows=expected.height, lost=lost, doubled=doubled, began=began)
    assert (lost, doubled) == (0, 0)
    assert_frame_equal(found, expected, check_exact=False, abs_tol=1e-6, rel_tol=0)
