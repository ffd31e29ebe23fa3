"""What every skip strategy keeps of matches that overlap."""

from __future__ import annotations

import pytest

from headrace.operators.patterns import skip
from headrace.operators.patterns.chain import Chain, group
from headrace.operators.patterns.skip import Skip
from tests.unit.operators.patterns.letters import Letters

CASES = [
    (
        group().begin("a").followed_by_any("b").one_or_more().followed_by("c"),
        "a1 a2 b3 b4 c5 c6",
        skip.none(),
        ["a1 b3 b4 c5", "a1 b3 c5", "a1 b4 c5", "a2 b3 b4 c5", "a2 b3 c5", "a2 b4 c5"],
    ),
    (
        group().begin("a").followed_by_any("b").one_or_more().followed_by("c"),
        "a1 a2 b3 b4 c5 c6",
        skip.to_next(),
        ["a1 b3 b4 c5", "a2 b3 b4 c5"],
    ),
    (
        group().begin("a").followed_by_any("b").one_or_more().followed_by("c"),
        "a1 a2 b3 b4 c5 c6",
        skip.past_last(),
        ["a1 b3 b4 c5"],
    ),
    (
        group().begin("a").followed_by_any("b").one_or_more().followed_by("c"),
        "a1 a2 b3 b4 c5 c6",
        skip.to_first("b"),
        ["a1 b3 b4 c5"],
    ),
    (
        group().begin("a").followed_by_any("b").one_or_more().followed_by("c"),
        "a1 a2 b3 b4 c5 c6",
        skip.to_first("c"),
        ["a1 b3 b4 c5"],
    ),
    (
        group().begin("a").followed_by_any("b").one_or_more().followed_by("c"),
        "a1 a2 b3 b4 c5 c6",
        skip.to_last("b"),
        ["a1 b3 b4 c5"],
    ),
    (
        group().begin("a").followed_by_any("b").one_or_more().followed_by("c"),
        "a1 a2 b3 b4 c5 c6",
        skip.to_last("c"),
        ["a1 b3 b4 c5"],
    ),
    (
        group().begin("b").one_or_more().consecutive().next("c"),
        "b1 b2 b3 c4",
        skip.none(),
        ["b1 b2 b3 c4", "b2 b3 c4", "b3 c4"],
    ),
    (
        group().begin("b").one_or_more().consecutive().next("c"),
        "b1 b2 b3 c4",
        skip.to_next(),
        ["b1 b2 b3 c4", "b2 b3 c4", "b3 c4"],
    ),
    (group().begin("b").one_or_more().consecutive().next("c"), "b1 b2 b3 c4", skip.past_last(), ["b1 b2 b3 c4"]),
    (
        group().begin("b").one_or_more().consecutive().next("c"),
        "b1 b2 b3 c4",
        skip.to_first("b"),
        ["b1 b2 b3 c4", "b2 b3 c4", "b3 c4"],
    ),
    (group().begin("b").one_or_more().consecutive().next("c"), "b1 b2 b3 c4", skip.to_first("c"), ["b1 b2 b3 c4"]),
    (
        group().begin("b").one_or_more().consecutive().next("c"),
        "b1 b2 b3 c4",
        skip.to_last("b"),
        ["b1 b2 b3 c4", "b3 c4"],
    ),
    (group().begin("b").one_or_more().consecutive().next("c"), "b1 b2 b3 c4", skip.to_last("c"), ["b1 b2 b3 c4"]),
    (
        group().begin("a").next("b").one_or_more().consecutive(),
        "a1 b2 b3 b4",
        skip.none(),
        ["a1 b2", "a1 b2 b3", "a1 b2 b3 b4"],
    ),
    (group().begin("a").next("b").one_or_more().consecutive(), "a1 b2 b3 b4", skip.to_next(), ["a1 b2"]),
    (group().begin("a").next("b").one_or_more().consecutive(), "a1 b2 b3 b4", skip.past_last(), ["a1 b2"]),
    (group().begin("a").next("b").one_or_more().consecutive(), "a1 b2 b3 b4", skip.to_first("b"), ["a1 b2"]),
    (group().begin("a").next("b").one_or_more().consecutive(), "a1 b2 b3 b4", skip.to_last("b"), ["a1 b2"]),
    (
        group().begin("a", "abc").next("b", "bc").next("c").one_or_more().consecutive().greedy().next("d"),
        "a1 b2 c3 c4 c5 d6",
        skip.none(),
        ["a1 b2 c3 c4 c5 d6", "b2 c3 c4 c5 d6", "c3 c4 c5 d6"],
    ),
    (
        group().begin("a", "abc").next("b", "bc").next("c").one_or_more().consecutive().greedy().next("d"),
        "a1 b2 c3 c4 c5 d6",
        skip.to_next(),
        ["a1 b2 c3 c4 c5 d6", "b2 c3 c4 c5 d6", "c3 c4 c5 d6"],
    ),
    (
        group().begin("a", "abc").next("b", "bc").next("c").one_or_more().consecutive().greedy().next("d"),
        "a1 b2 c3 c4 c5 d6",
        skip.past_last(),
        ["a1 b2 c3 c4 c5 d6"],
    ),
    (
        group().begin("a", "abc").next("b", "bc").next("c").one_or_more().consecutive().greedy().next("d"),
        "a1 b2 c3 c4 c5 d6",
        skip.to_first("b"),
        ["a1 b2 c3 c4 c5 d6", "b2 c3 c4 c5 d6", "c3 c4 c5 d6"],
    ),
    (
        group().begin("a", "abc").next("b", "bc").next("c").one_or_more().consecutive().greedy().next("d"),
        "a1 b2 c3 c4 c5 d6",
        skip.to_first("c"),
        ["a1 b2 c3 c4 c5 d6", "c3 c4 c5 d6"],
    ),
    (
        group().begin("a", "abc").next("b", "bc").next("c").one_or_more().consecutive().greedy().next("d"),
        "a1 b2 c3 c4 c5 d6",
        skip.to_last("b"),
        ["a1 b2 c3 c4 c5 d6", "b2 c3 c4 c5 d6", "c3 c4 c5 d6"],
    ),
    (
        group().begin("a", "abc").next("b", "bc").next("c").one_or_more().consecutive().greedy().next("d"),
        "a1 b2 c3 c4 c5 d6",
        skip.to_last("c"),
        ["a1 b2 c3 c4 c5 d6"],
    ),
    (
        group().begin("a").followed_by("b").followed_by("c"),
        "a1 a2 b3 a4 c5 b6 c7",
        skip.none(),
        ["a1 b3 c5", "a2 b3 c5", "a4 b6 c7"],
    ),
    (
        group().begin("a").followed_by("b").followed_by("c"),
        "a1 a2 b3 a4 c5 b6 c7",
        skip.to_next(),
        ["a1 b3 c5", "a2 b3 c5", "a4 b6 c7"],
    ),
    (group().begin("a").followed_by("b").followed_by("c"), "a1 a2 b3 a4 c5 b6 c7", skip.past_last(), ["a1 b3 c5"]),
    (
        group().begin("a").followed_by("b").followed_by("c"),
        "a1 a2 b3 a4 c5 b6 c7",
        skip.to_first("b"),
        ["a1 b3 c5", "a4 b6 c7"],
    ),
    (group().begin("a").followed_by("b").followed_by("c"), "a1 a2 b3 a4 c5 b6 c7", skip.to_first("c"), ["a1 b3 c5"]),
    (
        group().begin("a").followed_by("b").followed_by("c"),
        "a1 a2 b3 a4 c5 b6 c7",
        skip.to_last("b"),
        ["a1 b3 c5", "a4 b6 c7"],
    ),
    (group().begin("a").followed_by("b").followed_by("c"), "a1 a2 b3 a4 c5 b6 c7", skip.to_last("c"), ["a1 b3 c5"]),
    (
        group().begin("a").followed_by("b").optional().followed_by("c"),
        "a1 b2 c3 a4 c5",
        skip.none(),
        ["a1 b2 c3", "a1 c3", "a4 c5"],
    ),
    (
        group().begin("a").followed_by("b").optional().followed_by("c"),
        "a1 b2 c3 a4 c5",
        skip.to_next(),
        ["a1 b2 c3", "a4 c5"],
    ),
    (
        group().begin("a").followed_by("b").optional().followed_by("c"),
        "a1 b2 c3 a4 c5",
        skip.past_last(),
        ["a1 b2 c3", "a4 c5"],
    ),
    (
        group().begin("a").followed_by("b").optional().followed_by("c"),
        "a1 b2 c3 a4 c5",
        skip.to_first("b"),
        ["a1 b2 c3", "a4 c5"],
    ),
    (
        group().begin("a").followed_by("b").optional().followed_by("c"),
        "a1 b2 c3 a4 c5",
        skip.to_first("c"),
        ["a1 b2 c3", "a4 c5"],
    ),
    (
        group().begin("a").followed_by("b").optional().followed_by("c"),
        "a1 b2 c3 a4 c5",
        skip.to_last("b"),
        ["a1 b2 c3", "a4 c5"],
    ),
    (
        group().begin("a").followed_by("b").optional().followed_by("c"),
        "a1 b2 c3 a4 c5",
        skip.to_last("c"),
        ["a1 b2 c3", "a4 c5"],
    ),
    (
        group().begin("a").times(2).followed_by("b"),
        "a1 a2 a3 b4 a5 b6",
        skip.none(),
        ["a1 a2 b4", "a2 a3 b4", "a3 a5 b6"],
    ),
    (
        group().begin("a").times(2).followed_by("b"),
        "a1 a2 a3 b4 a5 b6",
        skip.to_next(),
        ["a1 a2 b4", "a2 a3 b4", "a3 a5 b6"],
    ),
    (group().begin("a").times(2).followed_by("b"), "a1 a2 a3 b4 a5 b6", skip.past_last(), ["a1 a2 b4"]),
    (group().begin("a").times(2).followed_by("b"), "a1 a2 a3 b4 a5 b6", skip.to_first("b"), ["a1 a2 b4"]),
    (
        group().begin("a").times(2).followed_by("b"),
        "a1 a2 a3 b4 a5 b6",
        skip.to_last("a"),
        ["a1 a2 b4", "a2 a3 b4", "a3 a5 b6"],
    ),
    (group().begin("a").times(2).followed_by("b"), "a1 a2 a3 b4 a5 b6", skip.to_last("b"), ["a1 a2 b4"]),
]


@pytest.mark.parametrize(("chain", "rows", "strategy", "matches"), CASES, ids=repr)
def test_what_is_kept_of_matches_that_overlap(chain: Chain, rows: str, strategy: Skip, matches: list[str]) -> None:
    assert Letters(chain, 100, strategy).matches(rows, until=999) == matches


def test_a_match_waits_until_an_earlier_one_that_would_skip_it_is_decided() -> None:
    chain = group().begin("a", "ab").followed_by_any("c").followed_by("d")
    letters = Letters(chain, 10, skip.past_last())
    assert letters.matches("a1 b2 c3") == []
    assert letters.matches("a1 b2 c3 d4") == ["a1 c3 d4"]


def test_a_match_held_back_is_emitted_when_the_earlier_one_runs_out_of_time() -> None:
    chain = group().begin("a", "ab").next("x", "bx").followed_by("c").followed_by("d")
    letters = Letters(chain, 4, skip.past_last())
    assert [time for *_, time in letters.play("a1 b2 x3 c4 d5", until=99).matches] == [5]
    assert letters.matches("a1 b2 x3 c4 d5", until=99) == ["b2 x3 c4 d5"]
    assert letters.timed_out("a1 b2 x3 c4 d5", until=99) == ["a1 b2 c4 at 5 for d"]


def test_a_later_match_does_not_overtake_an_earlier_partial_match() -> None:
    chain = group().begin("a", "ab").followed_by("c").optional().followed_by("d", "de")
    strict = group().begin("a", "ab").next("b", "bc").next("c", "cd").one_or_more().consecutive().greedy().next("e")
    assert Letters(strict, 9, skip.past_last()).matches("a1 b2 c3 d4 e5") == ["a1 b2 c3 d4 e5"]
    assert Letters(strict, 9, skip.to_next()).matches("a1 b2 c3 d4 e5") == ["a1 b2 c3 d4 e5", "b2 c3 d4 e5"]
    assert Letters(chain, 9, skip.past_last()).matches("a1 c2 d3 b4 e5") == ["a1 c2 d3", "b4 e5"]
