"""Tumbling windows: which window a row falls into, and when it is emitted."""

from __future__ import annotations

import pytest

import headrace as hr
from headrace.operators.windows.fixed_windows import Tumbling
from headrace.testing import at, batch, crash, expect, row, timeline, watermark


def counted(size: str, **more: str) -> Tumbling:
    return hr.tumbling("counted", size=size, key="account", **more).agg(n="count(*)").late(hr.side_output())


@pytest.mark.spark
def test_a_window_holds_its_start_and_not_its_end() -> None:
    timeline(
        counted("1 hour"),
        at("09:59:59.999999", account="a"),
        at("10:00", account="a"),
        at("10:59:59.999999", account="a"),
        at("11:00", account="a"),
        watermark("12:00"),
        expect(
            row(account="a", window="09:00/10:00", n=1, pane="on_time", revision=0),
            row(account="a", window="10:00/11:00", n=2, pane="on_time", revision=0),
            row(account="a", window="11:00/12:00", n=1, pane="on_time", revision=0),
        ),
    )


def test_a_window_closes_when_the_watermark_reaches_its_end_and_not_before() -> None:
    timeline(
        counted("1 hour"),
        at("10:05", account="a"),
        watermark("10:59:59.999999"),
        expect(),
        watermark("11:00"),
        expect(account="a", window="10:00/11:00", n=1),
    )


def test_a_window_is_emitted_once() -> None:
    timeline(
        counted("1 hour"),
        at("10:05", account="a"),
        watermark("11:00"),
        expect(account="a", window="10:00/11:00", n=1),
        batch(),
        watermark("11:30"),
        watermark("13:00"),
        expect(),
    )


def test_a_window_without_rows_is_not_emitted() -> None:
    timeline(
        counted("1 hour"),
        at("10:05", account="a"),
        at("13:05", account="a"),
        watermark("14:00"),
        expect(row(account="a", window="10:00/11:00"), row(account="a", window="13:00/14:00")),
    )


def test_windows_of_one_key_leave_in_the_order_of_time() -> None:
    minutes = [f"10:{minute:02d}" for minute in range(60)]
    shuffled = [minutes[(7 * place) % 60] for place in range(60)]
    timeline(
        counted("1 minute"),
        *(at(minute, account="a") for minute in shuffled),
        watermark("12:00"),
        expect(
            *(
                row(account="a", window=f"{start}/{end}")
                for start, end in zip(minutes, [*minutes[1:], "11:00"], strict=True)
            )
        ),
    )


def test_the_batch_that_moves_the_watermark_over_an_end_may_still_bring_rows_for_open_windows() -> None:
    timeline(
        counted("1 hour"),
        at("10:05", account="a"),
        batch(),
        watermark("10:59"),
        at("10:58", account="a"),
        batch(),
        watermark("11:00"),
        expect(account="a", window="10:00/11:00", n=2),
        expect(output="late"),
    )


@pytest.mark.spark
def test_an_offset_moves_the_windows() -> None:
    timeline(
        counted("1 hour", offset="15 minutes"),
        at("10:14:59.999999", account="a"),
        at("10:15", account="a"),
        at("11:14", account="b"),
        watermark("11:15"),
        expect(
            row(account="a", window="09:15/10:15", n=1),
            row(account="a", window="10:15/11:15", n=1),
            row(account="b", window="10:15/11:15", n=1),
        ),
    )


def test_an_offset_may_be_negative() -> None:
    timeline(
        counted("1 day", offset="-5 hours"),
        at("18:59", account="a"),
        at("19:00", account="b"),
        watermark("2026-01-02T19:00"),
        expect(
            row(account="a", window="2025-12-31T19:00/2026-01-01T19:00", n=1),
            row(account="b", window="2026-01-01T19:00/2026-01-02T19:00", n=1),
        ),
    )


@pytest.mark.spark
def test_times_before_1970_fall_into_windows_that_start_before_them() -> None:
    timeline(
        counted("1 hour", offset="10 minutes"),
        at("1969-12-31T23:59:59.999999", account="a"),
        at("1969-12-31T23:10", account="a"),
        at("1969-12-31T23:09:59.999999", account="a"),
        at("1970-01-01T00:10", account="a"),
        at("1900-02-28T23:30", account="b"),
        watermark("1970-01-01T02:00"),
        expect(
            row(account="a", window="1969-12-31T22:10/1969-12-31T23:10", n=1),
            row(account="a", window="1969-12-31T23:10/1970-01-01T00:10", n=2),
            row(account="a", window="1970-01-01T00:10/1970-01-01T01:10", n=1),
            row(account="b", window="1900-02-28T23:10/1900-03-01T00:10", n=1),
        ),
    )


def test_a_size_need_not_divide_a_day() -> None:
    timeline(
        counted("13 minutes"),
        # From 1970-01-01 to 2025-12-31T23:49 it is a whole number of 13 minutes.
        at("00:01:59.999999", account="a"),
        at("00:02", account="a"),
        watermark("00:15"),
        expect(
            row(account="a", window="2025-12-31T23:49/2026-01-01T00:02", n=1),
            row(account="a", window="00:02/00:15", n=1),
        ),
    )


def test_the_smallest_window_is_a_microsecond() -> None:
    timeline(
        counted("1 microsecond"),
        at("10:00", account="a"),
        at("10:00:00.000001", account="a"),
        watermark("10:00:00.000002"),
        expect(
            row(account="a", window="10:00/10:00:00.000001", n=1),
            row(account="a", window="10:00:00.000001/10:00:00.000002", n=1),
        ),
    )


@pytest.mark.spark
def test_keys_have_windows_of_their_own_across_batches_partitions_and_a_crash() -> None:
    timeline(
        counted("1 hour"),
        at("10:05", account="a", partition=0),
        at("10:06", account="b", partition=1),
        at("10:07", account="a", partition=2),
        batch(),
        at("10:08", account="a", partition=1),
        at("10:09", account="c", partition=0),
        crash(),
        batch(),
        at("10:10", account="b", partition=0),
        watermark("11:00"),
        expect(
            row(account="a", window="10:00/11:00", n=3),
            row(account="b", window="10:00/11:00", n=2),
            row(account="c", window="10:00/11:00", n=1),
        ),
    )


def test_a_long_run_of_small_batches_gives_what_one_batch_gives() -> None:
    """More batches than deltas fit between two bases of the state."""
    elements = [
        element
        for minute in range(60)
        for element in (at(f"10:{minute:02d}", account=f"a{minute % 7}"), at("11:30", account=f"b{minute}"), batch())
    ]
    timeline(
        counted("1 hour"),
        *elements,
        watermark("11:00"),
        expect(*(row(account=f"a{number}", n=9 if number < 4 else 8) for number in range(7))),
        watermark("12:00"),
        expect(*(row(account=f"b{minute}", n=1) for minute in range(60))),
    )
