"""Session windows in which each row says how long it keeps its session open."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.errors import DefinitionError
from headrace.testing import at, batch, crash, expect, late_by, play, row, timeline, watermark
from tests.models import fixed_windows as fixed
from tests.models import session as model
from tests.models.examples import examples
from tests.models.fixed_windows import AGGREGATES, MINUTE
from tests.models.rows import Event, end_of_rows, make_input, micros, split

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
            row(visitor="a", window="10:20/10:30", session_id="10:20", clicks=1, revision=0, change="delete"),
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


def test_without_a_key_every_row_keeps_the_one_session_open() -> None:
    everyone = hr.session("watching", gap="1 hour", gap_column="pause", key=None).agg(clicks="count(*)")
    timeline(
        everyone.late(hr.side_output()),
        seen("10:00", 30, "a"),
        seen("10:29", 2, "b"),
        crash(),
        batch(),
        seen("10:31", 1, "c"),
        watermark("10:30:59.999999"),
        expect(),
        watermark("10:31"),
        expect(window="10:00/10:31", session_id="10:00", clicks=2),
        watermark("10:32"),
        expect(window="10:31/10:32", session_id="10:31", clicks=1),
        expect(output="late"),
    )


by_window = hr.tumbling("by_window", size="10 minutes", key="visitor").agg(pause="max(pause)", clicks="count(*)")
over_windows = hr.session("over_windows", gap="1 hour", gap_column="pause", key="visitor").agg(clicks="sum(clicks)")


@pytest.mark.spark
def test_results_of_a_window_keep_a_session_open_as_long_as_they_say() -> None:
    """A result is a row at the last moment of its window."""
    timeline(
        (by_window.late(hr.side_output()), over_windows.late(hr.side_output())),
        seen("10:05", 25),
        seen("10:06", 1),
        crash(),
        batch(),
        seen("10:31", 2),
        seen("10:31", 10, "b"),
        watermark("10:20"),
        seen("10:52", 5),
        crash(),
        batch(),
        watermark("10:34:59.999998"),
        expect(),
        watermark("10:34:59.999999"),
        expect(visitor="a", window="10:09:59.999999/10:34:59.999999", clicks=2),
        watermark("10:42"),
        expect(visitor="a", window="10:39:59.999999/10:41:59.999999", clicks=1),
        watermark("11:10"),
        expect(
            row(visitor="a", window="10:59:59.999999/11:04:59.999999", clicks=1),
            row(visitor="b", window="10:39:59.999999/10:49:59.999999", clicks=1),
        ),
        expect(output="late"),
    )


places = st.sets(st.integers(1, 79), max_size=6)


def own_gap(event: Event) -> int:
    """As long as the amount says in units of six seconds, up to four minutes; that where it is missing."""
    if event.amount is None:
        return 4 * MINUTE
    return max(1, min(4 * MINUTE, event.amount * 6_000_000))


def pause(amount: int | None) -> timedelta | None:
    return None if amount is None else timedelta(seconds=6 * amount)


@pytest.mark.parametrize("fed", [False, True], ids=["rows", "results"])
@pytest.mark.parametrize("key", ["account", None])
@examples(2)
@given(seed=st.integers(0, 2**32), batches=places, crashes=places, partitions=st.integers(1, 4))
def test_gaps_of_rows_and_of_results_with_and_without_a_key_give_the_sessions_of_the_model(
    fed: bool, key: str | None, seed: int, batches: set[int], crashes: set[int], partitions: int
) -> None:
    given_rows = make_input(seed, rows=80, pace=40, disorder=600, accounts="abc", partitions=partitions)
    rows = [replace(each, columns={**each.columns, "pause": pause(each.columns["amount"])}) for each in given_rows.rows]
    session = hr.session("s", gap="4 minutes", gap_column="pause", key=key).agg(**AGGREGATES).late(hr.side_output())
    first = hr.tumbling("first", size="1 minute", key="account").agg(amount="max(amount)", pause="max(pause)")
    elements = [*split(rows, batches, crashes), *end_of_rows(pause=None)]
    time = hr.event_time("at", out_of_order="10 minutes", partition="partition")
    played = play((first.late(hr.side_output()), session) if fed else session, *elements, event_time=time)
    truth = model.answer(results(given_rows.events) if fed else given_rows.events, own_gap, keyed=key is not None)
    last = max(end for _, _, end in truth)
    found = {place(each): tuple(each[name] for name in AGGREGATES) for each in played.main}
    assert {session: each for session, each in found.items() if session[1] < last} == truth
    assert len(found) == len(played.main)
    assert played.late == []


def results(events: list[Event]) -> list[Event]:
    """The most of every minute, at its last moment."""
    first = fixed.answer(events, fixed.tumbling(MINUTE))
    return [Event(str(account), end - 1, values[4]) for (account, _, end), values in first.items()]


def place(each: dict[str, Any]) -> model.Place:
    return each.get("account"), micros(each["window"]["start"]), micros(each["window"]["end"])


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
