"""Temporal joins of which one source says nothing while the other goes on."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace.operators.joins.temporal_join import temporal_join
from headrace.testing import at, batch, clock, crash, expect, late_by, row, timeline
from tests.models.idle import idle_for_long

MINUTE_IDLE = hr.event_time("at", idle="1 minute")


def priced(how: Any = "left", *, versions_late: Any = None) -> Any:
    chosen = hr.side_output() if versions_late is None else versions_late
    return temporal_join("priced", on="item", ttl="30 days", how=how, versions_late=chosen).late(hr.side_output())


def price(time: str, item: str, price: int) -> Any:
    return at(time, side="right", item=item, price=price)


def sold(time: str, item: str, n: int) -> Any:
    return at(time, item=item, n=n)


def silent(*goes_on: Any) -> list[Any]:
    """Rows and a version; then one side goes on, and the other has been idle for long."""
    before = [
        price("10:00", "tea", 5),
        sold("10:05", "tea", 1),
        sold("10:05", "salt", 2),
    ]
    return idle_for_long(before, goes_on)


TEA, SALT = row(item="tea", n=1, price=5), row(item="salt", n=2, price=None)
LEFT: dict[str, list[Any]] = {"inner": [TEA], "left": [TEA, SALT]}
NO_VERSION: dict[str, list[Any]] = {"inner": [], "left": [row(item="salt", n=4, price=None)]}


@pytest.mark.parametrize("how", ["inner", "left"])
def test_versions_that_are_idle_do_not_hold_rows_and_those_that_come_then_are_late_or_valid(how: str) -> None:
    timeline(
        priced(how),
        *silent(sold("10:30", "tea", 3)),
        expect(*LEFT[how]),
        price("10:29:59.999999", "tea", 6),
        price("10:30", "tea", 7),
        price("10:04", "salt", 1),
        batch(),
        expect(),
        expect(
            row(item="tea", price=6, late_by=late_by("1 microsecond")),
            row(item="salt", price=1, late_by=late_by("26 minutes")),
            output="late_right",
        ),
        # The side is awake and holds at 10:30, so the row there waits for it to go on.
        sold("10:40", "salt", 4),
        batch(),
        batch(),
        expect(),
        price("10:31", "sugar", 2),
        batch(),
        batch(),
        expect(item="tea", n=3, price=7),
        price("10:41", "sugar", 2),
        sold("10:41", "sugar", 5),
        batch(),
        batch(),
        expect(*NO_VERSION[how]),
        expect(output="late"),
        event_time=MINUTE_IDLE,
    )


@pytest.mark.parametrize("how", ["inner", "left"])
def test_rows_that_are_idle_leave_as_versions_go_on_and_those_that_come_then_are_late_or_wait(how: str) -> None:
    timeline(
        priced(how),
        *silent(price("10:30", "tea", 7)),
        expect(*LEFT[how]),
        sold("10:29", "tea", 3),
        sold("10:30", "tea", 6),
        sold("10:40", "salt", 4),
        batch(),
        expect(),
        expect(item="tea", n=3, late_by=late_by("1 minute"), output="late"),
        price("10:41", "sugar", 2),
        batch(),
        batch(),
        # Rows hold at 10:40 now.
        expect(item="tea", n=6, price=7),
        sold("10:41", "sugar", 5),
        batch(),
        batch(),
        expect(*NO_VERSION[how]),
        expect(output="late"),
        expect(output="late_right"),
        event_time=MINUTE_IDLE,
    )


def test_with_corrections_versions_that_are_back_change_rows_that_left_without_them() -> None:
    timeline(
        priced(versions_late=hr.update_for("1 hour")),
        *silent(sold("10:30", "tea", 3)),
        expect(*(row(**each, change="insert") for each in LEFT["left"])),
        price("10:04", "salt", 1),
        price("10:05", "tea", 6),
        crash(),
        batch(),
        expect(
            row(item="salt", n=2, price=None, change="update_before"),
            row(item="salt", n=2, price=1, change="update_after"),
            row(item="tea", n=1, price=5, change="update_before"),
            row(item="tea", n=1, price=6, change="update_after"),
        ),
        event_time=MINUTE_IDLE,
    )


def test_time_does_not_go_back_when_the_flow_starts_again_while_versions_are_idle() -> None:
    timeline(
        priced(),
        *silent(sold("10:30", "tea", 3)),
        expect(*LEFT["left"]),
        crash(),
        price("10:20", "tea", 6),
        sold("10:29", "tea", 4),
        crash(),
        batch(),
        expect(),
        expect(item="tea", n=4, late_by=late_by("1 minute"), output="late"),
        expect(item="tea", price=6, late_by=late_by("10 minutes"), output="late_right"),
        event_time=MINUTE_IDLE,
    )


def test_rows_leave_without_versions_when_none_has_ever_come_and_the_side_is_idle() -> None:
    timeline(
        priced(),
        sold("10:00", "tea", 1),
        sold("10:01", "tea", 2),
        batch(),
        clock("2026-01-02T00:00:59"),
        sold("10:02", "tea", 3),
        batch(),
        expect(),
        clock("2026-01-02T00:01:00"),
        batch(),
        expect(row(item="tea", n=1, price=None), row(item="tea", n=2, price=None)),
        price("10:02", "tea", 5),
        sold("10:03", "tea", 4),
        batch(),
        price("10:03", "tea", 6),
        batch(),
        batch(),
        expect(item="tea", n=3, price=5),
        event_time=MINUTE_IDLE,
    )


@pytest.mark.parametrize("how", ["inner", "left"])
def test_as_of_arrival_nobody_waits_and_idle_versions_are_forgotten_as_rows_go_on(how: Any) -> None:
    without: dict[str, list[Any]] = {"inner": [], "left": [row(item="tea", n=3, price=None)]}
    timeline(
        temporal_join("priced", on="item", ttl="1 hour", how=how, as_of="arrival"),
        price("10:00", "tea", 5),
        sold("10:00", "tea", 1),
        batch(),
        expect(item="tea", n=1, price=5),
        clock("2026-01-02T00:00:30"),
        sold("11:30", "salt", 0),
        batch(),
        # Versions hold time at 10:00, so the one of then lives for rows of its time.
        sold("10:59", "tea", 2),
        batch(),
        expect(*([row(item="salt", n=0, price=None)] if how == "left" else []), row(item="tea", n=2, price=5)),
        clock("2026-01-02T00:01:00"),
        batch(),
        sold("10:59", "tea", 3),
        batch(),
        expect(*without[how]),
        price("10:01", "tea", 6),
        sold("10:02", "tea", 4),
        crash(),
        batch(),
        expect(item="tea", n=4, price=6),
        expect(output="late"),
        event_time=MINUTE_IDLE,
    )
