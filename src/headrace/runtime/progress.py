"""What a run shows of itself: a live line for each flow on a terminal, else a plain line now and then."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from headrace.observe.status import FlowStatus, statuses

LIVE_SECONDS = 0.5
FIRST_SECONDS, LONGEST_SECONDS = 1.0, 30.0
"""How long after a plain line the next one may come: twice as long each time, up to a limit."""


class Progress:
    """Shows, on standard error, how far the flows of a checkpoint are."""

    def __init__(self, pipeline: str, checkpoint: Path) -> None:
        self._checkpoint = checkpoint
        self._console = Console(stderr=True, markup=False, emoji=False, highlight=False)
        # What an earlier run has done is not news.
        self._printed = [_line(flow) for flow in statuses(checkpoint)]
        self._looks_at = 0.0
        self._interval = FIRST_SECONDS
        self._live: Live | None = None
        if self._console.is_terminal:
            starting = Text(f"{pipeline}: starting Spark")
            # What sinks print comes above the line, unless it goes elsewhere.
            self._live = Live(starting, console=self._console, auto_refresh=False, redirect_stdout=sys.stdout.isatty())

    def __enter__(self) -> Progress:
        if self._live is not None:
            self._live.start(refresh=True)
        return self

    def look(self) -> None:
        """Show what is new, if it is time."""
        if time.monotonic() >= self._looks_at:
            self._show(statuses(self._checkpoint))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._show(statuses(self._checkpoint))
        if self._live is not None:
            self._live.stop()

    def _show(self, flows: list[FlowStatus]) -> None:
        if self._live is not None:
            shown = (Text(_line(flow), no_wrap=True, overflow="ellipsis") for flow in flows)
            self._live.update(Group(*shown), refresh=True)
            self._looks_at = time.monotonic() + LIVE_SECONDS
            return
        lines = [_line(flow) for flow in flows if flow.batch is not None or flow.waiting]
        new = [line for line in lines if line not in self._printed]
        for line in new:
            print(line, file=sys.stderr, flush=True)
        if new:
            self._printed = lines
            self._interval = min(2 * self._interval, LONGEST_SECONDS)
        self._looks_at = time.monotonic() + (self._interval if new else FIRST_SECONDS)


def _line(flow: FlowStatus) -> str:
    waits = "".join(f", waiting: {place}" for place in flow.waiting)
    if flow.batch is None:
        return f"{flow.flow}: no batch yet{waits}"
    return (
        f"{flow.flow}: batch {flow.batch}, {flow.read:,} rows read, {flow.dead:,} dead, {flow.late:,} late, "
        f"{flow.out:,} out, watermark {flow.time}{waits}"
    )
