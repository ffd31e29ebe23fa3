"""Times as timelines write them: bare ones are on 2026-01-01, UTC."""

from __future__ import annotations

from datetime import UTC, datetime

from headrace.event_time.strategy import instant

DAY = "2026-01-01"
Moment = str | datetime


def moment(given: Moment) -> int:
    """A time as microseconds since the epoch.

    >>> moment("10:05") == moment("2026-01-01T10:05:00Z")
    True
    """
    if isinstance(given, str) and "-" not in given:
        given = f"{DAY}T{given if given.count(':') > 0 else given + ':00'}"
    return instant(given, argument="time")


def shown(time: int | datetime) -> str:
    """A time as timelines write it.

    >>> shown(moment("10:05:30"))
    '10:05:30'
    """
    when = datetime.fromtimestamp(time / 1_000_000, UTC) if isinstance(time, int) else time.astimezone(UTC)
    clock = when.strftime("%H:%M" if not (when.second or when.microsecond) else "%H:%M:%S")
    clock += f".{when.microsecond:06d}".rstrip("0") if when.microsecond else ""
    return clock if when.strftime("%Y-%m-%d") == DAY else f"{when.strftime('%Y-%m-%d')}T{clock}"


def shown_window(window: dict[str, datetime]) -> str:
    """A window as timelines write it: ``10:00/11:00``."""
    return f"{shown(window['start'])}/{shown(window['end'])}"
