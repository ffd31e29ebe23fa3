"""Deduplication: which row of a key is the first, which are repeats of it, and when a key begins anew."""

from __future__ import annotations

import pytest

import headrace as hr
from headrace.testing import at, batch, crash, expect, late_by, play, row, timeline, watermark

once = hr.deduplicate("once", key="id", within="10 minutes")
aside = once.late(hr.side_output())


@pytest.mark.spark
def test_the_first_row_of_a_key_leaves_at_once_and_whole_and_repeats_do_not() -> None:
    timeline(
        aside,
        at("10:00", id="a", note="first"),
        at("10:00", id="a", note="again"),
        at("10:01", id="b", note="other"),
        batch(),
        expect(row(id="a", note="first", at="10:00"), row(id="b", note="other", at="10:01")),
        at("10:02", id="a", note="later"),
        batch(),
        expect(),
        expect(output="late"),
    )


def test_a_row_leaves_as_it_came() -> None:
    (only,) = play(aside, at("10:00", id="a", amount=1.5, note=None), batch()).main
    assert sorted(only) == ["amount", "at", "id", "note"]


@pytest.mark.spark
def test_a_key_begins_anew_exactly_the_duration_after_its_first_row() -> None:
    timeline(
        aside,
        at("10:00", id="a", n=1),
        at("10:09:59.999999", id="a", n=2),
        at("10:10", id="a", n=3),
        batch(),
        expect(row(id="a", n=1), row(id="a", n=3)),
        at("10:19:59.999999", id="a", n=4),
        at("10:20", id="a", n=5),
        batch(),
        expect(id="a", n=5),
    )


def test_the_duration_counts_from_the_row_that_left_and_not_from_its_repeats() -> None:
    timeline(
        aside,
        *(at(f"10:{minute:02d}", id="a", n=minute) for minute in range(0, 60, 6)),
        batch(),
        expect(*(row(id="a", n=minute) for minute in (0, 12, 24, 36, 48))),
    )


def test_in_one_batch_the_first_is_the_earliest_and_at_equal_times_the_first_to_arrive() -> None:
    timeline(
        aside,
        at("10:05", id="a", n=1),
        at("10:04", id="a", n=2),
        at("10:04", id="a", n=3),
        at("10:06", id="b", n=4, partition=1),
        at("10:06", id="b", n=5, partition=0),
        batch(),
        expect(row(id="a", n=2), row(id="b", n=5)),
    )


@pytest.mark.spark
def test_a_row_that_has_left_stays_the_first_though_an_earlier_one_comes_in_a_later_batch() -> None:
    timeline(
        aside,
        at("10:30", id="a", n=1),
        batch(),
        expect(id="a", n=1),
        at("10:20:00.000001", id="a", n=2),
        batch(),
        expect(),
        # As far before it as one would have to be behind it.
        at("10:20", id="a", n=3),
        at("10:11", id="a", n=4),
        batch(),
        expect(id="a", n=4),
    )


def test_between_two_rows_that_have_left_there_may_be_room_for_another() -> None:
    timeline(
        aside,
        at("10:00", id="a", n=1),
        at("10:20", id="a", n=2),
        batch(),
        expect(row(id="a", n=1), row(id="a", n=2)),
        at("10:09", id="a", n=3),
        at("10:11", id="a", n=4),
        batch(),
        expect(),
        at("10:10", id="a", n=5),
        batch(),
        expect(id="a", n=5),
    )


def test_rows_leave_in_the_order_of_time() -> None:
    played = play(aside, *(at(f"10:{(7 * place) % 60:02d}", id=f"k{place}") for place in range(60)), batch())
    minutes = [each["at"].minute for each in played.main if each["id"] in ("k0", "k1", "k2")]
    assert sorted(minutes) == [0, 7, 14]
    assert len(played.main) == 60


@pytest.mark.spark
def test_null_is_a_key_and_several_columns_make_one() -> None:
    timeline(
        hr.deduplicate("once", key=["shop", "id"], within="1 hour").late(hr.drop()),
        at("10:00", shop="x", id=1, n=1),
        at("10:01", shop="x", id=2, n=2),
        at("10:02", shop=None, id=1, n=3),
        at("10:03", shop=None, id=1, n=4),
        at("10:04", shop="x", id=1, n=5),
        batch(),
        at("10:05", shop=None, id=1, n=6),
        batch(),
        expect(row(shop="x", id=1, n=1), row(shop="x", id=2, n=2), row(shop=None, id=1, n=3)),
    )


def test_negative_zero_and_nan_are_each_one_key() -> None:
    timeline(
        hr.deduplicate("once", key="level", within="1 hour").late(hr.drop()),
        at("10:00", level=0.0, n=1),
        at("10:01", level=-0.0, n=2),
        at("10:02", level=float("nan"), n=3),
        batch(),
        at("10:03", level=-float("nan"), n=4),
        at("10:04", level=-0.0, n=5),
        batch(),
        expect(row(n=1), row(n=3)),
    )


def test_times_before_1970_are_times_like_any_other() -> None:
    timeline(
        aside,
        at("1969-12-31T23:55", id="a", n=1),
        at("1970-01-01T00:04:59.999999", id="a", n=2),
        at("1970-01-01T00:05", id="a", n=3),
        at("1900-01-01T00:00", id="a", n=4),
        batch(),
        expect(row(id="a", n=4), row(id="a", n=1), row(id="a", n=3)),
    )


@pytest.mark.spark
def test_repeats_are_known_across_batches_partitions_and_crashes() -> None:
    timeline(
        aside,
        at("10:00", id="a", n=1, partition=0),
        at("10:01", id="b", n=2, partition=1),
        crash(),
        batch(),
        expect(row(id="a", n=1), row(id="b", n=2)),
        crash(),
        at("10:02", id="a", n=3, partition=1),
        at("10:03", id="c", n=4, partition=2),
        crash(),
        batch(),
        expect(id="c", n=4),
        watermark("10:05"),
        at("10:06", id="b", n=5),
        at("10:10", id="a", n=6),
        batch(),
        expect(id="a", n=6),
    )


def test_a_late_row_leaves_by_the_side_output_though_it_is_a_repeat() -> None:
    timeline(
        aside,
        at("10:00", id="a", n=1),
        watermark("10:05"),
        expect(id="a", n=1),
        at("10:04:59.999999", id="a", n=2),
        at("10:04", id="new", n=3),
        at("10:05", id="new", n=4),
        batch(),
        expect(id="new", n=4),
        expect(
            row(id="a", n=2, late_by=late_by("1 microsecond")),
            row(id="new", n=3, late_by=late_by("1 minute")),
            output="late",
        ),
    )


def test_when_all_rows_are_late_nothing_leaves() -> None:
    timeline(
        once.late(hr.drop()),
        at("10:00", id="a"),
        watermark("11:00"),
        expect(id="a"),
        at("10:30", id="b"),
        at("10:59", id="a"),
        batch(),
        watermark("12:00"),
        expect(),
        expect(output="late"),
    )


def test_empty_batches_change_nothing() -> None:
    timeline(
        aside,
        batch(),
        at("10:00", id="a", n=1),
        batch(),
        batch(),
        watermark("10:04"),
        batch(),
        expect(id="a", n=1),
        at("10:05", id="a", n=2),
        batch(),
        watermark("10:09:59.999999"),
        at("10:09:59.999999", id="a", n=3),
        batch(),
        expect(),
        watermark("10:10"),
        at("10:10", id="a", n=4),
        batch(),
        expect(id="a", n=4),
    )


@pytest.mark.spark
def test_windows_behind_it_count_every_key_once() -> None:
    hourly = hr.tumbling("hourly", size="1 hour", key="shop").agg(n="count(*)").late(hr.side_output())
    timeline(
        (hr.deduplicate("once", key="id", within="2 hours").late(hr.side_output()), hourly),
        at("10:00", id=1, shop="x"),
        at("10:01", id=2, shop="x"),
        at("10:02", id=1, shop="x"),
        batch(),
        at("10:30", id=2, shop="x"),
        at("11:00", id=3, shop="x"),
        crash(),
        watermark("12:00"),
        expect(
            row(shop="x", window="10:00/11:00", n=2),
            row(shop="x", window="11:00/12:00", n=1),
        ),
        expect(output="late"),
    )


def test_behind_windows_it_goes_by_the_last_moment_of_each() -> None:
    minutes = hr.tumbling("minutes", size="1 minute", key="account").agg(n="count(*)").late(hr.drop())
    timeline(
        (minutes, hr.deduplicate("first", key="account", within="2 minutes").late(hr.drop())),
        at("10:00:30", account="a"),
        at("10:01:30", account="a"),
        at("10:02:30", account="a"),
        watermark("10:03"),
        expect(row(account="a", window="10:00/10:01"), row(account="a", window="10:02/10:03")),
    )


def test_a_correction_of_an_earlier_step_is_late() -> None:
    minutes = hr.tumbling("minutes", size="1 minute", key="account").agg(n="count(*)").late(hr.update_for("1 hour"))
    timeline(
        (minutes, hr.deduplicate("first", key="account", within="1 second").late(hr.side_output())),
        at("10:00:30", account="a"),
        watermark("10:01"),
        expect(account="a", n=1),
        at("10:00:40", account="a"),
        batch(),
        expect(),
        expect(account="a", n=2, pane="late", late_by=late_by("1 microsecond"), output="late"),
    )
