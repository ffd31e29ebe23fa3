"""Sliding windows: any split, any partitions, a crash anywhere, spread or not: the model's answer."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.operators.windows.sliding_windows import Sliding
from headrace.testing import play
from tests.models import sliding as model
from tests.models.examples import examples
from tests.models.fixed_windows import AGGREGATES
from tests.models.rows import end_of_rows, make_input, split

ROWS = 150
SECOND = 1_000_000
KINDS = {
    "keyed": hr.sliding("w", size="10 minutes", key="account"),
    "short": hr.sliding("w", size="7 seconds", key="account"),
    "keyless": hr.sliding("w", size="10 minutes", key=None),
    "spread": hr.sliding("w", size="10 minutes", key="account", spread=3),
    "keyless and spread": hr.sliding("w", size="7 seconds", key=None, spread=2),
}
places = st.sets(st.integers(1, ROWS - 1), max_size=8)
seeds = st.integers(0, 2**32)
paces = st.sampled_from([1, 11])
kinds = pytest.mark.parametrize("kind", KINDS)


def values(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in AGGREGATES)


def by_number(rows: list[dict[str, Any]]) -> dict[int, list[dict[str, Any]]]:
    """Everything that was emitted for each row, without the rows that closed everything."""
    grouped: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        if row["number"] >= 0:
            grouped[row["number"]].append(row)
    return grouped


def truth(step: Sliding, events: list[Any], without: Any = ()) -> model.Answer:
    return model.answer(events, step.size, keyed=bool(step.key), without=without)


@kinds
@examples(3)
@given(seed=seeds, pace=paces, batches=places, crashes=places, partitions=st.integers(1, 4))
def test_rows_within_the_bound_are_each_emitted_once_with_the_models_answer(
    kind: str, seed: int, pace: int, batches: set[int], crashes: set[int], partitions: int
) -> None:
    step = KINDS[kind]
    given_rows = make_input(seed, rows=ROWS, pace=pace, disorder=900, partitions=partitions)
    time = hr.event_time("at", out_of_order="15 minutes", partition="partition")
    elements = [*split(model.numbered(given_rows), batches, crashes), *end_of_rows(number=-1)]
    played = play(step.agg(**AGGREGATES).late(hr.side_output()), *elements, event_time=time)
    emitted = by_number(played.main)
    assert {number: values(rows[0]) for number, rows in emitted.items()} == truth(step, given_rows.events)
    assert {(len(rows), rows[0]["pane"], rows[0]["revision"]) for rows in emitted.values()} == {(1, "on_time", 0)}
    assert played.late == []


@kinds
@examples(2)
@given(seed=seeds, pace=paces, batches=places, crashes=places)
def test_rows_that_are_not_late_have_the_models_answer_over_rows_that_are_not_late(
    kind: str, seed: int, pace: int, batches: set[int], crashes: set[int]
) -> None:
    step = KINDS[kind]
    given_rows = make_input(seed, rows=ROWS, pace=pace, disorder=120, partitions=2)
    elements = [*split(model.numbered(given_rows), batches, crashes), *end_of_rows(number=-1)]
    played = play(
        step.agg(**AGGREGATES).late(hr.side_output()),
        *elements,
        event_time=hr.event_time("at", out_of_order="1 minute"),
    )
    late = {row["number"] for row in played.late}
    found = {number: values(rows[0]) for number, rows in by_number(played.main).items()}
    assert found == truth(step, given_rows.events, without=late)
    assert len(found) + len(late) == ROWS


@kinds
@pytest.mark.parametrize("panes", [hr.accumulating(), hr.retracting()], ids=repr)
@examples(2)
@given(
    seed=seeds,
    pace=paces,
    batches=places,
    crashes=places,
    emission=st.sampled_from([hr.on_close(), hr.on_update()]),
    late=st.sampled_from([hr.side_output(), hr.update_for("3 days")]),
)
def test_previews_and_corrections_come_to_the_models_answer(
    kind: str, panes: Any, seed: int, pace: int, batches: set[int], crashes: set[int], emission: Any, late: Any
) -> None:
    step = KINDS[kind]
    bound = "0 seconds" if late.correctable else "15 minutes"
    given_rows = make_input(seed, rows=ROWS, pace=pace, disorder=900, partitions=2)
    elements = [*split(model.numbered(given_rows), batches, crashes), *end_of_rows(number=-1)]
    played = play(
        step.agg(**AGGREGATES).emit(emission).panes(panes).late(late),
        *elements,
        event_time=hr.event_time("at", out_of_order=bound),
    )
    assert played.late == []
    found = {number: as_read(rows, panes.kind) for number, rows in by_number(played.main).items()}
    assert found == truth(step, given_rows.events)


def as_read(rows: list[dict[str, Any]], panes: str) -> tuple[Any, ...]:
    """What a reader knows at the end who follows the rules of the panes."""
    order = ["early", "on_time", "late"]
    assert [row["pane"] for row in rows] == sorted((row["pane"] for row in rows), key=order.index)
    given_rows = [row for row in rows if row.get("change") != "update_before"]
    assert [row["revision"] for row in given_rows] == list(range(len(given_rows)))
    assert sum(row["pane"] == "on_time" for row in given_rows) == (given_rows[0]["pane"] != "late")
    if panes == "retracting":
        assert [row["change"] for row in rows] == ["insert", *["update_before", "update_after"] * (len(given_rows) - 1)]
        for earlier, retracted in zip(rows[::2], rows[1::2], strict=False):
            assert retracted == {**earlier, "change": "update_before"}
    return values(rows[-1])


@examples(4)
@given(
    seed=seeds,
    batches=places,
    spread=st.integers(2, 16),
    emission=st.sampled_from([hr.on_close(), hr.on_update()]),
    late=st.sampled_from([hr.drop(), hr.side_output(), hr.update_for("2 minutes")]),
)
def test_a_spread_key_gives_the_very_rows_that_it_gives_without(
    seed: int, batches: set[int], spread: int, emission: Any, late: Any
) -> None:
    rows = model.numbered(make_input(seed, rows=ROWS, pace=2, disorder=120, accounts="ab", partitions=2))
    elements = [*split(rows, batches), *end_of_rows(number=-1)]

    def emitted(shares: int) -> tuple[list[str], list[str]]:
        step = hr.sliding("w", size="3 minutes", key="account", spread=shares).agg(**AGGREGATES).emit(emission)
        played = play(step.late(late), *elements, event_time=hr.event_time("at", out_of_order="1 minute"))
        return sorted(map(str, played.main)), sorted(map(str, played.late))

    assert emitted(spread) == emitted(1)
