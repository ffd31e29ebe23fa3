"""Which window a time falls into, against plain Python."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.operators.windows.assigners import (
    DAY,
    CalendarWindows,
    CumulatingWindows,
    FixedWindows,
    HoppingWindows,
    Windows,
)
from headrace.operators.windows.fixed_windows import tumbling

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


def calendar(size: str, zone: str, offset: str | None = None) -> Windows:
    return tumbling("days", size=size, key=None, offset=offset, time_zone=zone).windows


def bounds(windows: Windows, times: list[int]) -> list[tuple[int, int]]:
    ends = pl.DataFrame({"time": times}, schema={"time": pl.Int64}).select(windows.pane(pl.col("time")).alias("end"))
    return ends.select(windows.start(pl.col("end")).alias("start"), "end").rows()


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
    found = bounds(CalendarWindows(days * DAY, f"{days}d", zone), times)
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
    windows = CalendarWindows(days * DAY, f"{days}d", zone)
    whole = [(time.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1) for time in times]
    for time, (start, end) in zip(whole, bounds(windows, whole), strict=True):
        assert start <= time < end
        assert bounds(windows, [start, end - 1, end])[:2] == [(start, end), (start, end)]
        assert bounds(windows, [end])[0][0] == end


@given(
    size=st.integers(1, 10**6),
    hops=st.integers(1, 12),
    share=st.floats(-0.999, 0.999),
    times=st.lists(st.integers(-(10**15), 10**15), min_size=1, max_size=10),
)
def test_a_pane_knows_every_hopping_window_that_covers_its_times(
    size: int, hops: int, share: float, times: list[int]
) -> None:
    every = max(1, size // hops)
    offset = int(every * share)
    windows = HoppingWindows(size, every, offset)
    for time in times:
        first = (time - offset - size) // every - 1
        starts = [offset + number * every for number in range(first, first + hops * 3 + 6)]
        covering = [start + size for start in starts if start <= time < start + size]
        check_windows(windows, time, covering)


@given(
    step=st.integers(1, 10**5),
    steps=st.integers(1, 12),
    share=st.floats(-0.999, 0.999),
    times=st.lists(st.integers(-(10**15), 10**15), min_size=1, max_size=10),
)
def test_a_step_knows_every_cumulating_window_that_covers_its_times(
    step: int, steps: int, share: float, times: list[int]
) -> None:
    size = step * steps
    offset = int(size * share)
    windows = CumulatingWindows(step, size, offset)
    for time in times:
        begin = (time - offset) // size * size + offset
        covering = [begin + number * step for number in range(1, steps + 1) if begin + number * step > time]
        check_windows(windows, time, covering)
        found = pl.select(windows.start(pl.lit(pl.Series(covering))))
        assert set(found.to_series()) == {begin}


def check_windows(windows: Windows, time: int, covering: list[int]) -> None:
    pane = windows.pane(pl.lit(time, pl.Int64))
    found = pl.select(all=windows.all(pane), first=windows.first(pane), last=windows.last(pane)).row(0)
    assert found == (covering, covering[0], covering[-1])


@pytest.mark.parametrize("zone", ZONES)
def test_weeks_begin_on_mondays_and_an_offset_moves_the_beginning_of_a_day(zone: str) -> None:
    times = [
        int((datetime(2025, 1, 1, tzinfo=UTC) + timedelta(hours=hour) - EPOCH).total_seconds()) * 1_000_000
        for hour in range(0, 2 * 8760, 7)
    ]
    for time, (start, end) in zip(times, bounds(calendar("1 week", zone), times), strict=True):
        assert start <= time < end
        for moment in (start, end):
            shown = (EPOCH + timedelta(microseconds=moment)).astimezone(ZoneInfo(zone))
            assert shown.weekday() == 0
    from_six = calendar("1 day", zone, offset="6 hours")
    for time, (start, end) in zip(times, bounds(from_six, times), strict=True):
        assert start <= time < end
        for moment in (start, end):
            shown = (EPOCH + timedelta(microseconds=moment)).astimezone(ZoneInfo(zone))
            assert (shown.hour, shown.minute) == (6, 0)


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("months", [1, 3, 7, 12])
def test_months_begin_at_the_first_moment_of_their_first_day(zone: str, months: int) -> None:
    times = [
        int((datetime(2024, 1, 1, tzinfo=UTC) + timedelta(hours=hour) - EPOCH).total_seconds()) * 1_000_000
        for hour in range(0, 2 * 8760, 11)
    ]
    windows = calendar(f"{months} months", zone)
    for time, (start, end) in zip(times, bounds(windows, times), strict=True):
        local = (EPOCH + timedelta(microseconds=time)).astimezone(ZoneInfo(zone)).date()
        begun = (local.year * 12 + local.month - 1) // months * months
        for month, moment in ((begun, start), (begun + months, end)):
            assert moment == first_moment(date(month // 12, month % 12 + 1, 1), zone)


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("offset", [0, 30, 90, 150, 180, 23 * 60 + 30, -90])
def test_windows_that_begin_while_clocks_change_hold_their_times_and_follow_each_other(zone: str, offset: int) -> None:
    """Every half hour of 2026: a beginning may lie in the hour that comes twice, or in the one that never comes."""
    half_hours = range(0, 8760 * 3_600_000_000, 1_800_000_000)
    begin = int((datetime(2026, 1, 1, tzinfo=UTC) - EPOCH).total_seconds()) * 1_000_000
    times = [begin + passed for passed in half_hours]
    for windows in (calendar(size, zone, f"{offset} minutes") for size in ("1 day", "1 month")):
        found = bounds(windows, times)
        assert all(start <= time < end for time, (start, end) in zip(times, found, strict=True))
        in_order = list(dict.fromkeys(found))
        assert all(one[1] == next_one[0] for one, next_one in pairwise(in_order))
