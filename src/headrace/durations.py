"""Durations: text or timedelta outside, integer microseconds inside.

Text is words (``1 hour 30 minutes``), short units (``1h30m``) or ISO 8601 (``PT1H30M``).
"""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal

from headrace.errors import DefinitionError

Duration = str | timedelta

MICROSECONDS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
LONGEST = 400_000 * MICROSECONDS["day"]
"""A little more than a thousand years, so that no end of a window is out of range."""
_WRITTEN = {
    "microsecond": "us", "millisecond": "ms", "second": "s|sec|secs", "minute": "m|min|mins", "hour": "h|hr|hrs",
    "day": "d", "week": "w",
}  # fmt: skip
_SHORT = {short: unit for unit, written in _WRITTEN.items() for short in written.split("|")}
"""Only in lower case, because M could be months."""
_UNIT = rf"(?:((?i:{'|'.join(MICROSECONDS)}))(?i:s?)|({'|'.join(_SHORT)}))"
_PART = re.compile(rf"\s*(-?\d+(?:\.\d+)?)\s*{_UNIT}\s*(?:,|$|(?=[-\d]))")
_PARTS = re.compile(f"(?:{_PART.pattern})+")
_ISO_UNITS = ("week", "day", "hour", "minute", "second")
_WEEKS, _DAYS, _HOURS, _MINUTES, _SECONDS = (rf"(?:(\d+(?:\.\d+)?){letter})?" for letter in "WDHMS")
_ISO = re.compile(rf"\s*(-?)P(?=\d|T){_WEEKS}{_DAYS}(?:T(?=\d){_HOURS}{_MINUTES}{_SECONDS})?\s*", re.IGNORECASE)
_OF_A_CALENDAR = re.compile(r"\d\s*(?:months?|quarters?|years?|mo|y)\b|P[^T]*\d[MY]", re.IGNORECASE)
_CAPITAL = re.compile(r"^[^P]*\d\s*(?:M|H|D|W|S|MS|US)\b")


def microseconds(duration: Duration, *, argument: str) -> int:
    """A duration as whole microseconds; ``argument`` names it in the error.

    >>> [microseconds(text, argument="size") for text in ("90 seconds", "1m30s", "PT1M30S")]
    [90000000, 90000000, 90000000]
    """
    if isinstance(duration, timedelta):
        return duration // timedelta(microseconds=1)
    if isinstance(duration, str) and _PARTS.fullmatch(duration) is not None:
        parts = [(number, _SHORT.get(short, long.lower())) for number, long, short in _PART.findall(duration)]
        return round(sum(Decimal(number) * MICROSECONDS[unit] for number, unit in parts))
    if isinstance(duration, str) and (found := _ISO.fullmatch(duration)) is not None:
        numbers = zip(found.groups("0")[1:], _ISO_UNITS, strict=True)
        length = sum(Decimal(number) * MICROSECONDS[unit] for number, unit in numbers)
        return round(-length if found[1] else length)
    raise _unreadable(duration, argument)


def is_duration(text: str) -> bool:
    """Whether a text is written as a duration.

    >>> is_duration("PT1H"), is_duration("expires")
    (True, False)
    """
    return (_PARTS.fullmatch(text) or _ISO.fullmatch(text)) is not None


def positive_microseconds(duration: Duration, *, argument: str) -> int:
    """A duration that must be positive."""
    length = microseconds(duration, argument=argument)
    if length <= 0:
        raise DefinitionError(
            "DURATION_NOT_POSITIVE",
            f"{argument}={duration!r} must be greater than zero. "
            f"Give a positive duration, as in {argument}='1 minute'.",
        )
    return not_too_long(length, duration, argument=argument)


def not_too_long(length: int, duration: Duration, *, argument: str) -> int:
    """A length in microseconds, refused when timestamps so far apart would be out of range."""
    if length > LONGEST:
        raise DefinitionError(
            "DURATION_TOO_LONG",
            f"{argument}={duration!r} is more than 400,000 days, and such timestamps are out of range. "
            f"Give a shorter duration, as in {argument}='400000 days' (over a thousand years).",
        )
    return length


def spoken(length: int) -> str:
    """Microseconds as text that can be given as a duration again; weeks only where nothing is left over."""
    if length == 0:
        return "0 seconds"
    rest, parts = abs(length), []
    for unit, size in sorted(MICROSECONDS.items(), key=lambda item: -item[1]):
        if unit == "week" and rest % size:
            continue
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count} {unit}{'s' if count > 1 else ''}")
    return " ".join(f"-{part}" for part in parts) if length < 0 else " ".join(parts)


def _unreadable(duration: object, argument: str) -> DefinitionError:
    units = ", ".join(MICROSECONDS)
    advice = (
        f"Write a number and a unit, as in '10 seconds' or '1 hour 30 minutes'; units are {units}. '90s', '1h30m' "
        "(m is minutes) and 'PT1H30M' are durations too."
    )
    if isinstance(duration, str) and _OF_A_CALENDAR.search(duration):
        advice = (
            "Months, quarters and years differ in length: only hr.tumbling(..., time_zone='Europe/Berlin') takes them, "
            "as whole months, quarters or years alone, as in size='1 month'. Elsewhere write '30 days'."
        )
    elif isinstance(duration, str) and _CAPITAL.search(duration):
        advice = "Short units are lower-case, because M could be months: write '5m' for 5 minutes, '30d' for 30 days."
    return DefinitionError("DURATION_UNREADABLE", f"{argument}={duration!r} is not a duration. {advice}")
