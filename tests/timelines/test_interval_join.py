"""Interval joins: rows of two inputs with one key whose times are near each other."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace.operators.joins.interval_join import interval_join
from headrace.testing import at, batch, crash, expect, late_by, play, row, timeline, watermark

HOWS = ["inner", "left", "right", "full", "semi", "anti"]


def orders(how: Any = "inner", *, late: Any = None, **more: Any) -> Any:
    """Orders on the left, payments up to ten minutes after them on the right."""
    given = {"on": "id", "between": ("0 minutes", "10 minutes"), "how": how, **more}
    return interval_join("paid", **given).late(hr.side_output() if late is None else late)


def order(time: str, id: str | None = "a", n: int = 1) -> Any:
    return at(time, id=id, n=n)


def payment(time: str, id: str | None = "a", m: int = 1) -> Any:
    return at(time, side="right", id=id, m=m)


@pytest.mark.spark
def test_rows_meet_as_soon_as_both_are_there_whichever_comes_first() -> None:
    timeline(
        orders(),
        order("10:00", n=1),
        batch(),
        expect(),
        payment("10:05", m=2),
        batch(),
        expect(id="a", n=1, at="10:00", m=2, at_right="10:05", event_time="10:05"),
        payment("10:30", m=3),
        payment("10:30", id="b", m=4),
        batch(),
        expect(),
        order("10:21", n=5),
        batch(),
        expect(id="a", n=5, at="10:21", m=3, at_right="10:30", event_time="10:30"),
    )


def test_a_row_meets_every_row_that_is_near_and_couples_leave_in_the_order_of_time() -> None:
    timeline(
        orders(between=("-10 minutes", "10 minutes")),
        order("10:10", n=1),
        order("10:00", n=2),
        payment("10:05", m=1),
        payment("10:05", m=2),
        payment("10:15", m=3),
        batch(),
        expect(
            row(id="a", n=2, m=1, event_time="10:05"),
            row(id="a", n=2, m=2, event_time="10:05"),
            row(id="a", n=1, m=1, event_time="10:10"),
            row(id="a", n=1, m=2, event_time="10:10"),
            row(id="a", n=1, m=3, event_time="10:15"),
        ),
    )


@pytest.mark.parametrize(
    ("bounds", "met"),
    [("[]", [1, 2, 3]), ("[)", [1, 2]), ("(]", [2, 3]), ("()", [2])],
)
def test_a_round_bracket_leaves_out_a_row_exactly_at_the_bound(bounds: Any, met: list[int]) -> None:
    played = play(
        orders(between=("-5 minutes", "10 minutes"), bounds=bounds),
        order("10:00"),
        payment("09:54:59.999999", m=0),
        payment("09:55", m=1),
        payment("10:09:59.999999", m=2),
        payment("10:10", m=3),
        payment("10:10:00.000001", m=4),
    )
    assert sorted(each["m"] for each in played.main) == met


@pytest.mark.parametrize(("between", "met"), [(("2 minutes", "4 minutes"), [5]), (("-4 minutes", "-2 minutes"), [-5])])
def test_both_bounds_may_lie_on_one_side(between: Any, met: list[int]) -> None:
    played = play(
        orders(between=between, how="full"),
        order("10:10"),
        payment("10:11", m=1),
        payment("10:13", m=5),
        payment("10:15", m=6),
        payment("10:07", m=-5),
        payment("10:05", m=-6),
        payment("10:10", m=0),
        watermark("11:00"),
    )
    assert [each["m"] for each in played.main if each["n"] is not None] == met
    alone = {-6, -5, 0, 1, 5, 6} - set(met)
    assert {each["m"] for each in played.main if each["n"] is None} == alone


LEFT_ALONE = {"id": "a", "n": 2, "at": "10:20"}
RIGHT_ALONE = {"id": "a", "n": None, "at": None, "m": 3, "at_right": "10:40", "event_time": "10:40"}
PAIR = {"id": "a", "n": 1, "at": "10:00", "m": 1, "at_right": "10:05", "event_time": "10:05"}
AT_ONCE = {
    "inner": [PAIR],
    "left": [PAIR],
    "right": [PAIR],
    "full": [PAIR],
    "semi": [{"id": "a", "n": 1, "at": "10:00"}],
    "anti": [],
}
NULL = {"m": None, "at_right": None, "event_time": "10:20"}
WHEN_DUE: dict[str, list[dict[str, Any]]] = {
    "inner": [],
    "left": [{**LEFT_ALONE, **NULL}],
    "right": [RIGHT_ALONE],
    "full": [{**LEFT_ALONE, **NULL}, RIGHT_ALONE],
    "semi": [],
    "anti": [LEFT_ALONE],
}


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("first", ["left", "right"])
def test_what_leaves_and_when_in_both_orders_of_arrival(how: str, first: str) -> None:
    couple = [order("10:00", n=1), batch(), payment("10:05", m=1)]
    timeline(
        orders(how),
        *(couple if first == "left" else reversed(couple)),
        order("10:20", n=2),
        payment("10:40", m=3),
        batch(),
        expect(*(row(**each) for each in AT_ONCE[how])),
        watermark("11:00"),
        expect(*(row(**each) for each in WHEN_DUE[how])),
    )


def test_a_left_row_leaves_alone_when_time_has_passed_its_upper_bound_and_not_before() -> None:
    timeline(
        orders("left"),
        order("10:00", n=1),
        payment("12:00", id="z"),
        watermark("10:10"),
        expect(),
        payment("10:10", m=5),
        batch(),
        expect(id="a", n=1, m=5),
        order("10:15", n=2),
        watermark("10:25"),
        expect(),
        watermark("10:25:00.000001"),
        expect(id="a", n=2, m=None, event_time="10:15"),
    )


def test_with_an_open_upper_bound_it_leaves_a_microsecond_earlier() -> None:
    timeline(
        orders("anti", bounds="[)"),
        order("10:00"),
        payment("12:00", id="z"),
        watermark("10:09:59.999999"),
        expect(),
        watermark("10:10"),
        expect(id="a", n=1),
    )


def test_a_right_row_leaves_alone_when_time_has_passed_its_lower_bound() -> None:
    timeline(
        orders("right", between=("-5 minutes", "0 minutes")),
        payment("10:00", m=1),
        order("12:00", id="z"),
        watermark("10:05"),
        expect(),
        order("10:05"),
        batch(),
        expect(id="a", n=1, m=1, event_time="10:05"),
        payment("10:10", m=2),
        watermark("10:15"),
        expect(),
        watermark("10:15:00.000001"),
        expect(id="a", n=None, m=2),
    )


def test_a_row_whose_bounds_have_passed_leaves_in_the_batch_that_brings_it() -> None:
    timeline(
        orders("full", between=("-20 minutes", "-10 minutes")),
        payment("10:00", id="z"),
        order("10:00", id="y"),
        watermark("10:15"),
        expect(id="y", n=1, m=None),
        order("10:16", n=1),
        batch(),
        expect(id="a", n=1, m=None, event_time="10:16"),
        payment("10:16", m=1),
        order("10:30", n=2),
        batch(),
        expect(row(id="a", n=2, m=1, event_time="10:30")),
    )


@pytest.mark.spark
def test_late_rows_of_each_side_leave_by_an_output_of_its_own() -> None:
    timeline(
        orders("full"),
        order("10:00", n=1),
        payment("10:00", id="b", m=1),
        watermark("11:00"),
        expect(row(id="a", n=1, m=None), row(id="b", n=None, m=1)),
        order("10:59", n=2),
        order("11:00", n=3),
        payment("10:05", m=2),
        payment("11:00", m=3),
        batch(),
        expect(id="a", n=3, m=3, event_time="11:00"),
        expect(id="a", n=2, at="10:59", late_by=late_by("1 minute"), output="late"),
        expect(id="a", m=2, at="10:05", late_by=late_by("55 minutes"), output="late_right"),
    )


def test_dropped_late_rows_are_only_counted() -> None:
    played = play(
        orders(late=hr.drop()), order("10:00"), payment("11:00", id="b"), watermark("11:00"), payment("10:01")
    )
    assert (played.main, played.late) == ([], [])


@pytest.mark.spark
@pytest.mark.parametrize("how", ["left", "anti"])
def test_a_late_match_takes_the_lonely_row_back(how: str) -> None:
    alone: dict[str, Any] = {
        "id": "a",
        "n": 1,
        "at": "10:00",
        **({"m": None, "at_right": None, "event_time": "10:00"} if how == "left" else {}),
    }
    met = [row(id="a", n=1, at="10:00", m=7, at_right="10:04", event_time="10:04", change="insert")]
    timeline(
        orders(how, late=hr.update_for("1 hour")),
        order("10:00"),
        payment("10:00", id="z"),
        watermark("10:30"),
        expect(**alone, change="insert"),
        payment("10:04", m=7),
        batch(),
        expect(row(**alone, change="delete"), *(met if how == "left" else [])),
        payment("10:05", m=8),
        crash(),
        batch(),
        expect(*([row(id="a", n=1, m=8, change="insert", event_time="10:05")] if how == "left" else [])),
    )


def test_a_late_left_row_meets_right_rows_that_left_alone() -> None:
    timeline(
        orders("full", late=hr.update_for("1 hour")),
        payment("10:04", m=1),
        payment("10:05", m=2),
        order("10:00", id="z"),
        watermark("10:30"),
        expect(
            row(id="a", n=None, m=1, change="insert"),
            row(id="a", n=None, m=2, change="insert"),
            row(id="z", n=1, m=None, change="insert"),
        ),
        order("10:00", n=9),
        batch(),
        expect(
            row(id="a", n=None, m=1, change="delete"),
            row(id="a", n=None, m=2, change="delete"),
            row(id="a", n=9, m=1, change="insert"),
            row(id="a", n=9, m=2, change="insert"),
        ),
    )


def test_rows_later_than_the_correction_are_late_on_their_side() -> None:
    timeline(
        orders("left", late=hr.update_for("20 minutes")),
        order("10:00", n=1),
        payment("10:00", id="z"),
        watermark("10:30"),
        expect(id="a", n=1, m=None, change="insert"),
        payment("10:10", m=1),
        payment("10:09:59.999999", m=2),
        order("10:09", n=2),
        batch(),
        expect(row(id="a", n=1, m=None, change="delete"), row(id="a", n=1, m=1, change="insert")),
        expect(id="a", n=2, output="late"),
        expect(id="a", m=2, output="late_right"),
    )


def test_corrected_inner_and_semi_joins_take_nothing_back_and_carry_no_change() -> None:
    for how in ("inner", "semi"):
        step = orders(how, late=hr.update_for("1 hour"))
        played = play(step, order("10:00"), payment("10:00", id="z"), watermark("10:30"), payment("10:04"))
        assert [each["n"] for each in played.main] == [1]
        assert "change" not in played.main[0]
        assert not step.retracts


@pytest.mark.spark
def test_the_slower_side_rules() -> None:
    timeline(
        orders("left"),
        order("10:00"),
        payment("09:00", id="z"),
        watermark("11:00", side="left"),
        expect(),
        payment("10:03", m=2),
        batch(),
        expect(id="a", n=1, m=2),
        order("10:30", n=3),
        batch(),
        watermark("10:40", side="right"),
        expect(),
        watermark("10:41", side="right"),
        expect(id="a", n=3, m=None),
    )


@pytest.mark.spark
def test_a_crash_between_the_two_sides_loses_and_repeats_nothing() -> None:
    timeline(
        orders("full"),
        order("10:00", n=1),
        crash(),
        batch(),
        payment("10:01", m=1),
        crash(),
        batch(),
        expect(id="a", n=1, m=1),
        crash(),
        payment("10:02", m=2),
        order("10:03", n=2),
        batch(),
        expect(id="a", n=1, m=2),
        crash(),
        watermark("11:00"),
        expect(id="a", n=2, m=None),
    )


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("first", ["left", "right"])
def test_a_crash_between_a_row_and_its_match_changes_nothing_whichever_came_first(how: str, first: str) -> None:
    couple = [order("10:00", n=1), payment("10:05", m=1)]
    earlier, later = couple if first == "left" else reversed(couple)
    timeline(
        orders(how),
        earlier,
        crash(),
        batch(),
        expect(),
        crash(),
        later,
        order("10:20", n=2),
        crash(),
        payment("10:40", m=3),
        batch(),
        expect(*(row(**each) for each in AT_ONCE[how])),
        crash(),
        watermark("11:00"),
        expect(*(row(**each) for each in WHEN_DUE[how])),
        expect(output="late"),
        expect(output="late_right"),
    )


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("late", ["left", "right"])
def test_a_late_row_of_either_side_is_no_match_and_does_not_leave_alone(how: str, late: str) -> None:
    given = {
        "left": [order("10:30", n=1), payment("10:31", m=2)],
        "right": [payment("10:35", m=1), order("10:30", n=2)],
    }
    too_late, output = given[late][0], {"left": "late", "right": "late_right"}[late]
    alone = {"left": ["left", "full", "anti"], "right": ["right", "full"]}
    waiting = "left" if late == "right" else "right"
    none = {} if how == "anti" else {"m": None}
    timeline(
        orders(how),
        given[late][1],
        order("10:00", id="y"),
        payment("10:00", id="z"),
        watermark("10:40"),
        too_late,
        crash(),
        batch(),
        watermark("12:00"),
        expect(
            *([row(id="y", n=1, **none)] if how in alone["left"] else []),
            *([row(id="z", n=None, m=1)] if how in alone["right"] else []),
            *(
                [row(id="a", **{"n": None, **none, "n" if waiting == "left" else "m": 2})]
                if how in alone[waiting]
                else []
            ),
        ),
        expect(id="a", late_by=late_by("10 minutes" if late == "left" else "5 minutes"), output=output),
    )


@pytest.mark.parametrize("how", HOWS)
def test_rows_without_a_key_meet_none_and_leave_alone_at_once(how: str) -> None:
    lonely = {
        "left": [row(id=None, n=1, m=None)],
        "right": [row(id=None, n=None, m=1)],
        "full": [row(id=None, n=1, m=None), row(id=None, n=None, m=1)],
        "anti": [row(id=None, n=1)],
    }
    timeline(
        orders(how),
        order("10:00", id=None),
        payment("10:00", id=None),
        order("10:00", id="other"),
        payment("10:00", id="another"),
        batch(),
        expect(*lonely.get(how, [])),
    )


def test_two_keys_of_which_one_is_null_do_not_meet() -> None:
    step = interval_join("j", on=["a", "b"], between=("0 seconds", "0 seconds"), how="left").late(hr.drop())
    played = play(
        step,
        at("10:00", a=1, b=None),
        at("10:00", a=1, b=2),
        at("10:00", side="right", a=1, b=None, m=1),
        at("10:00", side="right", a=1, b=2, m=2),
    )
    assert sorted([(each["b"], each["m"]) for each in played.main], key=repr) == [(2, 2), (None, None)]


def test_not_a_number_and_both_zeros_are_keys_like_others() -> None:
    step = interval_join("j", on="level", between=("0 seconds", "0 seconds")).late(hr.drop())
    played = play(
        step,
        at("10:00", level=float("nan"), n=1),
        at("10:00", level=-0.0, n=2),
        at("10:00", side="right", level=float("nan"), m=1),
        at("10:00", side="right", level=0.0, m=2),
    )
    assert sorted((each["n"], each["m"]) for each in played.main) == [(1, 1), (2, 2)]


@pytest.mark.parametrize(("match", "chosen"), [("first", 2), ("last", 4)])
def test_one_of_several_is_chosen_by_time_when_none_can_come_any_more(match: str, chosen: int) -> None:
    timeline(
        orders("left", match=match),
        order("10:00", n=1),
        payment("10:03", m=3),
        batch(),
        payment("10:07", m=4),
        payment("10:07", m=5) if match == "first" else payment("10:06", m=5),
        payment("10:01", m=2),
        payment("10:01", m=6),
        batch(),
        watermark("10:10"),
        expect(),
        crash(),
        watermark("10:11"),
        expect(id="a", n=1, m=chosen),
        order("10:20", n=2),
        watermark("11:00"),
        expect(id="a", n=2, m=None, event_time="10:20"),
    )


@pytest.mark.parametrize(("match", "late", "new"), [("first", "10:01", 9), ("last", "10:08", 9), ("first", "10:08", 3)])
def test_a_late_row_takes_the_place_of_the_chosen_one_if_it_is_nearer_to_the_end(
    match: str, late: str, new: int
) -> None:
    changed = [
        row(id="a", n=1, m=3, event_time="10:03", change="delete"),
        row(id="a", n=1, m=9, event_time=late, change="insert"),
    ]
    timeline(
        orders(match=match, late=hr.update_for("1 hour")),
        order("10:00"),
        payment("10:03", m=3),
        watermark("10:30"),
        expect(id="a", n=1, m=3, change="insert"),
        payment(late, m=9),
        batch(),
        expect(*(changed if new == 9 else [])),
    )


@pytest.mark.spark
def test_a_conversion_meets_the_last_click_of_its_user_in_the_day_before() -> None:
    attributed = interval_join("attributed", on="user", between=("-24 hours", "0 seconds"), how="left", match="last")
    timeline(
        attributed.late(hr.side_output()),
        at("2026-01-01T10:00", side="right", user="ann", ad="shoes"),
        at("2026-01-01T12:00", side="right", user="ann", ad="hats"),
        at("2026-01-02T11:00", side="right", user="ann", ad="after the purchase"),
        at("2026-01-01T08:59:59", side="right", user="bob", ad="too long ago"),
        at("2026-01-01T09:00", side="right", user="cid", ad="just in time"),
        batch(),
        at("2026-01-02T10:30", user="ann", spent=40),
        at("2026-01-02T09:00", user="bob", spent=50),
        at("2026-01-02T09:00", user="cid", spent=60),
        batch(),
        expect(),
        watermark("2026-01-03T00:00"),
        expect(
            row(user="ann", spent=40, ad="hats", event_time="2026-01-02T10:30"),
            row(user="bob", spent=50, ad=None, event_time="2026-01-02T09:00"),
            row(user="cid", spent=60, ad="just in time", event_time="2026-01-02T09:00"),
        ),
    )


def test_columns_of_one_name_get_the_name_of_their_side() -> None:
    step = interval_join("j", on={"user": "who"}, between=("0 seconds", "1 minute")).late(hr.drop())
    played = play(
        step,
        at("10:00", user="a", page="x", event_time="mine"),
        at("10:00", side="right", who="a", page="y", user="boss", event_time="yours"),
    )
    (found,) = played.main
    sides = "user page event_time_left at page_right user_right event_time_right at_right event_time"
    assert list(found) == sides.split()
    assert (found["user"], found["user_right"], found["page_right"]) == ("a", "boss", "y")
    assert (found["event_time_left"], found["event_time_right"]) == ("mine", "yours")


def test_a_right_row_before_all_it_belongs_to_is_kept_until_the_last_left_row_can_choose_it() -> None:
    step = interval_join("j", on="id", between=("-10 minutes", "-2 minutes"), match="last").late(hr.drop())
    timeline(
        step,
        payment("10:00", m=1),
        batch(),
        watermark("10:08:30"),
        order("10:09", n=1),
        watermark("10:30"),
        expect(id="a", n=1, m=1),
    )


@pytest.mark.parametrize("how", HOWS)
def test_the_time_may_be_among_the_columns_that_are_equal(how: str) -> None:
    step = interval_join("paid", on=["id", "at"], between=("0 minutes", "10 minutes"), how=how).late(hr.side_output())  # type: ignore[arg-type]
    played = play(
        step, order("10:00"), order("10:05", "b"), payment("10:00"), payment("10:06", "c"), watermark("12:00")
    )
    wanted = {
        "inner": ["a"],
        "left": ["a", "b"],
        "right": ["a", "c"],
        "full": ["a", "b", "c"],
        "semi": ["a"],
        "anti": ["b"],
    }
    assert sorted(each["id"] for each in played.main) == wanted[how]


@pytest.mark.parametrize("pause", [(), (crash(),)], ids=["the slots stay", "the slots are others"])
@pytest.mark.parametrize("fan_out", [99, 2], ids=["a segment each batch", "merged segments"])
def test_rows_leave_in_one_order_whether_their_segments_are_merged_or_not(
    fan_out: int, pause: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.state.slot_state.FAN_OUT", fan_out)
    played = play(
        orders("left", between=("0 minutes", "1 hour")),
        order("10:00", n=0),
        *(order("10:20", n=n) for n in range(1, 8)),
        batch(),
        # Only the first is changed by this, and so is stored behind the others.
        payment("10:10", m=1),
        batch(),
        *pause,
        payment("10:30", m=2),
        batch(),
    )
    assert [(each["n"], each["m"]) for each in played.main] == [(0, 1), *((n, 2) for n in range(8))]
