"""Which window a time falls into, against plain Python."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.operators.windows.assigners import CalendarDays, FixedWindows, Windows

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/Havana",
    "Asia/Beirut",
    "Asia/Kolkata",
    "Australia/Lord_Howe",
    "Pacific/Kiritimati",
    "America/Sao_Paulo",
    "Asia/Tehran",
]


def bounds(windows: Windows, times: list[int]) -> list[tuple[int, int]]:
    starts = pl.DataFrame({"time": times}, schema={"time": pl.Int64}).select(
        windows.start(pl.col("time")).alias("start")
    )
    return starts.select("start", windows.end(pl.col("start")).alias("end")).rows()


@given(
    size=st.integers(1, 10**12),
    share=st.floats(-0.999, 0.999),
    times=st.lists(st.integers(-(10**17), 10**17), min_size=1, max_size=20),
)
def test_fixed_windows_hold_their_times_and_meet_at_the_offset(size: int, share: float, times: list[int]) -> None:
    offset = int(size * share)
    for time, (start, end) in zip(times, bounds(FixedWindows(size, offset), times), strict=True):
        assert start <= time < end
        assert end - start == size
        assert (start - offset) % size == 0


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("days", [1, 2, 7])
def test_calendar_days_begin_at_the_first_moment_of_their_date(zone: str, days: int) -> None:
    """Every third hour of 2017 to 2018 and of 2025 to 2026, so both changes of every zone are in it."""
    times = [
        int((datetime(year, 1, 1, tzinfo=UTC) + timedelta(hours=hour) - EPOCH).total_seconds()) * 1_000_000
        for year in (2017, 2025)
        for hour in range(0, 2 * 8760, 3)
    ]
    found = bounds(CalendarDays(days, zone), times)
    first_moments: dict[date, int] = {}
    for time, (start, end) in zip(times, found, strict=True):
        local = (EPOCH + timedelta(microseconds=time)).astimezone(ZoneInfo(zone)).date()
        first = local - timedelta(days=(local - date(1970, 1, 1)).days % days)
        for day, moment in ((first, start), (first + timedelta(days=days), end)):
            if day not in first_moments:
                first_moments[day] = first_moment(day, zone)
            assert moment == first_moments[day], (zone, local)


def first_moment(day: date, zone: str) -> int:
    """The first quarter of an hour that the zone's clocks show as this date."""
    moment = datetime(day.year, day.month, day.day, tzinfo=UTC) - timedelta(hours=15)
    while moment.astimezone(ZoneInfo(zone)).date() < day:
        moment += timedelta(minutes=15)
    return (moment - EPOCH) // timedelta(microseconds=1)


@given(
    zone=st.sampled_from(ZONES),
    days=st.integers(1, 31),
    times=st.lists(st.datetimes(datetime(1995, 1, 1), datetime(2037, 12, 31)), min_size=1, max_size=20),
)
def test_calendar_days_hold_their_times_and_follow_each_other_without_a_gap(
    zone: str, days: int, times: list[datetime]
) -> None:
    windows = CalendarDays(days, zone)
    whole = [(time.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1) for time in times]
    for time, (start, end) in zip(whole, bounds(windows, whole), strict=True):
        assert start <= time < end
        assert bounds(windows, [start, end - 1, end])[:2] == [(start, end), (start, end)]
        assert bounds(windows, [end])[0][0] == end
