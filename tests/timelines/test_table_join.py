"""Joins of tables that are followed by their changes."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.operators.tables.materialize import materialize
from headrace.operators.tables.table_join import table_join
from headrace.testing import at, batch, crash, expect, play, row, timeline, watermark


def orders(how: Any = "inner", **more: Any) -> Any:
    given = {"on": {"customer": "id"}, "left_key": "order", "right_key": "id", **more}
    return table_join("view", how=how, **given)


def order(position: int, kind: str, number: int, customer: str | None, n: int = 0, *, time: str = "10:00") -> Any:
    return at(time, order=number, customer=customer, n=n, change=kind, position=f"{position:04d}")


def customer(position: int, kind: str, id: str | None, city: str | None = None, *, time: str = "10:00") -> Any:
    return at(time, side="right", id=id, city=city, change=kind, position=f"{position:04d}")


def seen(change: str, number: int | None, customer: str | None, n: int | None, city: str | None, **more: Any) -> Any:
    return row(order=number, customer=customer, n=n, city=city, change=change, **more)


@pytest.mark.spark
@pytest.mark.parametrize("how", ["inner", "left", "full"])
def test_a_view_follows_both_tables(how: str) -> None:
    timeline(
        orders(how),
        customer(1, "insert", "a", "Rome"),
        order(1, "insert", 1, "a", 10),
        batch(),
        expect(seen("insert", 1, "a", 10, "Rome")),
        order(2, "update_before", 1, "a", 10),
        order(2, "update_after", 1, "a", 11),
        batch(),
        expect(seen("update_before", 1, "a", 10, "Rome"), seen("update_after", 1, "a", 11, "Rome")),
        customer(2, "update_before", "a", "Rome"),
        customer(2, "update_after", "a", "Bonn"),
        batch(),
        expect(seen("update_before", 1, "a", 11, "Rome"), seen("update_after", 1, "a", 11, "Bonn")),
        order(3, "delete", 1, "a", 11),
        customer(3, "delete", "a"),
        batch(),
        expect(seen("delete", 1, "a", 11, "Bonn")),
    )


@pytest.mark.spark
def test_a_foreign_key_that_changes_leaves_one_match_and_joins_another() -> None:
    timeline(
        orders(),
        customer(1, "insert", "a", "Rome"),
        customer(2, "insert", "b", "Oslo"),
        order(1, "insert", 1, "a", 10),
        batch(),
        expect(seen("insert", 1, "a", 10, "Rome")),
        order(2, "update_before", 1, "a", 10),
        order(2, "update_after", 1, "b", 10),
        batch(),
        expect(seen("delete", 1, "a", 10, "Rome"), seen("insert", 1, "b", 10, "Oslo")),
    )


@pytest.mark.spark
def test_a_left_row_without_match_stands_alone_until_one_comes_and_again_when_it_goes() -> None:
    timeline(
        orders("left"),
        order(1, "insert", 1, "a", 10, time="10:00"),
        customer(1, "insert", "z", "Graz", time="10:00"),
        batch(),
        expect(seen("insert", 1, "a", 10, None, changed_at="10:00")),
        customer(2, "insert", "a", "Rome", time="10:05"),
        batch(),
        expect(
            seen("update_before", 1, "a", 10, None, changed_at="10:05"),
            seen("update_after", 1, "a", 10, "Rome", changed_at="10:05"),
        ),
        customer(3, "delete", "a", time="10:07"),
        batch(),
        expect(
            seen("update_before", 1, "a", 10, "Rome", changed_at="10:07"),
            seen("update_after", 1, "a", 10, None, changed_at="10:07"),
        ),
        order(2, "delete", 1, "a", 10, time="10:09"),
        batch(),
        expect(seen("delete", 1, "a", 10, None, changed_at="10:09")),
    )


def test_a_full_join_shows_rows_of_both_tables_that_stand_alone() -> None:
    timeline(
        orders("full"),
        order(1, "insert", 1, "a", 10),
        customer(1, "insert", "b", "Oslo"),
        batch(),
        expect(seen("insert", 1, "a", 10, None), seen("insert", None, "b", None, "Oslo")),
        order(2, "insert", 2, "b", 20),
        batch(),
        expect(seen("delete", None, "b", None, "Oslo"), seen("insert", 2, "b", 20, "Oslo")),
        order(3, "insert", 3, "b", 30),
        batch(),
        expect(seen("insert", 3, "b", 30, "Oslo")),
        order(4, "delete", 2, "b", 20),
        order(5, "delete", 3, "b", 30),
        batch(),
        expect(
            seen("delete", 2, "b", 20, "Oslo"),
            seen("delete", 3, "b", 30, "Oslo"),
            seen("insert", None, "b", None, "Oslo"),
        ),
    )


@pytest.mark.parametrize("how", ["inner", "left", "full"])
def test_null_matches_nothing(how: str) -> None:
    alone = {
        "inner": [],
        "left": [seen("insert", 1, None, 10, None)],
        "full": [seen("insert", 1, None, 10, None), seen("insert", None, None, None, "Rome")],
    }
    timeline(
        orders(how),
        order(1, "insert", 1, None, 10),
        customer(1, "insert", None, "Rome"),
        batch(),
        expect(*alone[how]),
    )


@pytest.mark.spark
def test_stale_and_repeated_changes_change_nothing() -> None:
    timeline(
        orders(),
        customer(1, "insert", "a", "Rome"),
        order(5, "insert", 1, "a", 10),
        batch(),
        expect(seen("insert", 1, "a", 10, "Rome")),
        order(5, "insert", 1, "a", 10),
        order(4, "update_after", 1, "a", 9),
        customer(1, "insert", "a", "Rome"),
        batch(),
        expect(),
        order(6, "delete", 1, "a", 10),
        batch(),
        expect(seen("delete", 1, "a", 10, "Rome")),
        order(5, "insert", 1, "a", 10),
        batch(),
        expect(),
    )


@pytest.mark.spark
def test_a_crash_between_the_two_sides_gives_every_change_of_the_view_once() -> None:
    timeline(
        orders("left"),
        order(1, "insert", 1, "a", 10),
        batch(),
        expect(seen("insert", 1, "a", 10, None)),
        customer(1, "insert", "a", "Rome"),
        crash(),
        batch(),
        expect(seen("update_before", 1, "a", 10, None), seen("update_after", 1, "a", 10, "Rome")),
        crash(),
        order(2, "update_before", 1, "a", 10),
        order(2, "update_after", 1, "b", 10),
        crash(),
        batch(),
        expect(seen("delete", 1, "a", 10, "Rome"), seen("insert", 1, "b", 10, None)),
    )


@pytest.mark.parametrize("how", ["inner", "left", "full"])
@pytest.mark.parametrize("first", ["left", "right"])
def test_the_view_is_the_same_whichever_table_comes_first_and_a_crash_between_changes_nothing(
    how: str, first: str
) -> None:
    tables = [order(1, "insert", 1, "a", 10), customer(1, "insert", "a", "Rome")]
    earlier, later = tables if first == "left" else reversed(tables)
    both = seen("insert", 1, "a", 10, "Rome")
    alone = {
        "left": seen("insert", 1, "a", 10, None),
        "right": seen("insert", None, "a", None, "Rome"),
    }
    then = {
        "left": [seen("update_before", 1, "a", 10, None), seen("update_after", 1, "a", 10, "Rome")],
        "right": [seen("delete", None, "a", None, "Rome"), both],
    }
    stands = how in ("full", first)
    timeline(
        orders(how),
        earlier,
        crash(),
        batch(),
        expect(*([alone[first]] if stands else [])),
        crash(),
        later,
        crash(),
        batch(),
        expect(*(then[first] if stands else [both])),
        crash(),
        order(2, "delete", 1, "a", 10),
        customer(2, "delete", "a"),
        crash(),
        batch(),
        expect(seen("delete", 1, "a", 10, "Rome")),
    )


@pytest.mark.parametrize("how", ["inner", "left", "full"])
def test_no_change_of_either_table_is_late_however_far_time_has_gone(how: str) -> None:
    timeline(
        orders(how),
        customer(1, "insert", "a", "Rome"),
        order(1, "insert", 1, "a", 10),
        watermark("2026-02-01T00:00"),
        expect(seen("insert", 1, "a", 10, "Rome")),
        order(2, "update_before", 1, "a", 10, time="10:01"),
        order(2, "update_after", 1, "a", 11, time="10:01"),
        batch(),
        expect(seen("update_before", 1, "a", 10, "Rome"), seen("update_after", 1, "a", 11, "Rome")),
        customer(2, "update_before", "a", "Rome", time="10:02"),
        customer(2, "update_after", "a", "Bonn", time="10:02"),
        batch(),
        expect(seen("update_before", 1, "a", 11, "Rome"), seen("update_after", 1, "a", 11, "Bonn")),
        expect(output="late"),
    )


def test_rows_of_one_batch_leave_as_what_they_come_to() -> None:
    timeline(
        orders(),
        order(1, "insert", 1, "a", 10),
        order(2, "update_before", 1, "a", 10),
        order(2, "update_after", 1, "a", 11),
        order(3, "insert", 2, "a", 20),
        order(4, "delete", 2, "a", 20),
        customer(1, "insert", "a", "Rome"),
        customer(2, "update_after", "a", "Bonn"),
        batch(),
        expect(seen("insert", 1, "a", 11, "Bonn")),
    )


def test_every_pair_of_many_to_many_is_a_row_of_the_view() -> None:
    step = table_join("view", on="shop", left_key="id", right_key="tag")
    timeline(
        step,
        at("10:00", id=1, shop="s", change="insert", position="1"),
        at("10:00", id=2, shop="s", change="insert", position="2"),
        at("10:00", side="right", tag="x", shop="s", change="insert", position="1"),
        batch(),
        expect(row(id=1, shop="s", tag="x", change="insert"), row(id=2, shop="s", tag="x", change="insert")),
        at("10:00", side="right", tag="y", shop="s", change="insert", position="2"),
        at("10:00", id=1, shop="s", change="delete", position="3"),
        batch(),
        expect(row(id=1, shop="s", tag="x", change="delete"), row(id=2, shop="s", tag="y", change="insert")),
    )


def test_columns_of_one_name_are_told_apart_and_each_side_keeps_its_time() -> None:
    played = play(
        table_join("view", on="id", left_key="id", right_key="id"),
        at("10:00", id=1, n=1, change="insert", position="1"),
        at("10:30", side="right", id=1, n=2, change="insert", position="1"),
        batch(),
    )
    [found] = played.main
    assert list(found) == ["id", "n", "at", "n_right", "at_right", "change", "position", "changed_at"]
    assert (found["n"], found["n_right"], found["position"]) == (1, 2, "00000000000000000000")
    assert found["changed_at"] == found["at_right"] > found["at"]


def test_the_position_of_the_view_grows_from_batch_to_batch() -> None:
    played = play(
        orders(),
        customer(1, "insert", "a", "Rome"),
        order(1, "insert", 1, "a", 1),
        batch(),
        order(2, "update_after", 1, "a", 2),
        batch(),
    )
    assert [(row["change"], int(row["position"])) for row in played.main] == [
        ("insert", 0),
        ("update_before", 1),
        ("update_after", 1),
    ]


@pytest.mark.spark
def test_a_materialized_view_may_have_a_key_that_moves_between_matches() -> None:
    timeline(
        (orders("left"), materialize("current", key="order")),
        customer(1, "insert", "a", "Rome"),
        order(1, "insert", 1, "a", 10),
        batch(),
        expect(seen("insert", 1, "a", 10, "Rome")),
        order(2, "update_before", 1, "a", 10),
        order(2, "update_after", 1, "b", 10),
        batch(),
        expect(seen("update_after", 1, "b", 10, None)),
        order(3, "update_before", 1, "b", 10),
        order(3, "update_after", 1, None, 10),
        batch(),
        expect(seen("update_after", 1, None, 10, None)),
        order(4, "delete", 1, None, 10),
        batch(),
        expect(seen("delete", 1, None, 10, None)),
    )


def test_a_deletion_is_forgotten_when_event_time_has_left_it_behind() -> None:
    timeline(
        orders(keep_deleted="1 hour"),
        customer(1, "insert", "a", "Rome"),
        order(1, "insert", 1, "a", 10),
        order(3, "delete", 1, "a", 10, time="10:10"),
        watermark("11:09:59"),
        expect(),
        order(2, "update_after", 1, "a", 10),
        batch(),
        expect(),
        watermark("11:10"),
        order(2, "update_after", 1, "a", 10),
        batch(),
        expect(seen("insert", 1, "a", 10, "Rome")),
    )


def test_not_a_number_and_both_zeros_are_keys_like_others() -> None:
    step = table_join("view", on="level", left_key="level", right_key="level", how="full")
    nan = float("nan")
    for one, same in ((nan, -nan), (-0.0, 0.0)):
        timeline(
            step,
            at("10:00", level=one, n=1, change="insert", position="1"),
            batch(),
            expect(n=1, m=None, change="insert"),
            at("10:01", side="right", level=same, m=1, change="insert", position="1"),
            batch(),
            expect(row(n=1, m=None, change="update_before"), row(n=1, m=1, change="update_after")),
            at("10:02", level=same, n=1, change="delete", position="2"),
            batch(),
            expect(row(n=1, m=1, change="update_before"), row(n=None, m=1, change="update_after")),
        )
