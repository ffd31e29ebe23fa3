"""Session windows in which each row says how long it keeps its session open."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import polars as pl
import pytest

import headrace as hr
from headrace.errors import DefinitionError
from headrace.testing import at, batch, crash, expect, late_by, row, timeline, watermark

watching = hr.session("watching", gap="1 hour", gap_column="pause", key="visitor").agg(clicks="count(*)")
kept = watching.late(hr.side_output())


def seen(time: str, minutes: float | None, visitor: str = "a") -> Any:
    return at(time, visitor=visitor, pause=None if minutes is None else timedelta(minutes=minutes))


@pytest.mark.spark
def test_a_session_ends_where_the_last_of_its_gaps_ends() -> None:
    timeline(
        kept,
        seen("10:00", 30),
        seen("10:10", 5),
        seen("10:29:59.999999", 1),
        seen("10:31", 10),
        watermark("10:30:59.999998"),
        expect(),
        watermark("10:30:59.999999"),
        expect(visitor="a", window="10:00/10:30:59.999999", session_id="10:00", clicks=3),
        watermark("10:41"),
        expect(visitor="a", window="10:31/10:41", session_id="10:31", clicks=1),
        expect(output="late"),
    )


def test_a_short_gap_within_a_long_one_does_not_end_the_session_early() -> None:
    timeline(
        kept,
        seen("10:00", 30),
        batch(),
        seen("10:01", 1),
        watermark("10:02"),
        expect(),
        watermark("10:30"),
        expect(visitor="a", window="10:00/10:30", clicks=2),
    )


@pytest.mark.spark
def test_rows_without_a_gap_of_their_own_have_the_longest_and_no_gap_is_longer() -> None:
    timeline(
        kept,
        seen("10:00", None, "a"),
        seen("10:00", 600, "b"),
        seen("10:00", 60, "c"),
        watermark("10:59:59.999999"),
        expect(),
        watermark("11:00"),
        expect(*(row(visitor=visitor, window="10:00/11:00", clicks=1) for visitor in "abc")),
    )


def test_a_row_whose_gap_is_not_positive_is_lost_to_no_session() -> None:
    timeline(
        kept,
        seen("10:00", 10),
        seen("10:05", 0),
        seen("10:20", 0),
        seen("10:20", -5),
        seen("10:30", 0, "b"),
        watermark("11:00"),
        expect(
            row(visitor="a", window="10:00/10:10", clicks=2),
            row(visitor="a", window="10:20/10:20:00.000001", clicks=2),
            row(visitor="b", window="10:30/10:30:00.000001", clicks=1),
        ),
    )


@pytest.mark.spark
def test_an_earlier_row_with_a_long_gap_joins_sessions_that_were_two_after_a_crash_too() -> None:
    timeline(
        kept,
        seen("10:10", 5),
        seen("10:30", 5),
        batch(),
        seen("10:00", 10.1),
        crash(),
        seen("10:14", 30),
        crash(),
        batch(),
        watermark("10:44"),
        expect(visitor="a", window="10:00/10:44", session_id="10:00", clicks=4),
        expect(output="late"),
    )


def test_a_row_is_late_when_its_own_gap_is_over_and_it_touches_no_session() -> None:
    timeline(
        kept,
        seen("10:00", 5),
        watermark("10:20"),
        expect(visitor="a", window="10:00/10:05", clicks=1),
        seen("10:06", 14),
        seen("10:07", 20),
        seen("09:00", 60),
        batch(),
        expect(output="late", visitor="a", late_by=late_by("80 minutes")),
        watermark("10:27"),
        expect(visitor="a", window="10:06/10:27", clicks=2),
        expect(output="late"),
    )


@pytest.mark.spark
def test_a_late_row_with_a_long_gap_takes_a_session_back_and_corrects_another() -> None:
    timeline(
        watching.late(hr.update_for("2 hours")),
        seen("10:00", 10),
        seen("10:20", 10),
        watermark("10:40"),
        expect(
            row(visitor="a", window="10:00/10:10", session_id="10:00", clicks=1, revision=0, change="insert"),
            row(visitor="a", window="10:20/10:30", session_id="10:20", clicks=1, revision=0, change="insert"),
        ),
        seen("10:05", 16),
        crash(),
        batch(),
        expect(
            row(visitor="a", window="10:00/10:30", session_id="10:00", clicks=3, revision=1, change="update_after"),
            row(visitor="a", window="10:20/10:30", session_id="10:20", clicks=1, revision=1, change="delete"),
        ),
        seen("10:25", 30),
        batch(),
        expect(),
        watermark("10:55"),
        expect(visitor="a", window="10:00/10:55", session_id="10:00", clicks=4, pane="on_time", revision=2),
    )


def test_no_two_sessions_of_a_key_share_an_id_though_a_late_row_begins_where_one_began_that_is_forgotten() -> None:
    timeline(
        kept,
        seen("10:00", 5),
        watermark("10:20"),
        expect(visitor="a", window="10:00/10:05", session_id="10:00", clicks=1),
        seen("10:00", 21),
        watermark("10:21"),
        expect(visitor="a", window="10:00/10:21", session_id="10:20", clicks=1),
    )


@pytest.mark.parametrize(
    ("schema", "found"),
    [({"visitor": pl.String()}, "does not exist"), ({"visitor": pl.String(), "pause": pl.Int64()}, "is Int64")],
)
def test_a_column_that_tells_no_duration_is_refused(schema: dict[str, pl.DataType], found: str) -> None:
    with pytest.raises(DefinitionError, match=rf"\[GAP_COLUMN\] window 'watching': gap_column='pause' {found}"):
        kept.bind({**schema, "at": pl.Datetime("us", "UTC")}, "at")


def test_the_column_with_the_gap_may_be_part_of_the_key() -> None:
    step = hr.session("watching", gap="1 hour", gap_column="pause", key=["visitor", "pause"]).agg(clicks="count(*)")
    timeline(
        step.late(hr.side_output()),
        seen("10:00", 30),
        seen("10:10", 5),
        batch(),
        seen("10:20", 30),
        crash(),
        watermark("11:00"),
        expect(
            row(visitor="a", pause=timedelta(minutes=5), window="10:10/10:15", clicks=1),
            row(visitor="a", pause=timedelta(minutes=30), window="10:00/10:50", clicks=2),
        ),
    )


def test_a_greatest_length_does_not_go_with_gaps_of_rows() -> None:
    with pytest.raises(DefinitionError, match=r"\[SESSION_LENGTH_AND_GAP_COLUMN\]"):
        hr.session("s", gap="1 hour", gap_column="pause", key="visitor", max_length="2 hours")


def test_the_definition_says_the_column() -> None:
    assert repr(kept).startswith("hr.session('watching', gap='1 hour', gap_column='pause', key='visitor').agg(")
    assert kept.fingerprint["gap_column"] == "pause"
