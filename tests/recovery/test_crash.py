"""A crash at each named step of a batch: the batch that runs again gives the very rows it would have given.

One job is crashed at one step in each of its batches and started again, now and then with another number of cores;
every batch is then compared with the same batch of a job that nothing interrupted.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from headrace.checkpoint.storage import LocalStorage
from headrace.connectors.servers import running
from headrace.event_time.record import BatchLog
from headrace.generator.payments import Payments
from headrace.json_codec import decode
from headrace.observe import history
from headrace.observe.account import Account
from tests.recovery.lookup_job import PER_BATCH
from tests.recovery.spark_cluster import spark_cluster

FILES = 9
FIRST_POSITIONS = -1
"""The batch of the outcome that says only where a new flow's sources begin."""
BATCHES = 4
"""Of the job that asks a service."""
WAKE, DRAIN = FILES, FILES + 1
"""After the files come a batch that closes what they made due, and one that closes every window at the end of time."""
CRASHES = (
    # step, batch, cores of the run that crashes there
    ("after the takeover", 0, "local[2]"),
    ("outcome half written", FIRST_POSITIONS, "local[2]"),
    ("after the outcome", FIRST_POSITIONS, "local[2]"),
    ("after the list of files", 0, "local[2]"),
    ("record half written", 0, "local[2]"),
    ("after the batch record", 0, "local[2]"),
    ("segment half written", 1, "local[2]"),
    ("after the list of files", 2, "local[2]"),
    ("segment written and not reported", 2, "local[2]"),
    ("after state", 2, "local[2]"),
    ("side files half cleared", 2, "local[2]"),
    ("mid sink write", 3, "local[2]"),
    ("between two writers", 4, "local[2]"),
    ("between dead letters and late rows", 4, "local[2]"),
    ("before sink commit", 5, "local[1]"),
    ("start's sweep half done", 5, "local[2]"),
    ("after sink commit", 6, "local[3]"),
    ("between two main outputs", 6, "local[2]"),
    ("between two sinks of one output", 6, "local[2]"),
    ("table forgotten", 6, "local[2]"),
    ("between two sinks' commits", 7, "local[2]"),
    ("sweep half done", 7, "local[2]"),
    ("before the outcome", 8, "local[2]"),
    ("outcome half written", 8, "local[2]"),
    ("before the history", WAKE, "local[2]"),
    ("before sink commit", DRAIN, "local[2]"),
    ("after the outcome", DRAIN, "local[2]"),
)
SPECULATION = [
    f"--setting={name}={value}"
    for name, value in {
        "spark.speculation": "true",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.multiplier": "1.0",
        "spark.speculation.interval": "100ms",
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
    }.items()
]
"""Of a session on a cluster that runs a task twice at once as soon as another one of its stage has ended."""
OUTPUTS = ("out/main", "out/sales", "out/sales again", "out/late", "checkpoint/spend/dead_letters")

pytestmark = [pytest.mark.spark, pytest.mark.full, pytest.mark.timeout(1800)]


def _filled(job: Any) -> Any:
    payments = Payments(seed=4, accounts=30, late=0.1, delay="2 minutes", broken=0.1, duplicates=0.05)
    truth = job.root / "truth.parquet"
    job.write_input(
        payments, truth=truth, rows=400 * FILES, files=FILES, start=datetime(2025, 1, 1, tzinfo=UTC), rate=10.0
    )
    return job


@pytest.fixture(scope="module")
def uninterrupted(new_job: Callable[[str], Any]) -> Any:
    """A job that ran from beginning to end."""
    job = _filled(new_job("uninterrupted"))
    assert job.run("--size", "20 seconds") == 0, job.said()
    return job


def _log(job: Any) -> Any:
    return BatchLog(LocalStorage(job.log.parent))


def _crash(job: Any, step: str, batch: int, master: str, *, size: str) -> None:
    """Run a job that dies at a step of a batch."""
    marker = job.root / f"{step} {batch}.marker"
    code = job.run(
        *("--size", size, "--master", master, "--failpoint", step, "--batch", str(batch), "--marker", str(marker))
    )
    assert code == -9, f"{step!r} in batch {batch} did not crash: {job.said()}"
    assert marker.exists(), f"the job died, but not {step!r}: {job.said()}"
    assert _log(job).next_batch - batch in (0, 1)


@pytest.fixture(scope="module")
def crashed(new_job: Callable[[str], Any]) -> Any:
    """The same job, crashed at every step in turn."""
    job = _filled(new_job("crashed"))
    for step, batch, master in CRASHES:
        _crash(job, step, batch, master, size="20 seconds")
    return job


def test_a_crash_in_the_middle_of_a_compaction_leaves_no_trace(new_job: Callable[[str], Any]) -> None:
    # Windows that stay open: segments die as a whole where they close, and are never merged.
    jobs = [_filled(new_job(name)) for name in ("never merged in vain", "merged in vain")]
    for batch in (4, 7):
        _crash(jobs[1], "compaction half done", batch, "local[2]", size="10 minutes")
    for job in jobs:
        assert job.run("--size", "10 minutes") == 0, job.said()
    expected, found = (_rows(job, "out/main").drop("in_batch") for job in jobs)
    assert expected.height > 20
    assert_frame_equal(found, expected, check_exact=True)


def test_a_crash_while_the_log_is_trimmed_leaves_no_trace(new_job: Callable[[str], Any], uninterrupted: Any) -> None:
    # A driver trims what lies before its tenth outcome, so it must have come so far by itself.
    job = _filled(new_job("trimmed in vain"))
    _crash(job, "log trim half done", WAKE, "local[2]", size="20 seconds")
    takeover, *numbers = sorted(int(file.stem) for file in job.log.glob("[0-9]*.json"))
    assert takeover == 1
    assert numbers == list(range(numbers[0], numbers[-1] + 1))
    assert numbers[0] > 2
    assert job.run("--size", "20 seconds") == 0, job.said()
    for output in OUTPUTS:
        assert_frame_equal(_rows(job, output), _rows(uninterrupted, output), check_exact=True)


@pytest.mark.parametrize("kind", ["kafka", "postgres"])
def test_a_crash_between_claiming_two_writers_at_the_start_leaves_no_trace(
    kind: str, new_job: Callable[..., Any], prepared: Callable[..., Any], rows_in: Callable[..., Any], tmp_path: Path
) -> None:
    with running(kind) as service:
        address = {"kafka": service.address, "postgres": service.dsn}[kind]
        job, chance = new_job(f"claiming-{kind}", "sink_job.py"), random.Random(7)
        expected = prepared(job, kind, address, rows=8_000, files=8)
        arguments = ("--sink", kind, "--address", address, "--rows-per-batch", "1000")
        for number in range(3):
            marker = tmp_path / str(number)
            assert job.run(*arguments, "--die-claiming", str(marker)) == -9, job.said()
            assert marker.exists(), job.said()
            if number < 2:
                with job.running(*arguments) as process:
                    job.wait_for_a_moment(process, chance)
                    assert process.poll() is None, job.said()
        assert job.run(*arguments) == 0, job.said()
        found = rows_in(kind, address, job.root)
        assert_frame_equal(found, expected, check_exact=False, abs_tol=1e-6, rel_tol=0)


@pytest.mark.parametrize("step", ["a task fails", "a task runs twice at once"])
def test_a_task_that_runs_again_leaves_no_trace(
    step: str, new_job: Callable[[str], Any], uninterrupted: Any, tmp_path: Path
) -> None:
    job, marker = _filled(new_job(step)), tmp_path / "marker"
    given = ["--size", "20 seconds", "--failpoint", step, "--batch", "3", "--marker", str(marker)]
    if step == "a task fails":
        assert job.run(*given, "--master", "local[2,3]") == 0, job.said()
    else:
        given += SPECULATION
        with spark_cluster(tmp_path, ("127.0.0.1", "127.0.0.2")) as url:
            assert job.run(*given, "--master", url) == 0, job.said()
    assert marker.exists(), f"no task ran again: {job.said()}"
    for output in OUTPUTS:
        assert_frame_equal(_rows(job, output), _rows(uninterrupted, output), check_exact=True)


def test_a_lookup_that_two_tasks_ask_at_once_has_one_set_of_answers_also_when_its_batch_runs_again(
    new_job: Callable[..., Any], tmp_path: Path
) -> None:
    job, marker = new_job("lookup", "lookup_job.py"), tmp_path / "marker"
    (job.root / "in").mkdir()
    wanted = [(PER_BATCH * batch + key, batch) for batch in range(BATCHES) for key in range(40) for _ in range(3)]
    for batch in range(BATCHES):
        lines = [json.dumps({"id": id, "at": f"2025-01-01T{batch:02}:00:00Z"}) for id, of in wanted if of == batch]
        file = job.root / "in" / f"{batch}.json"
        file.write_text("\n".join(lines))
        os.utime(file, (1_700_000_000 + batch, 1_700_000_000 + batch))
    with spark_cluster(tmp_path, ("127.0.0.1", "127.0.0.2")) as url:
        given = ["--master", url, *SPECULATION, "--twice", "1", "2"]
        assert job.run(*given, "--die-in", "2", "--marker", str(marker)) == -9, job.said()
        assert marker.exists(), job.said()
        assert job.run(*given) == 0, job.said()
    asked = pl.DataFrame(
        [file.name.split(".") for file in (job.root / "asked").iterdir()], ["id", "attempt", "answer"], orient="row"
    ).cast({"id": pl.Int64})
    attempts = asked.group_by("id").agg(pl.col("attempt").n_unique())
    assert set(attempts.filter(pl.col("attempt") > 1)["id"] // PER_BATCH) == {1, 2}
    rows = job.listed("out/rows")
    assert sorted(rows.select("id", "in_batch").rows()) == sorted(wanted)
    assert rows.join(asked, on=["id", "answer"], how="anti").is_empty()
    assert rows.select(pl.col("answer").n_unique().over("id").max()).item() == 1
    counted = rows.group_by("answer").agg(pl.len().cast(pl.Int64).alias("n"))
    assert_frame_equal(job.listed("out/given").select("answer", "n"), counted, check_row_order=False)


def _rows(job: Any, output: str, batch: int | None = None) -> pl.DataFrame:
    rows: pl.DataFrame = job.listed(output)
    if batch is not None:
        rows = rows.filter(in_batch=batch)
    # The clock differs between two runs, and so do the folder of the input and the table that a start finds.
    rows = rows.drop("read_at", "origin", "levels_version", strict=False)
    return rows.sort([name for name, kind in rows.schema.items() if not kind.is_nested()] + ["in_batch"])


@pytest.mark.parametrize(("step", "batch"), [crash[:2] for crash in CRASHES if crash[1] >= 0])
def test_a_batch_that_crashed_gives_the_rows_it_would_have_given(
    step: str, batch: int, crashed: Any, uninterrupted: Any
) -> None:
    found = {output: _rows(crashed, output, batch) for output in OUTPUTS}
    for output in OUTPUTS:
        assert_frame_equal(found[output], _rows(uninterrupted, output, batch), check_exact=True)
    assert sum(rows.height for rows in found.values()) > 20


@pytest.mark.parametrize("output", OUTPUTS)
def test_so_many_crashes_leave_no_trace_in_the_whole_output(output: str, crashed: Any, uninterrupted: Any) -> None:
    expected = _rows(uninterrupted, output)
    assert expected.height > 200
    assert_frame_equal(_rows(crashed, output), expected, check_exact=True)


def test_the_account_of_all_batches_survives_a_crash_before_the_history(crashed: Any, uninterrupted: Any) -> None:
    assert WAKE not in {entry.batch for entry in history.read(crashed.log.parent)}
    found, expected = (decode(Account, _log(job).outcome.total) for job in (crashed, uninterrupted))
    assert expected.read == 400 * FILES
    assert (found.sources, found.steps) == (expected.sources, expected.steps)
    assert {name: sink.out for name, sink in found.sinks.items()} == {
        name: sink.out for name, sink in expected.sinks.items()
    }


def test_a_job_that_died_after_its_last_outcome_is_at_its_end(crashed: Any) -> None:
    assert crashed.run("--size", "20 seconds") == 1
    assert "[CHECKPOINT_DRAINED]" in crashed.said()
