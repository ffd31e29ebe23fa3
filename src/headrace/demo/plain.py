"""The demonstration as plain lines, for output that is not a terminal."""

from __future__ import annotations

import time

from headrace.demo.feed import Feed
from headrace.demo.screen import clock_time, lateness, minute, progress, raw_text

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
        lines = [progress(self._feed).plain.strip(), *self._examples()]
        print("\n  ".join(lines), flush=True)

    def _examples(self) -> list[str]:
        feed, lines = self._feed, []
        if feed.windows.latest:
            row = feed.windows.latest[-1]
            what = f"{row['shop']} {minute(row)}: {row['payments']} payments, spent {row['spent']:,.2f}"
            lines.append(f"windows closed {feed.windows.rows:,}, the last: {what}")
        if feed.late.latest:
            row = feed.late.latest[-1]
            what = f"{row['id']} of {clock_time(row['at'])}, late by {lateness(row)}"
            lines.append(f"late rows {feed.late.rows:,}, the last: {what}")
        if feed.dead.latest:
            row = feed.dead.latest[-1]
            lines.append(f"dead letters {feed.dead.rows:,}, the last: {row['reason']} {raw_text(row)[:60]}")
        return lines
