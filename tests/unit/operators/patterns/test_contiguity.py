"""Every contiguity with every quantifier: the exact matches."""

from __future__ import annotations

import pytest

from headrace.operators.patterns.chain import Chain, group
from tests.unit.operators.patterns.letters import Letters

CASES = [
    (group().begin("a").next("b").next("c"), "a1 b2 b3 c4 c5", []),
    (group().begin("a").next("b").next("c"), "a1 b2 b3 d4 b5 c6", []),
    (group().begin("a").next("b").times(2).next("c"), "a1 b2 b3 c4 c5", ["a1 b2 b3 c4"]),
    (group().begin("a").next("b").times(2).next("c"), "a1 b2 b3 d4 b5 c6", []),
    (group().begin("a").next("b").times(2).consecutive().next("c"), "a1 b2 b3 c4 c5", ["a1 b2 b3 c4"]),
    (group().begin("a").next("b").times(2).consecutive().next("c"), "a1 b2 b3 d4 b5 c6", []),
    (group().begin("a").next("b").times(2).allow_combinations().next("c"), "a1 b2 b3 c4 c5", ["a1 b2 b3 c4"]),
    (group().begin("a").next("b").times(2).allow_combinations().next("c"), "a1 b2 b3 d4 b5 c6", ["a1 b2 b5 c6"]),
    (group().begin("a").next("b").times(1, 2).next("c"), "a1 b2 b3 c4 c5", ["a1 b2 b3 c4"]),
    (group().begin("a").next("b").times(1, 2).next("c"), "a1 b2 b3 d4 b5 c6", []),
    (group().begin("a").next("b").one_or_more().next("c"), "a1 b2 b3 c4 c5", ["a1 b2 b3 c4"]),
    (group().begin("a").next("b").one_or_more().next("c"), "a1 b2 b3 d4 b5 c6", ["a1 b2 b3 b5 c6"]),
    (group().begin("a").next("b").one_or_more().consecutive().next("c"), "a1 b2 b3 c4 c5", ["a1 b2 b3 c4"]),
    (group().begin("a").next("b").one_or_more().consecutive().next("c"), "a1 b2 b3 d4 b5 c6", []),
    (group().begin("a").next("b").one_or_more().allow_combinations().next("c"), "a1 b2 b3 c4 c5", ["a1 b2 b3 c4"]),
    (
        group().begin("a").next("b").one_or_more().allow_combinations().next("c"),
        "a1 b2 b3 d4 b5 c6",
        ["a1 b2 b3 b5 c6", "a1 b2 b5 c6"],
    ),
    (group().begin("a").next("b").one_or_more().greedy().next("c"), "a1 b2 b3 c4 c5", ["a1 b2 b3 c4"]),
    (group().begin("a").next("b").one_or_more().greedy().next("c"), "a1 b2 b3 d4 b5 c6", ["a1 b2 b3 b5 c6"]),
    (group().begin("a").next("b").optional().next("c"), "a1 b2 b3 c4 c5", []),
    (group().begin("a").next("b").optional().next("c"), "a1 b2 b3 d4 b5 c6", []),
    (group().begin("a").next("b").one_or_more().optional().next("c"), "a1 b2 b3 c4 c5", ["a1 b2 b3 c4"]),
    (group().begin("a").next("b").one_or_more().optional().next("c"), "a1 b2 b3 d4 b5 c6", ["a1 b2 b3 b5 c6"]),
    (group().begin("a").followed_by("b").followed_by("c"), "a1 b2 b3 c4 c5", ["a1 b2 c4"]),
    (group().begin("a").followed_by("b").followed_by("c"), "a1 b2 b3 d4 b5 c6", ["a1 b2 c6"]),
    (group().begin("a").followed_by("b").times(2).followed_by("c"), "a1 b2 b3 c4 c5", ["a1 b2 b3 c4"]),
    (group().begin("a").followed_by("b").times(2).followed_by("c"), "a1 b2 b3 d4 b5 c6", ["a1 b2 b3 c6"]),
    (group().begin("a").followed_by("b").times(2).consecutive().followed_by("c"), "a1 b2 b3 c4 c5", ["a1 b2 b3 c4"]),
    (group().begin("a").followed_by("b").times(2).consecutive().followed_by("c"), "a1 b2 b3 d4 b5 c6", ["a1 b2 b3 c6"]),
    (
        group().begin("a").followed_by("b").times(2).allow_combinations().followed_by("c"),
        "a1 b2 b3 c4 c5",
        ["a1 b2 b3 c4"],
    ),
    (
        group().begin("a").followed_by("b").times(2).allow_combinations().followed_by("c"),
        "a1 b2 b3 d4 b5 c6",
        ["a1 b2 b3 c6", "a1 b2 b5 c6"],
    ),
    (group().begin("a").followed_by("b").times(1, 2).followed_by("c"), "a1 b2 b3 c4 c5", ["a1 b2 b3 c4", "a1 b2 c4"]),
    (
        group().begin("a").followed_by("b").times(1, 2).followed_by("c"),
        "a1 b2 b3 d4 b5 c6",
        ["a1 b2 b3 c6", "a1 b2 c6"],
    ),
    (group().begin("a").followed_by("b").one_or_more().followed_by("c"), "a1 b2 b3 c4 c5", ["a1 b2 b3 c4", "a1 b2 c4"]),
    (
        group().begin("a").followed_by("b").one_or_more().followed_by("c"),
        "a1 b2 b3 d4 b5 c6",
        ["a1 b2 b3 b5 c6", "a1 b2 b3 c6", "a1 b2 c6"],
    ),
    (
        group().begin("a").followed_by("b").one_or_more().consecutive().followed_by("c"),
        "a1 b2 b3 c4 c5",
        ["a1 b2 b3 c4", "a1 b2 c4"],
    ),
    (
        group().begin("a").followed_by("b").one_or_more().consecutive().followed_by("c"),
        "a1 b2 b3 d4 b5 c6",
        ["a1 b2 b3 c6", "a1 b2 c6"],
    ),
    (
        group().begin("a").followed_by("b").one_or_more().allow_combinations().followed_by("c"),
        "a1 b2 b3 c4 c5",
        ["a1 b2 b3 c4", "a1 b2 c4"],
    ),
    (
        group().begin("a").followed_by("b").one_or_more().allow_combinations().followed_by("c"),
        "a1 b2 b3 d4 b5 c6",
        ["a1 b2 b3 b5 c6", "a1 b2 b3 c6", "a1 b2 b5 c6", "a1 b2 c6"],
    ),
    (group().begin("a").followed_by("b").one_or_more().greedy().followed_by("c"), "a1 b2 b3 c4 c5", ["a1 b2 b3 c4"]),
    (
        group().begin("a").followed_by("b").one_or_more().greedy().followed_by("c"),
        "a1 b2 b3 d4 b5 c6",
        ["a1 b2 b3 b5 c6"],
    ),
    (group().begin("a").followed_by("b").optional().followed_by("c"), "a1 b2 b3 c4 c5", ["a1 b2 c4", "a1 c4"]),
    (group().begin("a").followed_by("b").optional().followed_by("c"), "a1 b2 b3 d4 b5 c6", ["a1 b2 c6", "a1 c6"]),
    (
        group().begin("a").followed_by("b").one_or_more().optional().followed_by("c"),
        "a1 b2 b3 c4 c5",
        ["a1 b2 b3 c4", "a1 b2 c4", "a1 c4"],
    ),
    (
        group().begin("a").followed_by("b").one_or_more().optional().followed_by("c"),
        "a1 b2 b3 d4 b5 c6",
        ["a1 b2 b3 b5 c6", "a1 b2 b3 c6", "a1 b2 c6", "a1 c6"],
    ),
    (
        group().begin("a").followed_by_any("b").followed_by_any("c"),
        "a1 b2 b3 c4 c5",
        ["a1 b2 c4", "a1 b3 c4", "a1 b2 c5", "a1 b3 c5"],
    ),
    (
        group().begin("a").followed_by_any("b").followed_by_any("c"),
        "a1 b2 b3 d4 b5 c6",
        ["a1 b2 c6", "a1 b3 c6", "a1 b5 c6"],
    ),
    (
        group().begin("a").followed_by_any("b").times(2).followed_by_any("c"),
        "a1 b2 b3 c4 c5",
        ["a1 b2 b3 c4", "a1 b2 b3 c5"],
    ),
    (
        group().begin("a").followed_by_any("b").times(2).followed_by_any("c"),
        "a1 b2 b3 d4 b5 c6",
        ["a1 b2 b3 c6", "a1 b3 b5 c6"],
    ),
    (
        group().begin("a").followed_by_any("b").times(2).consecutive().followed_by_any("c"),
        "a1 b2 b3 c4 c5",
        ["a1 b2 b3 c4", "a1 b2 b3 c5"],
    ),
    (
        group().begin("a").followed_by_any("b").times(2).consecutive().followed_by_any("c"),
        "a1 b2 b3 d4 b5 c6",
        ["a1 b2 b3 c6"],
    ),
    (
        group().begin("a").followed_by_any("b").times(2).allow_combinations().followed_by_any("c"),
        "a1 b2 b3 c4 c5",
        ["a1 b2 b3 c4", "a1 b2 b3 c5"],
    ),
    (
        group().begin("a").followed_by_any("b").times(2).allow_combinations().followed_by_any("c"),
        "a1 b2 b3 d4 b5 c6",
        ["a1 b2 b3 c6", "a1 b2 b5 c6", "a1 b3 b5 c6"],
    ),
    (
        group().begin("a").followed_by_any("b").times(1, 2).followed_by_any("c"),
        "a1 b2 b3 c4 c5",
        ["a1 b2 b3 c4", "a1 b2 c4", "a1 b3 c4", "a1 b2 b3 c5", "a1 b2 c5", "a1 b3 c5"],
    ),
    (
        group().begin("a").followed_by_any("b").times(1, 2).followed_by_any("c"),
        "a1 b2 b3 d4 b5 c6",
        ["a1 b2 b3 c6", "a1 b2 c6", "a1 b3 b5 c6", "a1 b3 c6", "a1 b5 c6"],
    ),
    (
        group().begin("a").followed_by_any("b").one_or_more().followed_by_any("c"),
        "a1 b2 b3 c4 c5",
        ["a1 b2 b3 c4", "a1 b2 c4", "a1 b3 c4", "a1 b2 b3 c5", "a1 b2 c5", "a1 b3 c5"],
    ),
    (
        group().begin("a").followed_by_any("b").one_or_more().followed_by_any("c"),
        "a1 b2 b3 d4 b5 c6",
        ["a1 b2 b3 b5 c6", "a1 b2 b3 c6", "a1 b2 c6", "a1 b3 b5 c6", "a1 b3 c6", "a1 b5 c6"],
    ),
    (
        group().begin("a").followed_by_any("b").one_or_more().consecutive().followed_by_any("c"),
        "a1 b2 b3 c4 c5",
        ["a1 b2 b3 c4", "a1 b2 c4", "a1 b3 c4", "a1 b2 b3 c5", "a1 b2 c5", "a1 b3 c5"],
    ),
    (
        group().begin("a").followed_by_any("b").one_or_more().consecutive().followed_by_any("c"),
        "a1 b2 b3 d4 b5 c6",
        ["a1 b2 b3 c6", "a1 b2 c6", "a1 b3 c6", "a1 b5 c6"],
    ),
    (
        group().begin("a").followed_by_any("b").one_or_more().allow_combinations().followed_by_any("c"),
        "a1 b2 b3 c4 c5",
        ["a1 b2 b3 c4", "a1 b2 c4", "a1 b3 c4", "a1 b2 b3 c5", "a1 b2 c5", "a1 b3 c5"],
    ),
    (
        group().begin("a").followed_by_any("b").one_or_more().allow_combinations().followed_by_any("c"),
        "a1 b2 b3 d4 b5 c6",
        ["a1 b2 b3 b5 c6", "a1 b2 b3 c6", "a1 b2 b5 c6", "a1 b2 c6", "a1 b3 b5 c6", "a1 b3 c6", "a1 b5 c6"],
    ),
    (
        group().begin("a").followed_by_any("b").one_or_more().greedy().followed_by_any("c"),
        "a1 b2 b3 c4 c5",
        ["a1 b2 b3 c4", "a1 b3 c4", "a1 b2 b3 c5", "a1 b3 c5"],
    ),
    (
        group().begin("a").followed_by_any("b").one_or_more().greedy().followed_by_any("c"),
        "a1 b2 b3 d4 b5 c6",
        ["a1 b2 b3 b5 c6", "a1 b3 b5 c6", "a1 b5 c6"],
    ),
    (
        group().begin("a").followed_by_any("b").optional().followed_by_any("c"),
        "a1 b2 b3 c4 c5",
        ["a1 b2 c4", "a1 b3 c4", "a1 c4", "a1 b2 c5", "a1 b3 c5", "a1 c5"],
    ),
    (
        group().begin("a").followed_by_any("b").optional().followed_by_any("c"),
        "a1 b2 b3 d4 b5 c6",
        ["a1 b2 c6", "a1 b3 c6", "a1 b5 c6", "a1 c6"],
    ),
    (
        group().begin("a").followed_by_any("b").one_or_more().optional().followed_by_any("c"),
        "a1 b2 b3 c4 c5",
        ["a1 b2 b3 c4", "a1 b2 c4", "a1 b3 c4", "a1 c4", "a1 b2 b3 c5", "a1 b2 c5", "a1 b3 c5", "a1 c5"],
    ),
    (
        group().begin("a").followed_by_any("b").one_or_more().optional().followed_by_any("c"),
        "a1 b2 b3 d4 b5 c6",
        ["a1 b2 b3 b5 c6", "a1 b2 b3 c6", "a1 b2 c6", "a1 b3 b5 c6", "a1 b3 c6", "a1 b5 c6", "a1 c6"],
    ),
    (group().begin("a").one_or_more().next("b"), "a1 a2 b3", ["a1 a2 b3", "a2 b3"]),
    (group().begin("a").one_or_more().consecutive().next("b"), "a1 d2 a3 a4 b5", ["a3 a4 b5", "a4 b5"]),
    (
        group().begin("a").one_or_more().greedy().followed_by("b"),
        "a1 a2 d3 a4 b5",
        ["a1 a2 a4 b5", "a2 a4 b5", "a4 b5"],
    ),
    (group().begin("a").optional().followed_by("b"), "b1 a2 b3", ["b1", "a2 b3", "b3"]),
    (group().begin("a").times(2, 3).greedy().followed_by("b"), "a1 a2 a3 b4", ["a1 a2 a3 b4", "a2 a3 b4"]),
    (group().begin("a").followed_by("b", "bc").one_or_more().greedy().followed_by("c"), "a1 b2 c3 b4 c5", []),
    (
        group().begin("a").followed_by("b", "bc").one_or_more().greedy().followed_by("d", "cd"),
        "a1 b2 c3 b4 d5",
        ["a1 b2 c3 b4 d5"],
    ),
    (group().begin("a").followed_by("b", "bc").one_or_more().followed_by("c"), "a1 b2 c3", ["a1 b2 c3"]),
    (
        group().begin("a").followed_by("b").times_or_more(2).followed_by("c"),
        "a1 b2 b3 b4 c5",
        ["a1 b2 b3 b4 c5", "a1 b2 b3 c5"],
    ),
    (group().begin("a").followed_by("b").times_or_more(2).consecutive().followed_by("c"), "a1 b2 d3 b4 b5 c6", []),
    (
        group().begin("a").followed_by("b").times(0, 2).followed_by("c"),
        "a1 b2 b3 b4 c5",
        ["a1 b2 b3 c5", "a1 b2 c5", "a1 c5"],
    ),
    (
        group().begin("a").followed_by("b").one_or_more().until("u").followed_by("c"),
        "a1 b2 b3 u4 b5 c6",
        ["a1 b2 b3 c6", "a1 b2 c6"],
    ),
    (group().begin("a").followed_by("b").one_or_more().until("u").followed_by("c"), "a1 u2 b3 c4", ["a1 b3 c4"]),
    (
        group().begin("a").followed_by("b").one_or_more().allow_combinations().until("u").followed_by("c"),
        "a1 b2 b3 u4 b5 c6",
        ["a1 b2 b3 c6", "a1 b2 c6"],
    ),
    (
        group().begin("a").followed_by("b").one_or_more().greedy().until("u").followed_by("c"),
        "a1 b2 u3 b4 c5",
        ["a1 b2 c5"],
    ),
    (group().begin("a").followed_by("b").times_or_more(2).until("u").followed_by("c"), "a1 b2 u3 b4 c5", []),
    (group().begin("a").followed_by("b").one_or_more(), "a1 b2 d3 b4", ["a1 b2", "a1 b2 b4"]),
    (group().begin("a").followed_by("b").one_or_more().allow_combinations(), "a1 b2 d3 b4", ["a1 b2", "a1 b2 b4"]),
    (group().begin("a").followed_by("b").optional(), "a1 d2 b3", ["a1", "a1 b3"]),
    (group().begin("a").next("b").optional().next("c").optional(), "a1 b2 c3", ["a1", "a1 b2", "a1 b2 c3"]),
    (group().begin("a", "ab").followed_by("b"), "a1 b2 b3", ["a1 b2", "b2 b3"]),
    (
        group().begin("a").followed_by("b").optional().followed_by("c").optional().followed_by("d"),
        "a1 c2 b3 d4",
        ["a1 b3 d4", "a1 c2 d4", "a1 d4"],
    ),
]


@pytest.mark.parametrize(("chain", "rows", "matches"), CASES, ids=repr)
def test_the_matches_are_exactly_these(chain: Chain, rows: str, matches: list[str]) -> None:
    assert Letters(chain).matches(rows) == matches
    assert sorted(Letters(chain).true_matches(rows)) == sorted(matches)
