"""Previews by time: whatever moves between batches, each window is told when and as the model says."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import play
from tests.models import fixed_windows as fixed
from tests.models import session as sessions
from tests.models.examples import examples
from tests.models.fixed_windows import AGGREGATES, MINUTE, Covering
from tests.models.moves import OPENING, Move, moves, played
from tests.models.rows import Event, micros
from tests.models.watched_windows import Place, Watched

SECOND = 1_000_000
PREVIEWS = {
    "by the clock": (10 * SECOND, hr.every("10 seconds")),
    "by event time": (2 * MINUTE, hr.every("2 minutes", time="event")),
}
by_time = pytest.mark.parametrize("time", PREVIEWS)
KINDS: dict[str, tuple[Any, Covering]] = {
    "tumbling": (hr.tumbling("w", size="10 minutes", key="account"), fixed.tumbling(10 * MINUTE)),
    "hopping": (
        hr.hopping("w", size="10 minutes", every="4 minutes", key="account"),
        fixed.hopping(10 * MINUTE, 4 * MINUTE),
    ),
    "cumulating": (
        hr.cumulating("w", step="5 minutes", size="15 minutes", key="account"),
        fixed.cumulating(5 * MINUTE, 15 * MINUTE),
    ),
    "keyless": (
        hr.hopping("w", size="10 minutes", every="5 minutes", key=None),
        fixed.hopping(10 * MINUTE, 5 * MINUTE),
    ),
}


def place(row: dict[str, Any]) -> Place:
    return row.get("account"), micros(row["window"]["start"]), micros(row["window"]["end"])


def shown(row: dict[str, Any]) -> tuple[Any, ...]:
    change = (row["change"],) if "change" in row else ()
    return (*(row[name] for name in AGGREGATES), row["pane"], row["revision"], *change)


@by_time
@pytest.mark.parametrize("kind", KINDS)
@examples(4)
@given(
    given_moves=moves(ahead=12, behind=12, further=6),
    panes=st.sampled_from([hr.accumulating(), hr.discarding(), hr.retracting()]),
    late=st.sampled_from([hr.side_output(), hr.update_for("5 minutes")]),
)
def test_each_window_is_shown_when_the_time_says_until_it_closes(
    kind: str, time: str, given_moves: list[Move], panes: Any, late: Any
) -> None:
    step, covering = KINDS[kind]
    every, early = PREVIEWS[time]
    watched = Watched(covering, late.correctable, every, panes.kind, bool(step.key), time == "by event time")
    elements = played(given_moves, watched.batch)
    found = play(step.agg(**AGGREGATES).emit(hr.on_close(early=early)).panes(panes).late(late), *elements)
    by_window: defaultdict[Place, list[tuple[Any, ...]]] = defaultdict(list)
    for row in found.main:
        by_window[place(row)].append(shown(row))
    assert by_window == watched.results
    assert sorted(row["amount"] or 0 for row in found.late) == sorted(row.amount or 0 for row, _ in watched.late)


@by_time
@pytest.mark.parametrize("kind", KINDS)
@examples(4)
@given(
    given_moves=moves(ahead=12, behind=20, further=6),
    panes=st.sampled_from([hr.accumulating(), hr.discarding(), hr.retracting()]),
    rows=st.integers(1, 4),
    late=st.sampled_from([None, "5 minutes", "30 minutes"]),
)
def test_each_window_is_shown_only_before_it_closes_or_corrected_after_so_many_rows(
    kind: str, time: str, given_moves: list[Move], panes: Any, rows: int, late: str | None
) -> None:
    step, covering = KINDS[kind]
    every, early = PREVIEWS[time]
    policy = hr.side_output() if late is None else hr.update_for(late)
    watched = Watched(covering, policy.correctable, every, panes.kind, bool(step.key), time == "by event time")
    emission = hr.early_only(early)
    if late is None:
        watched.closes = False
    else:
        watched.late_rows, emission = rows, hr.on_close(early=early, late=hr.after_rows(rows))
    elements = played(given_moves, watched.batch)
    found = play(step.agg(**AGGREGATES).emit(emission).panes(panes).late(policy), *elements)
    by_window: defaultdict[Place, list[tuple[Any, ...]]] = defaultdict(list)
    for row in found.main:
        by_window[place(row)].append(shown(row))
    assert by_window == {window: results for window, results in watched.results.items() if results}


@by_time
@pytest.mark.parametrize("key", ["account", None])
@examples(6)
@given(given_moves=moves(ahead=8, behind=12, further=5))
def test_each_session_is_shown_when_the_time_says_until_it_closes(
    key: str | None, time: str, given_moves: list[Move]
) -> None:
    every, early = PREVIEWS[time]
    previewed = hr.session("s", gap="4 minutes", key=key).agg(**AGGREGATES).emit(hr.on_close(early=early))
    step = previewed.late(hr.side_output())
    keys = [OPENING, "a", "b"] if key else [None]
    watched = {each: sessions.Previewed(4 * MINUTE, every, time == "by event time") for each in keys}

    def tell(watermark: int, clock: int, rows: list[Event]) -> None:
        for each, model in watched.items():
            model.batch(watermark, clock, [row for row in rows if each is None or row.account == each])

    found = play(step, *played(given_moves, tell))
    for each, model in watched.items():
        mine = [row for row in found.main if row.get("account") == each]
        assert sorted(map(str, ((*place(row)[1:], *shown(row)) for row in mine))) == sorted(map(str, model.results))
        assert_shown_in_order(mine)
    late = [row for model in watched.values() for row in model.late]
    assert sorted(row["amount"] or 0 for row in found.late) == sorted(row.amount or 0 for row in late)


def assert_shown_in_order(rows: list[dict[str, Any]]) -> None:
    """Each session from its first revision on, no preview behind its close, and only its last result taken back."""
    by_session: defaultdict[Any, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_session[row["session_id"]].append(row)
    for story in by_session.values():
        results = [row for row in story if row["change"] != "delete"]
        assert [row["revision"] for row in results] == list(range(len(results)))
        assert all(row["pane"] == "early" for row in results[:-1])
        assert results[-1]["pane"] == "on_time" or story[-1] == {**results[-1], "change": "delete"}
