"""Aggregates of tables: any split, any order of arrival, repeats, a crash anywhere, the groups at the end."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.operators.tables.table_aggregate import table_aggregate
from headrace.testing import batch, play
from tests.models.examples import examples
from tests.models.rows import split
from tests.models.tables import followed, grouped, make_history

STEPS = 50
places = st.sets(st.integers(1, STEPS), max_size=4)
few = st.sets(st.integers(1, STEPS), max_size=2)
AGGREGATES = {
    "n": "count(*)",
    "known": "count(amount)",
    "kinds": "count(DISTINCT amount)",
    "total": "sum(amount)",
    "mean": "avg(amount)",
    "least": "min(amount)",
    "most": "max(amount)",
    "large": "sum(amount) FILTER (WHERE amount > 3)",
}


def order(chance: random.Random) -> dict[str, Any]:
    return {
        "id": chance.randrange(14),
        "shop": chance.choice(["s", "t", "u", None]),
        "amount": chance.choice([None, *(part / 4 for part in range(-6, 30))]),
    }


@pytest.mark.parametrize("by", ["row", "change"])
@examples(8)
@given(
    seed=st.integers(0, 2**32),
    batches=places,
    crashes=few,
    disorder=st.sampled_from([0, 5, 1000]),
)
def test_the_groups_at_the_end_are_those_of_the_table(
    by: str, seed: int, batches: set[int], crashes: set[int], disorder: int
) -> None:
    history = make_history(seed, ["id"], order, steps=STEPS, disorder=disorder, repeats=0.15 if by == "row" else 0.0)
    step = table_aggregate("groups", key="shop", row_key="id" if by == "row" else ()).agg(**AGGREGATES)
    played = play(step, *split(history.rows, batches, crashes), batch())
    found = followed(played.main, ["shop"], list(AGGREGATES))
    assert {key: values for (key,), values in found.items()} == grouped(history.table, "shop")
