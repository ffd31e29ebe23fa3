"""The demonstration as a newcomer runs it: it ends well, and what it shows is true."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from headrace.demo.play import PAYMENTS, SPEED
from headrace.observe.committed import committed_rows

EQUATION = re.compile(r"([\d,]+) [a-z]+ = ([\d,]+) [a-z]+(?: [a-z]+)?(?: \+ ([\d,]+) [a-z]+)?")


def number(text: str) -> int:
    return int(text.replace(",", "") or 0)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A short run whose output is not a terminal."""
    folder = tmp_path_factory.mktemp("demo")
    command = [sys.executable, "-c", "from headrace.cli import app; app()", "demo", "--seconds", "2"]
    ended = subprocess.run(
        [*command, "--folder", str(folder)], capture_output=True, text=True, timeout=240, check=False
    )
    return folder, ended


@pytest.mark.spark
def test_the_demonstration_ends_with_an_account_that_adds_up(
    shown: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    folder, ended = shown
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout
    assert "windows closed" in ended.stdout
    assert "Every row is accounted for." in ended.stdout
    equations = [tuple(map(number, found)) for found in EQUATION.findall(ended.stdout)]
    assert len(equations) == 5
    assert all(whole == first + second for whole, first, second in equations), equations
    (read, _, dead), (_, accepted, late), (windows, *_), _, _ = equations
    assert min(read, accepted, dead, windows) > 0
    assert committed_rows(folder / "windows").height == windows
    assert committed_rows(folder / "late").height == late


@pytest.mark.spark
def test_every_window_holds_what_the_generator_knows(shown: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, ended = shown
    read = number(EQUATION.findall(ended.stdout)[0][0])
    stored = json.loads((folder / "checkpoint" / "generators" / "payments.json").read_text())
    start = datetime.fromisoformat(stored["start"])
    truth = PAYMENTS.lines(np.arange(read), start=start, rate=1000 / SPEED).filter(pl.col("reason").is_null())
    late = committed_rows(folder / "late")
    in_time = truth if late.is_empty() else _without(truth, late)
    expected = (
        in_time.group_by("shop", pl.col("at").dt.truncate("1m").alias("start"))
        .agg(payments=pl.len().cast(pl.Int64), spent=pl.col("amount").sum(), largest=pl.col("amount").max())
        .select("shop", "start", "payments", "spent", "largest")
    )
    written = committed_rows(folder / "windows").select(
        "shop", pl.col("window").struct.field("start"), "payments", "spent", "largest"
    )
    closed = expected.join(written, on=["shop", "start"], how="semi")
    assert_frame_equal(closed.sort("shop", "start"), written.sort("shop", "start"), rel_tol=1e-12)


def _without(rows: pl.DataFrame, taken: pl.DataFrame) -> pl.DataFrame:
    """The rows without those taken; a payment sent twice is told apart by which of the two it is."""
    columns = ["id", "account", "shop", "gateway", "amount", "at"]
    numbered = [frame.select(columns).with_columns(copy=pl.int_range(pl.len()).over("id")) for frame in (rows, taken)]
    return numbered[0].join(numbered[1], on=[*columns, "copy"], how="anti")
