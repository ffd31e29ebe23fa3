"""Sliding windows: what a row sees, when it leaves, and how late rows correct it."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace.testing import at, batch, crash, expect, late_by, play, row, timeline, watermark
from headrace.testing.elements import Expect, Row

hour = hr.sliding("recent", size="1 hour", key="account").agg(spent="sum(amount)", n="count(*)")
aside = hour.late(hr.side_output())
correcting = hour.late(hr.update_for("30 minutes"))
at_once = hour.emit(hr.on_update())


@pytest.mark.spark
def test_a_row_sees_what_is_less_than_the_size_before_it_and_itself() -> None:
    timeline(
        aside,
        at("10:00", account="a", amount=1),
        at("10:00:00.000001", account="a", amount=2),
        at("11:00", account="a", amount=4),
        at("11:00:00.000001", account="a", amount=8),
        watermark("12:00"),
        expect(
            row(account="a", amount=1, spent=1, n=1, pane="on_time", revision=0),
            row(account="a", amount=2, spent=3, n=2, pane="on_time", revision=0),
            row(account="a", amount=4, spent=6, n=2, pane="on_time", revision=0),
            row(account="a", amount=8, spent=12, n=2, pane="on_time", revision=0),
        ),
    )


def test_a_result_has_all_columns_of_its_row_and_a_window_that_ends_with_it() -> None:
    played = play(aside, at("10:30", account="a", amount=1, note="whole"), watermark("10:31"))
    (result,) = played.main
    assert list(result) == ["account", "amount", "note", "at", "window", "spent", "n", "pane", "revision"]
    timeline(
        aside,
        at("10:30", account="a", amount=1, note="whole"),
        watermark("10:31"),
        expect(account="a", amount=1, note="whole", at="10:30", window="09:30:00.000001/10:30:00.000001"),
    )


def test_rows_with_equal_times_see_each_other() -> None:
    timeline(
        aside,
        at("10:00", account="a", amount=1, partition=0),
        at("10:00", account="a", amount=2, partition=1),
        batch(),
        at("10:00", account="a", amount=4),
        watermark("10:01"),
        expect(
            row(account="a", amount=1, spent=7, n=3),
            row(account="a", amount=2, spent=7, n=3),
            row(account="a", amount=4, spent=7, n=3),
        ),
    )


def test_a_row_leaves_when_the_watermark_has_passed_it_and_not_when_it_is_reached() -> None:
    timeline(
        aside,
        at("10:00", account="a", amount=1),
        watermark("10:00"),
        expect(),
        at("10:00", account="a", amount=2),
        batch(),
        expect(output="late"),
        watermark("10:00:00.000001"),
        expect(row(account="a", amount=1, spent=3), row(account="a", amount=2, spent=3)),
        batch(),
        watermark("23:00"),
        expect(),
    )


def test_rows_of_one_key_leave_in_the_order_of_time_and_then_of_arrival() -> None:
    minutes = [(7 * place) % 60 for place in range(60)]
    timeline(
        aside,
        *(at(f"10:{minute:02d}", account="a", amount=1, number=minute) for minute in minutes[:30]),
        batch(),
        *(at(f"10:{minute:02d}", account="a", amount=1, number=minute) for minute in minutes[30:]),
        at("10:00", account="a", amount=1, number=-1),
        watermark("11:00"),
        expect(
            row(account="a", number=0, n=2),
            row(account="a", number=-1, n=2),
            *(row(account="a", number=minute, n=minute + 2) for minute in range(1, 60)),
        ),
    )


def test_times_before_1970_are_times_like_any_other() -> None:
    timeline(
        aside,
        at("1969-12-31T23:30", account="a", amount=1),
        at("1970-01-01T00:00", account="a", amount=2),
        at("1970-01-01T00:30", account="a", amount=4),
        at("1900-02-28T23:30", account="a", amount=8),
        watermark("1970-01-01T01:00"),
        expect(
            row(account="a", spent=8, window="1900-02-28T22:30:00.000001/1900-02-28T23:30:00.000001"),
            row(account="a", spent=1, window="1969-12-31T22:30:00.000001/1969-12-31T23:30:00.000001"),
            row(account="a", spent=3, window="1969-12-31T23:00:00.000001/1970-01-01T00:00:00.000001"),
            row(account="a", spent=6, window="1969-12-31T23:30:00.000001/1970-01-01T00:30:00.000001"),
        ),
    )


def test_the_smallest_window_holds_rows_of_one_microsecond() -> None:
    timeline(
        hr.sliding("same", size="1 microsecond", key="account").agg(n="count(*)").late(hr.drop()),
        at("10:00", account="a"),
        at("10:00", account="a"),
        at("10:00:00.000001", account="a"),
        watermark("10:01"),
        expect(
            row(account="a", n=2, window="10:00/10:00:00.000001"),
            row(account="a", n=2, window="10:00/10:00:00.000001"),
            row(account="a", n=1, window="10:00:00.000001/10:00:00.000002"),
        ),
    )


def test_keys_do_not_see_each_other_and_null_is_a_key() -> None:
    timeline(
        aside,
        at("10:00", account="a", amount=1),
        at("10:01", account=None, amount=2),
        at("10:02", account="b", amount=4),
        at("10:03", account=None, amount=8),
        watermark("11:00"),
        expect(
            row(account="a", spent=1),
            row(account=None, spent=2),
            row(account="b", spent=4),
            row(account=None, spent=10),
        ),
    )


def test_negative_zero_and_nan_are_each_one_key() -> None:
    levels = hr.sliding("levels", size="1 hour", key="level").agg(n="count(*)").late(hr.drop())
    timeline(
        levels,
        at("10:00", level=0.0, at_level="zero"),
        at("10:01", level=-0.0, at_level="zero"),
        at("10:02", level=float("nan"), at_level="nan"),
        watermark("10:03"),
        expect(row(at_level="zero", n=1), row(at_level="zero", n=2), row(at_level="nan", n=1)),
        at("10:03", level=-float("nan"), at_level="nan"),
        watermark("11:00"),
        expect(row(at_level="nan", n=2)),
    )


def test_several_columns_make_a_key() -> None:
    pairs = hr.sliding("pairs", size="1 hour", key=["shop", "till"]).agg(n="count(*)").late(hr.drop())
    timeline(
        pairs,
        at("10:00", shop="x", till=1),
        at("10:01", shop="x", till=2),
        at("10:02", shop="x", till=1),
        watermark("11:00"),
        expect(row(shop="x", till=1, n=1), row(shop="x", till=2, n=1), row(shop="x", till=1, n=2)),
    )


def test_without_a_key_all_rows_see_each_other() -> None:
    timeline(
        hr.sliding("all", size="1 hour", key=None).agg(n="count(*)").late(hr.drop()),
        at("10:00", account="a", partition=0),
        at("10:01", account="b", partition=1),
        at("11:00:30", account="c", partition=2),
        watermark("12:00"),
        expect(row(account="a", n=1), row(account="b", n=2), row(account="c", n=2)),
    )


def test_empty_batches_change_nothing() -> None:
    timeline(
        aside,
        batch(),
        at("10:00", account="a", amount=1),
        batch(),
        batch(),
        watermark("09:00"),
        batch(),
        expect(),
        watermark("10:30"),
        batch(),
        expect(account="a", spent=1, n=1),
        at("10:30", account="a", amount=2),
        batch(),
        batch(),
        watermark("10:31"),
        expect(account="a", amount=2, spent=3, n=2),
    )


@pytest.mark.spark
def test_a_window_goes_on_across_batches_partitions_and_crashes() -> None:
    timeline(
        aside,
        at("10:00", account="a", amount=1, partition=0),
        at("10:10", account="a", amount=2, partition=1),
        crash(),
        batch(),
        watermark("10:05"),
        expect(account="a", amount=1, spent=1, n=1),
        crash(),
        at("10:20", account="a", amount=4, partition=1),
        crash(),
        batch(),
        watermark("10:30"),
        expect(row(account="a", amount=2, spent=3, n=2), row(account="a", amount=4, spent=7, n=3)),
        at("11:05", account="a", amount=8),
        crash(),
        batch(),
        watermark("12:00"),
        expect(account="a", amount=8, spent=14, n=3),
    )


def test_a_long_run_of_small_batches_gives_what_one_batch_gives() -> None:
    """More batches than deltas fit between two bases of the state, and rows that leave it all the time."""
    ten = hr.sliding("ten", size="10 minutes", key="account").agg(n="count(*)").late(hr.side_output())
    elements = [
        element
        for minute in range(60)
        for element in (at(f"10:{minute:02d}", account="a"), at(f"10:{minute:02d}", account="b"), batch())
    ]
    timeline(
        ten,
        *elements,
        watermark("12:00"),
        expect(*(row(account=account, n=min(minute + 1, 10)) for minute in range(60) for account in "ab")),
    )


def test_rows_are_kept_as_long_as_a_row_on_time_may_see_them() -> None:
    """Small steps of the watermark, so that rows are forgotten at the first moment at which they may be."""
    timeline(
        aside,
        at("10:00", account="a", amount=1),
        at("10:00:00.000001", account="a", amount=2),
        watermark("10:59:59.999999"),
        watermark("11:00"),
        expect(row(account="a", amount=1), row(account="a", amount=2)),
        # On time by the narrowest margin: it sees the second row, of which nobody knew a moment before.
        at("11:00", account="a", amount=4),
        batch(),
        watermark("11:00:00.000001"),
        expect(account="a", amount=4, spent=6, n=2),
    )


def test_a_late_row_is_not_seen_and_leaves_whole_by_the_side_output() -> None:
    timeline(
        aside,
        at("10:00", account="a", amount=1),
        watermark("10:10"),
        expect(account="a", spent=1),
        at("10:09:59.999999", account="a", amount=2, note="late"),
        at("10:10", account="a", amount=4, note="on time"),
        batch(),
        expect(account="a", amount=2, note="late", late_by=late_by("1 microsecond"), output="late"),
        watermark("10:11"),
        expect(account="a", amount=4, spent=5, n=2),
    )


def test_when_all_rows_are_late_nothing_is_emitted() -> None:
    timeline(
        hour.late(hr.drop()),
        at("10:00", account="a", amount=1),
        watermark("12:00"),
        expect(account="a", spent=1),
        at("10:00", account="a", amount=2),
        at("11:00", account="b", amount=2),
        batch(),
        watermark("23:00"),
        expect(),
        expect(output="late"),
    )


@pytest.mark.spark
def test_a_late_row_is_emitted_and_corrects_every_row_that_sees_it() -> None:
    timeline(
        hour.late(hr.update_for("2 hours")),
        at("10:00", account="a", amount=1),
        at("10:30", account="a", amount=2),
        at("11:29:59.999999", account="a", amount=4),
        at("11:30", account="a", amount=8),
        watermark("11:40"),
        expect(
            row(account="a", amount=1, spent=1),
            row(account="a", amount=2, spent=3),
            row(account="a", amount=4, spent=6),
            row(account="a", amount=8, spent=12),
        ),
        at("10:30", account="a", amount=16),
        crash(),
        batch(),
        expect(
            row(account="a", amount=2, spent=19, n=3, pane="late", revision=1),
            row(account="a", amount=16, spent=19, n=3, pane="late", revision=0),
            row(account="a", amount=4, spent=22, n=3, pane="late", revision=1),
        ),
        at("10:31", account="a", amount=32),
        batch(),
        expect(
            row(account="a", amount=32, spent=51, n=4, pane="late", revision=0),
            row(account="a", amount=4, spent=54, n=4, pane="late", revision=2),
            row(account="a", amount=8, spent=44, n=3, pane="late", revision=1),
        ),
    )


def test_all_late_rows_of_a_batch_make_one_correction() -> None:
    timeline(
        correcting,
        at("10:00", account="a", amount=1),
        watermark("10:10"),
        expect(account="a", spent=1, revision=0),
        at("09:58", account="a", amount=2, partition=0),
        at("09:59", account="a", amount=4, partition=1),
        batch(),
        expect(
            row(account="a", amount=2, spent=2, pane="late", revision=0),
            row(account="a", amount=4, spent=6, pane="late", revision=0),
            row(account="a", amount=1, spent=7, pane="late", revision=1),
        ),
    )


def test_corrections_end_when_the_watermark_is_the_duration_behind_the_row() -> None:
    timeline(
        correcting,
        at("09:50", account="a", amount=1),
        at("10:10", account="a", amount=2),
        watermark("10:30"),
        expect(row(account="a", amount=1, spent=1), row(account="a", amount=2, spent=3)),
        at("10:00", account="a", amount=4),
        at("09:59:59.999999", account="a", amount=8),
        batch(),
        expect(
            row(account="a", amount=4, spent=5, pane="late", revision=0),
            row(account="a", amount=2, spent=7, pane="late", revision=1),
        ),
        expect(account="a", amount=8, late_by=late_by("30 minutes 1 microsecond"), output="late"),
    )


def test_a_late_row_sees_everything_that_is_in_its_window() -> None:
    """A row at the very beginning of the window of the latest row that may still correct."""
    timeline(
        correcting,
        at("09:00:00.000001", account="a", amount=1),
        at("09:00", account="a", amount=2),
        watermark("10:30"),
        expect(row(account="a", amount=2, spent=2), row(account="a", amount=1, spent=3)),
        at("10:00", account="a", amount=4),
        batch(),
        expect(account="a", amount=4, spent=5, n=2, pane="late", revision=0),
        expect(output="late"),
    )


def test_the_batch_in_which_a_row_leaves_may_correct_it_too() -> None:
    timeline(
        correcting,
        at("10:00", account="a", amount=1),
        at("10:10", account="b", amount=1),
        batch(),
        # The watermark of this batch is 10:10: the first row leaves without this one, which then corrects it.
        at("09:59", account="a", amount=2),
        batch(),
        expect(
            row(account="a", amount=2, spent=2, pane="late", revision=0),
            row(account="a", amount=1, spent=1, pane="on_time", revision=0),
            row(account="a", amount=1, spent=3, pane="late", revision=1),
        ),
        event_time=hr.event_time("at"),
    )


def test_a_late_row_counts_for_rows_that_have_not_left() -> None:
    timeline(
        correcting,
        at("10:20", account="a", amount=1),
        watermark("10:10"),
        at("10:00", account="a", amount=2),
        batch(),
        expect(account="a", amount=2, spent=2, pane="late", revision=0),
        watermark("10:21"),
        expect(account="a", amount=1, spent=3, pane="on_time", revision=0),
    )


@pytest.mark.spark
def test_on_update_a_row_leaves_at_once_and_again_when_it_has_changed_and_when_time_has_passed_it() -> None:
    timeline(
        at_once.late(hr.side_output()),
        at("10:10", account="a", amount=1),
        batch(),
        expect(account="a", amount=1, spent=1, pane="early", revision=0),
        at("10:05", account="a", amount=2),
        at("10:20", account="a", amount=4),
        batch(),
        expect(
            row(account="a", amount=2, spent=2, pane="early", revision=0),
            row(account="a", amount=1, spent=3, pane="early", revision=1),
            row(account="a", amount=4, spent=7, pane="early", revision=0),
        ),
        batch(),
        expect(),
        watermark("10:15"),
        expect(
            row(account="a", amount=2, spent=2, pane="on_time", revision=1),
            row(account="a", amount=1, spent=3, pane="on_time", revision=2),
        ),
        watermark("10:30"),
        expect(account="a", amount=4, spent=7, pane="on_time", revision=1),
        watermark("23:00"),
        expect(),
    )


def test_on_update_a_row_that_time_passes_in_its_own_batch_leaves_once() -> None:
    """Behind another step a batch may bring a row and pass it."""
    counted = hr.tumbling("counted", size="1 minute", key="account").agg(n="count(*)").late(hr.drop())
    timeline(
        (
            counted,
            hr.sliding("seen", size="1 hour", key="account").agg(rows="sum(n)").late(hr.drop()).emit(hr.on_update()),
        ),
        at("10:00", account="a"),
        at("10:00:30", account="a"),
        watermark("10:01"),
        expect(account="a", rows=2, pane="on_time", revision=0),
    )


def test_on_update_a_late_row_corrects_what_has_left_and_previews_what_has_not() -> None:
    timeline(
        at_once.late(hr.update_for("1 hour")),
        at("10:00", account="a", amount=1),
        at("10:30", account="a", amount=2),
        watermark("10:10"),
        expect(
            row(account="a", amount=1, spent=1, pane="early", revision=0),
            row(account="a", amount=2, spent=3, pane="early", revision=0),
            row(account="a", amount=1, spent=1, pane="on_time", revision=1),
        ),
        at("09:50", account="a", amount=4),
        batch(),
        expect(
            row(account="a", amount=4, spent=4, pane="late", revision=0),
            row(account="a", amount=1, spent=5, pane="late", revision=2),
            row(account="a", amount=2, spent=7, pane="early", revision=1),
        ),
        watermark("10:31"),
        expect(account="a", amount=2, spent=7, pane="on_time", revision=2),
    )


@pytest.mark.spark
def test_retracting_takes_back_what_was_given() -> None:
    timeline(
        hour.late(hr.update_for("1 hour")).panes(hr.retracting()),
        at("10:00", account="a", amount=1),
        at("10:01", account="a", amount=2),
        watermark("10:10"),
        expect(
            row(account="a", amount=1, spent=1, revision=0, change="insert"),
            row(account="a", amount=2, spent=3, revision=0, change="insert"),
        ),
        at("10:00:30", account="a", amount=4),
        crash(),
        batch(),
        expect(
            row(account="a", amount=4, spent=5, pane="late", revision=0, change="insert"),
            row(account="a", amount=2, spent=3, pane="on_time", revision=0, change="update_before"),
            row(account="a", amount=2, spent=7, pane="late", revision=1, change="update_after"),
        ),
        at("10:00:31", account="a", amount=8),
        batch(),
        expect(
            row(account="a", amount=8, spent=13, pane="late", revision=0, change="insert"),
            row(account="a", amount=2, spent=7, pane="late", revision=1, change="update_before"),
            row(account="a", amount=2, spent=15, pane="late", revision=2, change="update_after"),
        ),
    )


def test_what_is_taken_back_is_to_the_last_digit_what_was_given() -> None:
    prices = hr.sliding("prices", size="1 hour", key="account").agg(total="sum(price)").late(hr.update_for("1 hour"))
    rows = [at(f"10:{minute:02d}", account="a", price=0.1 * minute) for minute in range(1, 30)]
    late = [
        element for minute in range(1, 20) for element in (at(f"10:{minute:02d}:30", account="a", price=0.7), batch())
    ]
    played = play(prices.panes(hr.retracting()), *rows, watermark("10:40"), *late)
    given: dict[str, dict[str, Any]] = {}
    retracted = 0
    for result in played.main:
        place = str((result["at"], result["price"]))
        if result["change"] == "update_before":
            assert {**given.pop(place), "change": "update_before"} == result
            retracted += 1
        else:
            given[place] = result
    assert retracted > 200


def test_a_window_of_windows_has_the_time_of_the_row_it_ends_with() -> None:
    """Rows of a sliding window keep their times, so a day of them is the day of the rows."""
    daily = hr.tumbling("daily", size="1 day", key="account").agg(most="max(spent)", rows="count(*)").late(hr.drop())
    timeline(
        (aside, daily),
        at("23:00", account="a", amount=1),
        at("23:59:59.999999", account="a", amount=2),
        at("2026-01-02T00:00", account="a", amount=4),
        watermark("2026-01-02T00:00"),
        expect(account="a", window="2026-01-01T00:00/2026-01-02T00:00", most=3, rows=2),
        watermark("2026-01-03T00:00"),
        expect(account="a", most=6, rows=1),
    )


def test_behind_other_windows_the_window_is_the_sliding_one() -> None:
    minutes = hr.tumbling("minutes", size="1 minute", key="account").agg(sum="sum(amount)").late(hr.side_output())
    two = hr.sliding("two", size="2 minutes", key="account").agg(total="sum(sum)").late(hr.side_output())
    timeline(
        (minutes, two),
        at("10:00:10", account="a", amount=1),
        at("10:01:10", account="a", amount=2),
        at("10:02:10", account="a", amount=4),
        watermark("10:03"),
        expect(
            row(account="a", sum=1, total=1, window="09:59/10:01", pane="on_time"),
            row(account="a", sum=2, total=3, window="10:00/10:02", pane="on_time"),
            row(account="a", sum=4, total=6, window="10:01/10:03", pane="on_time"),
        ),
        expect(output="late"),
    )


def test_a_correction_of_an_earlier_step_is_late() -> None:
    minutes = hr.tumbling("minutes", size="1 minute", key="account").agg(sum="sum(amount)")
    two = hr.sliding("two", size="2 minutes", key="account").agg(total="sum(sum)")
    elements = (
        at("10:00:10", account="a", amount=1),
        watermark("10:01"),
        expect(account="a", sum=1, total=1, revision=0),
        at("10:00:20", account="a", amount=2),
        batch(),
    )
    timeline(
        (minutes.late(hr.update_for("1 hour")), two.late(hr.side_output())),
        *elements,
        expect(),
        expect(account="a", sum=3, pane="late", revision=1, late_by=late_by("1 microsecond"), output="late"),
    )


@pytest.mark.spark
def test_a_spread_key_gives_the_same_rows_after_a_crash_too() -> None:
    spread = hr.sliding("recent", size="1 hour", key="account", spread=4).agg(spent="sum(amount)", n="count(*)")
    timeline(
        spread.late(hr.update_for("2 hours")),
        at("10:00", account="a", amount=1, partition=0),
        at("10:00:01", account="a", amount=2, partition=1),
        at("10:00:02", account="a", amount=4, partition=2),
        at("10:59:59.999999", account="a", amount=8),
        at("11:00", account="a", amount=16),
        crash(),
        batch(),
        watermark("11:10"),
        expect_in_any_order(
            row(amount=1, spent=1, n=1),
            row(amount=2, spent=3, n=2),
            row(amount=4, spent=7, n=3),
            row(amount=8, spent=15, n=4),
            row(amount=16, spent=30, n=4),
        ),
        at("10:00:01.5", account="a", amount=32),
        crash(),
        batch(),
        expect_in_any_order(
            row(amount=32, spent=35, n=3, pane="late", revision=0),
            row(amount=4, spent=39, n=4, pane="late", revision=1),
            row(amount=8, spent=47, n=5, pane="late", revision=1),
            row(amount=16, spent=62, n=5, pane="late", revision=1),
        ),
    )


def expect_in_any_order(*rows: Row) -> Expect:
    """Rows of one key, told without the key: the shares of a key leave one beside the other."""
    return expect(*rows)
