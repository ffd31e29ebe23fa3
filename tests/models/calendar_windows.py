"""Days, weeks and months of a time zone in plain Python: the moments at which they begin, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cache
from itertools import pairwise
from zoneinfo import ZoneInfo

from tests.models.fixed_windows import Covering, Window
from tests.models.rows import micros

FIRST, LAST = date(2026, 1, 1), date(2026, 12, 31)
"""Windows that begin in this year are known."""


@cache
def calendar(size: str, zone: str, offset: timedelta = timedelta(0)) -> Covering:
    """The one window that begins when the zone's clocks show midnight of its first day, moved by the offset."""
    begins = [first_moment(datetime(day.year, day.month, day.day) + offset, zone) for day in first_days(size)]

    def covering(time: int) -> list[Window]:
        found = [(start, end) for start, end in pairwise(begins) if start <= time < end]
        assert len(found) == 1
        return found

    return covering


def first_days(size: str) -> Iterator[date]:
    """The first day of every window."""
    for number in range((LAST - FIRST).days + 1):
        day = FIRST + timedelta(days=number)
        if size == "1 day" or (size == "1 week" and day.weekday() == 0) or (size == "1 month" and day.day == 1):
            yield day


def first_moment(shown: datetime, zone: str) -> int:
    """The first moment at which clocks of the zone show a time; if they jump over it, as if they had not yet jumped."""
    return micros(shown.replace(tzinfo=ZoneInfo(zone), fold=0).astimezone(UTC))
