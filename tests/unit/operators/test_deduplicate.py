"""Deduplication as a value, and what runs behind it on plain frames."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

import headrace as hr
from headrace.errors import DefinitionError
from headrace.event_time.record import TimeBounds
from headrace.event_time.strategy import BEGINNING, END
from headrace.operators.deduplicate import FIRST, _leaps
from headrace.operators.rows import KEY_NUMBER, TIME
from headrace.wheel.operator import Applied, Operator
from tests.unit.operators.stored import next_due, stored

MOMENT = pl.Datetime("us", "UTC")
SCHEMA = {"id": pl.String(), "n": pl.Int64(), "at": MOMENT, "tags": pl.List(pl.String())}
DAY = 86_400_000_000
START = TimeBounds(BEGINNING, BEGINNING)
ten = hr.deduplicate("once", key="id", within="10 microseconds")


def rows(*given: tuple[str | None, int]) -> pl.DataFrame:
    """Rows by key and time, numbered as they come."""
    keys, times = [key for key, _ in given], [time for _, time in given]
    frame: dict[str, Any] = {"id": keys, "n": range(len(given)), "at": times, "tags": [[]] * len(given)}
    return pl.DataFrame(frame, schema={**SCHEMA, "at": pl.Int64()}).cast({"at": MOMENT})


def operator() -> Operator:
    return ten.late(hr.side_output()).bind(SCHEMA, "at")


def turned(given: pl.DataFrame, *, state: pl.DataFrame | None = None, bounds: TimeBounds = START) -> Applied:
    before = pl.DataFrame(schema=operator().state_schema) if state is None else state
    return operator().apply(before, given, bounds)


def remembered(applied: Applied, *, state: pl.DataFrame | None = None, bounds: TimeBounds = START) -> pl.DataFrame:
    before = pl.DataFrame(schema=operator().state_schema) if state is None else state
    return stored(operator(), before, applied, bounds)


def test_a_step_is_printed_as_it_is_written() -> None:
    assert repr(ten) == "hr.deduplicate('once', key='id', within='10 microseconds')"
    step = hr.deduplicate("once", key=["a", "b"], within="90 minutes").late(hr.side_output())
    assert eval(repr(step), {"hr": hr}) == step


def test_late_returns_a_new_value() -> None:
    assert ten.late(hr.drop()).lateness == hr.drop()
    assert ten.lateness is None


def test_the_fingerprint_holds_what_state_depends_on_and_nothing_else() -> None:
    assert ten.late(hr.drop()).fingerprint == ten.late(hr.side_output()).fingerprint
    assert hr.deduplicate("once", key="n", within="10 microseconds").fingerprint != ten.fingerprint
    assert hr.deduplicate("once", key="id", within="11 microseconds").fingerprint != ten.fingerprint
    assert ten.retention == 10


def test_rows_leave_with_the_columns_and_the_time_they_came_with() -> None:
    assert dict(operator().output_schema) == SCHEMA
    assert operator().output_time == "at"


def test_what_happens_to_late_rows_must_be_chosen() -> None:
    with pytest.raises(DefinitionError, match=r"\[LATE_NOT_CHOSEN\] step 'once'"):
        ten.bind(SCHEMA, "at")


def test_corrections_are_refused() -> None:
    with pytest.raises(DefinitionError, match=r"\[CORRECTIONS_IMPOSSIBLE\] step 'once': \.late\(hr\.update_for"):
        ten.late(hr.update_for("1 hour"))


@pytest.mark.parametrize(
    ("key", "error"),
    [([], "KEY_MISSING"), (None, "KEY_MISSING"), ("unknown", "COLUMN_UNKNOWN"), ("tags", "KEY_TYPE")],
)
def test_a_key_is_one_or_more_columns_whose_values_can_be_compared(key: Any, error: str) -> None:
    with pytest.raises(DefinitionError, match=rf"\[{error}\] step 'once'"):
        hr.deduplicate("once", key=key, within="1 hour").late(hr.drop()).bind(SCHEMA, "at")


def test_the_step_that_keeps_the_last_row_prints_itself_and_has_a_state_of_its_own() -> None:
    last = hr.deduplicate("once", key="id", within="10 minutes", keep="last").late(hr.update_for("1 hour"))
    printed = "hr.deduplicate('once', key='id', within='10 minutes', keep='last').late(hr.update_for('1 hour'))"
    assert repr(last) == printed
    assert last.fingerprint != hr.deduplicate("once", key="id", within="10 minutes").fingerprint
    assert last.state_description == "the last row of each key, until event time is 1 hour 10 minutes behind it"


@pytest.mark.parametrize(
    ("keep", "columns", "error"),
    [
        ("latest", {}, r"\[KEEP_UNKNOWN\] step 'once': keep='latest'"),
        ("last", {"position": pl.String()}, r"\[COLUMN_EXISTS\] step 'once': 'position' .* Drop or rename it"),
    ],
)
def test_what_is_kept_is_known_and_the_columns_of_changes_are_free(
    keep: Any, columns: dict[str, pl.DataType], error: str
) -> None:
    with pytest.raises(DefinitionError, match=error):
        hr.deduplicate("once", key="id", within="1 hour", keep=keep).late(hr.drop()).bind({**SCHEMA, **columns}, "at")


@pytest.mark.parametrize("within", ["0 seconds", "-1 second"])
def test_the_duration_is_longer_than_nothing(within: str) -> None:
    with pytest.raises(DefinitionError, match=r"\[DURATION_NOT_POSITIVE\] within="):
        hr.deduplicate("once", key="id", within=within)


def test_the_duration_is_no_longer_than_the_calendar() -> None:
    with pytest.raises(DefinitionError, match=r"\[DURATION_TOO_LONG\] within='106751990 days'"):
        hr.deduplicate("once", key="id", within="106751990 days")


def test_the_longest_duration_that_is_taken_finds_repeats() -> None:
    longest = hr.deduplicate("once", key="id", within="400000 days").late(hr.drop()).bind(SCHEMA, "at")
    given = rows(("a", 0), ("a", 399_999 * DAY), ("a", 400_000 * DAY), ("b", 5))
    applied = longest.apply(pl.DataFrame(schema=longest.state_schema), given, START)
    assert applied.output["n"].to_list() == [0, 3, 2]


def test_every_leap_ends_at_a_later_row_even_where_sums_of_times_wrap() -> None:
    ordered = pl.DataFrame({KEY_NUMBER: [0, 0, 0], TIME: [2**62, 2**62 + 1, 2**62 + 2]})
    assert _leaps(ordered, 2**63 - 1).tolist() == [0, 1, 2]


def test_rows_with_the_same_key_and_time_do_not_travel() -> None:
    given = rows(("a", 5), ("a", 5), ("b", 5), ("a", 6), ("a", 5), (None, 5), (None, 5), ("a", 1))
    combined = operator().combine(given, TimeBounds(2, 2))
    assert combined.partials["n"].to_list() == [0, 2, 3, 5]
    assert combined.late["n"].to_list() == [7]
    assert (combined.accepted, combined.dropped) == (4, 3)


def test_repeats_are_counted_and_only_first_rows_are_remembered() -> None:
    applied = turned(rows(("a", 0), ("a", 9), ("a", 10), ("b", 3), ("a", 19), ("a", 20)))
    assert applied.output["n"].to_list() == [0, 3, 2, 5]
    assert applied.dropped == 2
    assert sorted(applied.upserts.rows()) == [("a", 0), ("a", 10), ("a", 20), ("b", 3)]
    again = turned(rows(("a", 12), ("b", 12), ("c", 12)), state=remembered(applied))
    assert again.output["n"].to_list() == [2]
    assert again.dropped == 2
    assert again.upserts.rows() == [("c", 12)]


def test_a_row_is_forgotten_when_no_row_on_time_can_be_near_it() -> None:
    state = remembered(turned(rows(("a", 0), ("b", 5))))
    found = []
    for time in (9, 10, END):
        bounds = TimeBounds(time, time)
        found.append(remembered(turned(rows(), state=state, bounds=bounds), state=state, bounds=bounds).rows())
    assert found == [[("a", 0), ("b", 5)], [("b", 5)], []]


def test_a_row_that_is_over_in_its_own_batch_is_emitted_and_not_remembered() -> None:
    applied = turned(rows(("a", 0), ("a", 5), ("a", 12)), bounds=TimeBounds(BEGINNING, 15))
    assert applied.output["n"].to_list() == [0, 2]
    assert applied.upserts.rows() == [("a", 12)]
    assert applied.upserts.select(FIRST).rows() == [(12,)]
    assert applied.removed.is_empty()


def test_nothing_is_called_to_be_forgotten() -> None:
    state = remembered(turned(rows(("a", 3), ("b", 8))))
    assert state.height == 2
    assert next_due(operator(), state, START) == (None, None)


def test_many_rows_of_one_key_are_leapt_through() -> None:
    applied = turned(rows(*(("a", time) for time in range(5_000))))
    assert applied.output["n"].to_list() == list(range(0, 5_000, 10))
    assert applied.dropped == 4_500
