"""The steps of interval and window joins: printing, refused arguments, and what they declare."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl
import pytest

import headrace as hr
from headrace.durations import MICROSECONDS
from headrace.errors import DefinitionError
from headrace.event_time.record import TimeBounds
from headrace.operators.joins.interval_join import interval_join
from headrace.operators.joins.stream_join import RIGHT as RIGHT_SIDE
from headrace.operators.joins.window_join import window_join
from headrace.operators.rows import TIME, with_schema
from headrace.schemas import MOMENT
from tests.unit.operators.stored import looked_up

SECOND = MICROSECONDS["second"]
LEFT = {"user": pl.String(), "n": pl.Int64(), "at": MOMENT}
RIGHT = {"user": pl.String(), "m": pl.Int64(), "at": MOMENT}


def near(**more: Any) -> Any:
    return interval_join("j", **{"on": "user", "between": ("-4 seconds", "9 seconds"), **more})


def bound(step: Any, left: Any = LEFT, right: Any = RIGHT) -> Any:
    return step.late(hr.drop()).bind(left, "at", right, "at")


@pytest.mark.parametrize(
    "said",
    [
        "interval_join('j', on='user', between=('-1 minute', '1 hour'), how='inner')",
        "interval_join('j', on=['a', 'b'], between=('0 seconds', '1 hour'), bounds='[)', how='left', match='last')",
        "interval_join('j', on={'a': 'b'}, between=('0 seconds', '1 hour'), how='anti').late(hr.update_for('1 hour'))",
        "interval_join('j', on='user', nulls_equal=True, between=('opens', 'ends'), bounds='[)', how='left',"
        " match='highest', by='m')",
        "interval_join('j', on=None, between=('0 seconds', '1 hour'), how='inner')",
        "regular_join('r', on='user', how='full', ttl='1 day').late(hr.drop())",
        "regular_join('r', on='user', nulls_equal=True, how='inner', keep_forever=True)",
        "window_join('w', on='user', window=hr.tumbling_window('1 day', time_zone='Europe/Berlin'), how='full')",
        "window_join('w', on='user', window=hr.hopping_window('1 hour', every='10 minutes', offset='1 minute'),"
        " how='semi')",
        "window_join('w', on='user', window=hr.cumulating_window('1 day', step='1 hour'), how='left').late(hr.drop())",
    ],
)
def test_a_join_is_printed_as_it_is_written(said: str) -> None:
    joins = {"interval_join": interval_join, "window_join": window_join, "regular_join": hr.regular_join}
    known: dict[str, Any] = {**joins, "hr": hr}
    for name in ("drop", "update_for"):
        known[name] = getattr(hr, name)
    text = said.replace("hr.drop", "drop").replace("hr.update_for", "update_for")
    step = eval(text, known)
    assert repr(step) == f"hr.{said}"


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"between": ("1 second", "0 seconds")}, "INTERVAL_EMPTY"),
        ({"between": ("1 second", "1 second"), "bounds": "[)"}, "INTERVAL_EMPTY"),
        ({"bounds": "<>"}, "BOUNDS_UNKNOWN"),
        ({"how": "outer"}, "HOW_UNKNOWN"),
        ({"match": "best"}, "MATCH_UNKNOWN"),
        ({"how": "full", "match": "last"}, "JOIN_MATCH_HOW"),
        ({"how": "semi", "match": "first"}, "JOIN_MATCH_HOW"),
        ({"how": "anti", "between": ("0 seconds", "ends")}, "JOIN_MATCH_HOW"),
        ({"match": "highest"}, "JOIN_MATCH_BY"),
        ({"match": "last", "by": "m"}, "JOIN_MATCH_BY"),
        ({"on": []}, "KEY_MISSING"),
        ({"on": [("a", "b"), ("a", "c")]}, "JOIN_KEY_TWICE"),
        ({"between": ("in 5 minutes", "later")}, "DURATION_UNREADABLE"),
    ],
)
def test_an_interval_join_that_makes_no_sense_is_refused(given: dict[str, Any], error: str) -> None:
    with pytest.raises(DefinitionError, match=rf"\[{error}\]"):
        near(**given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"between": ("0 seconds", "n")}, r"\[INTERVAL_BOUNDS\].*'n' is neither.* TIMESTAMP columns: ends\."),
        ({"between": ("at", "1 hour")}, r"\[INTERVAL_BOUNDS\].*'at' is neither"),
        ({"between": ("soon", "1 hour")}, r"\[INTERVAL_BOUNDS\].*'soon' is neither"),
        ({"between": ("0 seconds", "m")}, r"\[INTERVAL_BOUNDS\].*The right rows have it"),
        ({"match": "lowest", "by": "n"}, r"\[JOIN_MATCH_BY\].*Use one of m, or"),
        ({"match": "lowest", "by": "at"}, r"\[JOIN_MATCH_BY\]"),
        ({"match": "lowest", "by": "user"}, r"\[JOIN_MATCH_BY\]"),
    ],
)
def test_a_bound_and_a_ranking_need_columns_that_can_be_one(given: dict[str, Any], said: str) -> None:
    with pytest.raises(DefinitionError, match=said):
        bound(near(**given), left={**LEFT, "ends": MOMENT})


def test_what_an_interval_of_its_own_keeps_is_said() -> None:
    own = near(between=("-1 minute", "ends"), match="last").late(hr.drop())
    assert "until event time is past their ends, right rows until it is 1 minute behind them" in own.state_description
    assert "as long as one that matches them" in own.state_description


def test_a_regular_join_says_how_long_a_row_lives() -> None:
    with pytest.raises(DefinitionError, match=r"\[TTL_MISSING\]"):
        hr.regular_join("r", on="user")
    with pytest.raises(DefinitionError, match=r"\[HOW_UNKNOWN\]"):
        hr.regular_join("r", on="user", ttl="1 day", how="semi")  # type: ignore[arg-type]
    said = hr.regular_join("r", on="user", ttl="1 minute").late(hr.update_for("1 minute")).state_description
    assert "until event time is 2 minutes behind them" in said
    assert "240,000 rows" in said
    assert "for ever" in hr.regular_join("r", on="user", keep_forever=True).state_description


def test_a_window_join_needs_a_shape_of_windows_and_a_known_how() -> None:
    with pytest.raises(DefinitionError, match=r"\[JOIN_WINDOW\]"):
        window_join("w", on="user", window=5)  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match=r"\[HOW_UNKNOWN\]"):
        window_join("w", on="user", window="1 hour", how="cross")  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match=r"\[HOP_LONGER_THAN_WINDOW\]"):
        hr.hopping_window("1 minute", every="1 hour")


@pytest.mark.parametrize("step", [near(), window_join("w", on="user", window="1 hour")], ids=["interval", "window"])
def test_a_join_is_bound_to_two_inputs_whose_keys_have_one_type(step: Any) -> None:
    with pytest.raises(DefinitionError, match=r"\[LATE_NOT_CHOSEN\]"):
        step.bind(LEFT, "at", RIGHT, "at")
    with pytest.raises(DefinitionError, match=r"\[INPUTS_MISMATCH\] .*step\(left, right\)"):
        step.check_inputs(1)
    with pytest.raises(DefinitionError, match=r"\[JOIN_KEY_TYPES\] .* 'user', which is String, .* which is Int64"):
        bound(step, right={**RIGHT, "user": pl.Int64()})
    with pytest.raises(DefinitionError, match=r"\[COLUMN_UNKNOWN\]"):
        bound(step, right={"at": MOMENT})
    with pytest.raises(DefinitionError, match=r"\[OUTPUT_NAME_TAKEN\] .* n_right"):
        bound(step, left={**LEFT, "n_right": pl.Int64()}, right={**RIGHT, "n": pl.Int64()})


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ({}, 0),
        ({"how": "left"}, 9),
        ({"how": "anti"}, 9),
        ({"how": "semi"}, 9),
        ({"how": "right"}, 4),
        ({"how": "full"}, 9),
        ({"match": "first"}, 9),
        ({"how": "left", "between": ("-9 seconds", "-4 seconds")}, 0),
        ({"how": "right", "between": ("4 seconds", "9 seconds")}, 0),
        ({"how": "full", "between": ("-9 seconds", "4 seconds")}, 9),
    ],
)
def test_rows_leave_as_far_behind_time_as_they_may_have_waited(given: dict[str, Any], seconds: int) -> None:
    assert near(**given).holdback == seconds * SECOND


def test_rows_are_taken_back_only_where_a_late_one_can_belong_to_them() -> None:
    corrected = hr.update_for("1 hour")
    taking = {how: near(how=how).late(corrected).retracts for how in ("inner", "left", "right", "full", "semi", "anti")}
    assert taking == {"inner": False, "left": True, "right": True, "full": True, "semi": False, "anti": True}
    assert near(match="first").late(corrected).retracts
    assert not near(how="left").late(hr.side_output()).retracts
    assert near(how="left").late(corrected).previews


def test_what_is_kept_is_told_as_a_formula_and_a_number() -> None:
    description = near(how="left").late(hr.update_for("1 second")).state_description
    assert "left rate x (10 seconds + lag) + right rate x (5 seconds + lag)" in description
    assert "15,000 rows" in description
    description = window_join("w", on="user", window="10 seconds").late(hr.drop()).state_description
    assert "(left rate + right rate) x (10 seconds + lag)" in description
    assert "20,000 rows" in description


def test_only_what_the_next_rows_need_lies_in_the_state() -> None:
    assert list(bound(near()).state_schema) == ["user", "__right", "__time", "__arrival", "__matched", "n", "m"]
    assert "m" not in bound(near(how="semi")).state_schema


@pytest.mark.parametrize("late", [hr.drop(), hr.side_output(), hr.update_for("1 hour")], ids=repr)
@pytest.mark.parametrize("step", [near(), window_join("w", on="user", window=hr.tumbling_window("1 hour"))])
def test_a_correction_of_a_window_before_the_join_is_late_and_no_row_of_its_own(step: Any, late: Any) -> None:
    given = {"user": ["a", "a"], "window": [{"start": 0, "end": 90}] * 2, "pane": ["on_time", "late"]}
    window = pl.Struct({"start": MOMENT, "end": MOMENT})
    rows = pl.DataFrame(given, {"user": pl.String(), "window": window, "pane": pl.String()})
    operator: Any = step.late(late).bind(dict(rows.schema), "window", dict(rows.schema), "window")
    for side in (operator, operator.second):
        combined = side.combine(rows, TimeBounds(50, 50))
        assert (combined.accepted, combined.partials["pane"].to_list()) == (1, ["on_time"])
        assert combined.late["pane"].to_list() == ["late"]


@pytest.mark.parametrize("between", ["1 minute", ("0 seconds",), ("0 seconds", "1 minute", "1 hour")])
def test_an_interval_has_two_bounds(between: Any) -> None:
    with pytest.raises(DefinitionError, match=r"\[INTERVAL_BOUNDS\] step 'j': between="):
        near(between=between)


def test_bounds_that_leave_the_calendar_are_refused() -> None:
    with pytest.raises(DefinitionError, match=r"\[DURATION_TOO_LONG\] between='-400001 days'"):
        near(between=("-400001 days", "1 minute"))


@pytest.mark.parametrize("on", [(7,), 3, [("a", "b", "c")], [7]])
def test_what_names_no_columns_is_refused(on: Any) -> None:
    with pytest.raises(DefinitionError, match=r"\[JOIN_ON\] step 'j': on="):
        near(on=on)


def buffered(
    step: Any, *, fire: int, before: int = 0, left: Sequence[int] = (), right: Sequence[int] = ()
) -> list[list[int]]:
    """The seconds of left and right rows that a batch with new rows looks up, of one row a second on each side."""
    operator, bounds = step.bind(LEFT, "at", RIGHT, "at"), TimeBounds(before * SECOND, fire * SECOND, before * SECOND)
    sides = pl.DataFrame({RIGHT_SIDE: [False, True]}).join(pl.DataFrame({TIME: range(100)}), how="cross")
    state = with_schema(sides.with_columns(pl.col(TIME) * SECOND), operator.state_schema)
    new = [pl.DataFrame({TIME: side}, schema={TIME: pl.Int64()}) * SECOND for side in (left, right)]
    found = looked_up(operator, state, bounds, *new).with_columns(pl.col(TIME) // SECOND)
    return [found.filter(pl.col(RIGHT_SIDE) == side)[TIME].to_list() for side in (False, True)]


def test_an_interval_join_looks_up_rows_of_the_other_side_within_the_interval() -> None:
    step = near().late(hr.drop())
    assert buffered(step, fire=0, left=[50]) == [[], [*range(46, 60)]]
    assert buffered(step, fire=0, right=[50]) == [[*range(41, 55)], []]
    assert buffered(step, fire=0, left=[10, 80]) == [[], [*range(6, 20), *range(76, 90)]]


@pytest.mark.parametrize(
    ("how", "lefts", "rights"),
    [
        ("inner", [], []),
        ("semi", [], []),
        ("anti", [31, 32], []),
        ("right", [], [36, 37]),
        ("full", [31, 32], [36, 37]),
    ],
)
def test_rows_that_no_match_can_come_for_any_more_are_due_and_looked_up_if_they_are_emitted_alone(
    how: str, lefts: list[int], rights: list[int]
) -> None:
    step = near(how=how).late(hr.drop())
    assert buffered(step, before=40, fire=42) == [lefts, rights]
    operator, rows = bound(near(how=how)), pl.DataFrame({TIME: [31, 36], RIGHT_SIDE: [False, True]})
    due = operator.due(TimeBounds(0, 0)).event
    assert rows.select((due - pl.col(TIME)).is_not_null()).to_series().to_list() == [lefts != [], rights != []]


def test_a_join_that_chooses_one_match_looks_up_all_to_choose_from() -> None:
    step = near(match="last").late(hr.update_for("1 minute"))
    assert buffered(step, before=40, fire=41) == [[31], [*range(27, 41)]]
    assert buffered(step, fire=0, right=[50]) == [[*range(41, 55)], [*range(37, 64)]]


@pytest.mark.parametrize(
    ("window", "closes", "of_a_late_row"),
    [
        ("10 seconds", [*range(30, 40)], [*range(20, 30)]),
        (hr.hopping_window("20 seconds", every="10 seconds"), [*range(20, 40)], [*range(10, 40)]),
        (hr.cumulating_window("20 seconds", step="10 seconds"), [*range(20, 40)], [*range(20, 40)]),
    ],
)
def test_a_window_join_looks_up_windows_that_close_and_closed_ones_that_get_rows(
    window: Any, closes: list[int], of_a_late_row: list[int]
) -> None:
    step = window_join("w", on="user", window=window).late(hr.update_for("1 minute"))
    assert buffered(step, before=30, fire=39, left=[35, 90], right=[70]) == [[], []]
    assert buffered(step, before=30, fire=40, left=[35]) == [closes, closes]
    assert buffered(step, before=30, fire=39, right=[25]) == [of_a_late_row, of_a_late_row]
