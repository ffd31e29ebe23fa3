"""Counting windows in plain Python, slow and obviously right: the rows of each account one after the other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from tests.models.rows import Event

Results = dict[str | None, list[tuple[Any, ...]]]
"""What leaves for each account, in order: start and end of the window, then its aggregates."""


def counting(events: Iterable[Event], *, rows: int, ttl: int | None, keyed: bool = True) -> Results:
    """Every ``rows`` rows a window; what is unfinished leaves ``ttl`` after its last row."""
    results: Results = defaultdict(list)
    for account, own in by_account(events, keyed=keyed).items():
        window: list[Event] = []
        for event in own:
            if window and ttl is not None and event.time - window[-1].time >= ttl:
                results[account].append((window[0].time, window[-1].time + ttl, *aggregated(window)))
                window = []
            window.append(event)
            if len(window) == rows:
                results[account].append((window[0].time, event.time + 1, *aggregated(window)))
                window = []
        if window and ttl is not None:
            results[account].append((window[0].time, window[-1].time + ttl, *aggregated(window)))
    return dict(results)


def by_account(events: Iterable[Event], *, keyed: bool = True) -> dict[str | None, list[Event]]:
    """The rows of each account in the order of their times; those of one time as they arrived."""
    rows: defaultdict[str | None, list[Event]] = defaultdict(list)
    for event in sorted(events, key=lambda event: event.time):
        rows[event.account if keyed else None].append(event)
    return rows


def aggregated(events: list[Event]) -> tuple[Any, ...]:
    """Rows, known amounts, their sum, least and most."""
    known = [event.amount for event in events if event.amount is not None]
    least, most = (min(known), max(known)) if known else (None, None)
    return (len(events), len(known), sum(known) if known else None, least, most)
