"""Joins of tables of which one has no changes while the other goes on."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace.operators.tables.table_join import table_join
from headrace.testing import at, batch, clock, crash, expect, row, timeline

MINUTE_IDLE = hr.event_time("at", idle="1 minute")


def orders(how: Any = "inner", **more: Any) -> Any:
    return table_join("view", how=how, on={"customer": "id"}, left_key="order", right_key="id", **more)


def order(time: str, position: int, kind: str, number: int, customer: str) -> Any:
    return at(time, order=number, customer=customer, change=kind, position=f"{position:04d}")


def customer(time: str, position: int, kind: str, id: str, city: str | None) -> Any:
    return at(time, side="right", id=id, city=city, change=kind, position=f"{position:04d}")


def seen(change: str, number: int | None, customer: str, city: str | None) -> Any:
    return row(order=number, customer=customer, city=city, change=change)


@pytest.mark.parametrize("how", ["inner", "left", "full"])
def test_changes_of_one_table_leave_at_once_though_the_other_is_silent_and_its_own_are_never_late(how: str) -> None:
    alone = [] if how == "inner" else [seen("insert", 3, "b", None)]
    updated = [seen("update_before", 3, "b", None), seen("update_after", 3, "b", "Oslo")]
    met = [seen("insert", 3, "b", "Oslo")] if how == "inner" else updated
    timeline(
        orders(how),
        customer("10:00", 1, "insert", "a", "Rome"),
        order("10:00", 1, "insert", 1, "a"),
        batch(),
        expect(seen("insert", 1, "a", "Rome")),
        order("12:00", 2, "insert", 2, "a"),
        batch(),
        expect(seen("insert", 2, "a", "Rome")),
        clock("2026-01-02T00:01:00"),
        order("13:00", 3, "insert", 3, "b"),
        batch(),
        expect(*alone),
        clock("2026-01-02T00:01:01"),
        batch(),
        # Customers come back with changes of three hours ago.
        customer("10:01", 2, "insert", "b", "Oslo"),
        crash(),
        batch(),
        expect(*met),
        customer("10:02", 3, "update_before", "a", "Rome"),
        customer("10:02", 3, "update_after", "a", "Bonn"),
        batch(),
        expect(
            seen("update_before", 1, "a", "Rome"),
            seen("update_before", 2, "a", "Rome"),
            seen("update_after", 1, "a", "Bonn"),
            seen("update_after", 2, "a", "Bonn"),
        ),
        expect(output="late"),
        event_time=MINUTE_IDLE,
    )


@pytest.mark.parametrize("silent", ["left", "right"])
def test_deletions_are_forgotten_in_time_though_one_table_is_idle(silent: str) -> None:
    """An older change of the deleted order is stale as long as its deletion is known."""
    stale = order("10:00", 2, "insert", 1, "a")
    going_on = {
        "left": [customer("11:10", position, "insert", "z", None) for position in (2, 3)],
        "right": [order("11:10", position, "insert", 9, "z") for position in (8, 9)],
    }
    first, second = going_on[silent]
    timeline(
        orders(keep_deleted="1 hour"),
        customer("10:00", 1, "insert", "a", "Rome"),
        order("10:00", 1, "insert", 1, "a"),
        order("10:10", 3, "delete", 1, "a"),
        batch(),
        expect(),
        clock("2026-01-02T00:00:30"),
        first,
        batch(),
        stale,
        batch(),
        expect(),
        clock("2026-01-02T00:01:30"),
        second,
        batch(),
        clock("2026-01-02T00:01:31"),
        batch(),
        stale,
        batch(),
        expect(seen("insert", 1, "a", "Rome")),
        event_time=MINUTE_IDLE,
    )
