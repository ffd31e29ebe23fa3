"""Rows of equal event time: every aggregate of a step takes them in one order, that of their positions."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import at, batch, crash, expect, play, row, timeline, watermark
from tests.models.examples import examples

LASTING = hr.update_for("1 day")
ALL = {
    "ids": hr.collect_list("id", at_most=1000),
    "first": "first(id)",
    "last": "last(id)",
    "last_name": "last(name)",
    "least": "min_by(id, level)",
    "least_level": "min_by(level, level)",
    "most": "max_by(id, level)",
    "most_name": "max_by(name, level)",
    "last_whole": "last(whole)",
}
KINDS: dict[str, Any] = {
    "tumbling": hr.tumbling("w", size="10 seconds", key="k").agg(**ALL).late(LASTING),
    "hopping": hr.hopping("w", size="10 seconds", every="5 seconds", key="k").agg(**ALL).late(LASTING),
    "previewed": hr.cumulating("w", step="5 seconds", size="10 seconds", key="k")
    .agg(**ALL)
    .emit(hr.on_update())
    .late(LASTING),
    "session": hr.session("w", gap="2 seconds", key="k").agg(**ALL).late(hr.drop()),
    "keyless session": hr.session("w", gap="2 seconds", key=None).agg(**ALL).late(hr.drop()),
    "session cut": hr.session("w", gap="2 seconds", max_length="7 seconds", key="k").agg(**ALL).late(hr.drop()),
    "session corrected": hr.session("w", gap="2 seconds", key="k").agg(**ALL).late(LASTING),
    "sliding": hr.sliding("w", size="6 seconds", key="k").agg(**ALL).late(LASTING),
    "sliding spread": hr.sliding("w", size="6 seconds", key="k", spread=3).agg(**ALL).late(LASTING),
    "global": hr.global_window("w", key="k", ttl="1 day").agg(**ALL).emit(hr.after_rows(3)).late(hr.drop()),
    "counting": hr.counting("w", rows=4, key="k", ttl="1 day").agg(**ALL).late(hr.drop()),
}


@pytest.mark.parametrize("kind", KINDS)
@examples(8)
@given(seed=st.integers(0, 2**32), batches=st.sets(st.integers(1, 59), max_size=6))
def test_all_aggregates_take_rows_of_equal_time_in_the_order_of_their_positions(
    kind: str, seed: int, batches: set[int]
) -> None:
    chance = random.Random(seed)
    times: list[int] = []
    levels: list[int] = []
    elements: list[Any] = []
    for id in range(60):
        times.append(chance.randrange(40))
        levels.append(chance.randrange(3))
        named: dict[str, Any] = {"id": id, "name": f"n{id}", "level": levels[id], "whole": {"id": id, "name": f"n{id}"}}
        if id in batches:
            elements += [crash(), batch()] if chance.random() < 0.3 else [batch()]
            if "late" in played_side_outputs(kind) and chance.random() < 0.3:
                elements.append(watermark(f"10:00:{chance.randrange(40):02d}"))
        elements.append(at(f"10:00:{times[id]:02d}", k=chance.choice("ab"), **named))
    found = play(KINDS[kind], *elements, batch(), watermark("23:00")).main
    assert found
    for result in found:
        ids = result["ids"]
        assert ids == sorted(ids, key=lambda id: (times[id], id))
        assert (result["first"], result["last"], result["last_name"]) == (ids[0], ids[-1], f"n{ids[-1]}")
        assert result["last_whole"] == {"id": ids[-1], "name": f"n{ids[-1]}"}
        by_level = sorted(ids, key=lambda id: levels[id])
        assert (result["least"], result["least_level"]) == (by_level[0], levels[by_level[0]])
        assert (result["most"], result["most_name"]) == (by_level[-1], f"n{by_level[-1]}")


def played_side_outputs(kind: str) -> tuple[str, ...]:
    """Steps that correct may get rows behind the watermark."""
    return ("late",) if KINDS[kind].lateness == LASTING else ()


@pytest.mark.spark
def test_the_last_values_at_one_time_come_from_one_row_across_batches() -> None:
    last = hr.session("last", gap="5 minutes", key="k").agg(a="last(a)", b="last(b)", of="max_by(a, b)")
    timeline(
        last.late(hr.update_for("1 hour")),
        at("10:00", k="x", a=9, b=1),
        at("10:02", k="x", a=1, b=9),
        batch(),
        # This part begins before the other, and its last row is behind the other's.
        at("09:58", k="x", a=0, b=0),
        at("10:02", k="x", a=8, b=2),
        at("10:02", k="x", a=2, b=9),
        crash(),
        watermark("10:07"),
        expect(row(k="x", window="09:58/10:07", a=2, b=9, of=2)),
        at("10:02", k="x", a=3, b=None),
        batch(),
        expect(row(k="x", window="09:58/10:07", a=3, b=None, of=2, pane="late")),
    )


def test_rows_behind_the_watermark_keep_their_order_too() -> None:
    session = hr.session("w", gap="5 minutes", key="k").agg(first="first(id)", last="last(id)", n="count(*)")
    timeline(
        session.late(hr.update_for("1 day")),
        at("10:00", k="x", id=100),
        watermark("10:05"),
        expect(k="x", first=100, last=100, n=1, pane="on_time"),
        *(at("10:00", k="x", id=id) for id in (*range(1, 60), 0)),
        batch(),
        expect(k="x", first=100, last=0, n=61, pane="late"),
    )
