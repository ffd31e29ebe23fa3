"""The gate: rows whose time cannot be believed become dead letters and never move the watermark."""

from __future__ import annotations

import pytest

import headrace as hr
from headrace.testing import at, batch, clock, crash, expect, late_by, play, row, timeline

per_minute = hr.tumbling("per_minute", size="1 minute", key="account").agg(n="count(*)").late(hr.side_output())
guarded = hr.event_time(
    "at", accept=hr.valid_times(not_before="2025-01-01", max_future="10 minutes"), out_of_order="0 seconds"
)


@pytest.mark.spark
def test_rows_outside_the_guard_are_dead_letters_and_never_move_the_watermark() -> None:
    timeline(
        per_minute,
        clock("12:00"),
        at(None, account="a"),
        at("2024-12-31T23:59:59.999999", account="a"),
        at("2025-01-01", account="oldest"),
        at("12:10:00.000001", account="a"),
        at("2030-01-01", account="a"),
        at("10:00", account="a"),
        batch(),
        expect(
            row(reason="NO_EVENT_TIME"),
            row(reason="EVENT_TIME_TOO_OLD"),
            row(reason="EVENT_TIME_IN_FUTURE"),
            row(reason="EVENT_TIME_IN_FUTURE"),
            output="dead_letters",
        ),
        at("09:00", account="a"),
        batch(),
        expect(account="a", late_by=late_by("1 hour"), output="late"),
        expect(account="oldest", n=1),
        event_time=guarded,
    )


def test_a_row_exactly_max_future_ahead_is_believed() -> None:
    timeline(
        per_minute,
        clock("12:00"),
        at("12:10", account="a"),
        batch(),
        expect(output="dead_letters"),
        at("12:09", account="a"),
        batch(),
        expect(account="a", late_by=late_by("1 minute"), output="late"),
        event_time=guarded,
    )


def test_by_default_a_row_may_be_five_minutes_ahead_and_as_old_as_it_likes() -> None:
    timeline(
        per_minute,
        clock("12:00"),
        at("12:05", account="a"),
        at("12:05:00.000001", account="b"),
        at("1900-01-01", account="a"),
        batch(),
        expect(reason="EVENT_TIME_IN_FUTURE", output="dead_letters"),
        event_time=hr.event_time("at"),
    )


@pytest.mark.streamed
def test_what_was_too_far_ahead_is_believed_once_the_clock_has_come_nearer() -> None:
    timeline(
        per_minute,
        clock("12:00"),
        at("13:00", account="a"),
        batch(),
        expect(reason="EVENT_TIME_IN_FUTURE", output="dead_letters"),
        clock("12:55"),
        at("13:00", account="a"),
        batch(),
        expect(output="dead_letters"),
        event_time=hr.event_time("at"),
    )


def test_without_a_future_guard_any_time_is_believed() -> None:
    timeline(
        per_minute,
        at("2999-01-01", account="a"),
        batch(),
        expect(output="dead_letters"),
        at("2998-12-31T23:59", account="a"),
        batch(),
        expect(account="a", late_by=late_by("1 minute"), output="late"),
        event_time=hr.event_time("at", accept=hr.valid_times(max_future=None)),
    )


def test_a_dead_letter_says_what_it_was_and_where_and_when_it_was_read() -> None:
    played = play(
        per_minute,
        clock("12:00"),
        at("10:00", account="a"),
        batch(),
        at("10:00", account="a"),
        at(None, account="lost"),
        batch(),
        event_time=guarded,
        engine="inline",
    )
    (letter,) = played.dead_letters
    assert letter["source"] == "rows"
    assert letter["reason"] == "NO_EVENT_TIME"
    assert letter["detail"] == "at = null"
    assert letter["raw"] == b'{"account": "lost", "at": null}'
    assert (letter["position"], letter["batch"]) == (1, 1)
    assert letter["read_at"].isoformat() == "2026-01-01T12:00:00+00:00"


@pytest.mark.spark
def test_a_batch_that_runs_again_judges_the_future_by_its_logged_clock() -> None:
    timeline(
        per_minute,
        clock("12:00"),
        at("13:00", account="a"),
        at("11:59", account="b"),
        crash(),
        clock("13:00"),
        batch(),
        expect(reason="EVENT_TIME_IN_FUTURE", output="dead_letters"),
        # It was 11:59 that moved the watermark, not 13:00.
        at("11:00", account="b"),
        batch(),
        expect(account="b", late_by=late_by("59 minutes"), output="late"),
        event_time=hr.event_time("at"),
    )
