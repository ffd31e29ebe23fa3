"""The event-time buffer on plain frames: which rows wait, which are released, and in which order."""

from __future__ import annotations

import polars as pl
import pytest

from headrace.event_time.record import TimeBounds
from headrace.event_time.strategy import BEGINNING
from headrace.operators.event_time_buffer import OF_KEY, RELEASED_AT, EventTimeBuffer, TouchedKeys, event_time_order
from headrace.operators.rows import ARRIVAL, KEY_NUMBER, TIME
from headrace.reports import WaitingRows

SCHEMA: dict[str, pl.DataType] = {"n": pl.Int64(), TIME: pl.Int64(), ARRIVAL: pl.Int64(), "count": pl.Int64()}
OF_ROWS, OF_RULES = EventTimeBuffer(SCHEMA), EventTimeBuffer(SCHEMA, broadcast=True)
EMPTY = pl.DataFrame(schema=SCHEMA)
BOTH = pytest.mark.parametrize("buffer", [OF_ROWS, OF_RULES], ids=["rows", "rules"])


def rows(*times: int) -> pl.DataFrame:
    """Rows at some times, numbered as they arrive."""
    return pl.DataFrame({"n": range(len(times)), TIME: times}, schema={"n": pl.Int64(), TIME: pl.Int64()})


def up_to(fire: int, before: int = BEGINNING) -> TimeBounds:
    return TimeBounds(fire, fire, before, batch=fire)


@BOTH
def test_a_row_waits_until_the_watermark_has_passed_its_time(buffer: EventTimeBuffer) -> None:
    first = buffer.release(EMPTY, rows(30, 10, 20), up_to(20))
    assert (first.rows["n"].to_list(), first.stored["n"].to_list()) == ([1], [0, 2])
    second = buffer.release(first.stored, rows(), up_to(21, 20))
    assert (second.rows["n"].to_list(), second.stored.height) == ([2], 0)


@BOTH
def test_rows_of_one_time_are_in_the_order_of_arrival(buffer: EventTimeBuffer) -> None:
    waiting = buffer.release(EMPTY, rows(30, 20, 20), up_to(10)).stored
    later = rows(25, 20).with_columns(pl.col("n") + 10)
    released = buffer.release(waiting.reverse(), later, up_to(40, 10)).rows
    assert released[event_time_order(released)]["n"].to_list() == [1, 2, 11, 10, 0]


@BOTH
def test_a_waiting_row_is_over_with_its_release(buffer: EventTimeBuffer) -> None:
    waiting = buffer.release(EMPTY, rows(30), up_to(10)).stored
    assert waiting.select(RELEASED_AT).to_series().to_list() == [31]


@BOTH
def test_what_is_known_of_a_key_and_what_is_valid_for_all_does_not_wait(buffer: EventTimeBuffer) -> None:
    known = {"n": [7, 8], TIME: [10, None], ARRIVAL: [OF_KEY, -1], "count": [3, 4]}
    released = buffer.release(pl.DataFrame(known, schema=SCHEMA), rows(), up_to(40))
    assert (released.rows.height, released.counts) == (0, WaitingRows(0, 0, 0))
    assert pl.DataFrame(known).select(RELEASED_AT).to_series().to_list() == [None, None]


def test_rows_and_rules_wait_apart_in_one_state() -> None:
    state = pl.concat([buffer.release(EMPTY, rows(30), up_to(10)).stored for buffer in (OF_ROWS, OF_RULES)])
    released = [buffer.release(state, rows(), up_to(40, 10)).rows for buffer in (OF_ROWS, OF_RULES)]
    assert [(each.height, each[ARRIVAL][0] > OF_KEY) for each in released] == [(1, True), (1, False)]


def test_waiting_rows_are_counted_apart_from_those_that_are_released() -> None:
    waiting = OF_ROWS.release(EMPTY, rows(30, 50), up_to(10)).stored
    assert OF_ROWS.release(waiting, rows(20, 60), up_to(40, 10)).counts == WaitingRows(before=2, handled=2, after=2)


def test_rows_are_in_the_order_of_event_time_within_each_key() -> None:
    numbered = rows(30, 20, 10).with_columns(pl.Series(ARRIVAL, [1, 2, 3]))
    assert event_time_order(numbered, pl.Series([1, 0, 1]).to_numpy()).tolist() == [1, 2, 0]


def test_a_released_row_that_is_kept_for_corrections_is_stored_and_not_released_again() -> None:
    buffer = EventTimeBuffer(SCHEMA, kept_for=10)
    first = buffer.release(EMPTY, rows(5, 15, 25), up_to(20))
    assert (first.rows["n"].to_list(), first.stored["n"].to_list()) == ([0, 1], [1, 2])
    second = buffer.release(first.stored, rows(), up_to(30, 20))
    assert (second.rows["n"].to_list(), second.counts) == ([2], WaitingRows(before=1, handled=1, after=0))


def touched(key: tuple[str, ...], *levels: float | None) -> TouchedKeys:
    """What rows of these levels touch, where levels 5, null and NaN are known, and that of 5 is due."""
    released = pl.DataFrame(
        {"level": levels, ARRIVAL: range(1, len(levels) + 1)}, schema_overrides={"level": pl.Float64}
    )
    known = pl.DataFrame({"level": [5.0, None, float("nan")], ARRIVAL: OF_KEY, "due": [True, False, False]})
    return TouchedKeys.of(key, released, known, pl.col("due"))


def test_the_keys_of_released_rows_and_those_with_something_due_are_touched_in_their_own_order() -> None:
    keys = touched(("level",), 9.0, 2.0, 9.0)
    assert keys.keys.rows() == [(2.0, OF_KEY), (5.0, OF_KEY), (9.0, OF_KEY)]
    assert keys.numbers.tolist() == [2, 0, 2]
    assert keys.states.select("level", KEY_NUMBER).rows() == [(5.0, 1)]


def test_null_and_nan_are_keys_whose_state_is_found() -> None:
    keys = touched(("level",), None, float("nan"))
    assert keys.states[KEY_NUMBER].sort().to_list() == [0, 1, 2]
    assert set(keys.numbers.tolist()) < {0, 1, 2}


def test_without_a_key_all_rows_belong_to_the_one_that_there_is() -> None:
    keys = touched((), 9.0, 2.0)
    assert (keys.keys.rows(), keys.numbers.tolist()) == ([(OF_KEY,)], [0, 0])
