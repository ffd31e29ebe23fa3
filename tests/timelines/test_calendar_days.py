"""Days as a calendar counts them, across both changes of daylight saving."""

from __future__ import annotations

import pytest

import headrace as hr
from headrace.operators.windows.fixed_windows import Tumbling
from headrace.testing import at, batch, clock, crash, expect, late_by, row, timeline, watermark


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


def test_a_beginning_that_clocks_skip_comes_as_much_later_as_they_skip() -> None:
    """02:30 in Berlin on the day on which 02:00 is followed by 03:00: it is 03:30, as in Java."""
    nights = hr.tumbling("nights", size="1 day", key="shop", time_zone="Europe/Berlin", offset="2 hours 30 minutes")
    timeline(
        nights.agg(n="count(*)").late(hr.side_output()),
        at("2026-03-28T01:30", shop="a"),  # 02:30
        at("2026-03-29T01:00", shop="a"),  # 03:00, when clocks have just jumped over 02:30
        at("2026-03-29T01:29:59.999999", shop="a"),
        at("2026-03-29T01:30", shop="a"),  # 03:30
        at("2026-03-30T00:29:59.999999", shop="a"),
        at("2026-03-30T00:30", shop="a"),  # 02:30 of summer
        watermark("2026-03-31T00:30"),
        expect(
            row(shop="a", window="2026-03-28T01:30/2026-03-29T01:30", n=3),
            row(shop="a", window="2026-03-29T01:30/2026-03-30T00:30", n=2),
            row(shop="a", window="2026-03-30T00:30/2026-03-31T00:30", n=1),
        ),
    )


def test_a_beginning_that_clocks_show_twice_comes_the_first_time() -> None:
    nights = hr.tumbling("nights", size="1 day", key="shop", time_zone="Europe/Berlin", offset="2 hours 30 minutes")
    timeline(
        nights.agg(n="count(*)").late(hr.side_output()),
        at("2026-10-25T00:29:59.999999", shop="a"),
        at("2026-10-25T00:30", shop="a"),  # 02:30 of summer
        at("2026-10-25T01:15", shop="a"),  # 02:15 of winter
        at("2026-10-25T01:30", shop="a"),  # 02:30 of winter
        watermark("2026-10-26T01:30"),
        expect(
            row(shop="a", window="2026-10-24T00:30/2026-10-25T00:30", n=1),
            row(shop="a", window="2026-10-25T00:30/2026-10-26T01:30", n=3),
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


daily = hr.tumbling("days", size="1 day", key="shop", time_zone="Europe/Berlin").agg(n="count(*)", sold="sum(amount)")
SHORT, LONG = "2026-03-28T23:00/2026-03-29T22:00", "2026-10-24T22:00/2026-10-25T23:00"
"""The days of 23 and of 25 hours."""


@pytest.mark.spark
def test_a_day_of_23_hours_is_corrected_from_its_own_end_on_and_after_a_crash_too() -> None:
    timeline(
        daily.late(hr.update_for("2 hours")),
        at("2026-03-29T00:30", shop="a", amount=1),
        at("2026-03-29T21:59", shop="a", amount=2),
        crash(),
        batch(),
        watermark("2026-03-29T21:59:59.999999"),
        expect(),
        watermark("2026-03-29T22:00"),
        expect(shop="a", window=SHORT, n=2, sold=3, pane="on_time", revision=0),
        at("2026-03-29T01:30", shop="a", amount=4),
        at("2026-03-29T22:00", shop="a", amount=8),
        crash(),
        batch(),
        expect(shop="a", window=SHORT, n=3, sold=7, pane="late", revision=1),
        watermark("2026-03-29T23:59:59.999999"),
        at("2026-03-28T23:00", shop="a", amount=16),
        batch(),
        expect(shop="a", window=SHORT, n=4, sold=23, pane="late", revision=2),
        watermark("2026-03-30T00:00"),
        at("2026-03-29T21:00", shop="a", amount=32),
        batch(),
        expect(),
        expect(shop="a", amount=32, late_by=late_by("3 hours"), output="late"),
        watermark("2026-03-30T22:00"),
        expect(shop="a", window="2026-03-29T22:00/2026-03-30T22:00", n=1, sold=8, pane="on_time", revision=0),
    )


def test_a_day_of_25_hours_is_corrected_from_its_own_end_on_and_after_a_crash_too() -> None:
    timeline(
        daily.late(hr.update_for("2 hours")),
        at("2026-10-24T22:00", shop="a", amount=1),
        watermark("2026-10-25T22:00"),
        at("2026-10-25T01:30", shop="a", amount=2),
        crash(),
        batch(),
        expect(),
        watermark("2026-10-25T23:00"),
        expect(shop="a", window=LONG, n=2, sold=3, pane="on_time", revision=0),
        at("2026-10-25T22:30", shop="a", amount=4),
        crash(),
        batch(),
        expect(shop="a", window=LONG, n=3, sold=7, pane="late", revision=1),
        watermark("2026-10-26T01:00"),
        at("2026-10-25T22:30", shop="a", amount=8),
        batch(),
        expect(),
        expect(shop="a", amount=8, late_by=late_by("150 minutes"), output="late"),
    )


@pytest.mark.spark
def test_a_day_of_25_hours_is_shown_by_the_clock_up_to_its_last_hour() -> None:
    timeline(
        daily.emit(hr.on_close(early=hr.every("10 seconds"))).late(hr.side_output()),
        clock("2026-10-25T12:00:01"),
        at("2026-10-25T00:30", shop="a", amount=1),
        crash(),
        batch(),
        expect(),
        clock("2026-10-25T12:00:10"),
        batch(),
        expect(shop="a", window=LONG, n=1, sold=1, pane="early", revision=0),
        watermark("2026-10-25T22:00"),
        at("2026-10-25T22:59", shop="a", amount=2),
        crash(),
        batch(),
        expect(),
        clock("2026-10-25T12:00:20"),
        batch(),
        expect(shop="a", window=LONG, n=2, sold=3, pane="early", revision=1),
        watermark("2026-10-25T23:00"),
        expect(shop="a", window=LONG, n=2, sold=3, pane="on_time", revision=2),
        clock("2026-10-25T12:01"),
        batch(),
        expect(),
    )


def test_previews_by_event_time_come_at_whole_multiples_of_utc_and_end_with_a_day_of_23_hours() -> None:
    timeline(
        daily.emit(hr.on_close(early=hr.every("12 hours", time="event"))).late(hr.side_output()),
        at("2026-03-28T23:30", shop="a", amount=1),
        watermark("2026-03-28T23:59:59.999999"),
        expect(),
        watermark("2026-03-29T00:00"),
        expect(shop="a", window=SHORT, n=1, sold=1, pane="early", revision=0),
        at("2026-03-29T00:30", shop="a", amount=4),
        watermark("2026-03-29T11:59:59.999999"),
        expect(),
        crash(),
        watermark("2026-03-29T12:00"),
        expect(shop="a", window=SHORT, n=2, sold=5, pane="early", revision=1),
        at("2026-03-29T12:00", shop="a", amount=2),
        watermark("2026-03-29T22:00"),
        expect(shop="a", window=SHORT, n=3, sold=7, pane="on_time", revision=2),
        watermark("2026-03-29T23:00"),
        expect(),
    )


def test_discarding_panes_of_a_day_of_25_hours_add_up_across_crashes() -> None:
    timeline(
        daily.emit(hr.on_update()).panes(hr.discarding()).late(hr.update_for("1 hour")),
        at("2026-10-25T00:30", shop="a", amount=1),
        crash(),
        batch(),
        expect(shop="a", window=LONG, n=1, sold=1, pane="early", revision=0),
        watermark("2026-10-25T22:00"),
        at("2026-10-25T22:30", shop="a", amount=2),
        crash(),
        batch(),
        expect(shop="a", window=LONG, n=1, sold=2, pane="early", revision=1),
        watermark("2026-10-25T23:00"),
        expect(shop="a", window=LONG, n=0, sold=None, pane="on_time", revision=2),
        at("2026-10-25T01:30", shop="a", amount=4),
        crash(),
        batch(),
        expect(shop="a", window=LONG, n=1, sold=4, pane="late", revision=3),
    )


def test_retracting_panes_of_a_day_of_23_hours_take_back_what_they_gave_across_crashes() -> None:
    timeline(
        daily.emit(hr.on_close(early=hr.after_rows(1))).panes(hr.retracting()).late(hr.update_for("1 hour")),
        at("2026-03-29T00:59", shop="a", amount=1),
        crash(),
        batch(),
        expect(shop="a", window=SHORT, n=1, sold=1, pane="early", revision=0, change="insert"),
        at("2026-03-29T01:00", shop="a", amount=2),
        watermark("2026-03-29T22:00"),
        expect(
            row(shop="a", window=SHORT, n=1, sold=1, pane="early", revision=0, change="update_before"),
            row(shop="a", window=SHORT, n=2, sold=3, pane="early", revision=1, change="update_after"),
            row(shop="a", window=SHORT, n=2, sold=3, pane="early", revision=1, change="update_before"),
            row(shop="a", window=SHORT, n=2, sold=3, pane="on_time", revision=2, change="update_after"),
        ),
        at("2026-03-29T21:59", shop="a", amount=4),
        crash(),
        batch(),
        expect(
            row(shop="a", window=SHORT, n=2, sold=3, pane="on_time", revision=2, change="update_before"),
            row(shop="a", window=SHORT, n=3, sold=7, pane="late", revision=3, change="update_after"),
        ),
        expect(output="late"),
    )
