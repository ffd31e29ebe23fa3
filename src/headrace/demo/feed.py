"""What a running demo has left on disk so far, and whether its account adds up."""

from __future__ import annotations

from collections import Counter, deque
from pathlib import Path
from typing import Any

import polars as pl
from rich.table import Table

from headrace.observe.account import Account, SourceCounts, StepCounts, total
from headrace.observe.committed import CommittedRows
from headrace.observe.history import FILE, HistoryEntry, parse

LATEST = 14


class OutputFolder:
    """The rows of one folder: how many there are, and the latest of them by some columns."""

    def __init__(self, folder: Path, *order: str) -> None:
        self._committed = CommittedRows(folder)
        self._order = order
        self.rows = 0
        self.latest: deque[dict[str, Any]] = deque(maxlen=LATEST)

    def look(self) -> pl.DataFrame:
        """The rows that have been committed since the last look."""
        rows = self._committed.look()
        if not rows.is_empty():
            self.rows += rows.height
            self.latest.extend(rows.sort(self._order).tail(LATEST).to_dicts())
        return rows


class Feed:
    """All that the screen shows of a demonstration in a folder."""

    def __init__(self, folder: Path, flow: Path) -> None:
        self.windows = OutputFolder(folder / "windows", "window", "shop")
        self.late = OutputFolder(folder / "late", "at")
        self.dead = OutputFolder(flow / "dead_letters", "position")
        self.batches: dict[int, HistoryEntry] = {}
        """The history's entries; of a batch that ran again the later one."""
        self.reasons: Counter[str] = Counter()
        self.examples: dict[str, str] = {}
        """What was wrong with the latest dead letter of each reason."""
        self._history = flow / FILE
        self._read = 0

    @property
    def rows(self) -> Account:
        """The account of all batches so far."""
        return total(entry.account for entry in self.batches.values())

    def look(self) -> None:
        """Take in what has happened since the last look."""
        self.windows.look()
        self.late.look()
        dead = self.dead.look()
        if not dead.is_empty():
            self.reasons.update(dead["reason"].to_list())
            self.examples |= dict(dead.sort("position").select("reason", "detail").rows())
        self._look_at_history()

    def _look_at_history(self) -> None:
        if not self._history.exists():
            return
        with self._history.open("rb") as stream:
            stream.seek(self._read)
            text = stream.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        self.batches |= {entry.batch: entry for entry in map(parse, whole.splitlines())}


def account_table(feed: Feed) -> tuple[Table, bool]:
    """Every row that came in is somewhere, and every row that went out is in a file; and whether that is so."""
    account = feed.rows
    payments = account.sources.get("payments", SourceCounts())
    minutes = account.steps.get("minutes", StepCounts())

    def in_files(output: str, folder: OutputFolder) -> tuple[str, int, dict[str, int]]:
        return "out", account.out(output), {"in files": folder.rows}

    lines = {
        "payments": ("read", payments.read, {"handed on": payments.handed_on, "dead": payments.dead}),
        "window step": ("in", minutes.in_, {"accepted": minutes.accepted, "late": minutes.late}),
        "windows": in_files("main", feed.windows),
        "late rows": in_files("minutes.late", feed.late),
        "dead letters": in_files("payments.dead_letters", feed.dead),
    }
    table = Table(title="The account", title_style="bold", title_justify="left", show_header=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(justify="center")
    adds_up = True
    for what, (came, rows, parts) in lines.items():
        holds = rows == sum(parts.values())
        equation = f"{rows:,} {came} = " + " + ".join(f"{part:,} {name}" for name, part in parts.items())
        table.add_row(what, equation, "[green]✓[/]" if holds else "[bold red]✗[/]")
        adds_up = adds_up and holds
    return table, adds_up
