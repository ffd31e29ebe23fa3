"""Late rows: dropped, set aside, or corrections, as the step says."""

from __future__ import annotations

import pytest

import headrace as hr
from headrace.testing import at, batch, crash, expect, late_by, play, row, timeline, watermark
from headrace.testing.elements import Element

hourly = hr.tumbling("hourly", size="1 hour", key="account").agg(spent="sum(amount)", n="count(*)")
correcting = hourly.late(hr.update_for("5 minutes"))

CLOSED_AT_11 = (
    at("10:05", account="a", amount=5.0),
    watermark("11:00"),
    expect(account="a", window="10:00/11:00", spent=5.0, n=1, pane="on_time", revision=0),
)


def test_a_dropped_late_row_leaves_no_trace() -> None:
    timeline(
        hourly.late(hr.drop()),
        *CLOSED_AT_11,
        at("10:30", account="a", amount=2.0),
        at("10:30", account="new", amount=2.0),
        batch(),
        watermark("23:00"),
        expect(),
        expect(output="late"),
        expect(output="dead_letters"),
    )


@pytest.mark.spark
def test_a_late_row_is_set_aside_whole_with_how_late_it_was() -> None:
    timeline(
        hourly.late(hr.side_output()),
        *CLOSED_AT_11,
        watermark("11:10"),
        at("10:59:59.999999", account="a", amount=2.0, note="whole"),
        at("11:00", account="a", amount=3.0, note="on time"),
        batch(),
        expect(),
        expect(account="a", amount=2.0, note="whole", late_by=late_by("10 minutes 1 microsecond"), output="late"),
        watermark("12:00"),
        expect(account="a", window="11:00/12:00", spent=3.0, n=1),
    )


def test_the_late_output_has_every_column_of_the_row_and_no_more() -> None:
    played = play(
        hourly.late(hr.side_output()),
        *CLOSED_AT_11[:2],
        at("10:30", account="a", amount=2.0, note=None),
        batch(),
    )
    (late,) = played.late
    assert sorted(late) == ["account", "amount", "at", "late_by", "note"]


def test_a_row_older_than_the_watermark_is_on_time_while_its_window_is_open() -> None:
    timeline(
        hourly.late(hr.side_output()),
        at("10:05", account="a", amount=5.0),
        watermark("10:59:59.999999"),
        at("10:00", account="a", amount=2.0),
        at("10:00", account="new", amount=1.0),
        batch(),
        expect(output="late"),
        watermark("11:00"),
        expect(
            row(account="a", spent=7.0, n=2, pane="on_time", revision=0),
            row(account="new", spent=1.0, n=1, pane="on_time", revision=0),
        ),
    )


def test_a_row_is_late_from_the_moment_its_window_has_closed() -> None:
    timeline(
        hourly.late(hr.side_output()),
        at("10:05", account="a", amount=5.0),
        watermark("11:00"),
        at("10:00", account="a", amount=2.0),
        at("10:00", account="new", amount=1.0),
        batch(),
        expect(
            row(account="a", late_by=late_by("1 hour")),
            row(account="new", late_by=late_by("1 hour")),
            output="late",
        ),
    )


@pytest.mark.spark
def test_a_late_row_corrects_its_window_and_each_correction_has_the_next_revision() -> None:
    timeline(
        correcting,
        *CLOSED_AT_11,
        at("10:30", account="a", amount=2.0),
        batch(),
        expect(account="a", window="10:00/11:00", spent=7.0, n=2, pane="late", revision=1),
        at("10:31", account="a", amount=1.0),
        batch(),
        expect(account="a", window="10:00/11:00", spent=8.0, n=3, pane="late", revision=2),
        crash(),
        at("10:32", account="a", amount=1.0),
        crash(),
        batch(),
        expect(account="a", window="10:00/11:00", spent=9.0, n=4, pane="late", revision=3),
        expect(output="late"),
    )


def test_all_late_rows_of_a_batch_make_one_correction() -> None:
    timeline(
        correcting,
        *CLOSED_AT_11,
        at("10:30", account="a", amount=2.0, partition=0),
        at("10:31", account="a", amount=1.0, partition=1),
        at("10:00", account="a", amount=1.0, partition=2),
        batch(),
        expect(account="a", spent=9.0, n=4, pane="late", revision=1),
    )


def test_a_batch_without_late_rows_corrects_nothing() -> None:
    timeline(
        correcting, *CLOSED_AT_11, batch(), watermark("11:04"), at("11:10", account="a", amount=1.0), batch(), expect()
    )


@pytest.mark.spark
def test_a_late_row_for_a_window_that_never_had_one_creates_it_as_revision_0() -> None:
    timeline(
        correcting,
        *CLOSED_AT_11,
        at("10:30", account="new", amount=2.0),
        batch(),
        expect(account="new", window="10:00/11:00", spent=2.0, n=1, pane="late", revision=0),
        at("10:31", account="new", amount=1.0),
        batch(),
        expect(account="new", window="10:00/11:00", spent=3.0, n=2, pane="late", revision=1),
    )


@pytest.mark.spark
def test_corrections_end_when_the_watermark_reaches_the_end_plus_the_duration() -> None:
    timeline(
        correcting,
        *CLOSED_AT_11,
        watermark("11:04:59.999999"),
        at("10:30", account="a", amount=2.0),
        batch(),
        expect(account="a", spent=7.0, pane="late", revision=1),
        watermark("11:05"),
        at("10:30", account="a", amount=1.0),
        at("10:30", account="new", amount=1.0),
        batch(),
        expect(),
        expect(
            row(account="a", amount=1.0, late_by=late_by("35 minutes")),
            row(account="new", amount=1.0, late_by=late_by("35 minutes")),
            output="late",
        ),
    )


def test_one_watermark_that_passes_both_bounds_emits_the_window_and_forgets_it() -> None:
    timeline(
        correcting,
        at("10:05", account="a", amount=5.0),
        watermark("12:00"),
        expect(account="a", spent=5.0, pane="on_time", revision=0),
        at("10:06", account="a", amount=1.0),
        batch(),
        expect(),
        expect(account="a", amount=1.0, late_by=late_by("1 hour 54 minutes"), output="late"),
    )


def test_the_batch_in_which_a_window_closes_may_correct_it_too() -> None:
    timeline(
        correcting,
        at("10:05", account="a", amount=5.0),
        at("11:01", account="b", amount=1.0),
        batch(),
        # The watermark of this batch is 11:01: the window closes without this row, which then corrects it.
        at("10:06", account="a", amount=1.0),
        batch(),
        expect(
            row(account="a", spent=5.0, n=1, pane="on_time", revision=0),
            row(account="a", spent=6.0, n=2, pane="late", revision=1),
        ),
        event_time=hr.event_time("at"),
    )


def test_a_corrected_window_and_an_open_one_of_the_same_key_do_not_touch() -> None:
    timeline(
        correcting,
        *CLOSED_AT_11,
        at("10:30", account="a", amount=2.0),
        at("11:30", account="a", amount=10.0),
        batch(),
        expect(account="a", window="10:00/11:00", spent=7.0, pane="late", revision=1),
        watermark("12:00"),
        expect(account="a", window="11:00/12:00", spent=10.0, pane="on_time", revision=0),
    )


def test_corrections_of_several_windows_of_one_key_are_each_their_own() -> None:
    timeline(
        hourly.late(hr.update_for("1 day")),
        at("10:05", account="a", amount=1.0),
        at("11:05", account="a", amount=2.0),
        watermark("12:00"),
        expect(row(account="a", spent=1.0, revision=0), row(account="a", spent=2.0, revision=0)),
        at("11:06", account="a", amount=10.0),
        batch(),
        expect(account="a", window="11:00/12:00", spent=12.0, revision=1),
        at("10:06", account="a", amount=10.0),
        at("11:07", account="a", amount=10.0),
        batch(),
        expect(
            row(account="a", window="10:00/11:00", spent=11.0, revision=1),
            row(account="a", window="11:00/12:00", spent=22.0, revision=2),
        ),
    )


@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_the_last_correction_does_not_depend_on_how_late_rows_are_batched(rounds: int) -> None:
    late = [at(f"10:{minute:02d}", account="a", amount=float(minute)) for minute in range(10)]
    size = len(late) // rounds
    split: list[Element] = []
    for start in range(0, 10, size):
        split += [*late[start : start + size], batch()]
    played = play(correcting, *CLOSED_AT_11[:2], *split)
    last = played.main[-1]
    assert (last["spent"], last["n"], last["pane"], last["revision"]) == (50.0, 11, "late", rounds)


def test_a_step_that_chooses_nothing_for_late_rows_is_refused() -> None:
    with pytest.raises(hr.DefinitionError, match=r"\[LATE_NOT_CHOSEN\] window 'hourly'"):
        timeline(hourly, at("10:05", account="a", amount=1.0))
