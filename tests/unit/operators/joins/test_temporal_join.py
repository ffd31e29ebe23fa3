"""The temporal join step and its operators: refused arguments, descriptions, and the state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl
import pytest

import headrace as hr
from headrace.errors import DefinitionError
from headrace.event_time.record import TimeBounds
from headrace.event_time.strategy import BEGINNING
from headrace.operators.joins.temporal_join import temporal_join
from headrace.schemas import MOMENT
from tests.unit.operators.stored import living, next_due, stored

ROWS = {"item": pl.String(), "n": pl.Int64(), "at": MOMENT}
VERSIONS = {"item": pl.String(), "price": pl.Int64(), "at": MOMENT}
MINUTE = 60_000_000


def bound(**more: Any) -> Any:
    given = {"on": "item", "keep_forever": True, "versions_late": hr.drop(), **more}
    return temporal_join("priced", **given).late(hr.drop()).bind(ROWS, "at", VERSIONS, "at")


def rows(*given: tuple[str, int, int]) -> pl.DataFrame:
    return pl.DataFrame(list(given), {"item": pl.String(), "n": pl.Int64(), "at": pl.Int64()}, orient="row").cast(
        {"at": MOMENT}
    )


def versions(*given: tuple[str, int, int]) -> pl.DataFrame:
    return rows(*given).rename({"n": "price"})


NO_ROWS, NO_VERSIONS = rows(), versions()
START = TimeBounds(BEGINNING, BEGINNING)


def state_after(
    operator: Any,
    given: pl.DataFrame = NO_ROWS,
    new_versions: pl.DataFrame = NO_VERSIONS,
    *,
    state: pl.DataFrame | None = None,
    bounds: TimeBounds = START,
) -> pl.DataFrame:
    before = pl.DataFrame(schema=operator.state_schema) if state is None else state
    return stored(operator, before, operator.apply_both(before, given, new_versions, bounds), bounds)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"ttl": None, "keep_forever": False}, "TTL_MISSING"),
        ({"ttl": "1 day"}, "TTL_TWICE"),
        ({"how": "right"}, "HOW_UNKNOWN"),
        ({"as_of": "now"}, "AS_OF_UNKNOWN"),
        ({"versions_late": None}, "VERSIONS_LATE_NOT_CHOSEN"),
        ({"as_of": "arrival"}, "LATE_WITHOUT_MEANING"),
        ({"as_of": "arrival", "versions_late": None}, "LATE_WITHOUT_MEANING"),
        ({"keep_deleted": "1 day"}, "KEEP_DELETED_WITHOUT_MEANING"),
        ({"on": []}, "KEY_MISSING"),
        ({"on": "nothing"}, "COLUMN_UNKNOWN"),
        ({"on": {"item": "price"}}, "JOIN_KEY_TYPES"),
    ],
)
def test_a_definition_that_makes_no_sense_is_refused(given: dict[str, Any], error: str) -> None:
    with pytest.raises(DefinitionError, match=rf"\[{error}\]"):
        bound(**given)


def test_what_happens_to_late_rows_must_be_chosen() -> None:
    step = temporal_join("priced", on="item", ttl="1 day", versions_late=hr.drop())
    with pytest.raises(DefinitionError, match=r"\[LATE_NOT_CHOSEN\] step 'priced'"):
        step.bind(ROWS, "at", VERSIONS, "at")


def test_one_frame_is_not_enough() -> None:
    step = temporal_join("priced", on="item", ttl="1 day", as_of="arrival")
    with pytest.raises(DefinitionError, match=r"\[INPUTS_MISMATCH\] .*step\(rows, versions\)"):
        step.check_inputs(1)


def test_a_step_prints_itself_as_the_code_that_makes_it() -> None:
    step = temporal_join("p", on={"item": "id"}, ttl="1 day", how="left", versions_late=hr.update_for("1 hour"))
    assert repr(step.late(hr.side_output())) == (
        "hr.temporal_join('p', on={'item': 'id'}, ttl='1 day', how='left', versions_late=hr.update_for('1 hour'))"
        ".late(hr.side_output())"
    )
    assert step.retracts
    assert step.previews
    assert step.retention == 60 * MINUTE
    assert "1 hour longer" in step.state_description
    assert (
        "keys with a version in 1 day + row rate x (1 hour + lag) + version rate x (1 hour + lag)"
        in step.state_description
    )
    assert step.state_description.endswith("10 seconds of lag 4,971,000 rows")


def test_by_arrival_it_says_that_results_may_depend_on_batches() -> None:
    step = temporal_join("p", on="item", keep_forever=True, as_of="arrival")
    assert repr(step) == "hr.temporal_join('p', on='item', keep_forever=True, as_of='arrival')"
    assert "may depend on batches" in step.state_description
    assert (
        "the last position of each deleted key, until event time is 1 week behind its deletion"
        in step.state_description
    )
    assert not step.retracts


def test_the_column_change_is_its_own_where_rows_may_be_taken_back() -> None:
    step = temporal_join("p", on="item", keep_forever=True, versions_late=hr.update_for("1 hour")).late(hr.drop())
    operator = step.bind({**ROWS, "change": pl.String()}, "at", VERSIONS, "at")
    assert list(operator.output_schema) == ["item", "n", "at", "change_left", "price", "at_right", "change"]


def test_of_versions_only_the_valid_one_and_later_ones_are_kept() -> None:
    operator = bound()
    given = versions(("tea", 1, 10), ("tea", 2, 20), ("tea", 3, 30), ("salt", 4, 5))
    state, bounds = state_after(operator, NO_ROWS, given), TimeBounds(20, 20, BEGINNING)
    assert state.height == 4
    later = operator.apply_both(state, NO_ROWS, NO_VERSIONS, bounds)
    assert sorted(stored(operator, state, later, bounds)["__version.price"].to_list()) == [2, 3, 4]
    assert later.removed.height == 1
    assert later.upserts.is_empty()


def test_a_quiet_key_is_woken_for_rows_that_wait_and_its_versions_live_out_by_themselves() -> None:
    operator = bound(keep_forever=False, ttl="1 minute")
    state = state_after(operator, rows(("tea", 1, 50)), versions(("tea", 1, 10)))
    assert next_due(operator, state, START) == (11, None)
    bounds = TimeBounds(11, 11, BEGINNING)
    state = state_after(operator, state=state, bounds=bounds)
    assert next_due(operator, state, bounds) == (51, None)
    bounds = TimeBounds(51, 51, 11)
    applied = operator.apply_both(state, NO_ROWS, NO_VERSIONS, bounds)
    assert applied.output.select("n", "price").rows() == [(1, 1)]
    state = stored(operator, state, applied, bounds)
    assert (state["__version.price"].to_list(), next_due(operator, state, bounds)) == ([1], (None, None))
    lives = [living(operator, state, TimeBounds(fire, fire, 51)).height for fire in (9 + MINUTE, 10 + MINUTE)]
    assert lives == [1, 0]


def test_a_kept_forever_version_wakes_its_key_once_when_time_has_passed_it() -> None:
    operator = bound()
    state = state_after(operator, NO_ROWS, versions(("tea", 1, 10)))
    assert next_due(operator, state, START) == (11, None)
    bounds = TimeBounds(11, 11, BEGINNING)
    state = state_after(operator, state=state, bounds=bounds)
    assert (state.height, next_due(operator, state, bounds)) == (1, (None, None))


def played_when_due(operator: Any, state: pl.DataFrame, time_bounds: list[TimeBounds]) -> pl.DataFrame:
    """The state of keys to which nothing comes, and which are called only when they asked for it."""
    due, _ = next_due(operator, state, START)
    no_versions = pl.DataFrame(schema=operator.second.partial_schema)
    for bounds in time_bounds:
        if due is not None and due <= bounds.fire:
            state = state_after(operator, NO_ROWS, no_versions, state=state, bounds=bounds)
            due, _ = next_due(operator, state, bounds)
        state = living(operator, state, bounds)
    return state


@pytest.mark.parametrize("fires", [[500], [30, 500], [29, 30, 31, 500], [5, 20, 40, 500]])
@pytest.mark.parametrize("reach", [0, 7])
def test_superseded_versions_of_a_quiet_key_are_forgotten(fires: list[int], reach: int) -> None:
    late = hr.update_for(f"{reach} microseconds") if reach else hr.drop()
    operator = bound(versions_late=late)
    given = versions(*(("tea", number, number) for number in range(1, 31)), ("salt", 1, 30))
    state = state_after(operator, NO_ROWS, given)
    time_bounds = [TimeBounds(fire, fire, before) for before, fire in zip([BEGINNING, *fires], fires, strict=False)]
    left = played_when_due(operator, state, time_bounds)
    assert left.select("item", "__version.price").sort("item").rows() == [("salt", 1), ("tea", 30)]


@pytest.mark.parametrize("fires", [[21, 500], [20, 500], [20, 21], [15, 500]])
def test_an_end_is_not_forgotten_before_the_version_that_it_ends(fires: list[int]) -> None:
    step = temporal_join("p", on="item", keep_forever=True, versions_late=hr.drop()).late(hr.drop())
    operator: Any = step.bind(ROWS, "at", {**VERSIONS, "change": pl.String()}, "at")
    given = versions(("tea", 1, 10), ("tea", 1, 20)).with_columns(change=pl.Series(["insert", "delete"]))
    state = state_after(operator, NO_ROWS, given)
    time_bounds = [TimeBounds(fire, fire, before) for before, fire in zip([BEGINNING, *fires], fires, strict=False)]
    assert played_when_due(operator, state, time_bounds).is_empty()


def test_rows_that_wait_are_counted_apart_from_those_that_are_handled() -> None:
    operator = bound()
    bounds = TimeBounds(BEGINNING, 15)
    given = rows(("tea", 1, 10), ("tea", 2, 20))
    applied = operator.apply_both(pl.DataFrame(schema=operator.state_schema), given, NO_VERSIONS, bounds)
    assert (applied.waiting.before, applied.waiting.handled, applied.waiting.after) == (0, 1, 1)
    state = state_after(operator, given, bounds=bounds)
    applied = operator.apply_both(state, NO_ROWS, NO_VERSIONS, TimeBounds(15, 30, 15))
    assert (applied.waiting.before, applied.waiting.handled, applied.waiting.after) == (1, 1, 0)


def test_a_change_that_comes_twice_is_dropped_and_counted() -> None:
    changelog = {**VERSIONS, "change": pl.String(), "position": pl.String()}
    step = temporal_join("p", on="item", keep_forever=True, versions_late=hr.drop()).late(hr.drop())
    operator: Any = step.bind(ROWS, "at", changelog, "at")
    given = versions(("tea", 1, 10), ("tea", 1, 10)).with_columns(change=pl.lit("insert"), position=pl.lit("7"))
    applied = operator.apply_both(pl.DataFrame(schema=operator.state_schema), NO_ROWS, given, START)
    assert (applied.upserts.height, applied.dropped_second) == (1, 1)
    again = operator.apply_both(applied.upserts, NO_ROWS, given.head(1), START)
    assert (again.dropped_second, again.upserts.height, again.removed.height) == (1, 0, 0)


def test_versions_without_a_key_are_dropped_before_they_travel() -> None:
    combined = bound().second.combine(versions(("tea", 1, 10), (None, 2, 10)), TimeBounds(BEGINNING, BEGINNING))  # type: ignore[arg-type]
    assert (combined.accepted, combined.dropped, combined.partials.height) == (1, 1, 1)


def test_rows_without_a_key_travel_only_where_they_leave_unmatched() -> None:
    given = rows(("tea", 1, 10), (None, 2, 10))  # type: ignore[arg-type]
    bounds = TimeBounds(BEGINNING, BEGINNING)
    inner, left = bound().combine(given, bounds), bound(how="left").combine(given, bounds)
    assert (inner.accepted, inner.dropped, inner.partials.height) == (1, 1, 1)
    assert (left.accepted, left.dropped, left.partials.height) == (2, 0, 2)


CHANGELOG = {**VERSIONS, "change": pl.String(), "position": pl.String()}


def live(**more: Any) -> Any:
    given = {"on": "item", "keep_forever": True, "as_of": "arrival", **more}
    return temporal_join("p", **given).bind(ROWS, "at", CHANGELOG, "at")


def changes(*given: tuple[str, int | None, int, str, str]) -> pl.DataFrame:
    types = {**CHANGELOG, "at": pl.Int64()}
    return pl.DataFrame(list(given), types, orient="row").cast({"at": MOMENT})


def test_as_of_arrival_a_change_that_comes_again_in_the_same_batch_or_the_next_is_counted() -> None:
    operator, bounds = live(), TimeBounds(BEGINNING, BEGINNING)
    given = changes(("tea", 1, 10, "insert", "7"), ("tea", 1, 10, "insert", "7"), ("salt", 1, 10, "insert", "7"))
    applied = operator.apply_both(pl.DataFrame(schema=operator.state_schema), NO_ROWS, given, bounds)
    assert (applied.upserts.height, applied.dropped_second) == (2, 1)
    again = operator.apply_both(applied.upserts, NO_ROWS, given, replace(bounds, batch=1))
    assert (again.dropped_second, again.upserts.height, again.removed.height) == (3, 0, 0)


def test_as_of_arrival_the_rows_of_an_update_are_no_repeats() -> None:
    operator = live()
    given = changes(("tea", 2, 10, "update_after", "7"), ("tea", 1, 10, "update_before", "7"))
    state = pl.DataFrame(schema=operator.state_schema)
    applied = operator.apply_both(state, NO_ROWS, given, TimeBounds(BEGINNING, BEGINNING))
    assert (applied.upserts["__version.price"].to_list(), applied.dropped_second) == ([2], 0)


def test_as_of_arrival_of_two_changes_at_one_position_the_first_stays() -> None:
    operator = live()
    state = state_after(operator, NO_ROWS, changes(("tea", 1, 10, "insert", "7")))
    applied = operator.apply_both(state, NO_ROWS, changes(("tea", 2, 10, "insert", "7")), replace(START, batch=1))
    kept = stored(operator, state, applied, START)
    assert (kept["__version.price"].to_list(), applied.dropped_second) == ([1], 1)
    assert (applied.upserts.height, applied.removed.height) == (0, 0)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({}, 7 * 24 * 60 * MINUTE),
        ({"keep_deleted": "1 hour"}, 60 * MINUTE),
        ({"keep_forever": False, "ttl": "1 day"}, 24 * 60 * MINUTE),
    ],
)
def test_as_of_arrival_a_deletion_is_kept_so_long_and_forgotten_without_a_call(given: Any, kept: int) -> None:
    operator = live(**given)
    deletion = changes(("tea", None, 10, "delete", "7"))
    state = state_after(operator, NO_ROWS, deletion)
    assert next_due(operator, state, START) == (None, None)
    for fire, rows_left in ((9 + kept, 1), (10 + kept, 0)):
        bounds = TimeBounds(fire, fire, BEGINNING)
        assert living(operator, state, bounds).height == rows_left
        assert state_after(operator, NO_ROWS, deletion.clear(), state=state, bounds=bounds).height == rows_left


def test_as_of_arrival_a_deletion_may_be_kept_for_ever() -> None:
    operator, bounds = live(keep_deleted=None), TimeBounds(10**15, 10**15)
    deletion = changes(("tea", None, 10, "delete", "7"))
    state = state_after(operator, NO_ROWS, deletion, bounds=bounds)
    assert (state.height, next_due(operator, state, bounds)) == (1, (None, None))


WINDOW = pl.Struct({"start": MOMENT, "end": MOMENT})


def of_windows() -> pl.DataFrame:
    """A result and a correction of windows that time has not passed."""
    given = {"item": ["tea", "tea"], "window": [{"start": 0, "end": 90}] * 2, "pane": ["on_time", "late"]}
    return pl.DataFrame(given, {"item": pl.String(), "window": WINDOW, "pane": pl.String()})


@pytest.mark.parametrize("late", [hr.drop(), hr.side_output(), hr.update_for("1 hour")], ids=repr)
def test_a_correction_of_a_window_before_the_join_is_late_and_no_row_of_its_own(late: Any) -> None:
    step = temporal_join("p", on="item", keep_forever=True, versions_late=hr.drop()).late(late)
    given = of_windows()
    combined = step.bind(dict(given.schema), "window", VERSIONS, "at").combine(given, TimeBounds(50, 50))
    assert (combined.accepted, combined.partials["pane"].to_list(), combined.late["pane"].to_list()) == (
        1,
        ["on_time"],
        ["late"],
    )


@pytest.mark.parametrize(("late", "accepted"), [(hr.drop(), 1), (hr.side_output(), 1), (hr.update_for("1 hour"), 2)])
def test_a_correction_of_a_window_is_a_version_where_late_ones_correct(late: Any, accepted: int) -> None:
    step = temporal_join("p", on="item", keep_forever=True, versions_late=late).late(hr.drop())
    given = of_windows()
    operator: Any = step.bind(ROWS, "at", dict(given.schema), "window")
    combined = operator.second.combine(given, TimeBounds(50, 50))
    assert (combined.accepted, combined.late.height) == (accepted, 2 - accepted)
