"""``kill -9`` again and again while Spark reads the source: every row is there once."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from headrace.observe import history
from tests.number_source import WITHOUT_TIME, land

pytestmark = [pytest.mark.spark, pytest.mark.full, pytest.mark.timeout(1500)]

KILLS = 10
PATIENCE = 120.0


@pytest.mark.parametrize("stream", ["rate", "numbers"])
def test_a_stream_that_spark_reads_is_exact_after_ten_kills(new_job: Callable[..., Any], stream: str) -> None:
    job, chance = new_job(f"{stream}_killed", "stream_job.py"), random.Random(3)
    flow = job.root / "checkpoint" / "passed"
    newest = 0
    for _ in range(KILLS):
        newest += chance.randrange(500, 3_000)
        land(job.root, newest)
        with job.running("--stream", stream) as process:
            done, deadline = len(history.read(flow)), time.monotonic() + PATIENCE
            while len(history.read(flow)) == done:
                assert process.poll() is None, job.said()
                assert time.monotonic() < deadline, job.said()
                newest += 7
                land(job.root, newest)
                time.sleep(0.02)
            # Anywhere in the batches behind the first.
            time.sleep(chance.uniform(0, 1.5))
    code = job.run("--stream", stream, "--drain")
    assert code == 0, job.said()
    found = sorted(job.listed("out")["n"])
    assert [entry.batch for entry in history.read(flow)] == list(range(len(history.read(flow))))
    if stream == "rate":
        assert found == list(range(len(found)))
        assert found
        return
    good = [number for number in range(newest) if number % WITHOUT_TIME]
    assert found == good
    minutes = job.listed("minutes")
    assert (minutes["k"].sum(), minutes["total"].sum()) == (len(good), sum(good))
    assert minutes["window"].n_unique() == minutes.height
    letters = job.listed("checkpoint/passed/dead_letters")
    assert letters.height == newest - len(good)
