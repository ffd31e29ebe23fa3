"""Sessions that are emitted more than once: corrections, merges after the emission, previews, panes."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace.testing import at, batch, clock, crash, expect, late_by, play, row, timeline, watermark
from headrace.testing.elements import At, Element, Expect

visits = hr.session("visits", gap="30 minutes", key="visitor").agg(clicks="count(*)", spent="sum(amount)")
correcting = visits.late(hr.update_for("2 hours"))


def click(time: str, amount: int = 1, **more: Any) -> At:
    return at(time, visitor="a", amount=amount, **more)


def result(window: str, session_id: str, clicks: int, spent: int, pane: str, revision: int, change: str) -> Any:
    """A row of visitor a, all of it."""
    return row(
        visitor="a",
        window=window,
        session_id=session_id,
        clicks=clicks,
        spent=spent,
        pane=pane,
        revision=revision,
        change=change,
    )


def nothing_late() -> Expect:
    return expect(output="late")


TWO_CLOSED = (
    click("10:00"),
    click("10:50", 2),
    watermark("11:20"),
    expect(
        result("10:00/10:30", "10:00", 1, 1, "on_time", 0, "insert"),
        result("10:50/11:20", "10:50", 1, 2, "on_time", 0, "insert"),
    ),
)


def test_a_late_row_corrects_its_session_and_each_correction_has_the_next_revision() -> None:
    timeline(
        correcting,
        click("10:00"),
        click("10:20", 2),
        watermark("11:00"),
        expect(result("10:00/10:50", "10:00", 2, 3, "on_time", 0, "insert")),
        click("10:10", 4),
        batch(),
        expect(result("10:00/10:50", "10:00", 3, 7, "late", 1, "update_after")),
        click("10:11", 8),
        crash(),
        batch(),
        expect(result("10:00/10:50", "10:00", 4, 15, "late", 2, "update_after")),
        nothing_late(),
    )


def test_all_late_rows_of_a_batch_make_one_correction() -> None:
    timeline(
        correcting,
        *TWO_CLOSED,
        click("10:01", partition=0),
        click("10:02", partition=1),
        click("10:03", partition=2),
        batch(),
        expect(result("10:00/10:33", "10:00", 4, 4, "late", 1, "update_after")),
    )


def test_a_late_row_for_no_known_session_makes_one_as_revision_0() -> None:
    timeline(
        correcting,
        *TWO_CLOSED,
        click("09:30", 4),
        batch(),
        expect(result("09:30/10:00", "09:30", 1, 4, "late", 0, "insert")),
        click("09:29", 8),
        batch(),
        expect(result("09:29/10:00", "09:30", 2, 12, "late", 1, "update_after")),
    )


def test_a_session_that_is_corrected_backwards_keeps_its_id_while_its_start_moves() -> None:
    timeline(
        correcting,
        *TWO_CLOSED,
        click("09:45", 4),
        batch(),
        expect(result("09:45/10:30", "10:00", 2, 5, "late", 1, "update_after")),
        click("09:20", 8),
        batch(),
        expect(result("09:20/10:30", "10:00", 3, 13, "late", 2, "update_after")),
        nothing_late(),
    )


@pytest.mark.spark
def test_a_late_row_that_bridges_two_emitted_sessions_keeps_the_earlier_and_deletes_the_other() -> None:
    timeline(
        correcting,
        *TWO_CLOSED,
        click("10:25", 4),
        batch(),
        expect(
            result("10:00/11:20", "10:00", 3, 7, "late", 1, "update_after"),
            result("10:50/11:20", "10:50", 1, 2, "on_time", 0, "delete"),
        ),
        click("10:45", 8),
        batch(),
        expect(result("10:00/11:20", "10:00", 4, 15, "late", 2, "update_after")),
        nothing_late(),
    )


@pytest.mark.spark
def test_a_session_bridged_by_a_late_row_after_a_crash() -> None:
    timeline(
        correcting,
        *TWO_CLOSED[:3],
        crash(),
        expect(
            result("10:00/10:30", "10:00", 1, 1, "on_time", 0, "insert"),
            result("10:50/11:20", "10:50", 1, 2, "on_time", 0, "insert"),
        ),
        click("10:25", 4),
        crash(),
        expect(),
        batch(),
        expect(
            result("10:00/11:20", "10:00", 3, 7, "late", 1, "update_after"),
            result("10:50/11:20", "10:50", 1, 2, "on_time", 0, "delete"),
        ),
        crash(),
        watermark("23:00"),
        expect(),
        nothing_late(),
    )


def test_rows_that_bridge_three_emitted_sessions_delete_two() -> None:
    timeline(
        correcting,
        click("10:00"),
        click("10:40", 2),
        click("11:20", 4),
        watermark("11:50"),
        expect(
            result("10:00/10:30", "10:00", 1, 1, "on_time", 0, "insert"),
            result("10:40/11:10", "10:40", 1, 2, "on_time", 0, "insert"),
            result("11:20/11:50", "11:20", 1, 4, "on_time", 0, "insert"),
        ),
        click("10:20", 8),
        click("11:00", 16),
        batch(),
        expect(
            result("10:00/11:50", "10:00", 5, 31, "late", 1, "update_after"),
            result("10:40/11:10", "10:40", 1, 2, "on_time", 0, "delete"),
            result("11:20/11:50", "11:20", 1, 4, "on_time", 0, "delete"),
        ),
    )


def test_a_deleted_session_shows_what_was_emitted_of_it_last() -> None:
    timeline(
        correcting,
        *TWO_CLOSED,
        click("10:55", 4),
        batch(),
        # It has grown, and is open until 11:25.
        expect(),
        click("10:25", 8),
        batch(),
        expect(
            result("10:00/11:25", "10:00", 4, 15, "early", 1, "update_after"),
            result("10:50/11:20", "10:50", 1, 2, "on_time", 0, "delete"),
        ),
        watermark("11:25"),
        expect(result("10:00/11:25", "10:00", 4, 15, "on_time", 2, "update_after")),
    )


def test_a_closed_session_that_grows_is_open_again_and_closes_with_the_next_revision() -> None:
    timeline(
        correcting,
        *TWO_CLOSED,
        click("11:10", 4),
        batch(),
        expect(),
        watermark("11:39"),
        expect(),
        click("11:35", 8),
        batch(),
        watermark("12:05"),
        expect(result("10:50/12:05", "10:50", 3, 14, "on_time", 1, "update_after")),
        nothing_late(),
    )


def test_a_late_row_between_an_emitted_session_and_an_open_one_makes_them_one_under_the_emitted_id() -> None:
    timeline(
        correcting,
        click("10:00"),
        click("10:50", 2),
        watermark("11:00"),
        expect(result("10:00/10:30", "10:00", 1, 1, "on_time", 0, "insert")),
        click("10:25", 4),
        batch(),
        expect(),
        watermark("11:20"),
        expect(result("10:00/11:20", "10:00", 3, 7, "on_time", 1, "update_after")),
    )


def test_an_emitted_session_that_grows_backwards_over_one_that_was_not_emitted_keeps_its_id() -> None:
    timeline(
        visits.emit(hr.on_close(early=hr.after_rows(2))).late(hr.side_output()),
        click("10:40"),
        click("10:45"),
        batch(),
        expect(result("10:40/11:15", "10:40", 2, 2, "early", 0, "insert")),
        click("10:00", 4),
        batch(),
        expect(),
        click("10:20", 8),
        batch(),
        expect(result("10:00/11:15", "10:40", 4, 14, "early", 1, "update_after")),
    )


def test_corrections_end_when_the_watermark_reaches_the_end_plus_the_duration() -> None:
    timeline(
        correcting,
        click("10:00"),
        watermark("12:29:59.999999"),
        expect(result("10:00/10:30", "10:00", 1, 1, "on_time", 0, "insert")),
        click("10:00", 2),
        batch(),
        expect(result("10:00/10:30", "10:00", 2, 3, "late", 1, "update_after")),
        watermark("12:30"),
        click("10:00", 4),
        batch(),
        expect(),
        expect(visitor="a", amount=4, late_by=late_by("2 hours 30 minutes"), output="late"),
    )


def test_a_late_row_that_touches_a_correctable_session_corrects_it_though_alone_it_would_be_too_late() -> None:
    timeline(
        correcting,
        click("10:00"),
        watermark("12:10"),
        expect(result("10:00/10:30", "10:00", 1, 1, "on_time", 0, "insert")),
        at("09:35", visitor="b", amount=2),
        click("09:35", 2),
        batch(),
        expect(result("09:35/10:30", "10:00", 2, 3, "late", 1, "update_after")),
        expect(visitor="b", amount=2, late_by=late_by("2 hours 35 minutes"), output="late"),
    )


def test_one_watermark_that_passes_both_bounds_emits_the_session_and_forgets_it() -> None:
    timeline(
        correcting,
        click("10:00"),
        watermark("20:00"),
        expect(result("10:00/10:30", "10:00", 1, 1, "on_time", 0, "insert")),
        click("10:00", 2),
        batch(),
        expect(),
        expect(visitor="a", amount=2, late_by=late_by("10 hours"), output="late"),
    )


def test_the_batch_in_which_a_session_closes_may_correct_and_delete_it_too() -> None:
    timeline(
        correcting,
        click("10:00"),
        click("10:50", 2),
        at("11:30", visitor="b", amount=0),
        batch(),
        # The watermark of this batch is 11:30: both sessions close without this row, which then bridges them.
        click("10:25", 4),
        batch(),
        expect(
            result("10:00/10:30", "10:00", 1, 1, "on_time", 0, "insert"),
            result("10:00/11:20", "10:00", 3, 7, "late", 1, "update_after"),
            result("10:50/11:20", "10:50", 1, 2, "on_time", 0, "insert"),
            result("10:50/11:20", "10:50", 1, 2, "on_time", 0, "delete"),
        ),
        event_time=hr.event_time("at"),
    )


@pytest.mark.parametrize("rounds", [1, 2, 5, 10])
def test_the_last_correction_does_not_depend_on_how_late_rows_are_batched(rounds: int) -> None:
    late = [click(f"10:{minute:02d}", minute) for minute in range(5, 55, 5)]
    size = len(late) // rounds
    split: list[Element] = []
    for start in range(0, 10, size):
        split += [*late[start : start + size], batch()]
    played = play(correcting, *TWO_CLOSED[:3], *split)
    table = {each["session_id"]: each for each in played.main}
    (first, other) = (table[moment] for moment in sorted(table))
    assert (first["clicks"], first["spent"], first["change"]) == (12, 278, "update_after")
    assert (other["clicks"], other["change"]) == (1 if rounds == 1 else other["clicks"], "delete")


def test_on_update_emits_after_each_batch_that_changed_a_session_and_at_the_close() -> None:
    timeline(
        visits.emit(hr.on_update()).late(hr.side_output()),
        click("10:00"),
        batch(),
        expect(result("10:00/10:30", "10:00", 1, 1, "early", 0, "insert")),
        batch(),
        expect(),
        click("10:10", 2),
        at("10:00", visitor="b", amount=1),
        crash(),
        batch(),
        expect(
            result("10:00/10:40", "10:00", 2, 3, "early", 1, "update_after"),
            row(
                visitor="b",
                window="10:00/10:30",
                session_id="10:00",
                clicks=1,
                spent=1,
                pane="early",
                revision=0,
                change="insert",
            ),
        ),
        watermark("10:39"),
        expect(visitor="b", window="10:00/10:30", pane="on_time", revision=1),
        watermark("10:40"),
        expect(result("10:00/10:40", "10:00", 2, 3, "on_time", 2, "update_after")),
        watermark("23:00"),
        expect(),
    )


def test_previews_of_two_sessions_that_become_one_leave_one() -> None:
    timeline(
        visits.emit(hr.on_update()).late(hr.side_output()),
        click("10:00"),
        click("10:50", 2),
        batch(),
        expect(
            result("10:00/10:30", "10:00", 1, 1, "early", 0, "insert"),
            result("10:50/11:20", "10:50", 1, 2, "early", 0, "insert"),
        ),
        click("10:25", 4),
        crash(),
        batch(),
        expect(
            result("10:00/11:20", "10:00", 3, 7, "early", 1, "update_after"),
            result("10:50/11:20", "10:50", 1, 2, "early", 0, "delete"),
        ),
        watermark("11:20"),
        expect(result("10:00/11:20", "10:00", 3, 7, "on_time", 2, "update_after")),
    )


def test_previews_by_the_clock_come_on_a_quiet_stream_too_and_only_after_changes() -> None:
    timeline(
        visits.emit(hr.on_close(early=hr.every("10 seconds"))).late(hr.side_output()),
        clock("12:00:03"),
        click("10:00"),
        batch(),
        click("10:01", 2),
        batch(),
        expect(),
        clock("12:00:10"),
        batch(),
        expect(result("10:00/10:31", "10:00", 2, 3, "early", 0, "insert")),
        clock("12:00:20"),
        batch(),
        expect(),
        watermark("10:31"),
        expect(result("10:00/10:31", "10:00", 2, 3, "on_time", 1, "update_after")),
    )


@pytest.mark.spark
def test_previews_by_event_time_come_at_whole_multiples_wherever_the_session_begins() -> None:
    timeline(
        visits.emit(hr.on_close(early=hr.every("20 minutes", time="event"))).late(hr.side_output()),
        click("10:05"),
        click("10:30", 2),
        watermark("10:19:59"),
        expect(),
        watermark("10:20"),
        expect(result("10:05/11:00", "10:05", 2, 3, "early", 0, "insert")),
        click("10:45", 4),
        batch(),
        watermark("10:39"),
        expect(),
        crash(),
        watermark("10:40"),
        expect(result("10:05/11:15", "10:05", 3, 7, "early", 1, "update_after")),
        click("10:50", 8),
        watermark("11:00"),
        expect(result("10:05/11:20", "10:05", 4, 15, "early", 2, "update_after")),
        watermark("11:20"),
        expect(result("10:05/11:20", "10:05", 4, 15, "on_time", 3, "update_after")),
    )


def test_previews_after_rows() -> None:
    timeline(
        visits.emit(hr.on_close(early=hr.after_rows(3))).late(hr.side_output()),
        click("10:00"),
        click("10:01"),
        batch(),
        expect(),
        click("10:02"),
        click("10:03"),
        batch(),
        expect(result("10:00/10:33", "10:00", 4, 4, "early", 0, "insert")),
        click("10:04"),
        click("10:05"),
        batch(),
        expect(),
        watermark("11:00"),
        expect(result("10:00/10:35", "10:00", 6, 6, "on_time", 1, "update_after")),
    )


def test_what_a_merge_takes_back_is_told_again_at_once() -> None:
    timeline(
        visits.emit(hr.on_close(early=hr.after_rows(2))).late(hr.side_output()),
        click("10:00"),
        click("10:01"),
        click("10:50", 2),
        click("10:51", 2),
        batch(),
        expect(
            result("10:00/10:31", "10:00", 2, 2, "early", 0, "insert"),
            result("10:50/11:21", "10:50", 2, 4, "early", 0, "insert"),
        ),
        click("10:25", 8),
        batch(),
        expect(
            result("10:00/11:21", "10:00", 5, 14, "early", 1, "update_after"),
            result("10:50/11:21", "10:50", 2, 4, "early", 0, "delete"),
        ),
    )


def test_discarding_panes_hold_what_is_new_since_the_last_emission() -> None:
    timeline(
        visits.emit(hr.on_close(early=hr.after_rows(2))).panes(hr.discarding()).late(hr.update_for("2 hours")),
        click("10:00"),
        click("10:01", 2),
        batch(),
        expect(result("10:00/10:31", "10:00", 2, 3, "early", 0, "insert")),
        click("10:02", 4),
        batch(),
        expect(),
        watermark("10:32"),
        expect(result("10:00/10:32", "10:00", 1, 4, "on_time", 1, "update_after")),
        click("10:00", 8),
        batch(),
        expect(result("10:00/10:32", "10:00", 1, 8, "late", 2, "update_after")),
    )


@pytest.mark.streamed
def test_a_discarding_pane_at_the_close_counts_nothing_when_nothing_is_new() -> None:
    timeline(
        visits.emit(hr.on_update()).panes(hr.discarding()).late(hr.side_output()),
        click("10:00"),
        batch(),
        expect(result("10:00/10:30", "10:00", 1, 1, "early", 0, "insert")),
        watermark("10:30"),
        expect(
            row(
                visitor="a",
                window="10:00/10:30",
                session_id="10:00",
                clicks=0,
                spent=None,
                pane="on_time",
                revision=1,
                change="update_after",
            )
        ),
    )


@pytest.mark.streamed
def test_a_merge_with_discarding_panes_takes_back_all_that_was_given_and_gives_it_to_the_other() -> None:
    timeline(
        visits.emit(hr.on_update()).panes(hr.discarding()).late(hr.update_for("2 hours")),
        click("10:00"),
        click("10:50", 2),
        batch(),
        expect(
            result("10:00/10:30", "10:00", 1, 1, "early", 0, "insert"),
            result("10:50/11:20", "10:50", 1, 2, "early", 0, "insert"),
        ),
        click("10:51", 4),
        batch(),
        expect(result("10:50/11:21", "10:50", 1, 4, "early", 1, "update_after")),
        click("10:25", 8),
        batch(),
        # 10:50 has given 2 and 4; both are new for 10:00.
        expect(
            result("10:00/11:21", "10:00", 3, 14, "early", 1, "update_after"),
            result("10:50/11:21", "10:50", 2, 6, "early", 1, "delete"),
        ),
        click("11:00", 16),
        batch(),
        expect(result("10:00/11:30", "10:00", 1, 16, "early", 2, "update_after")),
    )


def test_retracting_panes_take_back_what_was_given_with_the_window_it_had() -> None:
    timeline(
        visits.panes(hr.retracting()).late(hr.update_for("2 hours")),
        *TWO_CLOSED,
        click("09:45", 4),
        batch(),
        expect(
            result("10:00/10:30", "10:00", 1, 1, "on_time", 0, "update_before"),
            result("09:45/10:30", "10:00", 2, 5, "late", 1, "update_after"),
        ),
        click("10:25", 8),
        crash(),
        batch(),
        expect(
            result("09:45/10:30", "10:00", 2, 5, "late", 1, "update_before"),
            result("09:45/11:20", "10:00", 4, 15, "late", 2, "update_after"),
            result("10:50/11:20", "10:50", 1, 2, "on_time", 0, "delete"),
        ),
    )


@pytest.mark.streamed
def test_any_aggregate_can_be_taken_back() -> None:
    step = hr.session("s", gap="30 minutes", key="visitor").agg(
        n="count(*)",
        of="count(distinct amount)",
        about="approx_count_distinct(amount)",
        middle=hr.percentile("amount", 0.5),
        first="first(amount)",
        most=hr.top("amount", n=2),
        seen=hr.collect_list("amount", at_most=5),
        mean=hr.ewm("amount", half_life="10 minutes"),
    )
    for panes in (hr.accumulating(), hr.discarding(), hr.retracting()):
        played = play(
            step.emit(hr.on_update()).panes(panes).late(hr.update_for("2 hours")),
            *(click("10:00", 1), click("10:50", 2), batch(), click("10:25", 3), batch(), watermark("12:00")),
        )
        deleted = [each for each in played.main if each["change"] == "delete"]
        assert [(each["n"], each["of"], each["first"], each["most"], each["seen"]) for each in deleted] == [
            (1, 1, 2, [2], [2])
        ]
        whole = [each for each in played.main if each["change"] == "update_after" and each["pane"] == "early"]
        new = panes == hr.discarding()
        assert [(each["n"], each["of"], each["first"], each["most"], each["seen"]) for each in whole] == [
            (2, 2, 3, [3, 2], [3, 2]) if new else (3, 3, 1, [3, 2], [1, 3, 2])
        ]
        last = played.main[-1]
        assert (last["n"], last["most"] or []) == ((0, []) if new else (3, [3, 2]))


def test_late_rows_without_a_key() -> None:
    timeline(
        hr.session("all", gap="30 minutes", key=None).agg(n="count(*)").late(hr.update_for("1 hour")),
        at("10:00", visitor="a"),
        at("10:50", visitor="b"),
        watermark("11:20"),
        expect(
            row(window="10:00/10:30", n=1, revision=0, change="insert"),
            row(window="10:50/11:20", n=1, revision=0, change="insert"),
        ),
        at("10:25", visitor="c"),
        batch(),
        expect(
            row(window="10:00/11:20", n=3, pane="late", revision=1, change="update_after"),
            row(window="10:50/11:20", n=1, pane="on_time", revision=0, change="delete"),
        ),
    )
