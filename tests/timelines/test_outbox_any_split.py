"""An outbox: any batches, any order and partitions within them, a crash anywhere: a key's messages once, in order."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.operators.outbox import outbox
from headrace.testing import at, batch, play
from tests.models import outbox as model
from tests.models.examples import examples
from tests.models.rows import START, split

ROWS = 150
places = st.sets(st.integers(1, ROWS - 1), max_size=8)


def changes(seed: int) -> list[dict[str, Any]]:
    """Inserts of several keys in the order of their commits, with updates and deletes between them."""
    chance = random.Random(seed)
    kinds = ["insert"] * 4 + ["update_before", "update_after", "delete"]
    return [
        {
            "aggregate_id": chance.choice("abcdef"),
            "payload": f"{number}",
            "change": chance.choice(kinds),
            "position": f"{number:06d}",
        }
        for number in range(ROWS)
    ]


@examples(25)
@given(seed=st.integers(0, 2**32), cuts=places, crashes=places, parts=st.integers(1, 4))
def test_the_messages_of_every_key_are_the_models_in_its_order(
    seed: int, cuts: set[int], crashes: set[int], parts: int
) -> None:
    given, chance = changes(seed), random.Random(seed)
    # No batch has a change that is before those of an earlier one; its tasks may have read them in any order.
    batches = [given[first:until] for first, until in pairwise(sorted({0, *cuts, *crashes, ROWS}))]
    dealt = [change for each in batches for change in chance.sample(each, len(each))]
    rows = [at(START, **change, partition=chance.randrange(parts)) for change in dealt]
    found: dict[str, list[str]] = {}
    for message in play(outbox("relay"), *split(rows, cuts, crashes), batch()).main:
        found.setdefault(message["key"], []).append(message["value"])
    assert found == model.messages(given)
