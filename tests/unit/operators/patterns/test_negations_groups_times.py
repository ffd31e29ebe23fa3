"""Negations, groups and time: the exact matches."""

from __future__ import annotations

import pytest

from headrace.operators.patterns.chain import Chain, group
from tests.unit.operators.patterns.letters import Letters

NEGATIONS = [
    (group().begin("a").not_next("n", "x").followed_by("b"), "a1 b2", None, ["a1 b2"]),
    (group().begin("a").not_next("n", "x").followed_by("b"), "a1 x2 b3", None, []),
    (group().begin("a").not_next("n", "x").followed_by("b"), "a1 d2 x3 b4", None, ["a1 b4"]),
    (group().begin("a").not_next("n", "x").next("b"), "a1 b2", None, ["a1 b2"]),
    (group().begin("a").not_next("n", "x").next("b"), "a1 d2 b3", None, []),
    (group().begin("a").not_next("n", "x"), "a1 d2", None, ["a1"]),
    (group().begin("a").not_next("n", "x"), "a1 x2", None, []),
    (group().begin("a").not_next("n", "x"), "a1", None, []),
    (group().begin("a").not_next("n", "x"), "a1 d9", 5, []),
    (group().begin("a").one_or_more().not_next("n", "x").followed_by("b"), "a1 x2 a3 b4", None, ["a3 b4"]),
    (group().begin("a").not_next("n", "x").followed_by("b").optional(), "a1 d2 b3", None, ["a1", "a1 b3"]),
    (
        group().begin("a").not_next("n", "x").followed_by("b").optional().within("2 microseconds", since="previous"),
        "a1 z6",
        None,
        ["a1"],
    ),
    (
        group()
        .begin("a")
        .not_next("n", "x")
        .followed_by(group().begin("b").within("2 microseconds", since="previous").next("c"))
        .optional(),
        "a1 z6",
        None,
        ["a1"],
    ),
    (group().begin("a").not_followed_by("n", "x").followed_by("b"), "a1 b2", None, ["a1 b2"]),
    (group().begin("a").not_followed_by("n", "x").followed_by("b"), "a1 x2 b3", None, []),
    (group().begin("a").not_followed_by("n", "x").followed_by("b"), "a1 d2 x3 b4", None, []),
    (group().begin("a").not_followed_by("n", "x").followed_by("b"), "a1 b2 x3 b4", None, ["a1 b2"]),
    (group().begin("a").not_followed_by("n", "x").followed_by_any("b"), "a1 b2 x3 b4", None, ["a1 b2"]),
    (group().begin("a").not_followed_by("n", "b").followed_by("s", "bc"), "a1 b2 c3", None, []),
    (group().begin("a").not_followed_by("n", "b").followed_by("s", "bc"), "a1 c2 b3", None, ["a1 c2"]),
    (group().begin("a").not_followed_by("n", "b").followed_by("s", "bc").followed_by("d"), "a1 b2 c3 d4", None, []),
    (group().begin("a").not_followed_by("n", "x").not_followed_by("m", "y").followed_by("b"), "a1 y2 b3", None, []),
    (
        group().begin("a").not_followed_by("n", "x").followed_by_any("c").optional().followed_by_any("b"),
        "a1 c2 x3 b4",
        None,
        ["a1 c2 b4"],
    ),
    (
        group().begin("a").not_followed_by("n", "x").followed_by_any("c").optional().followed_by_any("b"),
        "a1 x2 b3",
        None,
        [],
    ),
    (group().begin("a").one_or_more().not_followed_by("n", "x").followed_by("b"), "a1 a2 x3 a4 b5", None, ["a4 b5"]),
    (group().begin("a").times(2).not_followed_by("n", "x").followed_by("b"), "a1 x2 a3 a4 b5", None, ["a3 a4 b5"]),
    (group().begin("a").not_followed_by("n", "x"), "a1 d2", 5, ["a1"]),
    (group().begin("a").not_followed_by("n", "x"), "a1 x2", 5, []),
    (group().begin("a").not_followed_by("n", "x"), "a1 x6", 5, ["a1"]),
    (group().begin("a").not_followed_by("n", "x"), "a1 x5 a7", 5, ["a7"]),
    (group().begin("a").followed_by("b").one_or_more().not_followed_by("n", "x"), "a1 b2 b3", 5, ["a1 b2 b3", "a1 b2"]),
    (group().begin("a").followed_by("b").one_or_more().not_followed_by("n", "x"), "a1 b2 b3 x4", 5, []),
    (
        group().begin("a").followed_by("b").one_or_more().greedy().not_followed_by("n", "x"),
        "a1 b2 d3 b4",
        6,
        ["a1 b2 b4"],
    ),
]

GROUPS = [
    (
        group()
        .begin("a")
        .followed_by(group().begin("b").one_or_more().until("x").followed_by("d"))
        .one_or_more()
        .until("y")
        .followed_by("c"),
        "a1 b2 x3 b4 d5 c6",
        None,
        ["a1 b2 d5 c6"],
    ),
    (group().begin("a").followed_by(group().begin("b").followed_by("c")), "a1 b2 c3 b4 c5", None, ["a1 b2 c3"]),
    (
        group().begin("a").followed_by(group().begin("b").followed_by("c")).times(2),
        "a1 b2 c3 b4 c5",
        None,
        ["a1 b2 c3 b4 c5"],
    ),
    (
        group().begin("a").followed_by(group().begin("b").followed_by("c")).one_or_more(),
        "a1 b2 c3 b4 c5",
        None,
        ["a1 b2 c3", "a1 b2 c3 b4 c5"],
    ),
    (
        group().begin("a").followed_by(group().begin("b").followed_by("c")).one_or_more().followed_by("d"),
        "a1 b2 c3 z4 z5 b6 c7 d8",
        None,
        ["a1 b2 c3 b6 c7 d8", "a1 b2 c3 d8"],
    ),
    (
        group().begin("a").followed_by(group().begin("b").followed_by("c")).optional().followed_by("d"),
        "a1 b2 c3 d4",
        None,
        ["a1 b2 c3 d4", "a1 d4"],
    ),
    (
        group().begin("a").followed_by(group().begin("b").followed_by("c")).one_or_more().optional().followed_by("d"),
        "a1 b2 c3 b4 c5 d6",
        None,
        ["a1 b2 c3 b4 c5 d6", "a1 b2 c3 d6", "a1 d6"],
    ),
    (
        group().begin("a").followed_by(group().begin("b").followed_by("c")).times(2).consecutive().followed_by("d"),
        "a1 b2 c3 b4 c5 d6",
        None,
        ["a1 b2 c3 b4 c5 d6"],
    ),
    (
        group().begin("a").followed_by(group().begin("b").followed_by("c")).times(2).consecutive().followed_by("d"),
        "a1 b2 c3 z4 b5 c6 d7",
        None,
        [],
    ),
    (
        group()
        .begin("a")
        .followed_by(group().begin("b").followed_by("c"))
        .times(2)
        .allow_combinations()
        .followed_by("d"),
        "a1 b2 c3 b4 b5 c6 d7",
        None,
        ["a1 b2 c3 b4 c6 d7", "a1 b2 c3 b5 c6 d7"],
    ),
    (
        group().begin("a").followed_by(group().begin("b").followed_by("c")).one_or_more().until("u").followed_by("d"),
        "a1 b2 c3 u4 b5 c6 d7",
        None,
        ["a1 b2 c3 d7"],
    ),
    (
        group().begin("a").followed_by(group().begin("b").followed_by("c")).one_or_more().until("u").followed_by("d"),
        "a1 b2 u3 c4 d5",
        None,
        [],
    ),
    (
        group().begin("a").followed_by_any(group().begin("b").followed_by("c")).followed_by("d"),
        "a1 b2 c3 b4 c5 d6",
        None,
        ["a1 b2 c3 d6", "a1 b4 c5 d6"],
    ),
    (group().begin("a").next(group().begin("b").next("c")).next("d"), "a1 b2 c3 d4", None, ["a1 b2 c3 d4"]),
    (group().begin("a").next(group().begin("b").next("c")).next("d"), "a1 z2 b3 c4 d5", None, []),
    (group().begin(group().begin("a").next("b")).times(2).followed_by("c"), "a1 b2 a3 b4 c5", None, ["a1 b2 a3 b4 c5"]),
    (
        group().begin(group().begin("a").next("b")).one_or_more().followed_by("c"),
        "a1 b2 z3 a4 b5 c6",
        None,
        ["a1 b2 a4 b5 c6", "a1 b2 c6", "a4 b5 c6"],
    ),
    (
        group().begin("a").followed_by(group().begin("b").followed_by("c").one_or_more()).times(2).followed_by("d"),
        "a1 b2 c3 c4 b5 c6 d7",
        None,
        ["a1 b2 c3 c4 b5 c6 d7", "a1 b2 c3 b5 c6 d7"],
    ),
    (
        group().begin("a").followed_by(group().begin("b").followed_by("c").optional()).times(2).followed_by("d"),
        "a1 b2 c3 b4 d5",
        None,
        ["a1 b2 c3 b4 d5", "a1 b2 b4 d5"],
    ),
    (
        group()
        .begin("a")
        .followed_by(group().begin("b").not_followed_by("n", "x").followed_by("c"))
        .times(2)
        .followed_by("d"),
        "a1 b2 c3 x4 b5 c6 d7",
        None,
        ["a1 b2 c3 b5 c6 d7"],
    ),
    (
        group()
        .begin("a")
        .followed_by(group().begin("b").not_followed_by("n", "x").followed_by("c"))
        .times(2)
        .followed_by("d"),
        "a1 b2 c3 b4 x5 c6 d7",
        None,
        [],
    ),
    *(
        (
            group()
            .begin("s")
            .next(group().begin("a").not_followed_by("n", "x").followed_by("b").optional())
            .followed_by("e"),
            rows,
            None,
            matches,
        )
        for rows, matches in {"s1 a2 z3 x4 e5": [], "s1 a2 x3 e4": [], "s1 a2 b3 x4 e5": ["s1 a2 b3 e5"]}.items()
    ),
    *(
        (
            group()
            .begin(group().begin("a").not_followed_by("n", "x").followed_by("b").optional())
            .times_or_more(2)
            .followed_by("c"),
            rows,
            None,
            matches,
        )
        for rows, matches in {"a1 z2 a3 c4": ["a1 a3 c4"], "a1 z2 x3 a4 c5": [], "a1 a2 z3 x4 c5": []}.items()
    ),
    *(
        (
            group().begin(group().begin("a").followed_by("b").optional()).one_or_more().until("u").followed_by("c"),
            rows,
            None,
            matches,
        )
        for rows, matches in {
            "a1 u2 c3": ["a1 c3"],
            "a1 u2 b3 c4": ["a1 c4"],
            "a1 u2 a3 c4": ["a1 c4", "a3 c4"],
        }.items()
    ),
    (
        group().begin(group().begin("a").followed_by("b").one_or_more()).one_or_more().until("u").followed_by("c"),
        "a1 b2 u3 c4",
        None,
        ["a1 b2 c4"],
    ),
    (
        group()
        .begin("a")
        .followed_by(group().begin(group().begin("b").next("c")).times(2).followed_by("d"))
        .times(1, 2)
        .followed_by("e"),
        "a1 b2 c3 b4 c5 d6 e7",
        None,
        ["a1 b2 c3 b4 c5 d6 e7"],
    ),
]

TIMES = [
    (group().begin("a").followed_by("b"), "a1 b5", 5, ["a1 b5"]),
    (group().begin("a").followed_by("b"), "a1 b6", 5, []),
    (group().begin("a").followed_by("b"), "a1 b6", 6, ["a1 b6"]),
    (group().begin("a").followed_by("b"), "a1 b1", 5, ["a1 b1"]),
    (group().begin("a").followed_by("b"), "b1 a1", 5, []),
    (group().begin("a").followed_by("b"), "a1 a1 b1", 5, ["a1 b1", "a1 b1"]),
    (group().begin("a").followed_by("b").followed_by("c"), "a1 b4 c5", 5, ["a1 b4 c5"]),
    (group().begin("a").followed_by("b").followed_by("c"), "a1 b4 c6", 5, []),
    (
        group().begin("a").followed_by("b").within("3 microseconds", since="previous").followed_by("c"),
        "a1 b3 c9",
        None,
        ["a1 b3 c9"],
    ),
    (
        group().begin("a").followed_by("b").within("3 microseconds", since="previous").followed_by("c"),
        "a1 b4 c9",
        None,
        [],
    ),
    (
        group().begin("a").followed_by("b").one_or_more().within("3 microseconds", since="previous").followed_by("c"),
        "a1 b3 b5 b8 c9",
        None,
        ["a1 b3 b5 c9", "a1 b3 c9"],
    ),
    (
        group().begin("a").followed_by("b").optional().within("3 microseconds", since="previous").followed_by("c"),
        "a1 d2 b5 c9",
        None,
        ["a1 c9"],
    ),
    (
        group()
        .begin("a")
        .next("b")
        .within("3 microseconds", since="previous")
        .next("c")
        .within("2 microseconds", since="previous"),
        "a1 b3 c4 a5 b7 c9",
        None,
        ["a1 b3 c4"],
    ),
    (
        group().begin("a").not_followed_by("n", "x").within("3 microseconds", since="previous"),
        "a1 x3 a4 x7",
        None,
        ["a4"],
    ),
    (
        group().begin("a").followed_by("b").within("3 microseconds", since="previous"),
        "a1 b3 a4 b6",
        4,
        ["a1 b3", "a4 b6"],
    ),
]


@pytest.mark.parametrize(("chain", "rows", "within", "matches"), [*NEGATIONS, *GROUPS, *TIMES], ids=repr)
def test_the_matches_are_exactly_these(chain: Chain, rows: str, within: int | None, matches: list[str]) -> None:
    assert Letters(chain, within).matches(rows, until=999) == matches
    assert sorted(Letters(chain, within).true_matches(rows)) == sorted(matches)


AB = group().begin("a").followed_by("b")
LOOP = group().begin("a").followed_by("b").one_or_more().followed_by("c")


@pytest.mark.parametrize(
    ("chain", "rows", "expected"),
    [
        (AB, "a1", ["a1 at 6 for b"]),
        (AB, "a1 b6", ["a1 at 6 for b"]),
        (AB, "a1 b5", []),
        (AB, "a1 a3", ["a1 at 6 for b", "a3 at 8 for b"]),
        (LOOP, "a1 b2", ["a1 b2 at 6 for c"]),
        (LOOP, "a1 b2 d3", ["a1 b2 at 6 for c"]),
        (LOOP, "a1 b2 b3", ["a1 b2 b3 at 6 for c", "a1 b2 at 6 for c"]),
        (group().begin("a").next("b"), "a1 d2", []),
        (group().begin("a").not_followed_by("n", "x").followed_by("b"), "a1 x2", []),
        (group().begin("a").followed_by("b").optional().followed_by("c"), "a1", ["a1 at 6 for c"]),
        (
            group().begin("a").followed_by("b").within("2 microseconds", since="previous").followed_by("c"),
            "a1 a4 b5",
            ["a1 at 3 for b", "a4 b5 at 9 for c"],
        ),
        (group().begin("s").next("a").one_or_more().not_followed_by("n", "x"), "s1 a2 z3", []),
        (group().begin("s").next("a").times(1, 3).not_followed_by("n", "x"), "s1 a2 z3", []),
        (group().begin("a").not_next("n", "x"), "a1", ["a1 at 6 for None"]),
        (group().begin("a").one_or_more().not_next("n", "x"), "a1", ["a1 at 6 for None"]),
        # A match that could have gone on is told too, as in Flink.
        (group().begin("a").followed_by("b").times(1, 3), "a1 b2", ["a1 b2 at 6 for b"]),
        (group().begin("a").followed_by("b").optional(), "a1", ["a1 at 6 for b"]),
    ],
    ids=repr,
)
def test_what_runs_out_of_time_is_told_once_with_the_step_it_waited_for(
    chain: Chain, rows: str, expected: list[str]
) -> None:
    assert Letters(chain, 5).timed_out(rows, until=99) == expected


def test_a_match_is_complete_at_its_last_row_and_a_negation_at_the_end_when_the_time_is_over() -> None:
    assert [time for *_, time in Letters(AB, 5).play("a1 b3").matches] == [3]
    ends = group().begin("a").not_followed_by("n", "x")
    assert [time for *_, time in Letters(ends, 5).play("a1 d30").matches] == [6]
    assert [time for *_, time in Letters(group().begin("a").not_next("n", "x"), 5).play("a1 d3").matches] == [3]


def test_the_oldest_partial_matches_are_dropped_and_counted_when_a_key_has_too_many() -> None:
    letters = Letters(group().begin("a").followed_by("b"), 100, most=2)
    found = letters.play("a1 a2 a3 a4 b5")
    assert found.overflow == 2
    assert letters.matches("a1 a2 a3 a4 b5") == ["a3 b5", "a4 b5"]


def test_nothing_is_held_without_a_partial_match() -> None:
    assert Letters(group().begin("a")).matches("a1 d2 a3") == ["a1", "a3"]
    assert Letters(group().begin("a").optional()).matches("d1 a2") == ["a2"]
