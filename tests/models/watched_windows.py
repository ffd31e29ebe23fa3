"""Fixed windows as a watermark and a clock pass them, in plain Python: what every batch emits, which rows are late."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from tests.models.fixed_windows import Covering, aggregated
from tests.models.rows import Event

Place = tuple[str | None, int, int]
"""Account, start and end of a window."""


@dataclass
class Window:
    """All rows of a window, those that no result has shown, and what was told of it."""

    rows: list[Event] = field(default_factory=list)
    unseen: list[Event] = field(default_factory=list)
    preview_at: int | None = None
    closed: bool = False
    results: list[tuple[Any, ...]] = field(default_factory=list)
    """Aggregates, pane and revision of every result; the change where results are taken back."""
    revision: int = 0
    given: tuple[Any, ...] | None = None
    """The last result, with its pane and revision."""


@dataclass
class Watched:
    """Windows that close at their end and are corrected for so long, with previews at multiples of a time."""

    covering: Covering
    correctable: int = 0
    every: int | None = None
    panes: str = "accumulating"
    keyed: bool = True
    by_event_time: bool = False
    """Whether previews go by event time, and not by the clock."""
    late_rows: int | None = None
    """How many late rows a correction needs; those left are shown when the window takes no more."""
    closes: bool = True
    """Whether a window is shown when it closes."""
    windows: dict[Place, Window] = field(default_factory=lambda: defaultdict(Window))
    late: list[tuple[Event, int]] = field(default_factory=list)
    """The rows that no window takes, and how far they are behind the watermark."""

    @property
    def results(self) -> dict[Place, list[tuple[Any, ...]]]:
        """Everything that was emitted of each window, in order."""
        return {place: window.results for place, window in self.windows.items()}

    def batch(self, watermark: int, clock: int, rows: list[Event]) -> None:
        """A batch whose watermark and clock are these: windows close, rows come, previews and corrections leave."""
        for (_, _, end), window in self.windows.items():
            if end <= watermark and not window.closed:
                if self.closes:
                    self._tell(window, "on_time")
                window.closed = True
                window.preview_at = None
        now = watermark if self.by_event_time else clock
        touched = [place for row in rows for place in self._take(row, watermark)]
        for place in dict.fromkeys(touched):
            window = self.windows[place]
            if place[2] <= watermark:
                window.closed = True
                if self.late_rows is None or len(window.unseen) >= self.late_rows:
                    self._tell(window, "late")
            elif self.every is not None and window.preview_at is None:
                passed = max(now, place[1]) if self.by_event_time else now
                window.preview_at = (passed // self.every + 1) * self.every
        for (_, _, end), window in self.windows.items():
            if self.late_rows is not None and end + self.correctable <= watermark and window.unseen:
                self._tell(window, "late")
            if window.preview_at is not None and window.preview_at <= now:
                self._tell(window, "early")

    def _take(self, row: Event, watermark: int) -> list[Place]:
        """The windows that take a row; if there is none it is late."""
        covering = [(row.account if self.keyed else None, start, end) for start, end in self.covering(row.time)]
        taking = [place for place in covering if place[2] + self.correctable > watermark]
        for place in taking:
            self.windows[place].rows.append(row)
            self.windows[place].unseen.append(row)
        if not taking:
            self.late.append((row, watermark - row.time))
        return taking

    def _tell(self, window: Window, pane: str) -> None:
        result = aggregated([row.amount for row in (window.unseen if self.panes == "discarding" else window.rows)])
        if self.panes != "retracting":
            window.results.append((*result, pane, window.revision))
        else:
            if window.given is not None:
                window.results.append((*window.given, "update_before"))
            change = "insert" if window.given is None else "update_after"
            window.results.append((*result, pane, window.revision, change))
        window.given = (*result, pane, window.revision)
        window.revision += 1
        window.unseen = []
        window.preview_at = None
