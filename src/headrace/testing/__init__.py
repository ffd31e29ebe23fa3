"""Tests that users write: timelines of events, watermarks and crashes, with the exact rows they must give."""

from headrace.testing.comparison import late_by
from headrace.testing.elements import at, batch, clock, crash, expect, row, table, watermark
from headrace.testing.play import Played, play, timeline, use_engine

__all__ = [
    "Played",
    "at",
    "batch",
    "clock",
    "crash",
    "expect",
    "late_by",
    "play",
    "row",
    "table",
    "timeline",
    "use_engine",
    "watermark",
]
