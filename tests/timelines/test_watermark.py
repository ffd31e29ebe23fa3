"""The watermark: fixed before a batch, from the rows of earlier batches, and never going back."""

from __future__ import annotations

import pytest

import headrace as hr
from headrace.testing import at, batch, clock, crash, expect, late_by, row, timeline

per_minute = hr.tumbling("per_minute", size="1 minute", key="account").agg(n="count(*)").late(hr.side_output())
per_partition = hr.event_time("at", partition="partition")


@pytest.mark.spark
def test_the_watermark_of_a_batch_comes_from_the_rows_of_earlier_batches() -> None:
    timeline(
        per_minute,
        at("12:00", account="a"),
        at("10:05", account="a"),
        batch(),
        expect(output="late"),
        expect(),
        at("10:05:30", account="a"),
        batch(),
        expect(account="a", window="10:05/10:06", n=1),
        expect(account="a", late_by=late_by("1 hour 54 minutes 30 seconds"), output="late"),
        event_time=hr.event_time("at"),
    )


def test_the_first_batch_has_no_watermark_so_nothing_in_it_is_late() -> None:
    timeline(
        per_minute,
        at("2025-12-31T23:59", account="a"),
        at("1969-07-20T20:17", account="a"),
        batch(),
        expect(output="late"),
        event_time=hr.event_time("at"),
    )


@pytest.mark.spark
def test_the_watermark_trails_the_highest_time_by_out_of_order() -> None:
    timeline(
        per_minute,
        at("10:00", account="a"),
        at("10:11", account="a"),
        batch(),
        batch(),
        # W = 10:01: the window ends exactly there and closes.
        expect(account="a", window="10:00/10:01", n=1),
        at("10:00:59", account="a"),
        at("10:01", account="a"),
        batch(),
        expect(account="a", late_by=late_by("1 second"), output="late"),
        event_time=hr.event_time("at", out_of_order="10 minutes"),
    )


def test_the_watermark_does_not_go_back_when_older_rows_come() -> None:
    timeline(
        per_minute,
        at("12:00", account="a"),
        batch(),
        at("11:00", account="a"),
        batch(),
        at("11:30", account="a"),
        batch(),
        expect(
            row(account="a", late_by=late_by("1 hour")),
            row(account="a", late_by=late_by("30 minutes")),
            output="late",
        ),
        event_time=hr.event_time("at"),
    )


def test_the_watermark_does_not_go_back_when_a_slower_partition_appears() -> None:
    timeline(
        per_minute,
        at("12:00", account="a", partition=0),
        batch(),
        at("10:00", account="a", partition=1),
        batch(),
        at("11:00", account="a", partition=1),
        batch(),
        expect(
            row(account="a", late_by=late_by("2 hours")),
            row(account="a", late_by=late_by("1 hour")),
            output="late",
        ),
        event_time=per_partition,
    )


def test_the_watermark_does_not_go_back_at_a_restart() -> None:
    timeline(
        per_minute,
        at("12:00", account="a"),
        batch(),
        at("11:00", account="a"),
        batch(),
        crash(),
        at("11:30", account="a"),
        batch(),
        expect(
            row(account="a", late_by=late_by("1 hour")),
            row(account="a", late_by=late_by("30 minutes")),
            output="late",
        ),
        event_time=hr.event_time("at"),
    )


@pytest.mark.spark
def test_the_watermark_is_the_lowest_of_all_partitions() -> None:
    timeline(
        per_minute,
        at("10:00", account="a", partition=0),
        at("10:00", account="a", partition=1),
        batch(),
        at("12:00", account="a", partition=0),
        at("10:01", account="a", partition=1),
        batch(),
        expect(),
        batch(),
        expect(account="a", window="10:00/10:01", n=2),
        at("10:00:59", account="a", partition=0),
        batch(),
        expect(account="a", late_by=late_by("1 second"), output="late"),
        event_time=per_partition,
    )


def test_out_of_order_is_taken_off_in_each_partition() -> None:
    timeline(
        per_minute,
        at("10:00", account="a", partition=0),
        at("10:30", account="a", partition=1),
        batch(),
        at("09:00", account="a", partition=1),
        batch(),
        expect(account="a", late_by=late_by("55 minutes"), output="late"),
        event_time=hr.event_time("at", partition="partition", out_of_order="5 minutes"),
    )


def test_rows_without_a_partition_value_are_one_partition_more() -> None:
    timeline(
        per_minute,
        at("12:00", account="a", gateway="north"),
        at("10:00", account="a", gateway=None),
        batch(),
        at("09:00", account="a", gateway="north"),
        batch(),
        expect(account="a", late_by=late_by("1 hour"), output="late"),
        event_time=hr.event_time("at", partition="gateway"),
    )


def test_partition_values_beyond_ten_thousand_share_one_watermark_and_the_flow_goes_on() -> None:
    rows = [at("10:05", account="a", gateway=number) for number in range(10_000)]
    timeline(
        per_minute,
        *rows,
        batch(),
        at("10:05", account="a", gateway=10_000),
        at("10:07", account="a", gateway=10_001),
        batch(),
        *(at("10:09", account="b", gateway=number) for number in range(10_000)),
        batch(),
        expect(),
        batch(),
        expect(account="a", window="10:05/10:06", n=10_001),
        event_time=hr.event_time("at", partition="gateway"),
    )


@pytest.mark.streamed
def test_with_processing_time_rows_happen_when_their_batch_runs() -> None:
    timeline(
        per_minute,
        clock("2026-01-02T08:00:10"),
        at("10:00", account="a"),
        at(None, account="a"),
        batch(),
        clock("2026-01-02T08:00:59"),
        at("10:00", account="a"),
        batch(),
        clock("2026-01-02T08:01:00"),
        at("10:00", account="a"),
        batch(),
        expect(account="a", window="2026-01-02T08:00/2026-01-02T08:01", n=3),
        expect(output="dead_letters"),
        expect(output="late"),
        event_time=hr.processing_time(),
    )


@pytest.mark.streamed
def test_with_ingestion_time_rows_happen_when_they_arrive() -> None:
    timeline(
        per_minute,
        clock("2026-01-02T08:00:10"),
        at("10:00", account="a"),
        batch(),
        clock("2026-01-02T08:01:00"),
        at("10:00", account="a"),
        batch(),
        expect(),
        batch(),
        expect(account="a", window="2026-01-02T08:00/2026-01-02T08:01", n=1),
        event_time=hr.ingestion_time(),
    )
