"""The generator as a source: every row once, the same after a restart, and dead letters as the truth says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from pyspark.sql import SparkSession

import headrace as hr
from headrace.connectors.base.decoding import Columns
from headrace.connectors.base.enumerator import Planned
from headrace.connectors.base.json_lines import JsonLines
from headrace.connectors.base.lines import as_lines
from headrace.event_time.tracker import WHOLE
from headrace.generator.source import SECOND, GeneratorEnumerator, GeneratorReader
from headrace.graph import Graph, defining
from headrace.observe import history
from headrace.observe.account import Account
from headrace.observe.committed import committed_rows

TROUBLE = hr.Payments(shops=4, late=0.02, duplicates=0.05, broken=0.05, future=0.01)
START = datetime(2026, 1, 1, tzinfo=UTC)
COLUMNS = Columns(
    {
        **dict.fromkeys(("id", "account", "shop", "gateway"), pl.String()),
        "amount": pl.Float64(),
        "at": pl.Datetime("us", "UTC"),
    }
)


@contextmanager
def definition(checkpoint: Path) -> Iterator[Graph]:
    with defining(Graph("test", checkpoint, cast(Any, None))) as graph:
        yield graph


def test_any_share_of_the_numbers_gives_the_rows_with_these_numbers() -> None:
    reader = GeneratorReader(TROUBLE, JsonLines(COLUMNS), START, 10.0)
    (arrived,) = reader.read([897, 901, 5], cast(Any, None))
    indices = np.arange(897, 901)
    lines = TROUBLE.lines(indices, start=START, rate=10.0)["line"].to_list()
    expected = JsonLines(COLUMNS).decode_lines(as_lines(lines, indices))
    assert_frame_equal(arrived.rows, expected.rows)
    assert_frame_equal(arrived.dead, expected.dead)
    assert arrived.rows.height + arrived.dead.height == 4
    assert arrived.arrived == 5


def test_a_task_without_numbers_brings_no_rows() -> None:
    reader = GeneratorReader(TROUBLE, JsonLines(COLUMNS), START, 10.0)
    assert list(reader.read([7, 7, 5], cast(Any, None))) == []


def test_rows_are_due_by_the_clock_and_a_batch_takes_so_many() -> None:
    now = [100 * SECOND]
    enumerator = GeneratorEnumerator(10, lambda: now[0])
    start = enumerator.initial()
    assert enumerator.plan(start, most=None) == Planned(start)
    now[0] += 2 * SECOND
    assert enumerator.plan(start, most=None) == Planned({**start, "rows": 20})
    assert enumerator.plan(start, most=15) == Planned({**start, "rows": 15}, {WHOLE: 5})


def test_a_clock_that_is_set_back_takes_no_row_back() -> None:
    position = {"began": 100 * SECOND, "rows": 20}
    assert GeneratorEnumerator(10, lambda: 101 * SECOND).plan(position, most=None) == Planned(position)


def test_a_run_over_what_is_there_ends_with_the_rows_that_were_due_at_its_beginning() -> None:
    now = [100 * SECOND]
    enumerator = GeneratorEnumerator(10, lambda: now[0])
    start = {"began": 99 * SECOND, "rows": 0}
    enumerator.stop_at_newest()
    now[0] += 5 * SECOND
    assert enumerator.plan(start, most=None) == Planned({**start, "rows": 10})


@pytest.mark.parametrize(
    ("rows", "shares"),
    [
        (0, [(5, 5), (5, 5), (5, 5)]),
        (12_000, [(5, 10_005), (10_005, 12_005), (12_005, 12_005)]),
        (90_000, [(5, 30_005), (30_005, 60_005), (60_005, 90_005)]),
    ],
)
def test_tasks_share_the_numbers_of_a_batch_but_few_numbers_stay_together(
    rows: int, shares: list[tuple[int, int]]
) -> None:
    since, until = {"began": 7, "rows": 5}, {"began": 7, "rows": 5 + rows}
    splits = GeneratorEnumerator(10, lambda: 0).splits(since, until, tasks=3)
    arrived = 7 + (5 + rows) * SECOND // 10
    assert splits == [[first, last, arrived] for first, last in shares]


@pytest.mark.parametrize(("rate", "speed"), [(0, 1.0), (10, 0.0), (10, -1.0)])
def test_a_stream_that_would_stand_still_is_refused(tmp_path: Path, rate: int, speed: float) -> None:
    with definition(tmp_path), pytest.raises(hr.DefinitionError, match="GENERATOR_TOO_SLOW"):
        hr.generate(cast(SparkSession, None), TROUBLE, rate=rate, speed=speed)


def test_a_name_that_is_no_file_name_is_refused(tmp_path: Path) -> None:
    with definition(tmp_path), pytest.raises(hr.DefinitionError, match="NAME_INVALID"):
        hr.generate(cast(SparkSession, None), TROUBLE, name="../payments")


@pytest.mark.spark
def test_a_fast_stream_starts_in_the_past_and_keeps_its_start(spark: SparkSession, tmp_path: Path) -> None:
    starts = []
    for _ in range(2):
        with definition(tmp_path) as graph:
            hr.generate(spark, TROUBLE, speed=60)
            starts.append(graph.sources["payments"].fingerprint["start"])
    assert starts[0] == starts[1] == json.loads((tmp_path / "generators" / "payments.json").read_text())["start"]
    age = datetime.now(UTC) - datetime.fromisoformat(str(starts[0]))
    assert timedelta(0) < age - 59 * timedelta(hours=12) < timedelta(minutes=5)


@pytest.mark.spark
def test_a_given_start_counts_and_is_part_of_the_identity(spark: SparkSession, tmp_path: Path) -> None:
    with definition(tmp_path) as graph:
        hr.generate(spark, TROUBLE, start=START, name="given")
    assert graph.sources["given"].fingerprint["start"] == "2026-01-01T00:00:00+00:00"
    assert not (tmp_path / "generators").exists()


@hr.pipeline
def copied(spark: SparkSession, out: str) -> None:
    payments = hr.generate(spark, TROUBLE, rate=500, speed=60).transform(hr.event_time("at"))
    hr.write("copied", payments, hr.to_files(out))


def run_until(rows: int, checkpoint: Path, out: Path, spark: SparkSession) -> int:
    """Run until so many rows have been read in all; how many it became."""
    running = copied.start(checkpoint=checkpoint, mode=hr.micro_batch("100 milliseconds"), spark=spark, out=str(out))
    read = 0
    while read < rows:
        assert not running.wait(0.1)
        read = sum((entry.account for entry in history.read(checkpoint / "copied")), Account()).read
    running.stop()
    return sum((entry.account for entry in history.read(checkpoint / "copied")), Account()).read


@pytest.mark.spark
def test_every_row_comes_once_over_a_restart_and_the_dead_ones_are_those_of_the_truth(
    spark: SparkSession, tmp_path: Path
) -> None:
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    first = run_until(1, checkpoint, out, spark)
    read = run_until(first + 1, checkpoint, out, spark)

    start = datetime.fromisoformat(json.loads((checkpoint / "generators" / "payments.json").read_text())["start"])
    truth = TROUBLE.lines(np.arange(read), start=start, rate=500 / 60).with_row_index("position")
    good = truth.filter(pl.col("reason").is_null()).select("id", "account", "shop", "gateway", "amount", "at")
    assert_frame_equal(committed_rows(out).sort(good.columns), good.sort(good.columns))

    dead = truth.filter(pl.col("reason").is_not_null())
    letters = committed_rows(checkpoint / "copied" / "dead_letters").sort("position")
    assert letters["position"].to_list() == dead["position"].to_list()
    assert letters["reason"].to_list() == dead["reason"].to_list()
    assert letters["raw"].to_list() == dead["line"].to_list()
    assert set(letters["origin"]) == {"generator"}
