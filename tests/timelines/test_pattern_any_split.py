"""Patterns: any split into batches, any order within the bound, a crash anywhere, the model's answer."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.operators.patterns import skip
from headrace.operators.patterns.chain import Group, group
from headrace.operators.patterns.definition import Element, conditions_of
from headrace.operators.patterns.pattern import Pattern, pattern
from headrace.testing import at, play
from headrace.testing.elements import At
from tests.models.examples import examples
from tests.models.pattern_model import Event, Model
from tests.models.rows import START, end_of_rows, micros, split
from tests.unit.operators.patterns.letters import Letters

ROWS = 120
MINUTE = 60_000_000
STEPS = "abc"
CHAINS = {
    "relaxed": group().begin("a").followed_by("b").one_or_more().followed_by("c"),
    "greedy": group().begin("a").followed_by("b").times(1, 3).greedy().followed_by("c"),
    "any": group().begin("a").followed_by_any("b").followed_by_any("c"),
    "strict": group().begin("a").next("b").times(1, 3).consecutive().greedy().next("c"),
    "not next": group().begin("a").not_next("n", "b").followed_by("c"),
    "never": group().begin("a").not_followed_by("n", "b").followed_by("c"),
    "forbidden": group().begin("a").not_followed_by("n", "b").followed_by("c", "bc"),
    "silent": group().begin("a").not_followed_by("n", "bc"),
    "group": group().begin("a").followed_by(group().begin("b").next("c")).times(1, 2),
    "optional": group().begin("a").next("b").optional().next("c"),
}
SKIPS = {"none": skip.none(), "past_last": skip.past_last(), "to_next": skip.to_next()}
places = st.sets(st.integers(1, ROWS - 1), max_size=10)


def in_sql(element: Element) -> Element:
    """The element with letters as conditions over a column."""
    letters = element.where or element.step or ""
    where = None if element.group else f"kind IN ({', '.join(repr(letter) for letter in letters)})"
    return Element(element.contiguity, element.step, where, tuple(map(in_sql, element.group)), element.quantifier)


def step_of(chain: Group, within: str, strategy: Any) -> Pattern:
    steps = [name for name, _ in conditions_of(chain.elements) if name != "n"]
    return (
        Pattern(name="p", key=("account",), elements=tuple(map(in_sql, chain.elements)))
        .within(within)
        .after_match(strategy)
        .select(**{f"{name}_{end}": f"{end}({name}.amount)" for name in steps for end in ("first", "last")})
        .late(hr.side_output())
    )


def shuffled(seed: int, partitions: int) -> tuple[dict[str, list[tuple[int, str, int]]], list[At]]:
    """Rows a few seconds apart, each up to five minutes behind its place; of every key in order for the model."""
    chance = random.Random(seed)
    by_key: dict[str, list[tuple[int, str, int]]] = {}
    arriving = []
    for number in range(ROWS):
        # No two rows have the same time, so that their order does not depend on which partition is read first.
        time = START + timedelta(seconds=number * 7 - chance.randrange(300), microseconds=number)
        account, kind = chance.choice("xy"), chance.choice("aabbccz")
        by_key.setdefault(account, []).append((micros(time), kind, number))
        arriving.append(at(time, account=account, kind=kind, amount=number, partition=chance.randrange(partitions)))
    return {account: sorted(rows) for account, rows in by_key.items()}, arriving


@pytest.mark.parametrize("name", CHAINS)
@examples(8)
@given(
    seed=st.integers(0, 2**32),
    batches=places,
    crashes=places,
    partitions=st.integers(1, 4),
    within=st.sampled_from([1, 3]),
    strategy=st.sampled_from(sorted(SKIPS)),
)
def test_batches_order_and_crashes_change_nothing(
    name: str, seed: int, batches: set[int], crashes: set[int], partitions: int, within: int, strategy: str
) -> None:
    chain = CHAINS[name]
    by_key, arriving = shuffled(seed, partitions)
    step = step_of(chain, f"{within} minutes", SKIPS[strategy])
    time = hr.event_time("at", out_of_order="6 minutes", partition="partition")
    elements = [*split(arriving, batches, crashes), *end_of_rows(kind="z")]
    played = play(step, *elements, event_time=time)
    assert played.late == []
    for account, rows in by_key.items():
        model = Model(chain.elements, [Event(moment, kind) for moment, kind, _ in rows], within * MINUTE)
        truth = [as_result(match, rows, step) for match in model.matches(SKIPS[strategy])]
        found = [
            tuple(row[measure] for measure, _ in step.measures) for row in played.main if row["account"] == account
        ]
        if strategy == "none":
            assert sorted(found, key=repr) == sorted(truth, key=repr)
        elif name not in ("relaxed", "any"):
            # Of matches that begin and end with the same rows the model does not say which one is first.
            assert found == truth
        else:
            assert len(found) == len(truth)
        # What runs out of time does so whatever the batches: as when all rows are stepped through at once.
        at_once = Letters(chain, within * MINUTE, SKIPS[strategy]).play(
            " ".join(f"{kind}{moment}" for moment, kind, _ in rows), until=rows[-1][0] + 10 * MINUTE
        )
        assert [
            (micros(row["timed_out_at"]), row["waited_for"]) for row in played.timed_out if row["account"] == account
        ] == [(time, step) for *_, time, step in at_once.timed_out]


def as_result(match: tuple[tuple[int, str], ...], rows: list[tuple[int, str, int]], step: Pattern) -> tuple[Any, ...]:
    amounts = {name: [rows[place][2] for place, taken in match if taken == name] for name in STEPS}
    return tuple(
        (amounts[name[0]][0 if name.endswith("first") else -1] if amounts[name[0]] else None)
        for name, _ in step.measures
    )


def test_the_patterns_played_are_made_by_the_public_functions_too() -> None:
    made = pattern("p", key="account").begin("a", "kind IN ('a')").not_followed_by("n", "kind IN ('b', 'c')")
    assert made.elements == tuple(map(in_sql, CHAINS["silent"].elements))
