"""The event-time buffer on plain frames: which rows wait, which are released, and in which order."""

from __future__ import annotations

import polars as pl
import pytest

from headrace.event_time.record import TimeBounds
from headrace.event_time.strategy import BEGINNING
from headrace.operators.event_time_buffer import OF_KEY, RELEASED_AT, EventTimeBuffer, event_time_order
from headrace.operators.rows import ARRIVAL, TIME
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
    assert (first.rows["n"].to_list(), first.waiting["n"].to_list()) == ([1], [0, 2])
    second = buffer.release(first.waiting, rows(), up_to(21, 20))
    assert (second.rows["n"].to_list(), second.waiting.height) == ([2], 0)


@BOTH
def test_rows_of_one_time_are_in_the_order_of_arrival(buffer: EventTimeBuffer) -> None:
    waiting = buffer.release(EMPTY, rows(30, 20, 20), up_to(10)).waiting
    later = rows(25, 20).with_columns(pl.col("n") + 10)
    released = buffer.release(waiting.reverse(), later, up_to(40, 10)).rows
    assert released[event_time_order(released)]["n"].to_list() == [1, 2, 11, 10, 0]


@BOTH
def test_a_waiting_row_is_over_with_its_release(buffer: EventTimeBuffer) -> None:
    waiting = buffer.release(EMPTY, rows(30), up_to(10)).waiting
    assert waiting.select(RELEASED_AT).to_series().to_list() == [31]


@BOTH
def test_what_is_known_of_a_key_and_what_is_valid_for_all_does_not_wait(buffer: EventTimeBuffer) -> None:
    known = {"n": [7, 8], TIME: [10, None], ARRIVAL: [OF_KEY, -1], "count": [3, 4]}
    released = buffer.release(pl.DataFrame(known, schema=SCHEMA), rows(), up_to(40))
    assert (released.rows.height, released.counts) == (0, WaitingRows(0, 0, 0))
    assert pl.DataFrame(known).select(RELEASED_AT).to_series().to_list() == [None, None]


def test_rows_and_rules_wait_apart_in_one_state() -> None:
    state = pl.concat([buffer.release(EMPTY, rows(30), up_to(10)).waiting for buffer in (OF_ROWS, OF_RULES)])
    released = [buffer.release(state, rows(), up_to(40, 10)).rows for buffer in (OF_ROWS, OF_RULES)]
    assert [(each.height, each[ARRIVAL][0] > OF_KEY) for each in released] == [(1, True), (1, False)]


def test_waiting_rows_are_counted_apart_from_those_that_are_released() -> None:
    waiting = OF_ROWS.release(EMPTY, rows(30, 50), up_to(10)).waiting
    assert OF_ROWS.release(waiting, rows(20, 60), up_to(40, 10)).counts == WaitingRows(before=2, handled=2, after=2)


def test_rows_are_in_the_order_of_event_time_within_each_key() -> None:
    numbered = rows(30, 20, 10).with_columns(pl.Series(ARRIVAL, [1, 2, 3]))
    assert event_time_order(numbered, pl.Series([1, 0, 1]).to_numpy()).tolist() == [1, 2, 0]
