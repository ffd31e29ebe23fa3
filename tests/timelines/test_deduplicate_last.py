"""Deduplication that keeps the last row: what corrects it, when a key begins anew, and what tables make of it."""

from __future__ import annotations

import pytest

import headrace as hr
from headrace.testing import at, batch, crash, expect, late_by, play, row, timeline, watermark

last = hr.deduplicate("last", key="id", within="10 minutes", keep="last")
aside = last.late(hr.side_output())


@pytest.mark.spark
def test_a_later_row_takes_the_last_one_back() -> None:
    timeline(
        aside,
        at("10:00", id="a", n=1),
        at("10:01", id="b", n=2),
        batch(),
        expect(row(id="a", n=1, change="insert", at="10:00"), row(id="b", n=2, change="insert", at="10:01")),
        crash(),
        at("10:05", id="a", n=3),
        batch(),
        expect(
            row(id="a", n=1, change="update_before", at="10:00"), row(id="a", n=3, change="update_after", at="10:05")
        ),
        expect(output="late"),
    )


def test_of_one_batch_only_the_last_row_leaves() -> None:
    timeline(
        aside,
        at("10:00", id="a", n=1),
        at("10:05", id="a", n=2),
        at("10:03", id="a", n=3),
        at("10:05", id="a", n=4),
        batch(),
        expect(id="a", n=4, change="insert"),
    )


@pytest.mark.spark
def test_an_earlier_row_changes_nothing_and_one_of_the_same_time_does() -> None:
    timeline(
        aside,
        at("10:05", id="a", n=1),
        batch(),
        expect(id="a", n=1, change="insert"),
        at("10:04", id="a", n=2),
        at("09:00", id="a", n=3),
        batch(),
        expect(),
        at("10:05", id="a", n=4),
        batch(),
        expect(row(n=1, change="update_before"), row(n=4, change="update_after")),
    )


@pytest.mark.spark
def test_a_key_begins_anew_when_no_row_came_for_the_duration() -> None:
    timeline(
        aside,
        at("10:00", id="a", n=1),
        at("10:09:59.999999", id="a", n=2),
        at("10:20", id="a", n=3),
        batch(),
        expect(row(id="a", n=2, change="insert"), row(id="a", n=3, change="insert")),
        crash(),
        at("10:29:59.999999", id="a", n=4),
        at("10:40", id="a", n=5),
        batch(),
        expect(
            row(id="a", n=3, change="update_before"),
            row(id="a", n=4, change="update_after"),
            row(id="a", n=5, change="insert"),
        ),
        watermark("11:00"),
        at("11:00", id="a", n=6),
        batch(),
        expect(id="a", n=6, change="insert"),
    )


def test_a_row_with_all_its_columns_and_nulls_comes_back_as_it_was() -> None:
    timeline(
        aside,
        at("10:00", id=None, n=None, tags=["x"]),
        batch(),
        expect(row(id=None, n=None, tags=["x"], change="insert")),
        at("10:01", id=None, n=2, tags=None),
        batch(),
        expect(
            row(id=None, n=None, tags=["x"], change="update_before"),
            row(id=None, n=2, tags=None, change="update_after"),
        ),
    )


def test_late_rows_are_set_aside_or_correct_the_last_one() -> None:
    late = (at("10:00", id="a", n=1), watermark("10:08"), at("10:05", id="a", n=2), batch())
    timeline(
        aside,
        *late,
        expect(id="a", n=1),
        expect(row(id="a", n=2, late_by=late_by("3 minutes")), output="late"),
    )
    timeline(
        last.late(hr.update_for("10 minutes")),
        *late,
        expect(row(n=1, change="insert"), row(n=1, change="update_before"), row(n=2, change="update_after")),
        watermark("10:24:59"),
        # Ten minutes of corrections longer the key is known.
        at("10:14:59.999999", id="a", n=3),
        batch(),
        expect(row(n=2, change="update_before"), row(n=3, change="update_after")),
        at("10:14", id="a", n=4),
        batch(),
        expect(),
        expect(id="a", n=4, output="late"),
    )


@pytest.mark.spark
def test_tables_follow_the_last_rows() -> None:
    spend = hr.table_aggregate("spend", key="shop").agg(total="sum(n)", ids="count(*)")
    timeline(
        (aside, spend),
        at("10:00", id="a", shop="x", n=1),
        at("10:00", id="b", shop="x", n=2),
        batch(),
        expect(shop="x", total=3, ids=2, change="insert"),
        at("10:01", id="a", shop="y", n=5),
        batch(),
        expect(
            row(shop="x", total=3, ids=2, change="update_before"),
            row(shop="x", total=2, ids=1, change="update_after"),
            row(shop="y", total=5, ids=1, change="insert"),
        ),
    )


def test_several_lives_in_one_batch_are_one_row_of_a_table() -> None:
    played = play(
        (aside, hr.materialize("table", key="id")),
        at("10:00", id="a", n=1),
        at("10:30", id="a", n=2),
        batch(),
        at("10:31", id="a", n=3),
        at("11:31", id="a", n=4),
        batch(),
    )
    assert [(row["n"], row["change"]) for row in played.main] == [(2, "insert"), (4, "update_after")]
