"""Rows too late for some or all of their windows: the model says which are late, and what the others correct."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import play
from tests.models import fixed_windows as model
from tests.models.examples import examples
from tests.models.fixed_windows import AGGREGATES, MINUTE, Covering
from tests.models.moves import Move, moves, played
from tests.models.rows import micros
from tests.models.watched_windows import Place, Watched

KINDS: dict[str, tuple[Any, Covering]] = {
    "tumbling": (
        hr.tumbling("w", size="8 minutes", key="account", offset="3 minutes"),
        model.tumbling(8 * MINUTE, 3 * MINUTE),
    ),
    "hopping": (
        hr.hopping("w", size="10 minutes", every="4 minutes", key="account"),
        model.hopping(10 * MINUTE, 4 * MINUTE),
    ),
    "cumulating": (
        hr.cumulating("w", step="4 minutes", size="12 minutes", key="account"),
        model.cumulating(4 * MINUTE, 12 * MINUTE),
    ),
    "keyless cumulating": (
        hr.cumulating("w", step="3 minutes", size="9 minutes", key=None, offset="2 minutes"),
        model.cumulating(3 * MINUTE, 9 * MINUTE, 2 * MINUTE),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("late", [hr.drop(), hr.side_output(), hr.update_for("3 minutes")], ids=repr)
@examples(2)
@given(
    given_moves=moves(ahead=6, behind=16, further=7),
    panes=st.sampled_from([hr.accumulating(), hr.accumulating(), hr.discarding(), hr.retracting()]),
)
def test_which_rows_are_late_and_what_is_corrected_is_what_the_model_says(
    kind: str, late: Any, given_moves: list[Move], panes: Any
) -> None:
    step, covering = KINDS[kind]
    watched = Watched(covering, late.correctable, None, panes.kind, keyed=bool(step.key))
    elements = played(given_moves, watched.batch)
    found = play(step.agg(**AGGREGATES).panes(panes).late(late), *elements)
    by_window: defaultdict[Place, list[tuple[Any, ...]]] = defaultdict(list)
    for row in found.main:
        window = row.get("account"), micros(row["window"]["start"]), micros(row["window"]["end"])
        names = [*AGGREGATES, "pane", "revision", *(["change"] if panes.kind == "retracting" else [])]
        by_window[window].append(tuple(row[name] for name in names))
    assert by_window == watched.results
    too_late = [(row.account, row.amount or 0, row.time, behind) for row, behind in watched.late]
    left = [(row["account"], row["amount"] or 0, micros(row["at"]), duration(row["late_by"])) for row in found.late]
    assert sorted(left) == (sorted(too_late) if late.keeps_rows else [])


def duration(behind: timedelta) -> int:
    return behind // timedelta(microseconds=1)
