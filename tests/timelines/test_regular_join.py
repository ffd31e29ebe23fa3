"""Regular joins: rows of two inputs with one key, whenever they come, as long as the state keeps them."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace.testing import at, batch, crash, expect, row, timeline, watermark


def orders(how: Any = "inner", late: Any = None, **more: Any) -> Any:
    """Orders on the left, shipments on the right."""
    given = more or {"ttl": "1 hour"}
    return hr.regular_join("shipped", on="id", how=how, **given).late(late or hr.side_output())


def order(time: str, id: str | None = "a", n: int = 1) -> Any:
    return at(time, id=id, n=n)


def shipment(time: str, id: str | None = "a", m: int = 1) -> Any:
    return at(time, side="right", id=id, m=m)


@pytest.mark.spark
def test_rows_meet_whichever_comes_first_and_however_far_apart_within_their_time_to_live() -> None:
    timeline(
        orders(),
        order("10:00", n=1),
        shipment("10:40", id="b", m=2),
        batch(),
        expect(),
        shipment("10:59:59.999999", m=3),
        order("10:00", id="b", n=4),
        crash(),
        batch(),
        expect(
            row(id="b", n=4, at="10:00", m=2, at_right="10:40", event_time="10:40"),
            row(id="a", n=1, at="10:00", m=3, at_right="10:59:59.999999", event_time="10:59:59.999999"),
        ),
        shipment("11:00", m=5),  # an hour after the order, which lives no longer
        batch(),
        expect(),
    )


@pytest.mark.spark
def test_without_a_match_a_left_row_leaves_at_once_and_is_taken_back_by_its_first_match() -> None:
    timeline(
        orders("left"),
        order("10:00", n=1),
        order("10:01", id=None, n=2),
        shipment("10:02", id="b"),
        batch(),
        expect(
            row(id="a", n=1, m=None, event_time="10:00", change="insert"),
            row(id=None, n=2, m=None, event_time="10:01", change="insert"),
        ),
        crash(),
        shipment("10:30", m=3),
        batch(),
        expect(
            row(id="a", n=1, m=None, event_time="10:00", change="delete"),
            row(id="a", n=1, m=3, event_time="10:30", change="insert"),
        ),
        shipment("10:31", m=4),
        batch(),
        expect(row(id="a", n=1, m=4, event_time="10:31", change="insert")),
        watermark("15:00"),
        expect(),
    )


@pytest.mark.parametrize("how", ["right", "full"])
def test_the_same_holds_for_right_rows(how: Any) -> None:
    timeline(
        orders(how),
        shipment("10:00", m=1),
        batch(),
        expect(row(id="a", n=None, m=1, event_time="10:00", change="insert")),
        order("10:10", n=2),
        shipment("10:10", m=3),
        batch(),
        expect(
            row(id="a", n=None, m=1, event_time="10:00", change="delete"),
            row(id="a", n=2, m=1, event_time="10:10", change="insert"),
            row(id="a", n=2, m=3, event_time="10:10", change="insert"),
        ),
    )


def test_kept_for_ever_a_row_of_another_century_still_meets() -> None:
    timeline(
        orders("left", keep_forever=True),
        order("1970-01-01T10:00", n=1),
        watermark("2026-01-01T00:00"),
        expect(row(id="a", n=1, m=None, change="insert")),
        shipment("2026-01-02T00:00", m=2),
        batch(),
        expect(row(id="a", n=1, m=None, change="delete"), row(id="a", n=1, m=2, change="insert")),
    )


def test_late_rows_leave_or_meet_what_is_kept_longer_for_them() -> None:
    timeline(
        orders(),
        order("10:00"),
        watermark("10:30"),
        shipment("10:10", m=2),
        batch(),
        expect(),
        expect(row(m=2), output="late_right"),
    )
    timeline(
        orders(late=hr.update_for("1 hour")),
        order("10:00", n=1),
        watermark("11:30"),
        shipment("10:40", m=2),
        batch(),
        expect(row(n=1, m=2)),
    )


def test_null_meets_null_where_it_is_said() -> None:
    timeline(
        orders("left", ttl="1 hour", nulls_equal=True),
        order("10:00", id=None, n=1),
        batch(),
        expect(row(id=None, n=1, m=None, change="insert")),
        shipment("10:01", id=None, m=2),
        batch(),
        expect(row(id=None, n=1, m=None, change="delete"), row(id=None, n=1, m=2, change="insert")),
    )


def test_changes_of_an_outer_join_become_totals() -> None:
    waiting = hr.table_aggregate("waiting", key="id").agg(rows="count(*)", shipments="count(m)")
    timeline(
        (orders("left"), waiting),
        order("10:00", n=1),
        batch(),
        expect(row(id="a", rows=1, shipments=0, change="insert")),
        shipment("10:01", m=2),
        batch(),
        expect(
            row(id="a", rows=1, shipments=0, change="update_before"),
            row(id="a", rows=1, shipments=1, change="update_after"),
        ),
    )
