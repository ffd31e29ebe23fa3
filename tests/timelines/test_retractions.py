"""A row that takes a result back is that result: it equals it in every column but ``change``."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import at, batch, clock, crash, play, watermark
from tests.models.examples import examples

LASTING = hr.update_for("1 hour")
ALL = {"n": "count(*)", "last": "last(id)", "ids": hr.collect_list("id", at_most=100)}
EARLY = hr.on_close(early=hr.every("10 seconds", time="event"))
KINDS: dict[str, Any] = {
    "tumbling": hr.tumbling("w", size="10 seconds", key="k").agg(**ALL).emit(hr.on_update()),
    "keyless": hr.tumbling("w", size="10 seconds", key=None).agg(**ALL).emit(hr.on_update()),
    "hopping": hr.hopping("w", size="20 seconds", every="5 seconds", key="k").agg(**ALL).emit(EARLY),
    "cumulating": hr.cumulating("w", step="5 seconds", size="20 seconds", key="k").agg(**ALL).emit(hr.on_update()),
    "session": hr.session("w", gap="3 seconds", key="k").agg(**ALL).emit(hr.on_update()),
    "session by time": hr.session("w", gap="3 seconds", key="k").agg(**ALL).emit(EARLY),
    "session by clock": hr.session("w", gap="3 seconds", key="k")
    .agg(**ALL)
    .emit(hr.on_close(early=hr.every("10 seconds"))),
}


def elements(seed: int, *, batches: int = 8) -> list[Any]:
    """Rows of two keys, late ones too, in batches of which some crash."""
    chance = random.Random(seed)
    found: list[Any] = [clock("2026-01-02T08:00:00")]
    for number in range(batches):
        rows = [chance.randrange(40) + 5 * number for _ in range(chance.randrange(6))]
        found += [at(f"10:{s // 60:02d}:{s % 60:02d}", k=chance.choice("ab"), id=chance.randrange(100)) for s in rows]
        found += [crash()] if chance.random() < 0.3 else []
        found += [clock(f"2026-01-02T08:{number + 1:02d}:00")] if chance.random() < 0.5 else []
        moment = 5 * number + chance.randrange(5)
        found += [batch(), watermark(f"10:{moment // 60:02d}:{moment % 60:02d}")]
    return [*found, at("10:00", k="a", id=0), batch(), watermark("12:00")]


def check(rows: list[dict[str, Any]]) -> int:
    """Follow the changes: none takes back what is not there. How many take something back."""
    view: list[dict[str, Any]] = []
    taken = 0
    for row in rows:
        change, result = row["change"], {name: value for name, value in row.items() if name != "change"}
        if change in ("update_before", "delete"):
            assert result in view
            view.remove(result)
            taken += 1
        else:
            view.append(result)
    windows = [(row.get("k"), row["session_id"] if "session_id" in row else str(row["window"])) for row in view]
    assert len(set(windows)) == len(windows)
    return taken


@pytest.mark.parametrize("kind", KINDS)
@examples(6)
@given(seed=st.integers(0, 2**32))
def test_whatever_takes_a_result_back_equals_it(kind: str, seed: int) -> None:
    check(play(KINDS[kind].panes(hr.retracting()).late(LASTING), *elements(seed)).main)


@pytest.mark.spark
@pytest.mark.streamed
@pytest.mark.parametrize("kind", ["tumbling", "session"])
def test_on_both_engines_whatever_takes_a_result_back_equals_it(kind: str) -> None:
    assert check(play(KINDS[kind].panes(hr.retracting()).late(LASTING), *elements(7, batches=4)).main)
