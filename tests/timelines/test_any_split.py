"""Any split of the input into batches gives the same answer: one such split, on Spark as inline."""

from __future__ import annotations

import random
from collections import Counter

import pytest

import headrace as hr
from headrace.testing import at, batch, crash, play
from headrace.testing.elements import Element


@pytest.mark.spark
def test_five_hundred_rows_in_random_batches_with_a_crash_give_the_windows_that_plain_python_gives() -> None:
    chance = random.Random(3)
    minutes = [max(0, place - chance.randrange(15)) for place in range(500)]
    rows = [
        at(
            f"{minute // 60:02d}:{minute % 60:02d}",
            account=chance.choice("abcdefg"),
            amount=chance.randrange(100),
            partition=chance.randrange(3),
        )
        for minute in minutes
    ]
    wanted: Counter[tuple[str, int]] = Counter()
    for minute, each in zip(minutes, rows, strict=True):
        wanted[each.columns["account"], minute // 10] += each.columns["amount"]
    elements: list[Element] = list(rows)
    for place in sorted(chance.sample(range(1, 500), 5), reverse=True):
        elements.insert(place, batch())
    elements.insert(200, crash())
    step = hr.tumbling("tens", size="10 minutes", key="account").agg(spent="sum(amount)").late(hr.side_output())
    played = play(
        step,
        *elements,
        batch(),
        at("23:00", account="end", amount=0),
        batch(),
        batch(),
        event_time=hr.event_time("at", out_of_order="15 minutes"),
    )
    found = {
        (each["account"], each["window"]["start"].hour * 6 + each["window"]["start"].minute // 10): each["spent"]
        for each in played.main
    }
    assert found == dict(wanted)
    assert len(played.main) == len(found)
    assert played.late == []
