"""When windows are emitted: at the close, on every change, early by rows, event time or the clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import headrace as hr
from headrace.errors import DefinitionError
from headrace.testing import at, batch, clock, crash, expect, play, row, timeline, watermark

hourly = hr.tumbling("hourly", size="1 hour", key="account").agg(n="count(*)", spent="sum(amount)")


def emitting(emission: Any, late: Any = None) -> Any:
    return hourly.emit(emission).late(late or hr.side_output())


def result(n: int, spent: float | None, pane: str, revision: int, **more: Any) -> Any:
    return row(account="a", window="10:00/11:00", n=n, spent=spent, pane=pane, revision=revision, **more)


@pytest.mark.spark
def test_on_update_shows_a_window_after_each_batch_that_changed_it_and_at_its_close() -> None:
    timeline(
        emitting(hr.on_update()),
        at("10:05", account="a", amount=1.0),
        at("10:06", account="a", amount=2.0),
        batch(),
        expect(result(2, 3.0, "early", 0)),
        at("10:07", account="b", amount=9.0),
        batch(),
        expect(account="b", n=1, spent=9.0, pane="early", revision=0),
        at("10:59", account="a", amount=4.0),
        crash(),
        batch(),
        expect(result(3, 7.0, "early", 1)),
        watermark("11:00"),
        expect(
            result(3, 7.0, "on_time", 2),
            row(account="b", window="10:00/11:00", n=1, spent=9.0, pane="on_time", revision=1),
        ),
    )


@pytest.mark.parametrize("panes", [hr.accumulating(), hr.discarding(), hr.retracting()], ids=repr)
@pytest.mark.streamed
def test_on_update_shows_only_windows_that_changed_however_few_there_are(panes: Any) -> None:
    change = {"change": "insert"} if panes == hr.retracting() else {}
    timeline(
        emitting(hr.on_update()).panes(panes),
        at("10:05", account="a", amount=1.0),
        batch(),
        expect(result(1, 1.0, "early", 0, **change)),
        at("11:05", account="a", amount=1.0),
        batch(),
        expect(account="a", window="11:00/12:00", n=1, pane="early", revision=0, **change),
    )


def test_on_update_shows_nothing_for_a_batch_without_rows() -> None:
    timeline(
        emitting(hr.on_update()),
        at("10:05", account="a", amount=1.0),
        batch(),
        expect(result(1, 1.0, "early", 0)),
        batch(),
        watermark("10:30"),
        expect(),
    )


def test_a_window_that_opens_and_closes_in_one_batch_has_no_preview() -> None:
    second = hr.tumbling("daily", size="1 hour", key="account").agg(total="sum(spent)").late(hr.side_output())
    timeline(
        (hourly.late(hr.side_output()), second.emit(hr.on_update())),
        at("10:05", account="a", amount=1.0),
        watermark("11:00"),
        expect(account="a", window="10:00/11:00", total=1.0, pane="on_time", revision=0),
    )


@pytest.mark.spark
def test_after_rows_counts_the_rows_since_the_window_was_shown_last() -> None:
    timeline(
        emitting(hr.on_close(early=hr.after_rows(3))),
        *(at("10:05", account="a", amount=1.0) for _ in range(2)),
        batch(),
        expect(),
        *(at("10:06", account="a", amount=1.0) for _ in range(2)),
        batch(),
        expect(result(4, 4.0, "early", 0)),
        *(at("10:07", account="a", amount=1.0) for _ in range(2)),
        batch(),
        expect(),
        crash(),
        at("10:08", account="a", amount=1.0),
        batch(),
        expect(result(7, 7.0, "early", 1)),
        watermark("11:00"),
        expect(result(7, 7.0, "on_time", 2)),
    )


@pytest.mark.spark
def test_previews_by_the_clock_do_not_wait_for_the_next_row() -> None:
    timeline(
        emitting(hr.on_close(early=hr.every("10 seconds"))),
        clock("12:00:03"),
        at("10:05", account="a", amount=1.0),
        batch(),
        expect(),
        clock("12:00:09.999999"),
        batch(),
        expect(),
        clock("12:00:10"),
        batch(),
        expect(result(1, 1.0, "early", 0)),
        clock("12:00:20"),
        batch(),
        expect(),
        clock("12:00:41"),
        at("10:06", account="a", amount=2.0),
        batch(),
        expect(),
        crash(),
        clock("12:00:50"),
        batch(),
        expect(result(2, 3.0, "early", 1)),
        watermark("11:00"),
        expect(result(2, 3.0, "on_time", 2)),
    )


def test_a_preview_that_is_due_takes_in_the_rows_of_its_own_batch() -> None:
    timeline(
        emitting(hr.on_close(early=hr.every("10 seconds"))),
        clock("12:00:03"),
        at("10:05", account="a", amount=1.0),
        batch(),
        at("10:06", account="a", amount=2.0),
        clock("12:00:10"),
        batch(),
        expect(result(2, 3.0, "early", 0)),
    )


def test_previews_by_event_time_come_when_the_watermark_passes_them() -> None:
    timeline(
        emitting(hr.on_close(early=hr.every("20 minutes", time="event"))),
        at("10:05", account="a", amount=1.0),
        watermark("10:19:59.999999"),
        expect(),
        watermark("10:20"),
        expect(result(1, 1.0, "early", 0)),
        watermark("10:40"),
        expect(),
        at("10:45", account="a", amount=2.0),
        watermark("10:59"),
        expect(),
        watermark("11:00"),
        expect(result(2, 3.0, "on_time", 1)),
    )


def test_an_unchanged_window_is_not_shown_again_before_its_close() -> None:
    timeline(
        emitting(hr.on_close(early=hr.after_rows(1))),
        at("10:05", account="a", amount=1.0),
        batch(),
        expect(result(1, 1.0, "early", 0)),
        batch(),
        watermark("10:59"),
        expect(),
        watermark("11:00"),
        expect(result(1, 1.0, "on_time", 1)),
    )


def test_corrections_go_on_counting_revisions() -> None:
    timeline(
        emitting(hr.on_update(), hr.update_for("30 minutes")),
        at("10:05", account="a", amount=1.0),
        batch(),
        watermark("11:00"),
        expect(result(1, 1.0, "early", 0), result(1, 1.0, "on_time", 1)),
        at("10:06", account="a", amount=2.0),
        batch(),
        expect(result(2, 3.0, "late", 2)),
        watermark("11:30"),
        at("10:07", account="a", amount=4.0),
        batch(),
        expect(),
        expect(account="a", amount=4.0, output="late"),
    )


@pytest.mark.spark
def test_discarding_panes_hold_only_what_is_new() -> None:
    timeline(
        emitting(hr.on_update(), hr.update_for("30 minutes")).panes(hr.discarding()),
        at("10:05", account="a", amount=1.0),
        batch(),
        expect(result(1, 1.0, "early", 0)),
        at("10:06", account="a", amount=2.0),
        batch(),
        expect(result(1, 2.0, "early", 1)),
        watermark("11:00"),
        expect(result(0, None, "on_time", 2)),
        at("10:07", account="a", amount=4.0),
        crash(),
        batch(),
        expect(result(1, 4.0, "late", 3)),
    )


@pytest.mark.spark
def test_retracting_panes_take_the_old_value_back_first() -> None:
    timeline(
        emitting(hr.on_update(), hr.update_for("30 minutes")).panes(hr.retracting()),
        at("10:05", account="a", amount=1.0),
        batch(),
        expect(result(1, 1.0, "early", 0, change="insert")),
        at("10:06", account="a", amount=2.0),
        crash(),
        batch(),
        expect(result(1, 1.0, "early", 0, change="update_before"), result(2, 3.0, "early", 1, change="update_after")),
        watermark("11:00"),
        expect(result(2, 3.0, "early", 1, change="update_before"), result(2, 3.0, "on_time", 2, change="update_after")),
        at("10:07", account="a", amount=4.0),
        batch(),
        expect(result(2, 3.0, "on_time", 2, change="update_before"), result(3, 7.0, "late", 3, change="update_after")),
        at("10:08", account="a", amount=8.0),
        batch(),
        expect(result(3, 7.0, "late", 3, change="update_before"), result(4, 15.0, "late", 4, change="update_after")),
    )


def test_a_late_row_for_a_window_that_never_had_one_creates_it() -> None:
    timeline(
        emitting(hr.on_close(early=hr.after_rows(5)), hr.update_for("30 minutes")).panes(hr.retracting()),
        at("10:05", account="b", amount=1.0),
        watermark("11:00"),
        expect(account="b", n=1, pane="on_time", revision=0, change="insert"),
        at("10:06", account="a", amount=2.0),
        batch(),
        expect(result(1, 2.0, "late", 0, change="insert")),
    )


def test_all_rows_late_are_all_kept() -> None:
    played = play(
        emitting(hr.on_update()),
        at("12:00", account="a", amount=1.0),
        watermark("12:00"),
        at("10:05", account="a", amount=1.0),
        at("11:59:59.999999", account="a", amount=1.0),
        batch(),
    )
    assert [each["late_by"].total_seconds() for each in played.late] == [6900.0, 0.000001]
    assert [each["pane"] for each in played.main] == ["early"]


def test_previews_into_a_further_step_are_refused() -> None:
    daily = hr.tumbling("daily", size="1 day", key="account").agg(total="sum(spent)").late(hr.side_output())
    for first in (
        emitting(hr.on_update()),
        emitting(hr.on_close(early=hr.after_rows(2))),
        emitting(hr.on_close()).panes(hr.retracting()),
    ):
        with pytest.raises(hr.DefinitionError, match=r"\[PREVIEWS_INTO_STEP\] step 'daily' reads step 'hourly'"):
            play((first, daily), at("10:05", account="a", amount=1.0))


def test_a_trigger_alone_is_not_an_emission_of_windows_that_close() -> None:
    with pytest.raises(hr.DefinitionError, match=r"\[EMISSION_UNKNOWN\].*hr.on_close\(early=hr.after_rows\(3\)\)"):
        hourly.emit(hr.after_rows(3))  # type: ignore[arg-type]


def test_a_step_prints_itself_as_the_code_that_makes_it() -> None:
    step = emitting(hr.on_close(early=hr.every("10 seconds")), hr.update_for("5 minutes")).panes(hr.discarding())
    assert repr(step) == (
        "hr.tumbling('hourly', size='1 hour', key='account').agg(n='count(*)', spent='sum(amount)')"
        ".emit(hr.on_close(early=hr.every('10 seconds'))).late(hr.update_for('5 minutes')).panes(hr.discarding())"
    )


def spend(emission: Any, late: Any, **more: Any) -> Any:
    step = hr.hopping("w", size="1 hour", every="30 minutes", key="account", **more).agg(n="count(*)")
    return step.emit(emission).late(late)


@pytest.mark.spark
def test_late_rows_correct_a_window_when_so_many_have_come_and_when_its_time_for_corrections_is_over() -> None:
    timeline(
        spend(hr.on_close(late=hr.after_rows(3)), hr.update_for("1 hour")),
        at("10:05", account="a"),
        watermark("11:00"),
        expect(
            row(window="09:30/10:30", n=1, pane="on_time", revision=0),
            row(window="10:00/11:00", n=1, pane="on_time", revision=0),
        ),
        at("10:06", account="a"),
        at("10:35", account="a"),
        crash(),
        batch(),
        expect(),
        at("10:36", account="a"),
        batch(),
        expect(window="10:00/11:00", n=4, pane="late", revision=1),
        crash(),
        watermark("11:29"),
        expect(),
        watermark("11:30"),  # the first window takes no more rows, and shows the one that was left
        expect(
            row(window="09:30/10:30", n=2, pane="late", revision=1),
            row(window="10:30/11:30", n=2, pane="on_time", revision=0),
        ),
        watermark("15:00"),
        expect(),
    )


@pytest.mark.spark
def test_a_window_of_late_rows_alone_waits_for_as_many() -> None:
    timeline(
        spend(hr.on_close(late=hr.after_rows(2)), hr.update_for("1 hour")).panes(hr.retracting()),
        at("11:30", account="b"),
        watermark("11:00"),
        at("10:15", account="a"),
        batch(),
        expect(),
        watermark("11:30"),
        expect(account="a", window="09:30/10:30", n=1, pane="late", revision=0, change="insert"),
        at("10:40", account="a"),
        batch(),
        expect(row(account="a", window="10:00/11:00", n=2, pane="late", revision=0, change="insert")),
        watermark("12:30"),
        expect(
            row(account="a", window="10:30/11:30", n=1, pane="late", revision=0, change="insert"),
            row(account="b", window="11:00/12:00", n=1, pane="on_time", revision=0, change="insert"),
            row(account="b", window="11:30/12:30", n=1, pane="on_time", revision=0, change="insert"),
        ),
    )


@pytest.mark.spark
def test_only_previews_are_emitted_and_nothing_when_a_window_closes_or_a_key_expires() -> None:
    timeline(
        hr.tumbling("w", size="1 hour", key=None)
        .agg(n="count(*)")
        .emit(hr.early_only(hr.after_rows(2)))
        .late(hr.update_for("1 hour")),
        at("10:01"),
        at("10:02"),
        batch(),
        expect(window="10:00/11:00", n=2, pane="early", revision=0),
        at("10:03"),
        watermark("11:00"),
        expect(),
        at("10:04"),
        batch(),
        expect(window="10:00/11:00", n=4, pane="late", revision=1),
        watermark("15:00"),
        expect(),
    )
    timeline(
        hr.global_window("g", key=None, ttl="1 hour")
        .agg(n="count(*)")
        .emit(hr.early_only(hr.once(hr.after_rows(2))))
        .late(hr.drop()),
        at("10:01"),
        at("10:02"),
        at("10:03"),
        watermark("15:00"),
        expect(window="10:01/10:02:00.000001", n=2, pane="early", revision=0),
    )


after_two, by_time = hr.after_rows(2), hr.every("1 minute")


@pytest.mark.parametrize(
    "make",
    [
        lambda: hr.on_close(late=by_time),  # type: ignore[arg-type]
        lambda: hr.session("s", gap="1 minute", key="a").emit(hr.on_close(late=after_two)),
        lambda: hr.session("s", gap="1 minute", key="a").emit(hr.early_only(after_two)),
        lambda: hr.sliding("s", size="1 minute", key="a").emit(hr.early_only(after_two)),
        lambda: hr.sliding("s", size="1 minute", key="a").emit(hr.on_close(late=after_two)),
        lambda: hr.tumbling("s", size="1 minute", key="a").emit(hr.early_only(hr.when("n > 1"))),
        lambda: hr.global_window("s", key="a", ttl="1 day").emit(hr.on_close(late=after_two)),
    ],
)
def test_what_a_window_cannot_emit_is_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(DefinitionError, match=r"\[EMISSION_UNKNOWN\]"):
        make()


def test_corrections_after_rows_need_a_policy_that_takes_late_rows() -> None:
    with pytest.raises(DefinitionError, match=r"\[CORRECTIONS_MISSING\]"):
        play(spend(hr.on_close(late=hr.after_rows(2)), hr.drop()), at("10:00", account="a"))
