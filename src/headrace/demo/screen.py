"""The demo on the screen: windows closing, late rows, dead letters, progress; plain lines where it is no terminal."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from headrace.demo.feed import Feed
from headrace.observe.status import shown_length, shown_moment

WIDE = 108
HEADING = Text(
    " 1,000 payments a second, each second a minute of their own time: what does every shop take in a minute?",
    style="bold",
)
_MICROSECOND = timedelta(microseconds=1)


class Screen:
    """Draws a feed; Rich asks it for a new picture several times a second."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self.doing = "Starting Spark ..."
        self._began = time.monotonic()
        self._spinner = Spinner("dots")

    def __rich__(self) -> RenderableType:
        """The picture now."""
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


def windows_panel(feed: Feed) -> Panel:
    """The windows that closed last."""
    table = Table(box=None, expand=True, header_style="dim")
    table.add_column("shop", style="cyan", no_wrap=True)
    table.add_column("minute", no_wrap=True)
    for name in ("payments", "spent", "largest"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in reversed(feed.windows.latest):
        table.add_row(row["shop"], minute(row), str(row["payments"]), f"{row['spent']:,.2f}", f"{row['largest']:,.2f}")
    return Panel(table, title=f"[bold]windows closed: {feed.windows.rows:,}[/]", border_style="green")


def late_panel(feed: Feed) -> Panel:
    """The rows that came after their window had closed."""
    table = Table(box=None, expand=True, header_style="dim")
    table.add_column("payment", no_wrap=True)
    table.add_column("shop", style="cyan", no_wrap=True)
    table.add_column("happened at", no_wrap=True)
    table.add_column("late by", justify="right", style="yellow", no_wrap=True)
    for row in list(reversed(feed.late.latest))[:4]:
        table.add_row(row["id"], row["shop"], f"{row['at']:%H:%M:%S}", lateness(row))
    return Panel(table, title=f"[bold]late rows kept aside: {feed.late.rows:,}[/]", border_style="yellow")


def dead_panel(feed: Feed) -> Panel:
    """The rows that could not be read, and why."""
    table = Table(box=None, expand=True, header_style="dim")
    table.add_column("reason", style="red", no_wrap=True)
    table.add_column("rows", justify="right", no_wrap=True)
    table.add_column("the latest", no_wrap=True, overflow="ellipsis", ratio=1)
    for reason, rows in feed.reasons.items():
        table.add_row(reason, f"{rows:,}", Text(feed.examples[reason], style="dim"))
    return Panel(table, title=f"[bold]dead letters: {feed.dead.rows:,}[/]", border_style="red")


def progress(feed: Feed) -> Text:
    """One line about the newest batch."""
    if not feed.batches:
        return Text(" first batch ...")
    newest = next(reversed(feed.batches.values()))
    moment = shown_moment(min(newest.watermarks.values()))
    parts = (f"batch {newest.batch}", f"watermark {moment}", f"{feed.rows.read:,} rows read")
    speed = f"{newest.account.read:,} rows in {newest.seconds.batch:.1f} s"
    return Text(" " + "  ·  ".join((*parts, speed, f"{newest.state.rows} open windows")), style="bold")


def minute(row: dict[str, Any]) -> str:
    """A window as its beginning and end."""
    return f"{row['window']['start']:%H:%M}-{row['window']['end']:%H:%M}"


def lateness(row: dict[str, Any]) -> str:
    """How far a late row was behind the watermark."""
    return shown_length(row["late_by"] // _MICROSECOND)


EVERY_SECONDS = 2.0


class PlainLines:
    """Prints what is new, at most every two seconds."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._printed = -1
        self._next = 0.0

    def print_news(self) -> None:
        """Print the newest batch with an example of what it brought."""
        if time.monotonic() >= self._next:
            self.print_last()

    def print_last(self) -> None:
        """Print the newest batch unless that has been done."""
        newest = next(reversed(self._feed.batches), self._printed)
        if newest == self._printed:
            return
        self._printed, self._next = newest, time.monotonic() + EVERY_SECONDS
        print("\n  ".join([progress(self._feed).plain.strip(), *self._examples()]), flush=True)

    def _examples(self) -> list[str]:
        def window(row: dict[str, Any]) -> str:
            return f"{row['shop']} {minute(row)}: {row['payments']} payments, spent {row['spent']:,.2f}"

        def late(row: dict[str, Any]) -> str:
            return f"{row['id']} of {row['at']:%H:%M:%S}, late by {lateness(row)}"

        def dead(row: dict[str, Any]) -> str:
            return f"{row['reason']} {bytes(row['raw']).decode(errors='replace')[:60]}".replace("\n", " ")

        feed = self._feed
        shown = [("windows closed", feed.windows, window), ("late rows", feed.late, late)]
        return [
            f"{what} {folder.rows:,}, the last: {text(folder.latest[-1])}"
            for what, folder, text in [*shown, ("dead letters", feed.dead, dead)]
            if folder.latest
        ]
