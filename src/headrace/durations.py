"""Durations: text or timedelta outside, integer microseconds inside."""

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
_PART = re.compile(rf"\s*(-?\d+(?:\.\d+)?)\s*({'|'.join(MICROSECONDS)})s?\s*(?:,|$|(?=[-\d]))", re.IGNORECASE)
_PARTS = re.compile(f"(?:{_PART.pattern})+", re.IGNORECASE)
_OF_A_CALENDAR = re.compile(r"\d\s*(month|quarter|year)s?\b", re.IGNORECASE)


def microseconds(duration: Duration, *, argument: str) -> int:
    """A duration as whole microseconds; ``argument`` names it in the error."""
    if isinstance(duration, timedelta):
        return duration // timedelta(microseconds=1)
    if not isinstance(duration, str) or _PARTS.fullmatch(duration) is None:
        raise _unreadable(duration, argument)
    parts = _PART.findall(duration)
    return round(sum(Decimal(number) * MICROSECONDS[unit.casefold()] for number, unit in parts))


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
    advice = f"Write a number and a unit, as in '10 seconds' or '1 hour 30 minutes'; units are {units}."
    if isinstance(duration, str) and _OF_A_CALENDAR.search(duration):
        advice = (
            "Months, quarters and years differ in length: only hr.tumbling(..., time_zone='Europe/Berlin') takes them, "
            "as whole months, quarters or years alone, as in size='1 month'. Elsewhere write '30 days'."
        )
    return DefinitionError("DURATION_UNREADABLE", f"{argument}={duration!r} is not a duration. {advice}")
