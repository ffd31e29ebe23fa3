"""The operator of window steps on plain frames."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest

import headrace as hr
from headrace.event_time.lateness import Lateness
from headrace.event_time.record import TimeBounds
from headrace.event_time.strategy import BEGINNING, END
from headrace.operators.windows.aggregation import REVISION
from headrace.operators.windows.fixed_window_operator import END as WINDOW_END
from headrace.wheel.operator import Operator
from tests.unit.operators.stored import looked_up, next_due, stored

MOMENT = pl.Datetime("us", "UTC")
SCHEMA = {"key": pl.String(), "x": pl.Int64(), "at": MOMENT}
OPEN = TimeBounds(BEGINNING, BEGINNING)


def operator(late: Lateness | None = None) -> Operator:
    """Windows of ten microseconds."""
    step = hr.tumbling("tens", size="10 microseconds", key="key").agg(n="count(*)", total="sum(x)")
    return step.late(late or hr.side_output()).bind(SCHEMA, "at")


def rows(*given: tuple[str | None, int | None, int]) -> pl.DataFrame:
    frame = pl.DataFrame(given, schema={"key": pl.String, "x": pl.Int64, "at": pl.Int64}, orient="row")
    return frame.cast({"at": MOMENT})


def empty(of: Operator) -> pl.DataFrame:
    return pl.DataFrame(schema=of.state_schema)


def first_state(of: Operator, *given: tuple[str | None, int | None, int]) -> pl.DataFrame:
    """The state after a first batch with these rows."""
    applied = of.apply(empty(of), of.combine(rows(*given), OPEN).partials, OPEN)
    return stored(of, empty(of), applied, OPEN)


def emitted(frame: pl.DataFrame) -> list[tuple[Any, ...]]:
    start = pl.col("window").struct.field("start").cast(pl.Int64)
    return frame.select("key", start.alias("start"), "n", "total", "pane", "revision").rows()


def test_rows_are_combined_by_key_and_window_before_they_travel() -> None:
    combined = operator().combine(rows(("a", 1, 3), ("a", 2, 9), ("a", 4, 10), ("b", None, 3)), OPEN)
    found = {row[:2]: row[2:] for row in combined.partials.rows()}
    assert {place: int(values[0]) for place, values in found.items()} == {("a", 10): 2, ("a", 20): 1, ("b", 10): 1}
    assert combined.accepted == 4
    assert combined.late.is_empty()
    assert dict(combined.partials.schema) == operator().partial_schema


def test_late_rows_are_set_aside_whole_with_how_late_they_are() -> None:
    given = rows(("a", 1, 9), ("a", 2, 10), ("b", None, 3))
    combined = operator().combine(given, TimeBounds(late=12, fire=99))
    assert combined.accepted == 1
    assert combined.late.drop("late_by").equals(given.filter(pl.Series([True, False, True])))
    assert combined.late["late_by"].to_list() == [timedelta(microseconds=90), timedelta(microseconds=96)]
    assert dict(combined.late.schema) == operator().side_schemas["late"]


def test_lateness_is_judged_by_the_late_bound_alone() -> None:
    assert operator().combine(rows(("a", 1, 9)), TimeBounds(late=9, fire=END)).accepted == 1
    assert operator().combine(rows(("a", 1, 9)), TimeBounds(late=10, fire=10)).accepted == 0


def test_with_corrections_a_row_is_late_only_when_its_window_takes_none_any_more() -> None:
    correcting = operator(hr.update_for("5 microseconds"))
    assert correcting.combine(rows(("a", 1, 9)), TimeBounds(late=14, fire=14)).accepted == 1
    assert correcting.combine(rows(("a", 1, 9)), TimeBounds(late=15, fire=15)).accepted == 0


def test_only_a_step_that_drops_has_no_late_output() -> None:
    assert operator(hr.drop()).side_schemas == {}
    assert list(operator(hr.update_for("1 second")).side_schemas) == ["late"]


def test_partials_of_the_same_window_merge() -> None:
    of = operator()
    one = of.combine(rows(("a", 1, 3), (None, 5, 3)), OPEN).partials
    other = of.combine(rows(("a", 2, 4), (None, None, 3), ("a", 1, 11)), OPEN).partials
    merged = of.merge(pl.concat([one, other]))
    applied = of.apply(empty(of), merged, TimeBounds(BEGINNING, END))
    assert sorted(emitted(applied.output), key=str) == [
        ("a", 0, 2, 3, "on_time", 0),
        ("a", 10, 1, 1, "on_time", 0),
        (None, 0, 2, 5, "on_time", 0),
    ]


def test_an_open_window_is_kept_and_written_as_changed() -> None:
    of = operator()
    partials = of.combine(rows(("a", 1, 3)), OPEN).partials
    applied = of.apply(empty(of), partials, TimeBounds(9, 9))
    assert applied.output.is_empty()
    state = stored(of, empty(of), applied, TimeBounds(9, 9))
    assert state.equals(applied.upserts)
    assert applied.removed.is_empty()
    assert state[REVISION].to_list() == [None]
    assert dict(state.schema) == of.state_schema
    assert next_due(of, state, TimeBounds(9, 9)) == (10, None)


def test_only_what_a_batch_touches_is_written() -> None:
    of = operator()
    many = of.combine(rows(*((f"k{number}", 1, 3) for number in range(20))), OPEN).partials
    state = stored(of, empty(of), of.apply(empty(of), many, OPEN), OPEN)
    applied = of.apply(state, of.combine(rows(("k7", 5, 4)), OPEN).partials, OPEN)
    assert applied.upserts["key"].to_list() == ["k7"]
    state = stored(of, state, applied, OPEN)
    assert state.height == 20
    assert int(state.filter(pl.col("key") == "k7")["total.sum"].item()) == 6


def test_a_closing_window_leaves_the_state_without_being_written() -> None:
    of = operator()
    state = first_state(of, ("a", 1, 3), ("a", 2, 13))
    applied = of.apply(state, pl.DataFrame(schema=of.partial_schema), TimeBounds(10, 10))
    assert emitted(applied.output) == [("a", 0, 1, 1, "on_time", 0)]
    state = stored(of, state, applied, TimeBounds(10, 10))
    assert state[WINDOW_END].to_list() == [20]
    assert (applied.upserts.height, applied.removed.height) == (0, 0)
    assert next_due(of, state, TimeBounds(10, 10)) == (20, None)


def test_a_correctable_window_stays_until_its_corrections_end() -> None:
    of = operator(hr.update_for("5 microseconds"))
    nothing = pl.DataFrame(schema=of.partial_schema)
    state = first_state(of, ("a", 1, 3))
    closed = stored(of, state, of.apply(state, nothing, TimeBounds(10, 10)), TimeBounds(10, 10))
    assert closed[REVISION].to_list() == [0]
    assert next_due(of, closed, TimeBounds(10, 10)) == (None, None)
    for time, rows_left in ((14, 1), (15, 0)):
        bounds = TimeBounds(time, time, before=10)
        applied = of.apply(closed, nothing, bounds)
        assert applied.output.is_empty()
        assert stored(of, closed, applied, bounds).height == rows_left


def test_a_window_that_closes_in_the_batch_of_its_late_row_is_emitted_first_and_then_corrected() -> None:
    of = operator(hr.update_for("1 second"))
    state = first_state(of, ("a", 1, 3))
    bounds = TimeBounds(12, 12)
    applied = of.apply(state, of.combine(rows(("a", 5, 4), ("b", 7, 4)), bounds).partials, bounds)
    assert emitted(applied.output)[0] == ("a", 0, 1, 1, "on_time", 0)
    assert sorted(emitted(applied.output)[1:]) == [("a", 0, 2, 6, "late", 1), ("b", 0, 1, 7, "late", 0)]


def test_rows_of_an_earlier_step_have_the_time_of_their_windows_end_less_a_microsecond() -> None:
    first = operator()
    second = hr.tumbling("later", size="10 microseconds", key="key").agg(n="count(*)").late(hr.side_output())
    bound = second.bind(first.output_schema, "window")
    window = {"start": datetime(1970, 1, 1, tzinfo=UTC), "end": datetime(1970, 1, 1, 0, 0, 0, 10, UTC)}
    result = pl.DataFrame(
        [{"key": "a", "window": window, "n": 1, "total": 1, "pane": "on_time", "revision": 0}],
        schema=first.output_schema,
    )
    assert bound.combine(result, OPEN).partials[WINDOW_END].to_list() == [10]
    assert bound.combine(result, TimeBounds(11, 11)).late["late_by"].to_list() == [timedelta(microseconds=2)]


def test_a_state_of_nothing_is_never_due() -> None:
    assert next_due(operator(), empty(operator()), OPEN) == (None, None)


@pytest.mark.parametrize("name", ["window", "pane", "revision", "change", "session_id", "key"])
def test_a_result_may_not_take_the_name_of_a_key_or_of_what_every_window_has(name: str) -> None:
    with pytest.raises(hr.DefinitionError, match=rf"\[RESULT_NAME_TAKEN\] window 'tens': result '{name}'"):
        hr.tumbling("tens", size="1 hour", key="key").agg(**{name: "count(*)"})


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        (hr.tumbling("odd", size="1 hour", key="pane"), r"\[RESULT_NAME_TAKEN\] window 'odd': key column 'pane'"),
        (
            hr.session("odd", gap="1 hour", key="session_id"),
            r"\[RESULT_NAME_TAKEN\] window 'odd': key column 'session_id'",
        ),
        (hr.tumbling("odd", size="1 hour", key=["k", "k"]), r"\[KEY_TWICE\] step 'odd': key column 'k'"),
    ],
)
def test_a_key_that_the_results_could_not_hold_is_refused_before_any_row(step: Any, problem: str) -> None:
    schema = {"k": pl.String(), "pane": pl.String(), "session_id": pl.String(), "at": pl.Datetime("us", "UTC")}
    with pytest.raises(hr.DefinitionError, match=problem):
        step.agg(n="count(*)").late(hr.drop()).bind(schema, "at")


def test_windows_other_than_sessions_may_have_a_session_for_their_key() -> None:
    schema = {"session_id": pl.String(), "at": pl.Datetime("us", "UTC")}
    step = hr.tumbling("clicks", size="1 hour", key="session_id").agg(n="count(*)").late(hr.drop())
    assert "session_id" in step.bind(schema, "at").output_schema


TENS = hr.tumbling("tens", size="10 microseconds", key="key")
TWENTIES = hr.hopping("twenties", size="20 microseconds", every="10 microseconds", key="key")


@pytest.mark.parametrize(
    ("step", "of_open", "closing", "of_closed"),
    [
        (TENS, {80}, {50}, {30}),
        (TENS.emit(hr.on_close(early=hr.after_rows(2))), {80}, {50}, {30}),
        (TWENTIES, {80}, {40, 50}, {20, 30, 40}),
        (TWENTIES.emit(hr.on_update()), {80, 90}, {50}, {30, 40}),
    ],
    ids=["windows that are panes", "windows with previews", "panes that windows share", "windows that overlap"],
)
def test_a_batch_looks_up_what_it_touches_or_closes(
    step: Any, of_open: set[int], closing: set[int], of_closed: set[int]
) -> None:
    of = step.agg(n="count(*)").late(hr.update_for("90 microseconds")).bind(SCHEMA, "at")
    state = pl.DataFrame({WINDOW_END: range(10, 110, 10)}, schema={WINDOW_END: pl.Int64()})

    def found(*times: int, fire: int) -> set[int]:
        bounds = TimeBounds(40, fire, 40)
        partials = of.combine(rows(*(("a", 1, time) for time in times)), bounds).partials
        return set(looked_up(of, state, bounds, partials)[WINDOW_END])

    assert found(fire=49) == set()
    assert found(75, fire=49) == of_open
    assert found(fire=50) == closing
    assert found(25, fire=49) == of_closed
    assert found(25, 75, fire=50) == of_open | closing | of_closed
