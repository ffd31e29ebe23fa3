"""Idle partitions: what stops holding the watermark, and what takes it up again."""

from __future__ import annotations

import pytest

import headrace as hr
from headrace.event_time.strategy import TimeStrategy
from headrace.testing import at, batch, clock, crash, expect, late_by, row, timeline

per_minute = hr.tumbling("per_minute", size="1 minute", key="account").agg(n="count(*)").late(hr.side_output())
minute_idle = hr.event_time("at", partition="partition", idle="1 minute")

BOTH_START = (
    clock("2026-01-02T08:00:00"),
    at("10:00", account="a", partition=0),
    at("10:00", account="a", partition=1),
    batch(),
)
CLOSED = expect(account="a", window="10:00/10:01", n=2)


@pytest.mark.spark
def test_a_partition_without_rows_for_idle_no_longer_holds_the_watermark() -> None:
    timeline(
        per_minute,
        *BOTH_START,
        clock("2026-01-02T08:00:30"),
        at("12:00", account="a", partition=0),
        batch(),
        clock("2026-01-02T08:00:59.999999"),
        batch(),
        expect(),
        clock("2026-01-02T08:01:00"),
        batch(),
        CLOSED,
        event_time=minute_idle,
    )


def test_every_row_starts_the_idle_clock_of_its_partition_again() -> None:
    timeline(
        per_minute,
        *BOTH_START,
        clock("2026-01-02T08:00:50"),
        at("12:00", account="a", partition=0),
        at("10:00", account="b", partition=1),
        batch(),
        clock("2026-01-02T08:01:49"),
        at("12:00", account="a", partition=0),
        batch(),
        expect(),
        clock("2026-01-02T08:01:50"),
        batch(),
        expect(row(account="a", window="10:00/10:01", n=2), row(account="b", window="10:00/10:01", n=1)),
        event_time=minute_idle,
    )


def test_without_idle_a_silent_partition_holds_the_watermark_for_ever() -> None:
    timeline(
        per_minute,
        *BOTH_START,
        at("12:00", account="a", partition=0),
        batch(),
        clock("2027-01-02T08:00:00"),
        batch(),
        expect(),
        event_time=hr.event_time("at", partition="partition", idle=None),
    )


@pytest.mark.spark
def test_a_row_wakes_a_partition_but_its_batch_is_judged_by_the_watermark_already_fixed() -> None:
    timeline(
        per_minute,
        *BOTH_START,
        clock("2026-01-02T08:00:30"),
        at("11:00", account="a", partition=0),
        batch(),
        clock("2026-01-02T08:01:00"),
        at("10:30", account="a", partition=1),
        batch(),
        CLOSED,
        expect(account="a", late_by=late_by("30 minutes"), output="late"),
        # Awake again at 10:30, it holds the watermark at 11:00, from which it does not go back.
        at("12:00", account="a", partition=0),
        batch(),
        batch(),
        expect(),
        at("11:30", account="a", partition=1),
        batch(),
        expect(output="late"),
        batch(),
        expect(account="a", window="11:00/11:01", n=1),
        event_time=minute_idle,
    )


@pytest.mark.spark
def test_idle_clocks_start_again_at_each_start() -> None:
    timeline(
        per_minute,
        *BOTH_START,
        clock("2026-01-02T08:00:30"),
        at("12:00", account="a", partition=0),
        batch(),
        clock("2026-01-02T08:00:50"),
        crash(),
        # Both were quiet for 50 seconds and more; since the start it is 59.
        clock("2026-01-02T08:01:49"),
        at("12:00", account="a", partition=0),
        batch(),
        expect(),
        clock("2026-01-02T08:01:50"),
        batch(),
        CLOSED,
        event_time=minute_idle,
    )


def test_idle_clocks_start_again_when_the_crash_was_in_the_middle_of_a_batch() -> None:
    timeline(
        per_minute,
        *BOTH_START,
        clock("2026-01-02T08:00:50"),
        at("12:00", account="a", partition=0),
        crash(),
        batch(),
        clock("2026-01-02T08:01:40"),
        at("12:00", account="a", partition=0),
        batch(),
        expect(),
        clock("2026-01-02T08:01:50"),
        batch(),
        CLOSED,
        event_time=minute_idle,
    )


@pytest.mark.parametrize("strategy", [hr.event_time("at"), hr.event_time("at", partition="account")])
def test_when_all_are_idle_the_watermark_holds(strategy: TimeStrategy) -> None:
    timeline(
        per_minute,
        clock("2026-01-02T08:00:00"),
        at("10:00", account="a"),
        at("10:02", account="b"),
        batch(),
        batch(),
        clock("2026-01-02T09:00:00"),
        batch(),
        batch(),
        at("10:02", account="b"),
        batch(),
        expect(output="late"),
        event_time=strategy,
    )


@pytest.mark.spark
def test_when_all_are_idle_the_watermark_may_advance_to_the_highest_time_seen() -> None:
    timeline(
        per_minute,
        clock("2026-01-02T08:00:00"),
        at("10:00", account="a", partition=0),
        at("10:10", account="b", partition=1),
        batch(),
        clock("2026-01-02T08:00:59"),
        batch(),
        expect(),
        clock("2026-01-02T08:01:00"),
        batch(),
        # Not 10:05: what is over is over, so out_of_order is not taken off.
        expect(account="a", window="10:00/10:01", n=1),
        at("10:09", account="c", partition=0),
        batch(),
        expect(account="c", late_by=late_by("1 minute"), output="late"),
        event_time=hr.event_time("at", partition="partition", out_of_order="5 minutes", when_all_idle="advance"),
    )


def test_a_whole_source_that_is_idle_may_advance_too() -> None:
    timeline(
        per_minute,
        clock("2026-01-02T08:00:00"),
        at("10:00", account="a"),
        at("10:01", account="b"),
        batch(),
        batch(),
        expect(),
        clock("2026-01-02T08:01:00"),
        batch(),
        expect(account="a", window="10:00/10:01", n=1),
        event_time=hr.event_time("at", out_of_order="5 minutes", when_all_idle="advance"),
    )


@pytest.mark.spark
@pytest.mark.parametrize("partitions", [[0, 1], 2])
def test_an_expected_partition_that_comes_later_is_not_late(partitions: list[int] | int) -> None:
    timeline(
        per_minute,
        clock("2026-01-02T08:00:00"),
        at("10:00", account="a", partition=0),
        at("12:00", account="a", partition=0),
        batch(),
        batch(),
        crash(),
        at("10:00", account="a", partition=1),
        batch(),
        expect(),
        at("10:02", account="a", partition=1),
        crash(),
        batch(),
        batch(),
        CLOSED,
        expect(output="late"),
        event_time=hr.event_time("at", partition="partition", partitions=partitions, idle=None),
    )


@pytest.mark.parametrize("partitions", [[0, 1], 2])
def test_an_expected_partition_is_waited_for_until_idle_has_passed_since_the_start(partitions: list[int] | int) -> None:
    timeline(
        per_minute,
        clock("2026-01-02T08:00:00"),
        at("10:00", account="a", partition=0),
        at("10:00", account="b", partition=0),
        batch(),
        clock("2026-01-02T08:00:59.999999"),
        at("12:00", account="a", partition=0),
        batch(),
        batch(),
        expect(),
        clock("2026-01-02T08:01:00"),
        batch(),
        expect(row(account="a", window="10:00/10:01", n=1), row(account="b", window="10:00/10:01", n=1)),
        event_time=hr.event_time("at", partition="partition", partitions=partitions, idle="1 minute"),
    )


def test_a_partition_that_nobody_expects_is_late_when_it_comes_after_the_watermark() -> None:
    timeline(
        per_minute,
        at("10:00", account="a", partition=0),
        at("12:00", account="a", partition=0),
        batch(),
        at("10:00", account="a", partition=1),
        batch(),
        expect(account="a", window="10:00/10:01", n=1),
        expect(account="a", late_by=late_by("2 hours"), output="late"),
        event_time=minute_idle,
    )
