"""Patterns read from a second input: added, changed and removed while rows flow."""

from __future__ import annotations

import json
from typing import Any

import pytest

import headrace as hr
from headrace.operators.patterns.pattern import pattern, pattern_rules
from headrace.operators.process.rules import rules
from headrace.testing import at, batch, crash, expect, row, timeline, watermark
from headrace.testing import play as play_rows
from headrace.testing.elements import At

ALERTS = pattern_rules("alerts", key="k", output="first BIGINT, last BIGINT", rules=rules(key="rule_id")).late(
    hr.side_output()
)


def pair(first: str, last: str, within: str = "10 minutes") -> str:
    """The rule: one kind of row, then another."""
    return (
        pattern("rule", key="k")
        .begin("a", f"kind = '{first}'")
        .followed_by("b", f"kind = '{last}'")
        .within(within)
        .select(first="a.n", last="b.n")
        .to_json()
    )


def rule(time: str, name: str, text: str | None, *, deleted: bool = False) -> At:
    return at(time, side="right", rule_id=name, pattern=text, deleted=deleted)


def event(time: str, kind: str, n: int, k: str = "x") -> At:
    return at(time, k=k, kind=kind, n=n)


def play(*elements: Any) -> None:
    timeline(ALERTS, *elements)


def test_every_match_says_which_rule_it_is_of() -> None:
    play(
        rule("10:00", "ab", pair("a", "b")),
        rule("10:00", "bc", pair("b", "c")),
        event("10:01", "a", 1),
        event("10:02", "b", 2),
        event("10:03", "c", 3),
        watermark("10:30"),
        expect(
            row(k="x", rule="ab", first=1, last=2, matched_at="10:02"),
            row(k="x", rule="bc", first=2, last=3, matched_at="10:03"),
        ),
    )


@pytest.mark.parametrize("between", [(), (batch(),), (batch(), crash())], ids=["one batch", "two", "a crash"])
def test_a_row_that_comes_while_one_waits_is_not_taken_for_it(between: tuple[Any, ...]) -> None:
    play(
        rule("10:00", "ab", pair("a", "b")),
        event("09:00", "a", 0, k="other"),
        batch(),
        watermark("10:00"),
        event("10:01", "a", 1),
        *between,
        event("10:02", "b", 2),
        watermark("10:30"),
        expect(k="x", rule="ab", first=1, last=2),
    )


def test_a_rule_counts_from_its_time_on_and_a_crash_changes_nothing() -> None:
    play(
        event("10:00", "a", 1),
        event("10:04", "b", 2),
        event("10:05", "a", 3),
        event("10:06", "b", 4),
        batch(),
        rule("10:05", "ab", pair("a", "b")),
        crash(),
        batch(),
        watermark("10:05:30"),
        expect(),
        crash(),
        watermark("10:30"),
        expect(k="x", rule="ab", first=3, last=4),
    )


def test_a_removed_rule_drops_its_partial_matches_without_a_word() -> None:
    play(
        rule("10:00", "ab", pair("a", "b")),
        event("10:01", "a", 1),
        watermark("10:02"),
        rule("10:03", "ab", None, deleted=True),
        event("10:04", "b", 2),
        watermark("11:00"),
        expect(),
        expect(output="timed_out"),
    )


def test_a_changed_rule_begins_anew_and_the_same_again_goes_on() -> None:
    play(
        rule("10:00", "changed", pair("a", "b")),
        rule("10:00", "same", pair("a", "b")),
        event("10:01", "a", 1),
        watermark("10:02"),
        rule("10:03", "changed", pair("a", "b", "9 minutes")),
        rule("10:03", "same", pair("a", "b")),
        event("10:04", "b", 2),
        event("10:05", "a", 3),
        event("10:06", "b", 4),
        watermark("11:00"),
        expect(
            row(k="x", rule="changed", first=3, last=4),
            row(k="x", rule="same", first=1, last=2),
            row(k="x", rule="same", first=3, last=4),
        ),
    )


def test_what_runs_out_of_a_rules_time_is_told_with_the_rule() -> None:
    play(
        rule("10:00", "ab", pair("a", "b", "2 minutes")),
        event("10:01", "a", 1),
        watermark("10:02:59"),
        expect(output="timed_out"),
        watermark("10:03"),
        expect(row(k="x", rule="ab", first=1, last=None, waited_for="b", timed_out_at="10:03"), output="timed_out"),
    )


def test_a_bad_rule_is_a_dead_letter_and_the_flow_goes_on() -> None:
    unknown = pair("a", "b").replace("kind =", "colour =")
    measures = pair("a", "b").replace("b.n", "b.kind")
    play(
        rule("10:00", "no json", "SELECT 1"),
        rule("10:00", "unknown column", unknown),
        rule("10:00", "wrong type", measures),
        rule("10:00", "nothing", None),
        rule("10:00", "good", pair("a", "b")),
        event("10:01", "a", 1),
        event("10:02", "b", 2),
        watermark("11:00"),
        expect(k="x", rule="good", first=1, last=2),
        expect(*(row(source="alerts", reason="RULE_UNREADABLE") for _ in range(4)), output="dead_letters"),
    )


def test_whatever_a_rule_holds_the_flow_goes_on() -> None:
    bad = [
        "[" * 100_000,
        pair("a", "b").replace('"within": 600000000', '"within": 1e30'),
        pair("a", "b").replace("kind = 'a'", "kind = '\\ud800'"),
        pair("a", "b").replace("kind = 'a'", "(" * 5_000 + "kind = 'a'" + ")" * 5_000),
        pair("a", "b").replace('{"first": "a.n", "last": "b.n"}', "{}"),
    ]
    assert "{}" in bad[-1]
    played = play_rows(
        ALERTS,
        *(rule("10:00", f"bad {number}", text) for number, text in enumerate(bad)),
        rule("10:00", "good", pair("a", "b")),
        event("10:01", "a", 1),
        event("10:02", "b", 2),
        watermark("11:00"),
    )
    assert [(each["rule"], each["last"]) for each in played.main] == [("good", 2)]
    assert [letter["detail"].split("]")[0] for letter in played.dead_letters] == [
        *["[PATTERN_UNREADABLE"] * 4,
        "[MEASURES_MISSING",
    ]


@pytest.mark.parametrize("deleted", [False, True])
def test_a_rule_without_an_id_is_a_dead_letter(deleted: bool) -> None:
    played = play_rows(
        ALERTS,
        at("10:00", side="right", rule_id=None, pattern=pair("a", "b"), deleted=deleted),
        rule("10:00", "good", pair("a", "b")),
        event("10:01", "a", 1),
        event("10:02", "b", 2),
        watermark("11:00"),
    )
    assert [each["rule"] for each in played.main] == ["good"]
    assert [letter["detail"].split("]")[0] for letter in played.dead_letters] == ["[RULE_ID_MISSING"]


def test_why_a_rule_is_bad_is_said() -> None:
    texts = [pair("a", "b").replace("b.n", "b.kind"), pair("a", "b").replace("kind =", "colour ="), "[]"]
    played = play_rows(ALERTS, *(rule("10:00", f"r{n}", text) for n, text in enumerate(texts)), event("10:01", "a", 1))
    assert [letter["detail"].split("]")[0] for letter in played.dead_letters] == [
        "[RULE_OUTPUT",
        "[COLUMN_UNKNOWN",
        "[PATTERN_UNREADABLE",
    ]
    assert [json.loads(letter["raw"])["rule_id"] for letter in played.dead_letters] == ["r0", "r1", "r2"]


@pytest.mark.spark
def test_whole_rows_and_lists_are_measures_of_a_rule() -> None:
    made = pattern("rule", key="k").begin("a", "kind = 'a'").followed_by("b", "kind = 'b'").within("10 minutes")
    text = made.select(began="struct(a.n, a.tags)", tags="b.tags").to_json()
    output = "began STRUCT<n: BIGINT, tags: ARRAY<STRING>>, tags ARRAY<STRING>"
    timeline(
        pattern_rules("alerts", key="k", output=output, rules=rules(key="rule_id")).late(hr.drop()),
        rule("10:00", "ab", text),
        at("10:01", k="x", kind="a", n=1, tags=["s", None]),
        watermark("10:01:30"),
        crash(),
        batch(),
        at("10:02", k="x", kind="b", n=2, tags=[]),
        watermark("10:30"),
        expect(k="x", rule="ab", began={"n": 1, "tags": ["s", None]}, tags=[]),
    )
