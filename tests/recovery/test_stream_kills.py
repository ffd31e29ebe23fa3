"""``kill -9`` while Spark reads the source, again and again and at named steps: every row is there once."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from headrace.checkpoint.storage import LocalStorage
from headrace.event_time.record import BatchLog
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


@pytest.mark.parametrize(
    ("step", "batch", "concluded", "begun", "committed"),
    [
        ("before the record", 0, -1, 0, -1),
        ("after the record", 1, 0, 1, 0),
        ("between our outcome and Spark's commit", 1, 1, 1, 0),
    ],
)
def test_a_crash_between_our_log_and_spark_s_leaves_no_trace(
    new_job: Callable[..., Any], step: str, batch: int, concluded: int, begun: int, committed: int
) -> None:
    job = new_job(step.replace(" ", "_"), "stream_job.py")
    flow, marker = job.root / "checkpoint" / "passed", job.root / "marker"
    land(job.root, 100)
    given = ("--failpoint", step, "--batch", str(batch), "--marker", str(marker))
    with job.running("--stream", "passed", *given) as process:
        while batch and len(history.read(flow)) == 0:
            assert process.poll() is None, job.said()
            time.sleep(0.02)
        land(job.root, 1_000)
        assert process.wait(PATIENCE) == -9, job.said()
    assert marker.exists(), job.said()
    log, pump = BatchLog(LocalStorage(flow)), flow / "pump" / "rows"
    assert log.next_batch - 1 == concluded
    newest = [
        max((int(each.name) for each in (pump / of_spark).glob("[0-9]*")), default=-1)
        for of_spark in ("offsets", "commits")
    ]
    assert newest == [begun, committed]
    land(job.root, 2_000)
    assert job.run("--stream", "passed", "--drain") == 0, job.said()
    assert sorted(job.listed("out")["n"]) == [number for number in range(2_000) if number % WITHOUT_TIME]
