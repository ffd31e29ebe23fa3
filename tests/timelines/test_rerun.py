"""Crashes: a batch that runs again reads its record and gives the same rows, once."""

from __future__ import annotations

import pytest

import headrace as hr
from headrace.testing import at, batch, clock, crash, expect, late_by, row, timeline, watermark

hourly = hr.tumbling("hourly", size="1 hour", key="account").agg(spent="sum(amount)", n="count(*)")


@pytest.mark.spark
def test_a_batch_that_crashed_is_counted_once_and_gives_its_rows_once() -> None:
    timeline(
        hourly.late(hr.side_output()),
        at("10:05", account="a", amount=5.0),
        watermark("10:30"),
        at("10:40", account="a", amount=2.0),
        at("11:10", account="b", amount=1.0),
        crash(),
        expect(),
        batch(),
        watermark("11:00"),
        expect(account="a", window="10:00/11:00", spent=7.0, n=2, pane="on_time", revision=0),
        at("10:59", account="a", amount=1.0),
        crash(),
        expect(output="late"),
        batch(),
        expect(account="a", amount=1.0, late_by=late_by("1 minute"), output="late"),
        watermark("12:00"),
        expect(account="b", window="11:00/12:00", spent=1.0, n=1, pane="on_time", revision=0),
    )


def test_a_batch_that_runs_again_is_judged_by_its_own_watermark_not_by_a_newer_one() -> None:
    timeline(
        hourly.late(hr.side_output()),
        at("10:05", account="a", amount=5.0),
        watermark("10:30"),
        at("10:06", account="a", amount=2.0),
        crash(),
        # The batch of 10:06 first runs again, at 10:30.
        watermark("12:00"),
        expect(account="a", window="10:00/11:00", spent=7.0),
        expect(output="late"),
    )


@pytest.mark.streamed
def test_a_batch_that_runs_again_keeps_its_processing_time() -> None:
    timeline(
        hr.tumbling("per_minute", size="1 minute", key="account").agg(n="count(*)").late(hr.side_output()),
        clock("08:00:10"),
        at(None, account="a"),
        crash(),
        clock("08:05:00"),
        batch(),
        batch(),
        expect(account="a", window="08:00/08:01", n=1),
        event_time=hr.processing_time(),
    )


def test_a_crash_between_batches_loses_nothing() -> None:
    timeline(
        hourly.late(hr.update_for("1 hour")),
        at("10:05", account="a", amount=5.0),
        batch(),
        crash(),
        at("10:10", account="a", amount=1.0),
        watermark("11:00"),
        expect(account="a", spent=6.0, pane="on_time", revision=0),
        crash(),
        crash(),
        at("10:20", account="a", amount=1.0),
        batch(),
        expect(account="a", spent=7.0, pane="late", revision=1),
    )


def test_a_batch_may_crash_more_than_once() -> None:
    timeline(
        hourly.late(hr.drop()),
        at("10:05", account="a", amount=5.0),
        crash(),
        crash(),
        crash(),
        batch(),
        watermark("11:00"),
        expect(account="a", spent=5.0, n=1),
    )


def test_a_crash_in_the_batch_that_corrects_a_window_leaves_one_correction() -> None:
    timeline(
        hourly.late(hr.update_for("1 hour")),
        at("10:05", account="a", amount=5.0),
        watermark("11:00"),
        expect(row(account="a", spent=5.0, pane="on_time", revision=0)),
        at("10:06", account="a", amount=1.0),
        crash(),
        crash(),
        batch(),
        expect(row(account="a", spent=6.0, pane="late", revision=1)),
    )


def test_many_keys_survive_a_crash_in_every_batch() -> None:
    accounts = [f"account {number}" for number in range(300)]
    first = [at("10:05", account=account, amount=float(number)) for number, account in enumerate(accounts)]
    second = [at("10:15", account=account, amount=1.0) for account in accounts]
    timeline(
        hourly.late(hr.side_output()),
        *first,
        crash(),
        batch(),
        *second,
        crash(),
        batch(),
        watermark("11:00"),
        expect(*(row(account=account, spent=number + 1.0, n=2) for number, account in enumerate(accounts))),
    )
