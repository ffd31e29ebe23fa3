"""Window joins: rows of two inputs with one key in one window."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace.operators.joins.window_join import cumulating_window, hopping_window, tumbling_window, window_join
from headrace.testing import at, batch, crash, expect, late_by, play, row, timeline, watermark

HOWS = ["inner", "left", "right", "full", "semi", "anti"]


def seen(how: Any = "inner", *, window: Any = "10 minutes", late: Any = None) -> Any:
    return window_join("seen", on="user", window=window, how=how).late(hr.side_output() if late is None else late)


def left(time: str, user: str | None = "a", n: int = 1) -> Any:
    return at(time, user=user, n=n)


def right(time: str, user: str | None = "a", m: int = 1) -> Any:
    return at(time, side="right", user=user, m=m)


PAIR = {"user": "a", "window": "10:00/10:10", "n": 1, "m": 1, "at": "10:00", "at_right": "10:09:59.999999"}
LEFT_ALONE = {"user": "a", "window": "10:10/10:20", "n": 2}
RIGHT_ALONE = {"user": "a", "window": "10:20/10:30", "n": None, "m": 2}
FIRST: dict[str, list[dict[str, Any]]] = {
    **{how: [PAIR] for how in ("inner", "left", "right", "full")},
    "semi": [{"user": "a", "window": "10:00/10:10", "n": 1}],
    "anti": [],
}
THEN: dict[str, list[dict[str, Any]]] = {
    "inner": [],
    "left": [{**LEFT_ALONE, "m": None}],
    "right": [RIGHT_ALONE],
    "full": [{**LEFT_ALONE, "m": None}, RIGHT_ALONE],
    "semi": [],
    "anti": [LEFT_ALONE],
}


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("first", ["left", "right"])
def test_rows_of_a_window_meet_when_it_closes_in_both_orders_of_arrival(how: str, first: str) -> None:
    couple = [left("10:00", n=1), batch(), right("10:09:59.999999", m=1)]
    timeline(
        seen(how),
        *(couple if first == "left" else reversed(couple)),
        left("10:10", n=2),
        right("10:20", m=2),
        watermark("10:09:59.999999"),
        expect(),
        watermark("10:10"),
        expect(*(row(**each) for each in FIRST[how])),
        watermark("10:30"),
        expect(*(row(**each) for each in THEN[how])),
    )


@pytest.mark.spark
def test_all_rows_of_a_window_meet_each_other() -> None:
    given = [left("10:01", n=1), left("10:01", n=2), right("10:01", m=1), right("10:02", m=2), right("10:02", "b", 3)]
    played = play(seen(), *given, watermark("11:00"))
    assert sorted((each["n"], each["m"]) for each in played.main) == [(1, 1), (1, 2), (2, 1), (2, 2)]


def test_in_hopping_windows_rows_meet_in_each_window_that_holds_both() -> None:
    timeline(
        seen("left", window=hopping_window("10 minutes", every="5 minutes")),
        left("10:07", n=1),
        right("10:03", m=1),
        right("10:12", m=2),
        watermark("10:10"),
        expect(user="a", window="10:00/10:10", n=1, m=1),
        crash(),
        right("10:13", m=3),
        batch(),
        watermark("11:00"),
        expect(
            row(user="a", window="10:05/10:15", n=1, m=2),
            row(user="a", window="10:05/10:15", n=1, m=3),
        ),
    )


def test_a_row_that_is_late_for_some_windows_takes_part_in_the_others() -> None:
    timeline(
        seen("left", window=hopping_window("10 minutes", every="5 minutes")),
        left("10:07", n=1),
        right("10:30", "z"),
        watermark("10:10"),
        expect(user="a", window="10:00/10:10", n=1, m=None),
        right("10:08", m=1),
        batch(),
        expect(output="late_right"),
        watermark("10:15"),
        expect(user="a", window="10:05/10:15", n=1, m=1),
        right("10:08", m=2),
        batch(),
        expect(user="a", m=2, late_by=late_by("7 minutes"), output="late_right"),
    )


def test_growing_windows_hold_rows_from_their_step_on() -> None:
    played = play(
        seen(window=cumulating_window("30 minutes", step="10 minutes")),
        left("10:05"),
        right("10:15"),
        watermark("11:00"),
    )
    ends = [(each["window"]["start"].minute, each["window"]["end"].minute) for each in played.main]
    assert ends == [(0, 20), (0, 30)]


def test_windows_may_follow_a_calendar() -> None:
    played = play(
        seen(window=tumbling_window("1 day", time_zone="Europe/Berlin")),
        left("2026-03-28T23:30"),
        right("2026-03-29T21:30"),
        right("2026-03-29T22:30", m=2),
        watermark("2026-04-02T00:00"),
    )
    (found,) = played.main
    assert (found["m"], str(found["window"]["end"] - found["window"]["start"])) == (1, "23:00:00")


@pytest.mark.spark
def test_late_rows_of_each_side_leave_by_an_output_of_its_own() -> None:
    timeline(
        seen("full"),
        left("10:00"),
        right("10:00", "b"),
        watermark("10:10"),
        expect(row(user="a", n=1, m=None), row(user="b", n=None, m=1)),
        left("10:09", n=2),
        right("10:09", m=2),
        left("10:10", n=3),
        right("10:10", m=3),
        batch(),
        expect(user="a", n=2, output="late"),
        expect(user="a", m=2, output="late_right"),
        watermark("10:20"),
        expect(user="a", n=3, m=3, window="10:10/10:20"),
    )


@pytest.mark.spark
def test_late_rows_correct_a_closed_window_until_it_is_forgotten() -> None:
    timeline(
        seen("full", late=hr.update_for("20 minutes")),
        left("10:01", n=1),
        right("10:00", "z", 9),
        watermark("10:10"),
        expect(row(user="a", n=1, m=None, change="insert"), row(user="z", n=None, m=9, change="insert")),
        right("10:02", m=1),
        crash(),
        batch(),
        expect(row(user="a", n=1, m=None, change="delete"), row(user="a", n=1, m=1, change="insert")),
        left("10:03", n=2),
        batch(),
        expect(user="a", n=2, m=1, change="insert"),
        watermark("10:29:59.999999"),
        left("10:04", n=3),
        batch(),
        expect(user="a", n=3, m=1, change="insert"),
        watermark("10:30"),
        left("10:05", n=4),
        batch(),
        expect(),
        expect(user="a", n=4, output="late"),
    )


def test_a_late_match_takes_back_what_anti_has_given_and_semi_gives_it() -> None:
    for how, changes in (("anti", ["insert", "delete"]), ("semi", [None])):
        step = seen(how, late=hr.update_for("1 hour"))
        played = play(
            step, left("10:01"), right("10:01", "z"), watermark("10:10"), right("10:02"), batch(), right("10:03")
        )
        assert [each.get("change") for each in played.main if each["user"] == "a"] == changes


@pytest.mark.spark
def test_the_slower_side_closes_windows() -> None:
    timeline(
        seen("left"),
        left("10:01"),
        right("09:00", "z"),
        watermark("11:00", side="left"),
        expect(),
        right("10:02", m=5),
        watermark("10:10", side="right"),
        expect(user="a", n=1, m=5),
    )


@pytest.mark.spark
def test_a_crash_between_the_two_sides_loses_and_repeats_nothing() -> None:
    timeline(
        seen("full"),
        left("10:01"),
        crash(),
        batch(),
        right("10:02"),
        crash(),
        right("10:03", "b", 2),
        batch(),
        crash(),
        watermark("10:10"),
        expect(row(user="a", n=1, m=1), row(user="b", n=None, m=2)),
        crash(),
        watermark("11:00"),
        expect(),
    )


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("first", ["left", "right"])
def test_a_crash_between_a_row_and_its_match_changes_nothing_whichever_came_first(how: str, first: str) -> None:
    couple = [left("10:00", n=1), right("10:09:59.999999", m=1)]
    earlier, later = couple if first == "left" else reversed(couple)
    timeline(
        seen(how),
        earlier,
        crash(),
        batch(),
        crash(),
        later,
        left("10:10", n=2),
        crash(),
        right("10:20", m=2),
        batch(),
        expect(),
        watermark("10:10"),
        expect(*(row(**each) for each in FIRST[how])),
        crash(),
        watermark("10:30"),
        expect(*(row(**each) for each in THEN[how])),
    )


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("late", ["left", "right"])
def test_a_late_row_of_either_side_is_no_match_and_does_not_leave_alone(how: str, late: str) -> None:
    on_time, too_late = (right("10:01"), left("10:02", n=2)) if late == "left" else (left("10:01"), right("10:02", m=2))
    alone = ("right", "full") if late == "left" else ("left", "full", "anti")
    timeline(
        seen(how),
        on_time,
        left("10:10", "y"),
        right("10:10", "z"),
        watermark("10:10"),
        expect(*([row(user="a", window="10:00/10:10")] if how in alone else [])),
        too_late,
        crash(),
        batch(),
        expect(),
        expect(user="a", late_by=late_by("8 minutes"), output="late" if late == "left" else "late_right"),
        watermark("10:20"),
        expect(
            *(
                [row(user="y", n=1, **({} if how == "anti" else {"m": None}))]
                if how in ("left", "full", "anti")
                else []
            ),
            *([row(user="z", n=None, m=1)] if how in ("right", "full") else []),
        ),
    )


@pytest.mark.parametrize(("how", "alone"), [("inner", []), ("left", ["n"]), ("full", ["m", "n"]), ("anti", ["n"])])
def test_rows_without_a_key_meet_none(how: str, alone: list[str]) -> None:
    played = play(seen(how), left("10:00", None), right("10:00", None), watermark("10:10"))
    assert sorted(name for each in played.main for name in ("n", "m") if each.get(name) is not None) == alone


@pytest.mark.spark
def test_the_window_of_a_joined_row_is_the_time_of_the_next_step() -> None:
    hourly = hr.tumbling("hourly", size="1 hour", key="user").agg(n="count(*)").late(hr.side_output())
    timeline(
        (seen(), hourly),
        left("10:01"),
        right("10:02"),
        left("10:51"),
        right("10:52"),
        watermark("11:00"),
        expect(user="a", window="10:00/11:00", n=2),
    )
