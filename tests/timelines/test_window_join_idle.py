"""Window joins of which one source says nothing while the other goes on."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace.operators.joins.window_join import window_join
from headrace.testing import at, batch, crash, expect, late_by, row, timeline
from tests.models.idle import idle_for_long

HOWS = ["inner", "left", "right", "full", "semi", "anti"]
SIDES = ["left", "right"]
MINUTE_IDLE = hr.event_time("at", idle="1 minute")
OUTPUT = {"left": "late", "right": "late_right"}


def seen(how: Any = "full", *, late: Any = None) -> Any:
    step = window_join("seen", on="user", window="10 minutes", how=how)
    return step.late(hr.side_output() if late is None else late)


def said(side: Any, time: str, user: str, number: int = 1) -> Any:
    """A row of one side, its number called ``n`` on the left and ``m`` on the right."""
    return at(time, side=side, user=user, **{"n" if side == "left" else "m": number})


def other(side: str) -> str:
    return "left" if side == "right" else "right"


def silent(side: str) -> list[Any]:
    """A couple and a row alone on each side in one window; then one side goes on, and the other is idle for long."""
    before = [
        said("left", "10:00", "c"),
        said("right", "10:01", "c"),
        said("left", "10:02", "a"),
        said("right", "10:02", "b"),
    ]
    return idle_for_long(before, [said(other(side), "10:30", "d")])


PAIR: dict[str, Any] = {"user": "c", "n": 1, "m": 1, "window": "10:00/10:10"}
A_ALONE = {"user": "a", "n": 1, "m": None, "window": "10:00/10:10"}
B_ALONE = {"user": "b", "n": None, "m": 1, "window": "10:00/10:10"}
CLOSED: dict[str, list[dict[str, Any]]] = {
    "inner": [PAIR],
    "left": [PAIR, A_ALONE],
    "right": [PAIR, B_ALONE],
    "full": [PAIR, A_ALONE, B_ALONE],
    "semi": [{"user": "c", "n": 1, "window": "10:00/10:10"}],
    "anti": [{"user": "a", "n": 1, "window": "10:00/10:10"}],
}


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("how", HOWS)
def test_an_idle_side_does_not_keep_windows_open_and_what_it_brings_then_is_late_for_them(how: str, side: str) -> None:
    user = "a" if side == "right" else "b"
    timeline(
        seen(how),
        *silent(side),
        expect(*(row(**each) for each in CLOSED[how])),
        said(side, "10:05", user, 2),
        said(side, "10:30", "d", 3),
        batch(),
        expect(),
        expect(user=user, late_by=late_by("25 minutes"), output=OUTPUT[side]),
        said("left", "10:40", "z"),
        said("right", "10:40", "y"),
        batch(),
        batch(),
        expect(*([] if how == "anti" else [row(user="d", window="10:30/10:40", n=1 if side == "right" else 3)])),
        expect(output=OUTPUT[other(side)]),
        event_time=MINUTE_IDLE,
    )


@pytest.mark.parametrize("side", SIDES)
def test_a_side_that_is_back_keeps_windows_open_again(side: str) -> None:
    timeline(
        seen("inner"),
        *silent(side),
        expect(**PAIR),
        said(side, "10:31", "e"),
        said(other(side), "10:32", "e"),
        batch(),
        said(other(side), "11:00", "z"),
        batch(),
        batch(),
        expect(),
        said(side, "10:40", "z"),
        batch(),
        expect(),
        batch(),
        expect(user="e", window="10:30/10:40", n=1, m=1),
        expect(output="late"),
        expect(output="late_right"),
        event_time=MINUTE_IDLE,
    )


@pytest.mark.parametrize("side", SIDES)
def test_with_corrections_a_side_that_is_back_changes_windows_that_were_closed_without_it(side: str) -> None:
    came = said("right", "10:05", "a", 2) if side == "right" else said("left", "10:05", "b", 2)
    alone = A_ALONE if side == "right" else B_ALONE
    timeline(
        seen(late=hr.update_for("1 hour")),
        *silent(side),
        expect(*(row(**each, change="insert") for each in CLOSED["full"])),
        came,
        crash(),
        batch(),
        expect(
            row(**alone, change="delete"),
            row(**{**alone, "n": 1, "m": 1, "m" if side == "right" else "n": 2}, change="insert"),
        ),
        event_time=MINUTE_IDLE,
    )


@pytest.mark.parametrize("side", SIDES)
def test_a_window_stays_closed_when_the_flow_starts_again_while_a_side_is_idle(side: str) -> None:
    timeline(
        seen(),
        *silent(side),
        expect(*(row(**each) for each in CLOSED["full"])),
        crash(),
        said(side, "10:29:59.999999", "a", 2),
        crash(),
        batch(),
        expect(),
        expect(user="a", late_by=late_by("1 microsecond"), output=OUTPUT[side]),
        event_time=MINUTE_IDLE,
    )
