"""Joins of tables: any split, any order of arrival, repeats, a crash anywhere, the view at the end."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.operators.tables.materialize import materialize
from headrace.operators.tables.table_join import table_join
from headrace.testing import batch, play
from headrace.testing.elements import At
from tests.models.examples import examples
from tests.models.rows import split
from tests.models.tables import followed, joined, make_history, upserted

STEPS = 40
places = st.sets(st.integers(1, 2 * STEPS), max_size=4)
few = st.sets(st.integers(1, 2 * STEPS), max_size=2)
seeds = st.integers(0, 2**32)


def order(chance: random.Random) -> dict[str, Any]:
    return {"order": chance.randrange(10), "customer": chance.choice([*"abcd", None]), "n": chance.randrange(9)}


def customer(chance: random.Random) -> dict[str, Any]:
    return {"id": chance.choice("abcd"), "city": chance.choice(["Rome", "Oslo", None])}


def tagged(chance: random.Random) -> dict[str, Any]:
    return {"tag": chance.randrange(6), "shop": chance.choice(["s", "t", None])}


def sold(chance: random.Random) -> dict[str, Any]:
    return {"order": chance.randrange(8), "shop": chance.choice(["s", "t", "u", None])}


def mixed(seed: int, left: list[At], right: list[At]) -> list[At]:
    """Two sides as they may come, each in its own order."""
    chance = random.Random(seed)
    places = sorted(chance.sample(range(len(left) + len(right)), len(left)))
    ours, theirs = iter(left), iter(right)
    return [next(ours) if place in places else next(theirs) for place in range(len(left) + len(right))]


@pytest.mark.parametrize("how", ["inner", "left", "full"])
@examples(5)
@given(seed=seeds, batches=places, crashes=few, disorder=st.sampled_from([0, 5, 1000]))
def test_the_view_of_a_foreign_key_is_the_join_of_the_tables(
    how: Any, seed: int, batches: set[int], crashes: set[int], disorder: int
) -> None:
    left = make_history(seed, ["order"], order, steps=STEPS, disorder=disorder)
    right = make_history(seed + 1, ["id"], customer, steps=STEPS // 2, side="right", disorder=disorder)
    step = table_join("view", on={"customer": "id"}, left_key="order", right_key="id", how=how)
    played = play(step, *split(mixed(seed, left.rows, right.rows), batches, crashes), batch())
    found = followed(played.main, ["order", "customer"], ["order", "customer", "n", "city"])
    truth = joined(left.table, right.table, ("customer", "id"), how, {"city": "city"})
    assert sorted(map(repr, found.values())) == sorted(map(repr, truth))


@pytest.mark.parametrize("how", ["inner", "left", "full"])
@examples(5)
@given(seed=seeds, batches=places, crashes=few)
def test_a_materialized_view_of_many_to_many_is_the_join_of_the_tables(
    how: Any, seed: int, batches: set[int], crashes: set[int]
) -> None:
    left = make_history(seed, ["order"], sold, steps=STEPS)
    right = make_history(seed + 1, ["tag"], tagged, steps=STEPS // 2, side="right")
    step = table_join("view", on="shop", left_key="order", right_key="tag", how=how)
    rows = mixed(seed, left.rows, right.rows)
    # Both rows of an update come in one batch: their positions do not end in the middle of one.
    whole = {place for place in batches | crashes if _between(rows, place)}
    elements = split(rows, whole & batches, whole & crashes)
    played = play((step, materialize("current", key=["order", "tag"])), *elements, batch())
    found = upserted(played.main, ["order", "tag"], ["order", "shop", "tag"])
    truth = joined(left.table, right.table, ("shop", "shop"), how, {"tag": "tag"})
    assert sorted(map(repr, found.values())) == sorted(map(repr, truth))


def _between(rows: list[At], place: int) -> bool:
    """Whether a place is between two messages on both sides."""
    if place >= len(rows):
        return False
    for side in ("left", "right"):
        before = [row for row in rows[:place] if row.side == side]
        after = [row for row in rows[place:] if row.side == side]
        if before and after and before[-1].columns["position"] == after[0].columns["position"]:
            return False
    return True
