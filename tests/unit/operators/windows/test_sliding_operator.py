"""What runs behind a sliding window, on plain frames: what is written, what is kept and how long, when it is called."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl
import pytest

import headrace as hr
from headrace.errors import HeadraceError
from headrace.event_time.record import TimeBounds
from headrace.event_time.strategy import BEGINNING, END
from headrace.operators.rows import ARRIVAL
from headrace.operators.windows.sliding_windows import SlidingOperator
from headrace.wheel.operator import Applied
from tests.unit.operators.stored import looked_up, next_due, stored

MOMENT = pl.Datetime("us", "UTC")
SCHEMA = {"key": pl.String(), "n": pl.Int64(), "at": MOMENT}
START = TimeBounds(BEGINNING, BEGINNING)
ten = hr.sliding("ten", size="10 microseconds", key="key").agg(total="sum(n)")


def operator_of(step: Any) -> SlidingOperator:
    operator = step.bind(SCHEMA, "at")
    assert isinstance(operator, SlidingOperator)
    return operator


def rows(*times: int, key: str = "a") -> pl.DataFrame:
    """Rows whose number is their time."""
    return pl.DataFrame({"key": [key] * len(times), "n": times, "at": times}, schema={**SCHEMA, "at": pl.Int64()}).cast(
        {"at": MOMENT}
    )


def turned(operator: SlidingOperator, state: pl.DataFrame | None, given: pl.DataFrame, bounds: TimeBounds) -> Applied:
    before = pl.DataFrame(schema=operator.state_schema) if state is None else state
    return operator.apply(before, operator.combine(given, bounds).partials, bounds)


def state_after(
    operator: SlidingOperator, state: pl.DataFrame | None, given: pl.DataFrame, bounds: TimeBounds
) -> pl.DataFrame:
    before = pl.DataFrame(schema=operator.state_schema) if state is None else state
    return stored(operator, before, turned(operator, state, given, bounds), bounds)


def test_rows_that_close_are_written_once() -> None:
    operator = operator_of(ten.late(hr.update_for("5 microseconds")))
    taken = turned(operator, None, rows(1, 2, 3), START)
    assert taken.upserts.height == 3
    closed = turned(operator, taken.upserts, rows(), TimeBounds(3, 3, BEGINNING))
    assert closed.output["n"].to_list() == [1, 2]
    assert (closed.upserts.height, closed.removed.height) == (0, 0)


def test_only_rows_that_are_corrected_are_written_again() -> None:
    operator = operator_of(ten.late(hr.update_for("5 microseconds")))
    taken = state_after(operator, None, rows(1, 4, 6), START)
    closed = state_after(operator, taken, rows(), TimeBounds(7, 7, BEGINNING))
    corrected = turned(operator, closed, rows(5), TimeBounds(7, 7, 7))
    assert sorted(corrected.upserts["n"].to_list()) == [5, 6]
    assert corrected.output.select("n", "total", "pane", "revision").rows() == [
        (5, 10, "late", 0),
        (6, 16, "late", 1),
    ]


def test_a_row_is_forgotten_when_no_row_on_time_reaches_back_to_it() -> None:
    operator = operator_of(ten.late(hr.drop()))
    state = state_after(operator, None, rows(1, 2, 15), START)
    assert state_after(operator, state, rows(), TimeBounds(10, 10, BEGINNING)).height == 3
    assert state_after(operator, state, rows(), TimeBounds(11, 11, BEGINNING))["n"].to_list() == [2, 15]
    assert turned(operator, state, rows(), TimeBounds(11, 11, BEGINNING)).removed.height == 0


def test_corrections_keep_rows_so_much_longer() -> None:
    operator = operator_of(ten.late(hr.update_for("5 microseconds")))
    state = state_after(operator, None, rows(1), START)
    assert state_after(operator, state, rows(), TimeBounds(15, 15, BEGINNING)).height == 1
    assert state_after(operator, state, rows(), TimeBounds(16, 16, BEGINNING)).height == 0


def test_a_drain_emits_everything_and_leaves_nothing() -> None:
    operator = operator_of(ten.late(hr.update_for("5 microseconds")))
    state, at_end = state_after(operator, None, rows(1, 5), START), TimeBounds(END, END, BEGINNING)
    drained = turned(operator, state, rows(), at_end)
    assert drained.output["total"].to_list() == [1, 6]
    assert stored(operator, state, drained, at_end).height == 0


def test_a_row_that_is_emitted_and_over_in_its_own_batch_is_never_written() -> None:
    """As at a drain behind another step."""
    operator = operator_of(ten.late(hr.drop()))
    drained = turned(operator, None, rows(1, 5), TimeBounds(BEGINNING, END, BEGINNING))
    assert drained.output["total"].to_list() == [1, 6]
    assert (drained.upserts.height, drained.removed.height) == (0, 0)


def test_a_row_is_called_when_it_is_passed_and_not_when_it_is_over() -> None:
    operator = operator_of(ten.late(hr.update_for("5 microseconds")))
    state = state_after(operator, None, rows(3, 8), START)
    assert next_due(operator, state, START) == (4, None)
    assert next_due(operator, state, TimeBounds(4, 4)) == (9, None)
    assert next_due(operator, state, TimeBounds(9, 9)) == (None, None)
    assert [state_after(operator, state, rows(), TimeBounds(time, time)).height for time in (17, 18, 23)] == [2, 1, 0]


def test_arrivals_are_numbered_by_batch_and_place() -> None:
    operator = operator_of(ten.late(hr.drop()))
    state = state_after(operator, None, rows(5, 3, 4), START)
    more = state_after(operator, state, rows(3, 3), replace(START, batch=1))
    assert more.sort(ARRIVAL)["n"].to_list() == [5, 3, 4, 3, 3]


def test_a_sum_beyond_its_type_is_an_error_that_names_the_key() -> None:
    for spread in (1, 3):
        step = hr.sliding("ten", size="10 seconds", key="key", spread=spread).agg(total="sum(n)").late(hr.drop())
        operator = operator_of(step)
        large = rows(1, 2).with_columns(pl.lit(2**62).alias("n"))
        bounds = TimeBounds(BEGINNING, 10, BEGINNING)
        with pytest.raises(HeadraceError, match=r"\[SUM_OVERFLOW\] step 'ten': total = sum\(n\) for key 'a' is beyond"):
            turned(operator, None, large, bounds)


def test_late_rows_stay_on_the_map_side() -> None:
    operator = operator_of(ten.late(hr.update_for("5 microseconds")))
    combined = operator.combine(rows(4, 5, 6, 10, 11), TimeBounds(10, 10, 10))
    assert combined.partials["n"].to_list() == [5, 6, 10, 11]
    assert combined.late.select("n", pl.col("late_by").dt.total_microseconds()).rows() == [(4, 6)]
    assert combined.accepted == 4


def test_sums_of_floats_keep_thirty_digits_of_the_greatest_value_when_it_leaves() -> None:
    """What leaves a window is subtracted with its rounding error, so little is lost of what stays."""
    schema = {"key": pl.String(), "n": pl.Float64(), "at": MOMENT}
    given = pl.DataFrame({"key": "a", "n": [1e25, 0.1, 0.2, 0.3], "at": [0, 5, 11, 12]}).cast({"at": MOMENT})
    operator = ten.late(hr.drop()).bind(schema, "at")
    bounds = TimeBounds(BEGINNING, 100, BEGINNING)
    sums = operator.apply(pl.DataFrame(schema=operator.state_schema), given, bounds).output["total"].to_list()
    assert sums == [1e25, 1e25, pytest.approx(0.3, abs=1e-5), pytest.approx(0.6, abs=1e-5)]


@pytest.mark.parametrize(
    ("emission", "of_new_rows"),
    [(hr.on_close(), []), (hr.on_update(), [*range(72, 91)])],
    ids=["on close", "on update"],
)
def test_a_batch_looks_up_the_windows_of_rows_that_it_shows(emission: Any, of_new_rows: list[int]) -> None:
    operator = operator_of(ten.emit(emission).late(hr.update_for("90 microseconds")))
    state = state_after(operator, None, rows(*range(100)), START)

    def found(*new: int, before: int, fire: int) -> list[int]:
        bounds = TimeBounds(before, fire, before)
        partials = operator.combine(rows(*new), bounds).partials
        return sorted(looked_up(operator, state, bounds, partials)["n"].to_list())

    assert found(before=50, fire=53) == [*range(41, 53)]
    assert found(81, before=50, fire=53) == [*range(41, 53), *of_new_rows]
    assert found(30, before=50, fire=50) == [*range(21, 40), *range(41, 50)]
