"""How a pipeline runs: batch after batch or over what is there now, and how many rows a batch takes."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from headrace.durations import Duration, positive_microseconds, spoken
from headrace.errors import DefinitionError, HeadraceError
from headrace.graph import FlowNode, Graph
from headrace.observe.history import HistoryEntry
from headrace.stability import stable


@dataclass(frozen=True, slots=True)
class Mode:
    """A way of running."""

    kind: Literal["micro_batch", "available_now", "bounded"]
    interval: int = 0
    drain: bool = False
    max_rows: int | None = None
    keep_up: bool = False

    def __repr__(self) -> str:
        arguments = [repr(spoken(self.interval)) if self.kind == "micro_batch" else f"drain={self.drain}"]
        arguments += [f"max_rows={self.max_rows}"] if self.max_rows is not None else []
        arguments += ["keep_up=True"] if self.keep_up else []
        return f"hr.{self.kind}({', '.join(arguments)})"


@stable
def micro_batch(interval: Duration = "1 second", *, max_rows: int | None = None, keep_up: bool = False) -> Mode:
    """Run until stopped; look for new rows at this interval.

    A batch takes at most ``max_rows`` of each source; with ``keep_up`` so many that it is done within the interval,
    learned from the batches before it.

    >>> micro_batch("500 milliseconds", keep_up=True)
    hr.micro_batch('500 milliseconds', keep_up=True)
    """
    length = positive_microseconds(interval, argument="interval")
    return Mode("micro_batch", length, max_rows=_positive(max_rows), keep_up=keep_up)


@stable
def available_now(*, drain: bool = False, max_rows: int | None = None) -> Mode:
    """Read what is there and stop; with ``drain`` the end of the data is the end of time and every window closes.

    >>> available_now(drain=True)
    hr.available_now(drain=True)
    """
    return Mode("available_now", drain=drain, max_rows=_positive(max_rows))


BOUNDED = Mode("bounded", drain=True)
"""Over tables in place of sources."""


def _positive(rows: int | None) -> int | None:
    if rows is not None and rows < 1:
        raise DefinitionError("MAX_ROWS_TOO_SMALL", f"max_rows={rows} must be at least 1. Leave it out for no limit.")
    return rows


FIRST_CAP = 10_000
SMALLEST_CAP = 1_000
AIM = 0.8
"""Batches aim below the target, so that not every odd one misses it."""
WARM_AFTER = 2
"""The first batches of a process load and compile code, and say nothing about the next."""
REMEMBERED = 12
"""The cost of an empty batch is estimated from at least this many."""
ENOUGH = 3
"""Fewer give no estimate: one odd batch among two would distort it."""


@dataclass(slots=True)
class Pace:
    """Learns from each batch; halves or doubles at most, so that one odd batch does no harm.

    A batch costs something before its first row. Where that alone comes near the target, batches of few rows would
    never catch up, so they may take half as long again as an empty one.

    >>> pace = Pace(target=1.0, cap=10_000, warm=2)
    >>> pace.learn(rows=10_000, seconds=0.4)
    >>> pace.cap
    20000
    >>> pace.learn(rows=20_000, seconds=4.0)
    >>> pace.cap
    10000
    """

    target: float
    """Seconds that a batch may take."""
    cap: int = FIRST_CAP
    largest: int | None = None
    warm: int = 0
    """Batches seen so far."""
    seen: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=REMEMBERED))

    def __post_init__(self) -> None:
        self.cap = min(self.cap, self.largest or self.cap)

    def learn(self, *, rows: int, seconds: float) -> None:
        self.warm += 1
        if self.warm <= WARM_AFTER or rows == 0:
            return
        self.seen.append((rows, seconds))
        if rows < 0.9 * self.cap and seconds <= self.target:
            return
        empty = self.seconds_of_an_empty_batch()
        aim = max(AIM * self.target, 1.5 * empty)
        fitting = rows * min(2.0, max(0.5, (aim - empty) / max(seconds - empty, 0.001)))
        self.cap = min(max(SMALLEST_CAP, int(fitting)), self.largest or 2 * self.cap)

    def seconds_of_an_empty_batch(self) -> float:
        """Estimated by a line through the last batches; 0 while they are too few or too similar in size."""
        rows, seconds = zip(*self.seen, strict=True)
        if len(rows) < ENOUGH or max(rows) < 1.25 * min(rows):
            return 0.0
        _, intercept = np.polyfit(rows, seconds, 1)
        return float(min(max(intercept, 0.0), *seconds))


def check_mode(mode: Mode, node: FlowNode, graph: Graph) -> None:
    """Refuse a way of running that a flow's sources do not allow."""
    endless = [name for name in node.sources if graph.sources[name].endless]
    if mode.kind == "available_now" and mode.drain and endless:
        raise HeadraceError(
            "DRAIN_WITHOUT_END",
            f"flow {node.name!r}: drain=True closes every window at the end of the data, but source {endless[0]!r} "
            "never ends. Use hr.available_now() or hr.micro_batch().",
        )
    uncounted = [name for name in node.sources if not graph.sources[name].counts_rows]
    if uncounted and (mode.keep_up or mode.max_rows is not None):
        raise HeadraceError(
            "MAX_ROWS_UNSUPPORTED",
            f"flow {node.name!r}: {mode!r} bounds the rows of a batch, but source {uncounted[0]!r} cannot count "
            "rows ahead. Use files_per_batch=... of hr.read_files, or leave max_rows and keep_up out.",
        )


class Throttle:
    """Says how many rows of each source a batch of a flow may take."""

    def __init__(self, mode: Mode, *, last: HistoryEntry | None) -> None:
        self._pace: Pace | None = None
        self.cap = mode.max_rows
        """The most rows of a source that the next batch takes."""
        if mode.keep_up:
            earlier = last.cap if last is not None and last.cap is not None else FIRST_CAP
            self._pace = Pace(mode.interval / 1_000_000, earlier, mode.max_rows)
            self.cap = self._pace.cap

    def learn(self, *, rows: int, seconds: float) -> None:
        if self._pace is not None:
            self._pace.learn(rows=rows, seconds=seconds)
            self.cap = self._pace.cap
