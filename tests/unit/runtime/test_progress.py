"""What a run shows of itself, on a terminal and elsewhere."""

from __future__ import annotations

import os
import pty
import re
import sys
from itertools import groupby
from pathlib import Path

import pytest

from headrace.checkpoint.lease import take_lease
from headrace.checkpoint.outages import OutageMarker
from headrace.checkpoint.storage import LocalStorage
from headrace.event_time.strategy import BEGINNING
from headrace.observe import history
from headrace.observe.account import Account, SourceCounts
from headrace.observe.history import HistoryEntry
from headrace.runtime.progress import Progress


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """The checkpoint of a running pipeline with the flow ``spend``."""
    (tmp_path / "spend").mkdir()
    take_lease(LocalStorage(tmp_path))
    return tmp_path


def ran(checkpoint: Path, batch: int, *, read: int) -> None:
    """The flow has done a batch."""
    total = Account({"in": SourceCounts(read=read, handed_on=read)})
    entry = HistoryEntry("spend", batch, clock=1_000_000, watermarks={"in": BEGINNING}, total=total)
    history.append(checkpoint / "spend", entry)


def test_elsewhere_than_on_a_terminal_each_batch_is_a_line_of_its_own(
    checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Progress("shop", checkpoint) as shown:
        shown.look()
        ran(checkpoint, 0, read=0)
    assert capsys.readouterr().err == "spend: batch 0, 0 rows read, 0 dead, 0 late, 0 out, watermark no row yet\n"
    with Progress("shop", checkpoint):
        pass
    assert capsys.readouterr().err == ""
    with Progress("shop", checkpoint):
        ran(checkpoint, 1, read=1200)
    assert capsys.readouterr().err == "spend: batch 1, 1,200 rows read, 0 dead, 0 late, 0 out, watermark none yet\n"


def test_lines_come_rarer_and_the_last_one_always(
    checkpoint: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("headrace.runtime.progress.time.monotonic", lambda: now[0])
    with Progress("shop", checkpoint) as shown:
        for second in range(100):
            now[0] = float(second)
            ran(checkpoint, second, read=second)
            shown.look()
    lines = [int(batch) for batch in re.findall(r"batch (\d+)", capsys.readouterr().err)]
    assert lines == [0, 2, 6, 14, 30, 60, 90, 99]


def test_what_a_flow_waits_for_is_shown_before_its_first_batch(
    checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran(checkpoint, 0, read=1)
    with Progress("shop", checkpoint) as shown:
        OutageMarker(LocalStorage(checkpoint / "spend"), "source.in", "kafka at broker:9092").begin("no answer")
        shown.look()
    assert capsys.readouterr().err.endswith("watermark none yet, waiting: kafka at broker:9092 (no answer)\n")


def test_on_a_terminal_one_line_is_kept_up_to_date(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, screen = pty.openpty()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with os.fdopen(screen, "w", encoding="utf-8") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        with Progress("shop", checkpoint) as shown:
            ran(checkpoint, 0, read=5)
            shown.look()
            ran(checkpoint, 1, read=9)
        stream.flush()
        written = ""
        while "batch 1" not in written or not written.endswith("\x1b[?25h"):
            written += os.read(terminal, 100_000).decode()
    os.close(terminal)
    states = groupby(re.findall(r"shop: starting Spark|spend: batch \d, \d rows", written))
    assert [state for state, _ in states] == [
        "shop: starting Spark",
        "spend: batch 0, 5 rows",
        "spend: batch 1, 9 rows",
    ]
    # Each is written over the one before it.
    assert written.count("\n") == 1
