"""The operator of counting and global windows on plain frames: the state, what is due, and the end of time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, NamedTuple

import polars as pl
import pytest

import headrace as hr
from headrace.event_time.record import TimeBounds
from headrace.event_time.strategy import BEGINNING, END
from headrace.operators.event_time_buffer import OF_KEY
from headrace.operators.rows import ARRIVAL, TIME, arrivals
from headrace.wheel.codec import decode, encode
from headrace.wheel.operator import Applied, Operator
from tests.unit.operators.stored import next_due, stored

MOMENT = pl.Datetime("us", "UTC")
SCHEMA: dict[str, pl.DataType] = {"account": pl.String(), "amount": pl.Int64(), "note": pl.String(), "at": MOMENT}
SECOND = 1_000_000


def bound(step: Any) -> Operator:
    operator: Operator = step.agg(n="count(*)", spent="sum(amount)").late(hr.side_output()).bind(SCHEMA, "at")
    return operator


def threes(**more: Any) -> Operator:
    return bound(hr.counting("threes", rows=3, key="account", **{"ttl": "10 seconds", **more}))


def rows(*given: tuple[str | None, int, int]) -> pl.DataFrame:
    """Rows of account, second and amount."""
    accounts, times, amounts = zip(*given, strict=True) if given else ((), (), ())
    columns = {
        "account": accounts,
        "amount": amounts,
        "note": ["x"] * len(given),
        "at": [time * SECOND for time in times],
    }
    return pl.DataFrame(columns, schema={**SCHEMA, "at": pl.Int64()}).cast({"at": MOMENT})


def empty(operator: Operator) -> pl.DataFrame:
    return pl.DataFrame(schema=dict(operator.state_schema))


def up_to(fire: int, before: int | None = None) -> TimeBounds:
    """The time_bounds behind a source at a watermark of so many seconds."""
    at = fire * SECOND
    return TimeBounds(at, at, BEGINNING if before is None else before * SECOND, batch=fire)


class Result(NamedTuple):
    """What a batch did, and the state after it."""

    applied: Applied
    state: pl.DataFrame

    @property
    def upserts(self) -> pl.DataFrame:
        return self.applied.upserts

    @property
    def removed(self) -> pl.DataFrame:
        return self.applied.removed

    @property
    def output(self) -> pl.DataFrame:
        return self.applied.output


def applied(operator: Operator, state: pl.DataFrame, arriving: pl.DataFrame, time_bounds: TimeBounds) -> Result:
    given = operator.combine(arriving, TimeBounds(BEGINNING, time_bounds.fire)).partials
    assert dict(given.schema) == dict(operator.partial_schema)
    result = operator.apply(decode([encode(state)]), decode([encode(given)]), time_bounds)
    assert dict(result.output.schema) == dict(operator.output_schema)
    return Result(result, stored(operator, state, result, time_bounds))


def test_a_waiting_row_holds_only_what_the_aggregates_read() -> None:
    result = applied(threes(), empty(threes()), rows(("a", 5, 50)), up_to(1))
    assert result.state["__row"].to_list() == [{"amount": 50, "at": rows(("a", 5, 50))["at"][0]}]
    assert result.state.select(TIME, ARRIVAL).rows() == [(5 * SECOND, *arrivals(up_to(1), 1))]


def test_a_batch_in_which_nothing_is_passed_adds_waiting_rows_and_nothing_else() -> None:
    operator = threes()
    first = applied(operator, empty(operator), rows(("a", 5, 50), ("b", 6, 60)), up_to(1))
    second = applied(operator, first.state, rows(("a", 5, 51)), up_to(5))
    assert second.upserts.select("account", ARRIVAL).rows() == [("a", *arrivals(up_to(5), 1))]
    assert second.removed.height == 0
    assert second.output.height == 0


def test_taken_rows_leave_by_themselves_and_what_is_kept_of_their_keys_is_written() -> None:
    operator = threes()
    first = applied(operator, empty(operator), rows(("a", 5, 50), ("b", 6, 60), ("b", 9, 90)), up_to(1))
    second = applied(operator, first.state, rows(("a", 4, 40), ("c", 8, 80)), up_to(7))
    of_b, of_c = arrivals(up_to(1), 3)[2], arrivals(up_to(7), 2)[1]
    assert sorted(second.upserts.select("account", ARRIVAL).rows()) == [("a", OF_KEY), ("b", OF_KEY), ("c", of_c)]
    assert second.removed.height == 0
    assert sorted(second.state.select("account", ARRIVAL).rows()) == [
        ("a", OF_KEY),
        ("b", OF_KEY),
        ("b", of_b),
        ("c", of_c),
    ]


def test_a_key_with_a_full_window_is_forgotten_at_once() -> None:
    operator = threes()
    first = applied(operator, empty(operator), rows(("a", 1, 1), ("a", 2, 2)), up_to(5))
    assert first.state.select("account", ARRIVAL).rows() == [("a", OF_KEY)]
    second = applied(operator, first.state, rows(("a", 5, 5)), up_to(6, 5))
    assert second.state.height == 0
    assert second.removed.rows() == [("a", OF_KEY)]
    assert second.output.select("n", "spent").rows() == [(3, 8)]


def test_keys_to_which_nothing_happens_are_not_written_again() -> None:
    operator = threes()
    first = applied(operator, empty(operator), rows(("a", 1, 1), ("b", 2, 2)), up_to(5))
    second = applied(operator, first.state, rows(("b", 5, 5)), up_to(6, 5))
    assert second.upserts.select("account").rows() == [("b",)]
    assert sorted(second.state["account"].to_list()) == ["a", "b"]


def test_a_step_is_due_when_its_next_row_is_passed_or_its_next_key_is_forgotten() -> None:
    operator = threes()
    waiting = applied(operator, empty(operator), rows(("a", 5, 50), ("b", 7, 70)), up_to(1))
    assert next_due(operator, waiting.state, up_to(1)) == (5 * SECOND + 1, None)
    taken = applied(operator, waiting.state, rows(), up_to(9, 1))
    assert next_due(operator, taken.state, up_to(9)) == (15 * SECOND, None)
    over = applied(operator, taken.state, rows(), up_to(17, 9))
    assert next_due(operator, over.state, up_to(17)) == (None, None)


def test_a_key_that_is_kept_for_ever_makes_nothing_due() -> None:
    operator = threes(ttl=None, keep_forever=True)
    taken = applied(operator, empty(operator), rows(("a", 5, 50)), up_to(9))
    assert next_due(operator, taken.state, up_to(9)) == (None, None)


def test_a_duration_is_due_at_its_next_multiple_only_for_keys_that_have_changed() -> None:
    every = hr.every("4 seconds", time="event")
    operator = bound(hr.global_window("w", key="account", ttl="1 hour").emit(every))
    taken = applied(operator, empty(operator), rows(("a", 5, 50), ("b", 9, 90)), up_to(7))
    assert next_due(operator, taken.state, up_to(7)) == (8 * SECOND, None)
    fired = applied(operator, taken.state, rows(), up_to(8, 7))
    assert fired.output.select("account", "n").rows() == [("a", 1)]
    assert next_due(operator, fired.state, up_to(8)) == (9 * SECOND + 1, None)


def drained(operator: Operator, before: int) -> list[tuple[Any, ...]]:
    """The results of the end of time, behind a watermark of so many seconds: seconds of the window, then the rest."""
    first = applied(operator, empty(operator), rows(("a", 1, 1), ("a", 2, 2), ("b", 8, 8)), up_to(before))
    last = applied(operator, first.state, rows(), TimeBounds(before * SECOND, END, before * SECOND))
    assert last.state.height == 0
    kept = first.state.filter(pl.col(ARRIVAL) == OF_KEY).select(operator.identity)
    assert sorted(last.removed.rows()) == sorted(kept.rows())
    bounds = (pl.col("window").struct.field(name).cast(pl.Int64).alias(name) for name in ("start", "end"))
    shown = last.output.select("account", *bounds, "n", "spent", "pane", "revision").rows()
    return [(each[0], each[1] / SECOND, each[2] / SECOND, *each[3:]) for each in sorted(shown)]


@pytest.mark.parametrize("before", [1, 5])
def test_at_the_end_of_time_unfinished_windows_leave_as_if_their_time_to_live_had_passed(before: int) -> None:
    assert drained(threes(), before) == [("a", 1, 12, 2, 3, "on_time", 0), ("b", 8, 18, 1, 8, "on_time", 0)]


def test_at_the_end_of_time_a_key_that_is_kept_for_ever_ends_at_its_last_row_or_where_event_time_stood() -> None:
    forever = threes(ttl=None, keep_forever=True)
    assert drained(forever, 5) == [("a", 1, 5.000001, 2, 3, "on_time", 0), ("b", 8, 8.000001, 1, 8, "on_time", 0)]


def test_at_the_end_of_time_a_global_window_says_everything_once_more() -> None:
    step = hr.global_window("w", key="account", keep_forever=True)
    every = hr.every("4 seconds", time="event")
    assert drained(bound(step.emit(hr.after_rows(2))), 5) == [
        ("a", 1, 5.000001, 2, 3, "on_time", 1),
        ("b", 8, 8.000001, 1, 8, "on_time", 0),
    ]
    assert drained(bound(step.emit(hr.after_rows(2)).panes(hr.discarding())), 5) == [
        ("b", 8, 8.000001, 1, 8, "on_time", 0)
    ]
    assert drained(bound(step.emit(every)), 5) == [
        ("a", 1, 5.000001, 2, 3, "on_time", 1),
        ("b", 8, 8.000001, 1, 8, "on_time", 0),
    ]


def test_an_end_of_time_without_any_time_before_it_ends_windows_at_their_last_row() -> None:
    forever = threes(ttl=None, keep_forever=True)
    result = applied(forever, empty(forever), rows(("a", 1, 1)), TimeBounds(BEGINNING, END))
    assert result.output["window"].struct.field("end").cast(pl.Int64).to_list() == [SECOND + 1]


def test_rows_before_the_time_bounds_are_late_whole_and_do_not_travel() -> None:
    operator = threes()
    combined = operator.combine(rows(("a", 5, 50), ("b", 4, 40)), TimeBounds(5 * SECOND, 5 * SECOND))
    assert combined.partials["account"].to_list() == ["a"]
    assert combined.accepted == 1
    assert combined.late.select("account", "note", "late_by").rows() == [("b", "x", timedelta(seconds=1))]


def test_a_batch_without_rows_and_without_state_gives_nothing() -> None:
    operator = threes()
    result = applied(operator, empty(operator), rows(), up_to(5))
    assert (result.state.height, result.upserts.height, result.removed.height, result.output.height) == (0, 0, 0, 0)


def test_a_key_may_be_the_event_time_itself() -> None:
    step = hr.counting("same", rows=2, key="at", ttl="1 second").agg(n="count(*)").late(hr.drop())
    operator = step.bind(SCHEMA, "at")
    result = applied(operator, empty(operator), rows(("a", 1, 1), ("b", 1, 2), ("c", 2, 3)), up_to(9))
    assert sorted(result.output["n"].to_list()) == [1, 2]


def test_a_sum_beyond_the_range_is_an_error_with_the_key() -> None:
    operator = threes()
    state = applied(operator, empty(operator), rows(("a", 1, 2**63 - 1), ("a", 2, 1)), up_to(9)).state
    with pytest.raises(hr.HeadraceError, match=r"\[SUM_OVERFLOW\] step 'threes': spent = sum\(amount\) for key 'a'"):
        operator.apply(state, operator.combine(rows(), up_to(20)).partials, up_to(20, 9))
