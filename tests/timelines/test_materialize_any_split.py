"""Current tables: any split, any order of arrival, repeats, a crash anywhere, the table at the end."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.operators.tables.materialize import materialize
from headrace.testing import batch, play
from tests.models.examples import examples
from tests.models.rows import split
from tests.models.tables import followed, make_history, upserted

STEPS = 40
places = st.sets(st.integers(1, STEPS), max_size=4)
few = st.sets(st.integers(1, STEPS), max_size=2)
COLUMNS = ("id", "city")


def customer(chance: random.Random) -> dict[str, Any]:
    return {"id": chance.randrange(6), "city": chance.choice(["Rome", "Oslo", None])}


@pytest.mark.parametrize("before_images", [False, True])
@examples(6)
@given(
    seed=st.integers(0, 2**32),
    batches=places,
    crashes=few,
    sent=st.booleans(),
    disorder=st.sampled_from([0, 5, 1000]),
)
def test_the_table_at_the_end_is_the_table(
    before_images: bool, seed: int, batches: set[int], crashes: set[int], sent: bool, disorder: int
) -> None:
    history = make_history(seed, ["id"], customer, steps=STEPS, before_images=sent, disorder=disorder)
    step = materialize("customers", key="id", before_images=before_images)
    played = play(step, *split(history.rows, batches, crashes), batch())
    found = (followed if before_images else upserted)(played.main, ["id"], COLUMNS)
    assert found == history.table
    assert played.dead_letters == []


@examples(6)
@given(seed=st.integers(0, 2**32), batches=places, crashes=few)
def test_values_that_were_not_sent_are_known_all_the_same(seed: int, batches: set[int], crashes: set[int]) -> None:
    history = make_history(seed, ["id"], customer, steps=STEPS, before_images=False, repeats=0.0)
    last: dict[int, Any] = {}
    rows = []
    for each in history.rows:
        id, city, change = (each.columns[name] for name in ("id", "city", "change"))
        same = change == "update_after" and last[id] == city
        hidden = {"city": None, "unchanged": ["city"]} if same else {"unchanged": []}
        rows.append(replace(each, columns={**each.columns, **hidden}))
        last[id] = city
    played = play(materialize("customers", key="id"), *split(rows, batches, crashes), batch())
    assert upserted(played.main, ["id"], COLUMNS) == history.table
