"""One kind of windows behind another: any split, a crash anywhere, the answer of two models one after the other."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import play
from tests.models import fixed_windows as fixed
from tests.models import session as sessions
from tests.models.examples import examples
from tests.models.fixed_windows import AGGREGATES, MINUTE
from tests.models.rows import START, Event, end_of_rows, make_input, micros, split

ROWS = 80
FIRST = hr.tumbling("first", size="2 minutes", key="account").agg(amount="sum(amount)")
SECOND: dict[str, tuple[Any, Any]] = {
    "hopping": (
        hr.hopping("second", size="10 minutes", every="4 minutes", key="account"),
        lambda rows: fixed.answer(rows, fixed.hopping(10 * MINUTE, 4 * MINUTE)),
    ),
    "keyless hopping": (
        hr.hopping("second", size="10 minutes", every="5 minutes", key=None),
        lambda rows: fixed.answer(rows, fixed.hopping(10 * MINUTE, 5 * MINUTE), keyed=False),
    ),
    "cumulating": (
        hr.cumulating("second", step="5 minutes", size="15 minutes", key="account"),
        lambda rows: fixed.answer(rows, fixed.cumulating(5 * MINUTE, 15 * MINUTE)),
    ),
    "session": (
        hr.session("second", gap="3 minutes", key="account"),
        lambda rows: sessions.answer(rows, 3 * MINUTE),
    ),
    "session with a greatest length": (
        hr.session("second", gap="5 minutes", key="account", max_length="9 minutes"),
        lambda rows: sessions.answer(rows, 5 * MINUTE, 9 * MINUTE),
    ),
}


def results(events: list[Event]) -> list[Event]:
    """What the first windows hand on: their sums, each at the last moment of its window."""
    first = fixed.answer(events, fixed.tumbling(2 * MINUTE))
    return [Event(str(account), end - 1, values[2]) for (account, _, end), values in first.items()]


@pytest.mark.parametrize("kind", SECOND)
@examples(2)
@given(
    seed=st.integers(0, 2**32),
    batches=st.sets(st.integers(1, ROWS - 1), max_size=6),
    crashes=st.sets(st.integers(1, ROWS - 1), max_size=4),
    partitions=st.integers(1, 4),
)
def test_windows_over_the_results_of_windows_are_what_two_models_say(
    kind: str, seed: int, batches: set[int], crashes: set[int], partitions: int
) -> None:
    step, answer = SECOND[kind]
    given_rows = make_input(seed, rows=ROWS, pace=30, disorder=600, accounts="abc", partitions=partitions)
    time = hr.event_time("at", out_of_order="10 minutes", partition="partition")
    chain = (FIRST.late(hr.side_output()), step.agg(**AGGREGATES).late(hr.side_output()))
    found = play(chain, *split(given_rows.rows, batches, crashes), *end_of_rows(), event_time=time)
    by_place = {place(row): tuple(row[name] for name in AGGREGATES) for row in found.main if before_the_end(row)}
    assert by_place == answer(results(given_rows.events))
    assert len(by_place) == sum(map(before_the_end, found.main))
    assert {(row["pane"], row["revision"]) for row in found.main} == {("on_time", 0)}
    assert found.late == []


def place(row: dict[str, Any]) -> tuple[str | None, int, int]:
    return row.get("account"), micros(row["window"]["start"]), micros(row["window"]["end"])


def before_the_end(row: dict[str, Any]) -> bool:
    """Not of the rows that closed everything, a day later."""
    return micros(row["window"]["start"]) < micros(START) + 12 * 60 * MINUTE
