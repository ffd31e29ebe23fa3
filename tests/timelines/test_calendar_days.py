"""Days as a calendar counts them, across both changes of daylight saving."""

from __future__ import annotations

import pytest

import headrace as hr
from headrace.operators.windows.fixed.tumbling import Tumbling
from headrace.testing import at, expect, row, timeline, watermark


def days(zone: str, size: str = "1 day") -> Tumbling:
    return hr.tumbling("days", size=size, key="shop", time_zone=zone).agg(n="count(*)").late(hr.side_output())


def test_a_day_begins_and_ends_at_midnight_of_the_time_zone() -> None:
    timeline(
        days("Europe/Berlin"),
        at("2025-12-31T22:59:59.999999", shop="a"),
        at("2025-12-31T23:00", shop="a"),
        at("2026-01-01T22:59:59.999999", shop="a"),
        watermark("2026-01-01T22:59:59.999999"),
        expect(shop="a", window="2025-12-30T23:00/2025-12-31T23:00", n=1),
        watermark("2026-01-01T23:00"),
        expect(shop="a", window="2025-12-31T23:00/2026-01-01T23:00", n=2),
    )


@pytest.mark.spark
def test_the_day_on_which_clocks_go_forward_has_23_hours_in_berlin() -> None:
    timeline(
        days("Europe/Berlin"),
        at("2026-03-28T22:59", shop="a"),
        at("2026-03-28T23:00", shop="a"),
        at("2026-03-29T21:59:59.999999", shop="a"),
        at("2026-03-29T22:00", shop="a"),
        watermark("2026-03-30T22:00"),
        expect(
            row(shop="a", window="2026-03-27T23:00/2026-03-28T23:00", n=1),
            row(shop="a", window="2026-03-28T23:00/2026-03-29T22:00", n=2),
            row(shop="a", window="2026-03-29T22:00/2026-03-30T22:00", n=1),
        ),
    )


def test_the_day_on_which_clocks_go_back_has_25_hours_in_berlin() -> None:
    timeline(
        days("Europe/Berlin"),
        at("2026-10-24T22:00", shop="a"),
        # 02:30 comes twice that night.
        at("2026-10-25T00:30", shop="a"),
        at("2026-10-25T01:30", shop="a"),
        at("2026-10-25T22:59:59.999999", shop="a"),
        at("2026-10-25T23:00", shop="a"),
        watermark("2026-10-25T22:59:59.999999"),
        expect(),
        watermark("2026-10-25T23:00"),
        expect(shop="a", window="2026-10-24T22:00/2026-10-25T23:00", n=4),
    )


@pytest.mark.parametrize(
    ("inside", "window"),
    [
        ("2026-03-08T12:00", "2026-03-08T05:00/2026-03-09T04:00"),
        ("2026-11-01T12:00", "2026-11-01T04:00/2026-11-02T05:00"),
        ("2026-07-01T03:59:59.999999", "2026-06-30T04:00/2026-07-01T04:00"),
    ],
)
def test_days_in_new_york(inside: str, window: str) -> None:
    timeline(
        days("America/New_York"), at(inside, shop="a"), watermark("2027-01-01"), expect(shop="a", window=window, n=1)
    )


def test_where_clocks_jump_at_midnight_the_day_begins_at_one_o_clock() -> None:
    timeline(
        days("America/Havana"),
        # 2026-03-08 has no midnight: 23:59 is followed by 01:00.
        at("2026-03-08T04:59:59.999999", shop="a"),
        at("2026-03-08T05:00", shop="a"),
        at("2026-03-09T03:59:59.999999", shop="a"),
        watermark("2026-03-08T05:00"),
        expect(shop="a", window="2026-03-07T05:00/2026-03-08T05:00", n=1),
        watermark("2026-03-09T04:00"),
        expect(shop="a", window="2026-03-08T05:00/2026-03-09T04:00", n=2),
    )


def test_where_midnight_comes_twice_the_day_begins_at_the_first() -> None:
    timeline(
        days("America/Havana"),
        # 2026-11-01: 00:59 in summer time is followed by 00:00.
        at("2026-11-01T03:59:59.999999", shop="a"),
        at("2026-11-01T04:00", shop="a"),
        at("2026-11-01T05:00", shop="a"),
        at("2026-11-02T04:59:59.999999", shop="a"),
        watermark("2026-11-02T05:00"),
        expect(
            row(shop="a", window="2026-10-31T04:00/2026-11-01T04:00", n=1),
            row(shop="a", window="2026-11-01T04:00/2026-11-02T05:00", n=3),
        ),
    )


def test_where_the_last_hour_of_a_day_comes_twice_the_day_has_25_hours() -> None:
    timeline(
        days("Asia/Beirut"),
        # 2026-10-24: at 24:00 in summer time it is 23:00 again.
        at("2026-10-24T21:30", shop="a"),
        at("2026-10-24T22:00", shop="a"),
        # 2026-03-29 has no midnight.
        at("2026-03-28T21:59", shop="b"),
        at("2026-03-28T22:00", shop="b"),
        watermark("2026-10-25T22:00"),
        expect(
            row(shop="a", window="2026-10-23T21:00/2026-10-24T22:00", n=1),
            row(shop="a", window="2026-10-24T22:00/2026-10-25T22:00", n=1),
            row(shop="b", window="2026-03-27T22:00/2026-03-28T22:00", n=1),
            row(shop="b", window="2026-03-28T22:00/2026-03-29T21:00", n=1),
        ),
    )


def test_weeks_begin_on_mondays() -> None:
    timeline(
        days("Europe/Berlin", "1 week"),
        # 2026-03-23 is a Monday; the clocks change on the 29th.
        at("2026-03-22T22:59:59.999999", shop="a"),
        at("2026-03-22T23:00", shop="a"),
        at("2026-03-29T21:59:59.999999", shop="a"),
        watermark("2026-03-29T22:00"),
        expect(
            row(shop="a", window="2026-03-15T23:00/2026-03-22T23:00", n=1),
            row(shop="a", window="2026-03-22T23:00/2026-03-29T22:00", n=2),
        ),
    )


def test_an_offset_moves_the_beginning_of_a_week_or_a_day() -> None:
    sundays = hr.tumbling("weeks", size="1 week", key="shop", time_zone="Europe/Berlin", offset="-1 day")
    timeline(
        sundays.agg(n="count(*)").late(hr.side_output()),
        at("2026-03-21T22:59:59.999999", shop="a"),
        at("2026-03-21T23:00", shop="a"),
        watermark("2026-03-29T00:00"),
        expect(
            row(shop="a", window="2026-03-14T23:00/2026-03-21T23:00", n=1),
            row(shop="a", window="2026-03-21T23:00/2026-03-28T23:00", n=1),
        ),
    )
    mornings = hr.tumbling("days", size="1 day", key="shop", time_zone="Europe/Berlin", offset="6 hours")
    timeline(
        mornings.agg(n="count(*)").late(hr.side_output()),
        at("2026-03-28T05:00", shop="a"),
        at("2026-03-29T03:59:59.999999", shop="a"),
        at("2026-03-29T04:00", shop="a"),
        watermark("2026-03-30T04:00"),
        expect(
            row(shop="a", window="2026-03-28T05:00/2026-03-29T04:00", n=2),
            row(shop="a", window="2026-03-29T04:00/2026-03-30T04:00", n=1),
        ),
    )


@pytest.mark.spark
def test_months_are_as_long_as_the_calendar_says() -> None:
    timeline(
        days("Europe/Berlin", "1 month"),
        at("2026-01-31T22:59:59.999999", shop="a"),
        at("2026-01-31T23:00", shop="a"),
        at("2026-02-28T22:59:59.999999", shop="a"),
        at("2026-03-31T21:59:59.999999", shop="a"),
        watermark("2026-03-31T22:00"),
        expect(
            row(shop="a", window="2025-12-31T23:00/2026-01-31T23:00", n=1),
            row(shop="a", window="2026-01-31T23:00/2026-02-28T23:00", n=2),
            row(shop="a", window="2026-02-28T23:00/2026-03-31T22:00", n=1),
        ),
    )


def test_months_without_a_time_zone_are_refused() -> None:
    with pytest.raises(hr.DefinitionError, match=r"\[CALENDAR_NEEDS_DAYS\] window 'm': size='1 month'"):
        hr.tumbling("m", size="1 month", key="shop")


def test_several_days_before_1970_are_counted_backwards() -> None:
    timeline(
        days("UTC", "2 days"),
        at("1969-12-29T12:00", shop="a"),
        at("1969-12-30T00:00", shop="a"),
        at("1969-12-31T23:59", shop="a"),
        watermark("1970-01-01"),
        expect(
            row(shop="a", window="1969-12-28T00:00/1969-12-30T00:00", n=1),
            row(shop="a", window="1969-12-30T00:00/1970-01-01T00:00", n=2),
        ),
    )


def test_without_a_time_zone_a_day_is_24_hours_of_utc() -> None:
    plain = hr.tumbling("days", size="1 day", key="shop").agg(n="count(*)").late(hr.side_output())
    timeline(
        plain,
        at("2026-03-29T12:00", shop="a"),
        watermark("2026-03-30T00:00"),
        expect(shop="a", window="2026-03-29T00:00/2026-03-30T00:00", n=1),
    )


def test_a_zone_that_left_out_a_whole_day_has_no_window_for_it() -> None:
    """Samoa crossed the date line: the day after 29 December 2011 was the 31st."""
    timeline(
        hr.tumbling("daily", size="1 day", key="account", time_zone="Pacific/Apia").agg(n="count(*)").late(hr.drop()),
        at("2011-12-30T09:59", account="a"),
        at("2011-12-30T10:00", account="a"),
        watermark("2012-01-05T00:00"),
        expect(
            row(account="a", window="2011-12-29T10:00/2011-12-30T10:00", n=1),
            row(account="a", window="2011-12-30T10:00/2011-12-31T10:00", n=1),
        ),
    )


def test_a_jump_of_a_quarter_of_an_hour_at_midnight_moves_the_beginning_of_the_day() -> None:
    """Nepal set its clocks from midnight to a quarter past on 1 January 1986."""
    timeline(
        hr.tumbling("daily", size="1 day", key="account", time_zone="Asia/Kathmandu").agg(n="count(*)").late(hr.drop()),
        at("1985-12-31T18:29", account="a"),
        at("1985-12-31T18:30", account="a"),
        watermark("1986-01-05T00:00"),
        expect(
            row(account="a", window="1985-12-30T18:30/1985-12-31T18:30", n=1),
            row(account="a", window="1985-12-31T18:30/1986-01-01T18:15", n=1),
        ),
    )
