"""Tumbling, hopping and cumulating windows: any split, any partitions, a crash anywhere, the model's answer."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.operators.windows.window_step import WindowStep
from headrace.testing import play
from tests.models import fixed_windows as model
from tests.models.examples import examples
from tests.models.fixed_windows import AGGREGATES, MINUTE, Answer, Covering
from tests.models.rows import end_of_rows, make_input, micros, split

ROWS = 200
KINDS: dict[str, tuple[WindowStep, Covering]] = {
    "tumbling": (hr.tumbling("w", size="10 minutes", key="account"), model.tumbling(10 * MINUTE)),
    "offset": (
        hr.tumbling("w", size="10 minutes", key="account", offset="3 minutes"),
        model.tumbling(10 * MINUTE, 3 * MINUTE),
    ),
    "hopping": (
        hr.hopping("w", size="10 minutes", every="4 minutes", key="account"),
        model.hopping(10 * MINUTE, 4 * MINUTE),
    ),
    "cumulating": (
        hr.cumulating("w", step="2 minutes", size="10 minutes", key="account"),
        model.cumulating(2 * MINUTE, 10 * MINUTE),
    ),
    "keyless": (hr.tumbling("w", size="10 minutes", key=None), model.tumbling(10 * MINUTE)),
    "keyless hopping": (
        hr.hopping("w", size="10 minutes", every="5 minutes", key=None),
        model.hopping(10 * MINUTE, 5 * MINUTE),
    ),
}
places = st.sets(st.integers(1, ROWS - 1), max_size=10)
seeds = st.integers(0, 2**32)
kinds = pytest.mark.parametrize("kind", KINDS)


def values(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in AGGREGATES)


def place(row: dict[str, Any]) -> tuple[str | None, int, int]:
    return row.get("account"), micros(row["window"]["start"]), micros(row["window"]["end"])


def last_of_each(rows: list[dict[str, Any]]) -> Answer:
    return {place(row): values(row) for row in rows}


def by_window(rows: list[dict[str, Any]]) -> dict[Any, list[dict[str, Any]]]:
    grouped: defaultdict[Any, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        grouped[place(row)].append(row)
    return grouped


def with_the_end(truth: Answer, found: Answer) -> Answer:
    """The truth with the windows of the rows that closed everything."""
    last = max(end for _, _, end in found)
    ends = {window: each for window, each in found.items() if window[0] == "end" or window[2] > last - 15 * MINUTE}
    return {**truth, **ends}


@kinds
@examples(5)
@given(seed=seeds, batches=places, crashes=places, partitions=st.integers(1, 4))
def test_rows_within_the_bound_give_each_window_once(
    kind: str, seed: int, batches: set[int], crashes: set[int], partitions: int
) -> None:
    step, covering = KINDS[kind]
    given_rows = make_input(seed, rows=ROWS, disorder=900, partitions=partitions)
    time = hr.event_time("at", out_of_order="15 minutes", partition="partition")
    elements = [*split(given_rows.rows, batches, crashes), *end_of_rows()]
    played = play(step.agg(**AGGREGATES).late(hr.side_output()), *elements, event_time=time)
    truth = model.answer(given_rows.events, covering, keyed=bool(step.key))
    assert last_of_each(played.main) == truth
    assert len(played.main) == len(truth)
    assert {(row["pane"], row["revision"]) for row in played.main} == {("on_time", 0)}
    assert played.late == []


@kinds
@examples(5)
@given(seed=seeds, batches=places, crashes=places)
def test_with_corrections_long_enough_the_last_one_is_the_answer(
    kind: str, seed: int, batches: set[int], crashes: set[int]
) -> None:
    step, covering = KINDS[kind]
    given_rows = make_input(seed, rows=ROWS, disorder=3600, partitions=2)
    elements = [*split(given_rows.rows, batches, crashes), *end_of_rows()]
    played = play(step.agg(**AGGREGATES).late(hr.update_for("3 days")), *elements, event_time=hr.event_time("at"))
    found = last_of_each(played.main)
    truth = model.answer(given_rows.events, covering, keyed=bool(step.key))
    assert found == with_the_end(truth, found)
    assert played.late == []
    for rows in by_window(played.main).values():
        assert [row["revision"] for row in rows] == list(range(len(rows)))
        assert all(row["pane"] == "late" for row in rows[1:])


EMISSIONS = [
    hr.on_update(),
    hr.on_close(early=hr.after_rows(3)),
    hr.on_close(early=hr.every("7 minutes", time="event")),
    hr.on_close(early=hr.every("10 seconds")),
]


@kinds
@pytest.mark.parametrize("panes", [hr.accumulating(), hr.discarding(), hr.retracting()], ids=repr)
@examples(4)
@given(
    seed=seeds,
    batches=places,
    crashes=places,
    emission=st.sampled_from(EMISSIONS),
    late=st.sampled_from([hr.side_output(), hr.update_for("3 days")]),
)
def test_previews_and_corrections_come_to_the_answer(
    kind: str, panes: Any, seed: int, batches: set[int], crashes: set[int], emission: Any, late: Any
) -> None:
    step, covering = KINDS[kind]
    late_rows = late.correctable > 0
    given_rows = make_input(seed, rows=ROWS, disorder=3600 if late_rows else 900, partitions=2)
    elements = [*split(given_rows.rows, batches, crashes), *end_of_rows()]
    time = hr.event_time("at", out_of_order="0 seconds" if late_rows else "15 minutes")
    played = play(step.agg(**AGGREGATES).emit(emission).panes(panes).late(late), *elements, event_time=time)
    assert played.late == []
    found: Answer = {}
    for window, rows in by_window(played.main).items():
        found[window] = as_read(rows, panes.kind)
    truth = model.answer(given_rows.events, covering, keyed=bool(step.key))
    assert found == with_the_end(truth, found)


OTHER_KINDS: dict[str, tuple[WindowStep, Covering]] = {
    "hopping with an offset": (
        hr.hopping("w", size="10 minutes", every="4 minutes", key="account", offset="3 minutes"),
        model.hopping(10 * MINUTE, 4 * MINUTE, 3 * MINUTE),
    ),
    "hops longer than half the window": (
        hr.hopping("w", size="10 minutes", every="7 minutes", key="account", offset="-2 minutes"),
        model.hopping(10 * MINUTE, 7 * MINUTE, -2 * MINUTE),
    ),
    "cumulating with an offset": (
        hr.cumulating("w", step="5 minutes", size="15 minutes", key="account", offset="7 minutes"),
        model.cumulating(5 * MINUTE, 15 * MINUTE, 7 * MINUTE),
    ),
    "keyless cumulating": (
        hr.cumulating("w", step="5 minutes", size="10 minutes", key=None),
        model.cumulating(5 * MINUTE, 10 * MINUTE),
    ),
}


@pytest.mark.parametrize("kind", OTHER_KINDS)
@examples(2)
@given(
    seed=seeds,
    batches=st.sets(st.integers(1, 59), max_size=5),
    crashes=st.sets(st.integers(1, 59), max_size=3),
    partitions=st.integers(1, 4),
    emission=st.sampled_from([hr.on_close(), hr.on_close(), *EMISSIONS]),
    late=st.sampled_from([hr.side_output(), hr.update_for("3 days")]),
)
def test_wherever_windows_begin_their_results_come_to_the_answer(
    kind: str, seed: int, batches: set[int], crashes: set[int], partitions: int, emission: Any, late: Any
) -> None:
    step, covering = OTHER_KINDS[kind]
    late_rows = late.correctable > 0
    given_rows = make_input(seed, rows=60, pace=37, disorder=3600 if late_rows else 900, partitions=partitions)
    elements = [*split(given_rows.rows, batches, crashes), *end_of_rows()]
    time = hr.event_time("at", out_of_order="0 seconds" if late_rows else "15 minutes", partition="partition")
    played = play(step.agg(**AGGREGATES).emit(emission).late(late), *elements, event_time=time)
    assert played.late == []
    found = {window: as_read(rows, "accumulating") for window, rows in by_window(played.main).items()}
    truth = model.answer(given_rows.events, covering, keyed=bool(step.key))
    assert found == with_the_end(truth, found)


def as_read(rows: list[dict[str, Any]], panes: str) -> tuple[Any, ...]:
    """What a reader knows at the end who follows the rules of the panes."""
    order = {"early": 0, "on_time": 1, "late": 2}
    assert [order[row["pane"]] for row in rows] == sorted(order[row["pane"]] for row in rows)
    if panes == "accumulating":
        assert [row["revision"] for row in rows] == list(range(len(rows)))
        return values(rows[-1])
    if panes == "discarding":
        assert [row["revision"] for row in rows] == list(range(len(rows)))
        sums = [row["spent"] for row in rows if row["spent"] is not None]
        least = [row["least"] for row in rows if row["least"] is not None]
        most = [row["most"] for row in rows if row["most"] is not None]
        return (
            sum(row["n"] for row in rows),
            sum(row["known"] for row in rows),
            sum(sums) if sums else None,
            min(least, default=None),
            max(most, default=None),
        )
    current: dict[str, Any] | None = None
    for row in rows:
        if row["change"] == "update_before":
            assert current is not None
            assert row == {**current, "change": "update_before"}
            current = None
        else:
            assert current is None
            assert row["change"] == ("insert" if row["revision"] == 0 else "update_after")
            current = row
    assert current is not None
    return values(current)
