"""Interval joins of which one source says nothing while the other goes on."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace.operators.joins.interval_join import interval_join
from headrace.testing import at, batch, clock, crash, expect, late_by, row, timeline
from tests.models.idle import idle_for_long

HOWS = ["inner", "left", "right", "full", "semi", "anti"]
SIDES = ["left", "right"]
MINUTE_IDLE = hr.event_time("at", idle="1 minute")
OUTPUT = {"left": "late", "right": "late_right"}


def paid(how: Any = "full", *, late: Any = None, **more: Any) -> Any:
    """Orders on the left, payments up to ten minutes after them on the right."""
    given = {"on": "id", "between": ("0 minutes", "10 minutes"), "how": how, **more}
    return interval_join("paid", **given).late(hr.side_output() if late is None else late)


def said(side: Any, time: str, id: str, number: int = 1) -> Any:
    """A row of one side, its number called ``n`` on the left and ``m`` on the right."""
    return at(time, side=side, id=id, **{"n" if side == "left" else "m": number})


def other(side: str) -> str:
    return "left" if side == "right" else "right"


def silent(side: str) -> list[Any]:
    """A row without a match on each side; then one goes on to half past ten, and the other has been idle for long."""
    before = [
        said("left", "10:00", "a"),
        said("right", "10:00", "b"),
    ]
    return idle_for_long(before, [said(other(side), "10:30", "c")])


A_ALONE, B_ALONE = row(id="a", n=1, m=None, event_time="10:00"), row(id="b", n=None, m=1, event_time="10:00")
ALONE: dict[str, list[Any]] = {
    "inner": [],
    "left": [A_ALONE],
    "right": [B_ALONE],
    "full": [A_ALONE, B_ALONE],
    "semi": [],
    "anti": [row(id="a", n=1)],
}
MET: dict[str, list[Any]] = {
    **{how: [row(id="c", n=1, m=1, event_time="10:30")] for how in ("inner", "left", "right", "full")},
    "semi": [row(id="c", n=1)],
    "anti": [],
}


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("how", HOWS)
def test_an_idle_side_does_not_hold_what_waits_and_what_it_brings_then_is_late_or_meets(how: str, side: str) -> None:
    timeline(
        paid(how),
        *silent(side),
        expect(*ALONE[how]),
        said(side, "10:05" if side == "right" else "09:55", "a" if side == "right" else "b", 2),
        said(side, "10:30", "c"),
        batch(),
        expect(*MET[how]),
        expect(late_by=late_by("25 minutes" if side == "right" else "35 minutes"), output=OUTPUT[side]),
        expect(output=OUTPUT[other(side)]),
        event_time=MINUTE_IDLE,
    )


@pytest.mark.parametrize("side", SIDES)
def test_a_side_that_is_back_holds_the_join_again_where_it_is(side: str) -> None:
    timeline(
        paid(),
        *silent(side),
        expect(*ALONE["full"]),
        said(side, "10:30", "c"),
        batch(),
        expect(*MET["full"]),
        said(other(side), "10:31", "d"),
        said(other(side), "11:00", "e"),
        batch(),
        batch(),
        expect(),
        said(side, "10:41", "f"),
        batch(),
        expect(),
        said(side, "10:42", "g"),
        batch(),
        expect(*([row(id="d", n=None, m=1)] if side == "left" else [])),
        batch(),
        expect(
            *([row(id="d", n=1, m=None)] if side == "right" else []),
            *([row(id="f", n=None, m=1)] if side == "right" else []),
        ),
        expect(output="late"),
        expect(output="late_right"),
        event_time=MINUTE_IDLE,
    )


@pytest.mark.parametrize("side", SIDES)
def test_with_corrections_a_match_from_a_side_that_is_back_takes_the_lonely_row_back(side: str) -> None:
    back = {
        "right": (said("right", "10:05", "a", 2), row(id="a", n=1, m=None), row(id="a", n=1, m=2)),
        "left": (said("left", "09:55", "b", 2), row(id="b", n=None, m=1), row(id="b", n=2, m=1)),
    }
    came, alone, met = back[side]
    timeline(
        paid(late=hr.update_for("1 hour")),
        *silent(side),
        expect(*(row(**each, change="insert") for each in ALONE["full"])),
        came,
        crash(),
        batch(),
        expect(row(**alone, change="delete"), row(**met, change="insert")),
        event_time=MINUTE_IDLE,
    )


@pytest.mark.parametrize("side", SIDES)
def test_time_does_not_go_back_when_the_flow_starts_again_while_a_side_is_idle(side: str) -> None:
    timeline(
        paid(),
        *silent(side),
        expect(*ALONE["full"]),
        crash(),
        said(side, "10:29:59.999999", "c", 2),
        said(side, "10:30", "c", 3),
        crash(),
        batch(),
        expect(row(id="c", **{"n": 1, "m": 1, "n" if side == "left" else "m": 3})),
        expect(id="c", late_by=late_by("1 microsecond"), output=OUTPUT[side]),
        event_time=MINUTE_IDLE,
    )


@pytest.mark.parametrize("side", SIDES)
def test_a_side_that_has_never_said_anything_holds_the_join_until_it_is_idle(side: str) -> None:
    alone = {"right": row(id="a", n=1, m=None), "left": row(id="a", n=None, m=1)}
    timeline(
        paid(),
        said(other(side), "10:00", "a"),
        said(other(side), "11:00", "b"),
        batch(),
        clock("2026-01-02T00:00:59"),
        said(other(side), "11:00", "c"),
        batch(),
        expect(),
        clock("2026-01-02T00:01:00"),
        batch(),
        expect(alone[side]),
        said(side, "10:00", "a", 2),
        batch(),
        expect(),
        expect(id="a", late_by=late_by("1 hour"), output=OUTPUT[side]),
        event_time=MINUTE_IDLE,
    )


def test_one_of_several_is_chosen_though_the_side_that_could_bring_others_is_idle() -> None:
    timeline(
        paid("left", match="last"),
        said("left", "10:00", "a"),
        said("right", "10:01", "a", 1),
        said("right", "10:02", "a", 2),
        batch(),
        clock("2026-01-02T00:00:30"),
        said("left", "10:30", "z"),
        batch(),
        batch(),
        expect(),
        clock("2026-01-02T00:01:00"),
        batch(),
        expect(id="a", n=1, m=2),
        said("right", "10:03", "a", 3),
        batch(),
        expect(),
        expect(id="a", m=3, output="late_right"),
        event_time=MINUTE_IDLE,
    )
