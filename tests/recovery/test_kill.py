"""``kill -9`` at random moments, again and again: nothing is lost and nothing is there twice."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from headrace.generator.payments import ID_IN_RAW, Payments
from headrace.observe import history

ROWS = 300_000
KILLS = 10
WHILE_STARTING = 3
MINUTE = 60_000_000
PAYMENTS = Payments(seed=11, late=0.05, delay="5 minutes", broken=0.05, duplicates=0.02)


@pytest.fixture(scope="module")
def survived(new_job: Callable[[str], Any], tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, pl.DataFrame]:
    """A job that was killed ten times and then ran to its end, and the truth about its input."""
    job = new_job("killed")
    truth = tmp_path_factory.mktemp("truth") / "truth.parquet"
    start = datetime(2025, 1, 1, tzinfo=UTC)
    job.write_input(PAYMENTS, truth=truth, rows=ROWS, files=60, start=start, rate=100.0)
    chance = random.Random(5)
    starting = set(chance.sample(range(KILLS), WHILE_STARTING))
    for number in range(KILLS):
        with job.running("--files-per-batch", "3") as process:
            if number in starting:
                time.sleep(chance.uniform(0.5, 9))
            else:
                job.wait_for_a_moment(process, chance)
            assert process.poll() is None, f"the job ended before kill {number}: {job.said()}"
    code = job.run("--files-per-batch", "3")
    assert code == 0, job.said()
    return job, pl.read_parquet(truth)


def _by_id(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.group_by("id").agg(pl.len().cast(pl.Int64).alias("times"))


pytestmark = [pytest.mark.spark, pytest.mark.full, pytest.mark.timeout(900)]


def test_every_broken_row_is_a_dead_letter_once(survived: tuple[Any, pl.DataFrame]) -> None:
    job, truth = survived
    letters = job.listed("checkpoint/spend/dead_letters")
    raw = letters["raw"].map_elements(lambda line: line.decode("utf-8", "replace"), return_dtype=pl.String)
    found = letters.select(raw.str.extract(f"({ID_IN_RAW})").alias("id"), "reason").sort("id", "reason")
    expected = truth.filter(pl.col("reason").is_not_null()).select("id", "reason").sort("id", "reason")
    assert expected.height > ROWS * 0.04
    assert_frame_equal(found, expected)


def test_windows_and_late_rows_together_hold_every_good_row_once(survived: tuple[Any, pl.DataFrame]) -> None:
    job, truth = survived
    good = truth.filter(pl.col("reason").is_null())
    late = job.listed("out/late")
    assert late.height > ROWS * 0.02
    left = _by_id(good).join(_by_id(late), on="id", how="full", suffix="_late", coalesce=True)
    left = left.select("id", accepted=pl.col("times").fill_null(0) - pl.col("times_late").fill_null(0))
    assert left["accepted"].min() == 0, "a late row that never came in, or came out twice"
    unique = good.unique("id").join(left, on="id")
    accepted = unique.select(pl.exclude("accepted").repeat_by("accepted").explode()).drop_nulls("id")
    assert accepted.height + late.height == good.height
    micros = pl.col("at").cast(pl.Int64)
    expected = (
        accepted.with_columns((micros - micros % MINUTE).alias("start"))
        .group_by("account", "start")
        .agg(
            pl.col("amount").sum().alias("spent"),
            pl.len().cast(pl.Int64).alias("payments"),
            pl.col("id").min().alias("first"),
            pl.col("id").max().alias("last"),
        )
        .sort("account", "start")
    )
    found = job.listed("out/main")
    assert found["revision"].max() == 0
    found = found.select(
        "account",
        pl.col("window").struct.field("start").cast(pl.Int64).alias("start"),
        "spent",
        "payments",
        "first",
        "last",
    ).sort("account", "start")
    assert_frame_equal(found, expected, check_exact=False, abs_tol=1e-6, rel_tol=0)


def test_the_accounts_of_all_batches_add_up_to_the_input(survived: tuple[Any, pl.DataFrame]) -> None:
    job, truth = survived
    # A kill may cost the history a batch, but never the account.
    whole = history.read(job.log.parent)[-1].total
    assert (whole.read, whole.dead) == (ROWS, truth["reason"].is_not_null().sum())


def test_no_rows_of_a_batch_that_is_not_listed_are_left_among_those_that_are(
    survived: tuple[Any, pl.DataFrame],
) -> None:
    job, _ = survived
    for output in ("out/main", "out/late", "checkpoint/spend/dead_letters"):
        root: Path = job.root / output
        folders = {folder.name for folder in root.iterdir() if not folder.name.startswith("_")}
        listings = [json.loads(commit.read_text()) for commit in (root / "_commits").glob("*.json")]
        assert folders == {file.partition("/")[0] for listing in listings for file in listing["files"]}
