"""The demo on the screen: what it has left on disk so far, drawn; plain lines where the screen is no terminal."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.spinner import Spinner
from rich.table import Column, Table
from rich.text import Text

from headrace.observe import history
from headrace.observe.account import Account, SourceCounts, StepCounts
from headrace.observe.committed import CommittedRows
from headrace.observe.history import HistoryEntry
from headrace.observe.status import shown_length, shown_moment

LATEST = 14
EVERY_SECONDS = 2.0
WIDE = 108
HEADING = Text(
    " 1,000 payments a second, each second a minute of their own time: what does every shop take in a minute?",
    style="bold",
)
_MICROSECOND = timedelta(microseconds=1)


class OutputFolder:
    """The rows of one folder: how many there are, and the latest of them by some columns."""

    def __init__(self, folder: Path, *order: str) -> None:
        self._committed = CommittedRows(folder)
        self._order = order
        self.rows = 0
        self.latest: deque[dict[str, Any]] = deque(maxlen=LATEST)

    def look(self) -> pl.DataFrame:
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
        self.newest: HistoryEntry | None = None
        """What the newest batch did."""
        self.reasons: Counter[str] = Counter()
        self.examples: dict[str, str] = {}
        """What was wrong with the latest dead letter of each reason."""
        self._flow = flow

    @property
    def rows(self) -> Account:
        return Account() if self.newest is None else self.newest.total

    def look(self) -> None:
        self.windows.look()
        self.late.look()
        dead = self.dead.look()
        if not dead.is_empty():
            self.reasons.update(dead["reason"].to_list())
            self.examples |= dict(dead.sort("position").select("reason", "detail").rows())
        self.newest = history.newest(self._flow)


class Screen:
    """Draws a feed, for Rich several times a second; or prints the newest batch, at most every two seconds."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self.doing = "Starting Spark ..."
        self._began = time.monotonic()
        self._spinner = Spinner("dots")
        self._printed: HistoryEntry | None = None
        self._next = 0.0

    def __rich__(self) -> RenderableType:
        if self.feed.windows.rows == 0:
            self._spinner.update(text=Text(f"{self.doing} {time.monotonic() - self._began:.0f} s"))
            return self._spinner
        left, right = windows_panel(self.feed), Group(late_panel(self.feed), dead_panel(self.feed))
        if Console().width < WIDE:
            return Group(HEADING, left, right, progress(self.feed))
        sides = Table.grid(expand=True)
        sides.add_column(ratio=10)
        sides.add_column(ratio=11)
        sides.add_row(left, right)
        return Group(HEADING, sides, progress(self.feed))

    def print_news(self) -> None:
        newest = self.feed.newest
        if newest != self._printed and time.monotonic() >= self._next:
            self._printed, self._next = newest, time.monotonic() + EVERY_SECONDS
            print(progress(self.feed).plain.strip(), flush=True)


def _panel(title: str, color: str, columns: Sequence[Column], rows: Iterable[Iterable[RenderableType]]) -> Panel:
    table = Table(*columns, box=None, expand=True, header_style="dim")
    for column in columns:
        column.no_wrap = True
    for row in rows:
        table.add_row(*row)
    return Panel(table, title=f"[bold]{title}[/]", border_style=color)


def windows_panel(feed: Feed) -> Panel:
    """The windows that closed last."""
    numbers = [Column(name, justify="right") for name in ("payments", "spent", "largest")]
    rows = (
        (
            row["shop"],
            f"{row['window']['start']:%H:%M}-{row['window']['end']:%H:%M}",
            str(row["payments"]),
            f"{row['spent']:,.2f}",
            f"{row['largest']:,.2f}",
        )
        for row in reversed(feed.windows.latest)
    )
    columns = [Column("shop", style="cyan"), Column("minute"), *numbers]
    return _panel(f"windows closed: {feed.windows.rows:,}", "green", columns, rows)


def late_panel(feed: Feed) -> Panel:
    """The rows that came after their window had closed."""
    late_by = Column("late by", justify="right", style="yellow")
    columns = [Column("payment"), Column("shop", style="cyan"), Column("happened at"), late_by]
    newest = list(reversed(feed.late.latest))[:4]
    lateness = (shown_length(row["late_by"] // _MICROSECOND) for row in newest)
    rows = ((row["id"], row["shop"], f"{row['at']:%H:%M:%S}", late) for row, late in zip(newest, lateness, strict=True))
    return _panel(f"late rows kept aside: {feed.late.rows:,}", "yellow", columns, rows)


def dead_panel(feed: Feed) -> Panel:
    """The rows that could not be read, and why."""
    columns = [Column("reason", style="red"), Column("rows", justify="right"), Column("the latest", ratio=1)]
    rows = ((why, f"{rows:,}", Text(feed.examples[why], style="dim")) for why, rows in feed.reasons.items())
    return _panel(f"dead letters: {feed.dead.rows:,}", "red", columns, rows)


def progress(feed: Feed) -> Text:
    """One line about the newest batch."""
    newest = feed.newest
    if newest is None:
        return Text(" first batch ...")
    moment = shown_moment(min(newest.watermarks.values()))
    parts = (f"batch {newest.batch}", f"watermark {moment}", f"{feed.rows.read:,} rows read")
    speed = f"{newest.account.read:,} rows in {newest.seconds.batch:.1f} s"
    return Text(" " + "  ·  ".join((*parts, speed, f"{newest.state.rows} open windows")), style="bold")


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
