"""Session windows: which rows belong together, when a session is over, and which rows are late for it."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace.testing import at, batch, crash, expect, late_by, play, row, timeline, watermark

visits = hr.session("visits", gap="30 minutes", key="visitor").agg(clicks="count(*)", spent="sum(amount)")
kept = visits.late(hr.side_output())
hourly = hr.tumbling("hourly", size="1 hour", key="visitor")
GAP = "30 minutes"


@pytest.mark.spark
def test_rows_closer_than_the_gap_are_one_session_and_rows_exactly_a_gap_apart_are_two() -> None:
    timeline(
        kept,
        at("10:00", visitor="a", amount=1),
        at("10:29:59.999999", visitor="a", amount=2),
        at("10:59:59.999999", visitor="a", amount=4),
        at("10:00", visitor="b", amount=1),
        at("10:30", visitor="b", amount=2),
        watermark("12:00"),
        expect(
            row(visitor="a", window="10:00/10:59:59.999999", session_id="10:00", clicks=2, spent=3),
            row(visitor="a", window="10:59:59.999999/11:29:59.999999", session_id="10:59:59.999999", clicks=1, spent=4),
            row(visitor="b", window="10:00/10:30", session_id="10:00", clicks=1, spent=1),
            row(visitor="b", window="10:30/11:00", session_id="10:30", clicks=1, spent=2),
        ),
        expect(output="late"),
    )


def test_a_session_of_one_row_is_a_gap_long() -> None:
    timeline(
        kept,
        at("10:00", visitor="a", amount=1),
        watermark("10:30"),
        expect(visitor="a", window="10:00/10:30", session_id="10:00", clicks=1, spent=1, pane="on_time", revision=0),
    )


def test_results_that_are_never_taken_back_have_no_change() -> None:
    played = play(kept, at("10:00", visitor="a", amount=1), watermark("11:00"))
    assert list(played.main[0]) == ["visitor", "window", "session_id", "clicks", "spent", "pane", "revision"]


def test_a_session_closes_when_the_watermark_reaches_its_end_and_not_before() -> None:
    timeline(
        kept,
        at("10:00", visitor="a", amount=1),
        at("10:10", visitor="a", amount=1),
        watermark("10:39:59.999999"),
        expect(),
        watermark("10:40"),
        expect(visitor="a", window="10:00/10:40", clicks=2),
        watermark("23:00"),
        batch(),
        expect(),
    )


def test_a_session_grows_batch_by_batch_in_both_directions() -> None:
    timeline(
        kept,
        at("10:20", visitor="a", amount=1),
        batch(),
        at("10:00", visitor="a", amount=2),
        batch(),
        at("10:40", visitor="a", amount=4),
        batch(),
        at("09:45", visitor="a", amount=8),
        batch(),
        watermark("11:10"),
        expect(visitor="a", window="09:45/11:10", session_id="09:45", clicks=4, spent=15),
    )


@pytest.mark.spark
def test_a_row_between_two_open_sessions_makes_them_one() -> None:
    timeline(
        kept,
        at("10:00", visitor="a", amount=1),
        at("10:50", visitor="a", amount=2),
        at("12:00", visitor="a", amount=4),
        batch(),
        at("10:25", visitor="a", amount=8),
        batch(),
        watermark("13:00"),
        expect(
            row(visitor="a", window="10:00/11:20", clicks=3, spent=11),
            row(visitor="a", window="12:00/12:30", clicks=1, spent=4),
        ),
    )


def test_a_row_that_is_a_gap_from_one_of_two_sessions_joins_the_other_alone() -> None:
    timeline(
        kept,
        at("10:00", visitor="a", amount=1),
        at("10:50", visitor="a", amount=2),
        batch(),
        at("10:30", visitor="a", amount=4),
        batch(),
        watermark("12:00"),
        expect(
            row(visitor="a", window="10:00/10:30", clicks=1, spent=1),
            row(visitor="a", window="10:30/11:20", clicks=2, spent=6),
        ),
    )


def test_rows_of_several_partitions_in_one_batch_make_one_session() -> None:
    timeline(
        kept,
        *(
            at(f"10:{minute:02d}", visitor="a", amount=1, partition=minute % 3)
            for minute in (50, 10, 30, 0, 59, 40, 20)
        ),
        watermark("12:00"),
        expect(visitor="a", window="10:00/11:29", clicks=7, spent=7),
    )


def test_equal_times_are_all_counted() -> None:
    timeline(
        kept,
        at("10:00", visitor="a", amount=1),
        at("10:00", visitor="a", amount=1),
        batch(),
        at("10:00", visitor="a", amount=1),
        batch(),
        watermark("10:30"),
        expect(visitor="a", window="10:00/10:30", clicks=3, spent=3),
    )


def test_keys_do_not_touch_and_null_is_a_key() -> None:
    timeline(
        kept,
        at("10:00", visitor="a", amount=1),
        at("10:10", visitor=None, amount=2),
        at("10:20", visitor="b", amount=4),
        at("10:30", visitor=None, amount=8),
        watermark("11:00"),
        expect(
            row(visitor="a", window="10:00/10:30", spent=1),
            row(visitor=None, window="10:10/11:00", spent=10),
            row(visitor="b", window="10:20/10:50", spent=4),
        ),
    )


def test_a_key_may_have_several_columns_and_minus_zero_is_zero() -> None:
    timeline(
        hr.session("s", gap=GAP, key=["shop", "level"]).agg(n="count(*)").late(hr.side_output()),
        at("10:00", shop="x", level=0.0),
        at("10:10", shop="x", level=-0.0),
        at("10:10", shop="y", level=0.0),
        at("10:20", shop="x", level=float("nan")),
        at("10:25", shop="x", level=float("nan")),
        watermark("12:00"),
        expect(
            row(shop="x", level=0.0, window="10:00/10:40", n=2),
            row(shop="y", level=0.0, window="10:10/10:40", n=1),
            row(shop="x", level=float("nan"), window="10:20/10:55", n=2),
        ),
    )


def test_without_a_key_all_rows_share_their_sessions() -> None:
    timeline(
        hr.session("all", gap=GAP, key=None).agg(n="count(*)").late(hr.side_output()),
        at("10:00", visitor="a", partition=0),
        at("10:20", visitor="b", partition=1),
        batch(),
        at("11:00", visitor="c", partition=2),
        at("10:45", visitor="d", partition=0),
        watermark("11:30"),
        expect(window="10:00/11:30", session_id="10:00", n=4),
    )


def test_sessions_before_1970_and_across_it() -> None:
    timeline(
        kept,
        at("1969-12-31T23:50", visitor="a", amount=1),
        at("1970-01-01T00:00", visitor="a", amount=2),
        at("1970-01-01T00:10", visitor="a", amount=4),
        at("1901-01-01T00:00", visitor="a", amount=8),
        at("1901-01-01T00:30", visitor="a", amount=16),
        watermark("1970-01-01T00:40"),
        expect(
            row(visitor="a", window="1901-01-01T00:00/1901-01-01T00:30", clicks=1, spent=8),
            row(visitor="a", window="1901-01-01T00:30/1901-01-01T01:00", clicks=1, spent=16),
            row(visitor="a", window="1969-12-31T23:50/1970-01-01T00:40", clicks=3, spent=7),
        ),
    )


def test_empty_batches_change_nothing() -> None:
    timeline(
        kept,
        batch(),
        at("10:00", visitor="a", amount=1),
        batch(),
        batch(),
        watermark("10:10"),
        batch(),
        at("10:15", visitor="a", amount=1),
        batch(),
        expect(),
        watermark("10:45"),
        expect(visitor="a", window="10:00/10:45", clicks=2),
        batch(),
        expect(),
    )


@pytest.mark.spark
def test_a_session_that_is_open_across_crashes_loses_and_doubles_nothing() -> None:
    timeline(
        kept,
        at("10:00", visitor="a", amount=1),
        crash(),
        batch(),
        at("10:20", visitor="a", amount=2),
        batch(),
        crash(),
        at("10:40", visitor="a", amount=4),
        crash(),
        batch(),
        watermark("11:10"),
        expect(visitor="a", window="10:00/11:10", clicks=3, spent=7, pane="on_time", revision=0),
        expect(output="late"),
    )


def test_sessions_of_one_key_leave_in_the_order_of_time() -> None:
    hours = [f"{hour:02d}:00" for hour in range(24)]
    shuffled = [hours[(7 * place) % 24] for place in range(24)]
    timeline(
        kept,
        *(at(hour, visitor="a", amount=1) for hour in shuffled),
        watermark("2026-01-02T00:00"),
        expect(*(row(visitor="a", window=f"{hour}/{hour[:2]}:30") for hour in hours)),
    )


@pytest.mark.spark
def test_a_row_of_a_session_that_is_over_leaves_whole_with_how_late_it_was() -> None:
    timeline(
        kept,
        at("10:00", visitor="a", amount=1, note="first"),
        watermark("10:30"),
        expect(visitor="a", window="10:00/10:30", clicks=1),
        at("10:00", visitor="a", amount=2, note="whole"),
        at("09:59", visitor="new", amount=4, note=None),
        batch(),
        expect(),
        expect(
            row(visitor="a", amount=2, note="whole", late_by=late_by("30 minutes")),
            row(visitor="new", amount=4, note=None, late_by=late_by("31 minutes")),
            output="late",
        ),
        watermark("23:00"),
        expect(),
    )


def test_the_late_output_has_every_column_of_the_row_and_no_more() -> None:
    played = play(
        kept, at("10:00", visitor="a", amount=1, note="x"), watermark("11:00"), at("10:00", visitor="a"), batch()
    )
    (late,) = played.late
    assert list(late) == ["visitor", "amount", "note", "at", "late_by"]


def test_a_row_is_late_from_the_moment_its_session_is_over() -> None:
    timeline(
        kept,
        at("09:00", visitor="x", amount=0),
        watermark("10:29:59.999999"),
        expect(visitor="x"),
        at("10:00", visitor="a", amount=1),
        batch(),
        expect(output="late"),
        watermark("10:30"),
        expect(visitor="a", window="10:00/10:30", clicks=1),
        at("10:00", visitor="b", amount=1),
        batch(),
        expect(visitor="b", late_by=late_by("30 minutes"), output="late"),
    )


def test_a_dropped_late_row_leaves_no_trace() -> None:
    timeline(
        visits.late(hr.drop()),
        at("10:00", visitor="a", amount=1),
        watermark("11:00"),
        expect(visitor="a", window="10:00/10:30", clicks=1),
        at("10:10", visitor="a", amount=2),
        at("10:10", visitor="new", amount=2),
        batch(),
        watermark("23:00"),
        expect(),
        expect(output="late"),
        expect(output="dead_letters"),
    )


def test_all_rows_late() -> None:
    timeline(
        kept,
        at("20:00", visitor="x", amount=0),
        watermark("20:30"),
        expect(visitor="x"),
        *(at(f"{hour:02d}:00", visitor="a", amount=hour) for hour in range(10, 15)),
        batch(),
        watermark("23:00"),
        expect(),
        expect(
            *(
                row(visitor="a", amount=hour, late_by=late_by(f"{20 - hour} hours 30 minutes"))
                for hour in range(10, 15)
            ),
            output="late",
        ),
    )


def test_a_row_behind_the_watermark_that_touches_an_open_session_joins_it() -> None:
    timeline(
        kept,
        at("10:00", visitor="a", amount=1),
        at("10:20", visitor="a", amount=1),
        watermark("10:45"),
        # On its own, a session of 09:40 would have been over at 10:10.
        at("09:40", visitor="a", amount=2),
        at("09:40", visitor="b", amount=2),
        batch(),
        expect(visitor="b", amount=2, output="late"),
        watermark("10:50"),
        expect(visitor="a", window="09:40/10:50", session_id="10:00", clicks=3, spent=4),
    )


def test_rows_behind_the_watermark_that_reach_an_open_session_together_all_join_it() -> None:
    timeline(
        kept,
        at("10:20", visitor="a", amount=1),
        watermark("10:45"),
        at("09:15", visitor="a", amount=2),
        at("09:55", visitor="a", amount=2),
        at("09:35", visitor="a", amount=2),
        at("09:15", visitor="b", amount=2),
        at("09:35", visitor="b", amount=2),
        at("09:55", visitor="b", amount=2),
        batch(),
        expect(*(row(visitor="b", amount=2) for _ in range(3)), output="late"),
        watermark("10:50"),
        expect(visitor="a", window="09:15/10:50", clicks=4, spent=7),
    )


def test_a_row_behind_the_watermark_whose_own_session_is_not_over_is_on_time() -> None:
    timeline(
        kept,
        at("09:00", visitor="x", amount=0),
        watermark("10:20"),
        expect(visitor="x"),
        at("09:50:00.000001", visitor="a", amount=1),
        at("09:50", visitor="b", amount=1),
        batch(),
        expect(visitor="b", late_by=late_by("30 minutes"), output="late"),
        watermark("10:20:00.000001"),
        expect(visitor="a", window="09:50:00.000001/10:20:00.000001", clicks=1),
    )


def test_a_session_that_is_over_is_forgotten_and_a_row_beside_it_begins_another() -> None:
    timeline(
        kept,
        at("10:00", visitor="a", amount=1),
        watermark("10:30"),
        expect(visitor="a", window="10:00/10:30", clicks=1),
        at("10:10", visitor="a", amount=2),
        batch(),
        expect(output="late"),
        watermark("10:40"),
        expect(visitor="a", window="10:10/10:40", session_id="10:10", clicks=1, spent=2, revision=0),
    )


@pytest.mark.parametrize(
    ("late", "session_id"),
    [(hr.side_output(), "10:15:00.000001"), (hr.update_for("5 minutes"), "10:10:00.000001")],
    ids=repr,
)
def test_a_session_that_begins_where_one_began_that_is_over_has_an_id_of_its_own(late: Any, session_id: str) -> None:
    timeline(
        visits.late(late),
        at("10:00", visitor="a", amount=1),
        watermark("10:45"),
        expect(visitor="a", window="10:00/10:30", session_id="10:00", clicks=1),
        # By itself the first of these is late; the second, which is not, brings it in. What began earlier than half an
        # hour before the watermark may be over and forgotten.
        at("10:00", visitor="a", amount=2),
        at("10:25", visitor="a", amount=4),
        batch(),
        expect(output="late"),
        crash(),
        watermark("11:00"),
        expect(visitor="a", window="10:00/10:55", session_id=session_id, clicks=2, spent=6, revision=0),
    )


def test_the_watermark_of_a_batch_closes_sessions_before_the_batchs_rows_are_taken_in() -> None:
    timeline(
        kept,
        at("10:00", visitor="a", amount=1),
        at("10:45", visitor="b", amount=1),
        batch(),
        # The watermark of this batch is 10:45, so the session of 10:00 is over though its row comes with it.
        at("10:10", visitor="a", amount=2),
        at("10:45", visitor="a", amount=4),
        batch(),
        expect(visitor="a", window="10:00/10:30", clicks=1, spent=1),
        expect(visitor="a", amount=2, late_by=late_by("35 minutes"), output="late"),
        event_time=hr.event_time("at"),
    )


@pytest.mark.spark
def test_sessions_of_window_results_and_windows_of_sessions() -> None:
    busy = hr.session("busy", gap="1 hour 1 microsecond", key="visitor").agg(hours="count(*)", clicks="sum(clicks)")
    daily = hr.tumbling("daily", size="1 day", key="visitor").agg(sessions="count(*)", clicks="sum(clicks)")
    timeline(
        (
            hourly.agg(clicks="count(*)").late(hr.side_output()),
            busy.late(hr.side_output()),
            daily.late(hr.side_output()),
        ),
        at("10:05", visitor="a"),
        at("10:55", visitor="a"),
        at("11:05", visitor="a"),
        at("13:00", visitor="a"),
        at("15:00", visitor="b"),
        batch(),
        watermark("13:00"),
        expect(),
        watermark("2026-01-02T00:00"),
        expect(
            row(visitor="a", window="2026-01-01T00:00/2026-01-02T00:00", sessions=2, clicks=4),
            row(visitor="b", window="2026-01-01T00:00/2026-01-02T00:00", sessions=1, clicks=1),
        ),
        expect(output="late"),
    )


def test_a_watermark_that_jumps_makes_no_session_late_for_a_following_step() -> None:
    by_hour = hr.session("by_hour", gap=GAP, key="visitor").agg(n="count(*)").late(hr.side_output())
    busy = hr.session("busy", gap="2 hours", key="visitor").agg(sessions="count(*)").late(hr.side_output())
    timeline(
        (by_hour, busy),
        at("10:00", visitor="a"),
        at("11:00", visitor="a"),
        at("15:00", visitor="a"),
        watermark("2026-01-20T00:00"),
        expect(
            row(visitor="a", window="10:29:59.999999/13:29:59.999999", sessions=2),
            row(visitor="a", window="15:29:59.999999/17:29:59.999999", sessions=1),
        ),
        expect(output="late"),
    )


def test_a_correction_of_an_earlier_step_is_late_for_a_session_though_that_is_open() -> None:
    timeline(
        (
            hourly.agg(clicks="count(*)").late(hr.update_for("1 day")),
            hr.session("busy", gap="3 hours", key="visitor").agg(clicks="sum(clicks)").late(hr.side_output()),
        ),
        at("10:05", visitor="a"),
        watermark("11:00"),
        at("10:06", visitor="a"),
        batch(),
        expect(visitor="a", clicks=2, pane="late", late_by=late_by("1 microsecond"), output="late"),
        watermark("14:00"),
        expect(visitor="a", window="10:59:59.999999/13:59:59.999999", clicks=1),
    )


@pytest.mark.parametrize(
    "step",
    [
        visits.late(hr.update_for("1 hour")),
        visits.emit(hr.on_update()).late(hr.drop()),
        visits.emit(hr.on_close(early=hr.after_rows(2))).late(hr.drop()),
        visits.panes(hr.retracting()).late(hr.drop()),
    ],
)
def test_sessions_that_may_be_taken_back_are_refused_by_a_following_step(step: object) -> None:
    with pytest.raises(hr.DefinitionError, match=r"\[PREVIEWS_INTO_STEP\] step 'hourly' reads step 'visits'"):
        timeline((step, hourly.agg(n="count(*)").late(hr.drop())), at("10:00", visitor="a", amount=1))


def test_definitions_that_make_no_sense_are_refused() -> None:
    with pytest.raises(hr.DefinitionError, match=r"\[DURATION_NOT_POSITIVE\] gap='0 seconds'"):
        hr.session("s", gap="0 seconds", key="a")
    with pytest.raises(hr.DefinitionError, match=r"\[RESULT_NAME_TAKEN\] window 's': result 'session_id'"):
        hr.session("s", gap="1 second", key="a").agg(session_id="count(*)")
    with pytest.raises(hr.DefinitionError, match=r"\[LATE_NOT_CHOSEN\] window 'visits'"):
        timeline(visits, at("10:00", visitor="a", amount=1))
    with pytest.raises(hr.DefinitionError, match=r"\[COLUMN_UNKNOWN\] step 's': key column 'b'"):
        timeline(hr.session("s", gap="1 second", key="b").agg(n="count(*)").late(hr.drop()), at("10:00", a="x"))
