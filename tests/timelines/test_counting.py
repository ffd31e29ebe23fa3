"""Counting windows: which rows are in one, when it leaves, and what becomes of one that is never full."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace.operators.windows.triggered_windows import Counting
from headrace.testing import at, batch, crash, expect, late_by, play, row, timeline, watermark


def threes(**more: Any) -> Counting:
    given = {"key": "account", "ttl": "1 hour", **more}
    step = hr.counting("threes", rows=3, **given).agg(n="count(*)", spent="sum(amount)")
    return step.late(hr.side_output())


@pytest.mark.spark
def test_every_three_rows_of_a_key_are_a_window_in_the_order_of_event_time() -> None:
    timeline(
        threes(),
        at("10:05", account="a", amount=5),
        at("10:01", account="a", amount=1),
        at("10:03", account="b", amount=30),
        at("10:06", account="a", amount=6),
        at("10:02", account="a", amount=2),
        at("10:03", account="a", amount=3),
        at("10:04", account="a", amount=4),
        watermark("10:10"),
        expect(
            row(account="a", window="10:01/10:03:00.000001", n=3, spent=6, pane="on_time", revision=0),
            row(account="a", window="10:04/10:06:00.000001", n=3, spent=15, pane="on_time", revision=0),
        ),
        expect(output="late"),
    )


def test_a_row_is_taken_once_event_time_has_passed_it_and_not_when_it_has_reached_it() -> None:
    timeline(
        threes(),
        at("10:01", account="a", amount=1),
        at("10:02", account="a", amount=2),
        at("10:03", account="a", amount=3),
        watermark("10:03"),
        expect(),
        watermark("10:03:00.000001"),
        expect(account="a", window="10:01/10:03:00.000001", n=3, spent=6),
    )


def test_a_row_at_the_watermark_is_on_time_and_takes_its_place_in_the_order() -> None:
    timeline(
        threes(),
        at("10:01", account="a", amount=1),
        at("10:04", account="a", amount=4),
        watermark("10:03"),
        at("10:03", account="a", amount=3),
        at("10:02:59.999999", account="a", amount=100),
        watermark("10:05"),
        expect(account="a", window="10:01/10:04:00.000001", n=3, spent=8),
        expect(account="a", amount=100, late_by=late_by("1 microsecond"), output="late"),
    )


def test_rows_of_one_time_are_taken_as_they_arrived_over_several_batches() -> None:
    timeline(
        threes(),
        at("10:01", account="a", amount=1),
        at("10:01", account="a", amount=10),
        batch(),
        at("10:01", account="a", amount=100),
        at("10:01", account="a", amount=1000),
        batch(),
        at("10:00", account="a", amount=2),
        watermark("10:02"),
        expect(account="a", window="10:00/10:01:00.000001", n=3, spent=13),
        watermark("12:00"),
        expect(account="a", window="10:01/11:01", n=2, spent=1100),
    )


@pytest.mark.spark
def test_an_unfinished_window_leaves_when_its_key_has_been_silent_for_the_time_to_live() -> None:
    timeline(
        threes(),
        at("10:01", account="a", amount=1),
        at("10:02", account="a", amount=2),
        watermark("11:01:59.999999"),
        expect(),
        watermark("11:02"),
        expect(account="a", window="10:01/11:02", n=2, spent=3, pane="on_time", revision=0),
        watermark("15:00"),
        expect(),
    )


def test_a_row_that_comes_just_before_the_time_to_live_is_over_joins_the_window_and_one_just_then_does_not() -> None:
    timeline(
        threes(),
        at("10:00", account="joins", amount=1),
        at("10:59:59.999999", account="joins", amount=2),
        at("10:00", account="parted", amount=1),
        at("11:00", account="parted", amount=2),
        watermark("20:00"),
        expect(
            row(account="joins", window="10:00/11:59:59.999999", n=2, spent=3),
            row(account="parted", window="10:00/11:00", n=1, spent=1),
            row(account="parted", window="11:00/12:00", n=1, spent=2),
        ),
    )


@pytest.mark.parametrize("jump", [True, False])
def test_it_does_not_matter_whether_event_time_jumps_over_the_time_to_live_or_stops_there(jump: bool) -> None:
    rows = (at("10:00", account="a", amount=1), at("11:00", account="a", amount=2), at("11:01", account="a", amount=3))
    stops = () if jump else (watermark("10:30"), watermark("11:00"), watermark("11:00:30"))
    timeline(
        threes(),
        *rows,
        *stops,
        watermark("13:00"),
        expect(
            row(account="a", window="10:00/11:00", n=1, spent=1),
            row(account="a", window="11:00/12:01", n=2, spent=5),
        ),
    )


def test_a_full_window_is_not_followed_by_an_empty_one() -> None:
    timeline(
        threes(),
        *(at(f"10:0{minute}", account="a", amount=minute) for minute in range(6)),
        watermark("20:00"),
        expect(
            row(account="a", window="10:00/10:02:00.000001", n=3, spent=3),
            row(account="a", window="10:03/10:05:00.000001", n=3, spent=12),
        ),
    )


def test_a_window_of_one_row_is_the_row() -> None:
    timeline(
        hr.counting("ones", rows=1, key="account", ttl="1 second").agg(spent="sum(amount)").late(hr.drop()),
        at("10:01", account="a", amount=2),
        at("10:00", account="a", amount=1),
        watermark("10:02"),
        expect(
            row(account="a", window="10:00/10:00:00.000001", spent=1),
            row(account="a", window="10:01/10:01:00.000001", spent=2),
        ),
    )


@pytest.mark.spark
def test_a_window_stays_open_over_batches_empty_ones_and_crashes() -> None:
    timeline(
        threes(),
        at("10:01", account="a", amount=1),
        crash(),
        batch(),
        batch(),
        watermark("10:02"),
        crash(),
        batch(),
        at("10:03", account="a", amount=3),
        crash(),
        watermark("10:04"),
        batch(),
        expect(),
        at("10:05", account="a", amount=5),
        crash(),
        watermark("10:06"),
        expect(account="a", window="10:01/10:05:00.000001", n=3, spent=9),
        watermark("20:00"),
        expect(),
        expect(output="late"),
    )


def test_times_before_1970_are_times_like_any_other() -> None:
    timeline(
        threes(),
        at("1969-12-31T23:59:59.999999", account="a", amount=2),
        at("1970-01-01T00:00", account="a", amount=3),
        at("1901-01-01T00:00", account="a", amount=9),
        at("1969-12-31T23:00", account="a", amount=1),
        watermark("1970-01-01T00:30"),
        expect(
            row(account="a", window="1901-01-01T00:00/1901-01-01T01:00", n=1, spent=9),
            row(account="a", window="1969-12-31T23:00/1970-01-01T00:00:00.000001", n=3, spent=6),
        ),
    )


@pytest.mark.spark
def test_late_rows_leave_whole_and_are_in_no_window() -> None:
    timeline(
        threes(),
        at("10:30", account="a", amount=1),
        watermark("10:31"),
        at("10:29", account="a", amount=2),
        at("10:00", account="b", amount=3),
        batch(),
        expect(
            row(account="a", amount=2, late_by=late_by("2 minutes")),
            row(account="b", amount=3, late_by=late_by("31 minutes")),
            output="late",
        ),
        watermark("20:00"),
        expect(account="a", window="10:30/11:30", n=1, spent=1),
    )


def test_dropped_late_rows_leave_no_trace() -> None:
    played = play(
        threes().late(hr.drop()),
        at("10:30", account="a", amount=1),
        watermark("10:31"),
        at("10:29", account="a", amount=2),
        at("10:30:59.999999", account="b", amount=3),
        batch(),
        watermark("20:00"),
    )
    assert [(each["account"], each["n"]) for each in played.main] == [("a", 1)]
    assert played.late == []


def test_null_is_a_key_and_equal_numbers_are_one() -> None:
    step = hr.counting("twos", rows=2, key="level", ttl="1 hour").agg(n="count(*)").late(hr.drop())
    timeline(
        step,
        at("10:00", level=None),
        at("10:01", level=0.0),
        at("10:02", level=-0.0),
        at("10:03", level=float("nan")),
        at("10:04", level=-float("nan")),
        at("10:05", level=None),
        watermark("10:06"),
        expect(
            row(level=0.0, window="10:01/10:02:00.000001", n=2),
            row(level=float("nan"), window="10:03/10:04:00.000001", n=2),
            row(level=None, window="10:00/10:05:00.000001", n=2),
        ),
    )


@pytest.mark.spark
def test_without_a_key_all_rows_are_counted_together() -> None:
    timeline(
        threes(key=None),
        at("10:04", account="a", amount=4, partition=0),
        at("10:01", account="b", amount=1, partition=1),
        at("10:03", account="c", amount=3, partition=2),
        at("10:02", account="d", amount=2, partition=3),
        watermark("12:00"),
        expect(
            row(window="10:01/10:03:00.000001", n=3, spent=6),
            row(window="10:04/11:04", n=1, spent=4),
        ),
    )


def test_a_key_that_is_kept_for_ever_waits_for_its_rows() -> None:
    timeline(
        threes(ttl=None, keep_forever=True),
        at("1999-01-01T00:00", account="a", amount=1),
        watermark("2025-01-01T00:00"),
        at("2025-01-01T00:00", account="a", amount=2),
        at("2026-01-01T00:00", account="a", amount=3),
        watermark("2026-01-01T10:00"),
        expect(account="a", window="1999-01-01T00:00/2026-01-01T00:00:00.000001", n=3, spent=6),
    )


@pytest.mark.spark
def test_windows_full_and_unfinished_are_on_time_for_a_following_step() -> None:
    hourly = hr.tumbling("hourly", size="1 hour", key="account").agg(windows="count(*)", total="sum(spent)")
    timeline(
        (threes(), hourly.late(hr.side_output())),
        *(at(f"10:0{minute}", account="a", amount=minute) for minute in range(7)),
        crash(),
        watermark("10:30"),
        batch(),
        watermark("11:00"),
        expect(account="a", window="10:00/11:00", windows=2, total=15),
        # The seventh row waits for the time to live: its window ends at 11:06.
        watermark("14:00"),
        expect(account="a", window="11:00/12:00", windows=1, total=6),
        expect(output="late"),
    )


def test_results_of_a_step_are_counted_like_rows_and_its_corrections_are_late() -> None:
    hourly = hr.tumbling("hourly", size="1 hour", key="account").agg(amount="sum(amount)").late(hr.update_for("1 day"))
    timeline(
        (hourly, threes(ttl="1 day")),
        at("10:05", account="a", amount=1),
        at("11:05", account="a", amount=2),
        watermark("12:00"),
        at("10:06", account="a", amount=100),
        at("12:05", account="a", amount=4),
        batch(),
        expect(account="a", window="10:00/11:00", amount=101, pane="late", output="late"),
        watermark("13:00"),
        # The time of a result is the last microsecond of its window, and is passed when the window closes.
        expect(account="a", window="10:59:59.999999/13:00", n=3, spent=7),
    )
