"""What may be said of a pattern, what is refused, and how a pattern prints itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import polars as pl
import pytest
from pyspark import cloudpickle

import headrace as hr
from headrace.errors import DefinitionError
from headrace.event_time.record import TimeBounds
from headrace.operators.patterns import skip
from headrace.operators.patterns.chain import group
from headrace.operators.patterns.pattern import Pattern, pattern, pattern_rules
from headrace.operators.patterns.pattern_json import pattern_from_json, pattern_to_json
from tests.unit.operators.stored import next_due, stored

SCHEMA = {
    "k": pl.String(),
    "kind": pl.String(),
    "n": pl.Int64(),
    "x": pl.Float64(),
    "tags": pl.List(pl.String()),
    "at": pl.Datetime("us", "UTC"),
}
AB = pattern("p", key="k").begin("a", "n > 1").followed_by("b", "n > 2")


PLACED = {**SCHEMA, "place": pl.Struct({"city": pl.String(), "n": pl.Int64()})}
RULES = {"r": pl.String(), "pattern": pl.String(), "deleted": pl.Boolean(), "at": pl.Datetime("us", "UTC")}


def bound(step: Pattern, schema: dict[str, pl.DataType] = SCHEMA, **measures: str) -> Any:
    return step.select(**(measures or {"n": "a.n"})).late(hr.drop()).bind(schema, "at")


def rules_bound(schema: dict[str, pl.DataType] = SCHEMA, rules: dict[str, pl.DataType] = RULES) -> Any:
    step = pattern_rules("p", key="k", output="n BIGINT", rules=hr.rules(key="r")).late(hr.drop())
    return step.bind(schema, "at", rules, "at")


def begun() -> Pattern:
    return pattern("p", key="k").begin("a", "n > 1")


REFUSED: dict[str, list[Callable[[], object]]] = {
    "PATTERN_NOT_BEGUN": [
        lambda: pattern("p", key="k").next("a"),
        lambda: pattern("p", key="k").optional(),
        lambda: bound(pattern("p", key="k")),
        lambda: pattern("p", key="k").not_followed_by("a"),
    ],
    "PATTERN_BEGUN_TWICE": [lambda: begun().begin("b")],
    "TIMES_IMPOSSIBLE": [
        lambda: begun().times(3, 2),
        lambda: begun().times(0),
        lambda: begun().times(-1, 2),
        lambda: begun().times_or_more(0),
        lambda: begun().times("3"),  # type: ignore[arg-type]
        lambda: begun().times(2.0),  # type: ignore[arg-type]
        lambda: begun().times(2, "3"),  # type: ignore[arg-type]
        lambda: begun().times(True),
        lambda: begun().times_or_more("2"),  # type: ignore[arg-type]
    ],
    "QUANTIFIER_TWICE": [
        lambda: begun().times(2).one_or_more(),
        lambda: begun().optional().optional(),
        lambda: begun().times(0, 2).optional(),
        lambda: begun().one_or_more().consecutive().allow_combinations(),
        lambda: begun().one_or_more().until("n > 1").until("n > 2"),
    ],
    "NEGATION_QUANTIFIED": [
        lambda: begun().not_next("b").one_or_more(),
        lambda: begun().not_followed_by("b").optional(),
        lambda: begun().not_followed_by("b").times(2),
        lambda: begun().not_next("b").greedy(),
        lambda: begun().not_next("b").until("n > 1"),
    ],
    "NEGATION_AFTER_OPTIONAL": [
        lambda: begun().followed_by("b").optional().not_next("c"),
        lambda: begun().followed_by("b").times(0, 2).not_followed_by("c"),
    ],
    "NEGATION_WITHOUT_END": [lambda: bound(begun().not_followed_by("b", "n > 2"))],
    "NOT_REPEATED": [
        lambda: begun().greedy(),
        lambda: begun().consecutive(),
        lambda: begun().allow_combinations(),
    ],
    "GREEDY_COMBINATIONS": [
        lambda: begun().one_or_more().greedy().allow_combinations(),
        lambda: begun().one_or_more().allow_combinations().greedy(),
    ],
    "GREEDY_GROUP": [lambda: begun().next(group().begin("b")).one_or_more().greedy()],
    "GREEDY_LAST": [
        lambda: bound(begun().followed_by("b").one_or_more().greedy()),
        lambda: bound(begun().next(group().begin("b").next("c").one_or_more().greedy())),
    ],
    "GREEDY_ENDS_GROUP": [
        lambda: bound(begun().next(group().begin("b").next("c").one_or_more().greedy()).times(2).next("d"))
    ],
    "GREEDY_BEFORE_NOT_NEXT": [
        lambda: bound(begun().one_or_more().greedy().not_next("b").followed_by("c")),
    ],
    "OPTIONAL_AFTER_GREEDY": [
        lambda: begun().one_or_more().greedy().followed_by("b").optional(),
        lambda: begun().one_or_more().greedy().not_followed_by("n").followed_by("b").times(0, 2),
    ],
    "UNTIL_WITHOUT_LOOP": [
        lambda: pattern_from_json(
            '{"elements": [{"contiguity": "begin", "step": "a", "quantifier": {"until": "n > 1"}}], "measures": {}}'
        ),
        lambda: begun().until("n > 1"),
        lambda: begun().times(2, 3).until("n > 1"),
    ],
    "GROUP_EMPTY": [lambda: begun().next(group())],
    "GROUP_BEGINS_OPTIONAL": [lambda: begun().next(group().begin("b").optional().next("c"))],
    "GROUP_ENDS_NEGATED": [lambda: begun().next(group().begin("b").not_next("c"))],
    "GROUP_CONDITION": [lambda: begun().next(group().begin("b"), "n > 1")],
    "WITHIN_GROUP": [
        lambda: begun().next(group().begin("b")).within("1 second", since="previous"),
        lambda: begun().next(group().begin("b").within("1 second")),
    ],
    "WITHIN_SINCE": [
        lambda: AB.within("1 second", since="prev"),  # type: ignore[arg-type]
        lambda: AB.within("1 second", since=None),  # type: ignore[arg-type]
        lambda: group().begin("a").within("1 second", since="a"),  # type: ignore[arg-type]
    ],
    "SKIP_UNKNOWN": [
        lambda: AB.after_match("past_last"),  # type: ignore[arg-type]
        lambda: AB.after_match(skip.past_last),  # type: ignore[arg-type]
    ],
    "WITHIN_TWICE": [
        lambda: AB.within("1 minute").within("2 minutes"),
        lambda: AB.within("1 minute", since="previous").within("1 minute", since="previous"),
    ],
    "WITHIN_TOO_LONG": [lambda: bound(AB.within("1 hour", since="previous").within("1 minute"))],
    "WITHIN_NEGATED": [lambda: bound(begun().not_next("b").within("1 second", since="previous").next("c"))],
    "DURATION_NOT_POSITIVE": [
        lambda: AB.within("0 seconds"),
        lambda: AB.within("-1 minute"),
        lambda: AB.within("0 seconds", since="previous"),
    ],
    "STEP_NAME_TWICE": [
        lambda: bound(begun().next("a")),
        lambda: bound(begun().next(group().begin("b").next("a"))),
    ],
    "NAME_INVALID": [
        lambda: begun().next("b c"),
        lambda: begun().next(5),  # type: ignore[arg-type]
        lambda: begun().next(None),  # type: ignore[arg-type]
    ],
    "STEP_UNKNOWN": [
        lambda: bound(begun().next("b", "n > sum(z.n)")),
        lambda: bound(begun().next("b", "n > z.n")),
        lambda: bound(AB.after_match(skip.to_first("z"))),
        lambda: bound(AB, n="first(z.n)"),
        lambda: bound(AB.not_followed_by("c").followed_by("d").after_match(skip.to_last("c"))),
    ],
    "STEP_NOT_EARLIER": [lambda: bound(pattern("p", key="k").begin("a", "n > b.n").next("b"))],
    "STEP_MISSING": [
        lambda: bound(AB, n="n"),
        lambda: bound(AB, n="count()"),
        lambda: bound(begun().next("b", "n > count()")),
        lambda: bound(AB, n="sum(n)"),
        lambda: bound(AB, n="sum(a.n + b.n)"),
        lambda: bound(begun().next("b", "avg(n) > 1")),
    ],
    "SKIP_LOOPS": [
        lambda: bound(AB.after_match(skip.to_first("a"))),
        lambda: bound(AB.after_match(skip.to_last("a"))),
        lambda: bound(begun().times(1).next("b").after_match(skip.to_first("a"))),
    ],
    "MEASURES_MISSING": [lambda: AB.late(hr.drop()).bind(SCHEMA, "at")],
    "LATE_NOT_CHOSEN": [lambda: AB.select(n="a.n").bind(SCHEMA, "at")],
    "CORRECTIONS_IMPOSSIBLE": [lambda: AB.late(hr.update_for("1 hour"))],
    "RESULT_NAME_TAKEN": [
        lambda: AB.select(k="a.n"),
        lambda: AB.select(matched_at="a.at"),
        lambda: pattern("p", key="matched_at"),
        lambda: pattern("p", key=["k", "waited_for"]),
        lambda: pattern_rules("p", key="rule", output="n BIGINT", rules=hr.rules(key="r")),
        lambda: pattern_rules("p", key="timed_out_at", output="n BIGINT", rules=hr.rules(key="r")),
    ],
    "RULES_DELETED": [lambda: rules_bound(rules={**RULES, "deleted": pl.String()})],
    "COLUMN_UNKNOWN": [
        lambda: bound(begun().next("b", "amount > 1")),
        lambda: bound(AB, n="a.amount"),
        lambda: pattern("p", key="z").begin("a").select(n="a.n").late(hr.drop()).bind(SCHEMA, "at"),
    ],
    "STEP_HIDES_COLUMN": [
        lambda: bound(pattern("p", key="k").begin("place", "place.city = 'x'"), schema=PLACED, n="place.n"),
        lambda: bound(begun().next("place", "n > 1"), schema=PLACED, n="first(place.city)"),
        lambda: bound(begun().next("place", "n > 1"), schema=PLACED, n="count(place.city)"),
    ],
    "KEY_TYPE": [lambda: pattern("p", key="tags").begin("a").select(n="a.n").late(hr.drop()).bind(SCHEMA, "at")],
    "CONDITION_TYPE": [lambda: bound(begun().next("b", "n"))],
    "EXPRESSION_TYPE": [
        lambda: bound(begun().next("b", "kind + a.n > 1")),
        lambda: bound(begun().next("b", "kind > avg(a.n)")),
        lambda: bound(AB, n="max(a.tags)"),
    ],
    "AGGREGATE_TYPE": [lambda: bound(AB, n="sum(a.kind)")],
    "EXPRESSION_UNSUPPORTED": [
        lambda: bound(begun().next("b", "collect_list(a.n) IS NULL")),
        lambda: bound(AB, n="sqrt(a.x)"),
        lambda: bound(AB, n="max(a.n, 2)"),
        lambda: bound(AB, n="count(a.n, a.x)"),
        lambda: bound(begun().next("b", "first(a.kind) LIKE kind")),
        lambda: bound(begun().next("b", "a.kind LIKE a.kind")),
    ],
    "EXPRESSION_UNREADABLE": [lambda: bound(begun().next("b", "n >"))],
    "ELAPSED_OF": [lambda: bound(begun().next("b", "elapsed(1) > 2"))],
    "MOST_TOO_SMALL": [
        lambda: pattern("p", key="k", most=0),
        lambda: pattern("p", key="k", most="5"),  # type: ignore[arg-type]
        lambda: pattern("p", key="k", most=2.5),  # type: ignore[arg-type]
        lambda: pattern_rules("p", key="k", output="n BIGINT", rules=hr.rules(key="r"), most="5"),  # type: ignore[arg-type]
    ],
    "COLUMN_RESERVED": [
        lambda: bound(AB, schema={**SCHEMA, "__time": pl.Int64()}),
        lambda: rules_bound(schema={**SCHEMA, "__time": pl.Int64()}),
        lambda: rules_bound(rules={**RULES, "__time": pl.Int64()}),
    ],
    "PATTERN_TOO_LONG": [lambda: bound(_long())],
    "PATTERN_UNREADABLE": [
        lambda: pattern_from_json("{}"),
        lambda: pattern_from_json("no"),
        lambda: pattern_from_json('{"elements": [{"contiguity": "late", "step": "a"}], "measures": {}}'),
        lambda: pattern_from_json('{"elements": [{"contiguity": "begin"}], "measures": {}}'),
        lambda: pattern_from_json('{"elements": [], "measures": {}, "skip": {"kind": "far"}}'),
        lambda: pattern_from_json('{"elements": [], "measures": {}, "skip": {"kind": "to_last"}}'),
        lambda: pattern_from_json('{"elements": [], "measures": {}, "within": "long"}'),
    ],
}


def _long() -> Pattern:
    step = begun()
    for number in range(70):
        step = step.next(f"s{number}")
    return step


@pytest.mark.parametrize(
    ("id", "define"),
    [
        pytest.param(id, define, id=f"{id}-{number}")
        for id, several in REFUSED.items()
        for number, define in enumerate(several)
    ],
)
def test_a_mistake_is_refused_before_any_data(id: str, define: Callable[[], object]) -> None:
    with pytest.raises(DefinitionError) as refused:
        define()
    assert refused.value.id == id


FULL = (
    pattern("p", key=["k", "kind"], most=10)
    .begin("a", "n > 1")
    .times_or_more(2)
    .consecutive()
    .greedy()
    .next(group().begin("b").followed_by_any("c").times(1, 3))
    .one_or_more()
    .allow_combinations()
    .until("n < 0")
    .followed_by("d", "x > avg(a.x)")
    .within("5 seconds", since="previous")
    .next("f")
    .optional()
    .next("g")
    .not_followed_by("e")
    .within("1 minute")
    .after_match(skip.to_last("d"))
    .select(n="count(a.*)")
    .late(hr.side_output())
)


def test_a_pattern_prints_itself_as_the_code_that_makes_it() -> None:
    printed = repr(FULL.elements and FULL)
    names = {"hr": type("hr", (), {**vars(hr), "pattern": pattern, "group": group, "skip": skip})}
    assert "group().begin('b')" in printed
    hr_made = _made(printed, names)
    assert hr_made == FULL
    assert repr(hr_made) == printed


def _made(code: str, names: Mapping[str, object]) -> object:
    scope: dict[str, object] = dict(names)
    exec(compile(f"made = {code}", "printed", "exec"), scope)
    return scope["made"]


def test_a_definition_is_read_from_its_json_as_it_was() -> None:
    changed = FULL.select(n="count(a.*)", d="d.at")
    ready = changed.definition
    assert pattern_from_json(pattern_to_json(ready)) == ready


def test_every_method_leaves_the_value_before_it_as_it_was() -> None:
    first = begun()
    first.followed_by("b")
    assert [element.step for element in first.elements] == ["a"]


def test_the_automaton_can_be_printed_and_drawn() -> None:
    assert str(AB.automaton) == ("0 a\n    take if a -> 1\n1 b\n    take if b -> match\n    ignore if not b -> 1")
    assert AB.automaton.draw() == (
        "stateDiagram-v2\n"
        "    [*] --> s0\n"
        '    state "0: a" as s0\n'
        "    s0 --> s1 : take if a\n"
        '    state "1: b" as s1\n'
        "    s1 --> [*] : take if b\n"
        "    s1 --> s1 : ignore if not b"
    )


def test_only_rows_and_columns_that_are_needed_travel() -> None:
    operator = bound(AB, n="a.n")
    assert list(operator.partial_schema) == ["k", "__time", "__hits", "__value_0"]
    rows = pl.DataFrame(
        {"k": ["x", "x"], "kind": ["", ""], "n": [1, 5], "x": [0.0, 0.0], "tags": [[], []], "at": [0, 1]}, schema=SCHEMA
    )
    combined = operator.combine(rows, TimeBounds(0, 0))
    assert combined.partials.rows() == [("x", 1, 0b11, 5)]
    assert combined.accepted == 2


def test_the_operator_travels_to_workers_and_works_there() -> None:
    operator = bound(AB.next("c", "x > avg(a.x) AND elapsed() < 5").within("1 minute"), n="sum(b.n)")
    rows = pl.DataFrame(
        {
            "k": ["x"] * 3,
            "kind": [""] * 3,
            "n": [2, 3, 1],
            "x": [1.0, 1.0, 2.0],
            "tags": [[], [], []],
            "at": [0, 1_000_000, 2_000_000],
        },
        schema=SCHEMA,
    )
    bounds = TimeBounds(0, 3_000_000)
    operator.combine(rows, bounds)
    sent = cloudpickle.loads(cloudpickle.dumps(operator))
    applied = sent.apply(pl.DataFrame(schema=sent.state_schema), sent.combine(rows, bounds).partials, bounds)
    assert applied.output["n"].to_list() == [3]
    state = stored(sent, pl.DataFrame(schema=sent.state_schema), applied, bounds)
    assert state["k"].to_list() == ["x"]
    assert next_due(sent, state, bounds) == (61_000_000, None)


def test_matches_held_back_count_too_and_what_holds_them_back_is_dropped_and_counted() -> None:
    step = pattern("p", key="k", most=5).begin("a", "kind = 'a'").followed_by("b", "kind = 'b' AND n = a.n")
    operator = bound(step.after_match(skip.past_last()))
    pairs = [("a", -1), *((kind, number) for number in range(200) for kind in "ab")]
    rows = pl.DataFrame(
        [{"k": "x", "kind": kind, "n": n, "x": 0.0, "tags": [], "at": at} for at, (kind, n) in enumerate(pairs)],
        schema=SCHEMA,
    )
    bounds = TimeBounds(0, 1_000)
    applied = operator.apply(
        pl.DataFrame(schema=operator.state_schema), operator.combine(rows, bounds).partials, bounds
    )
    assert applied.output["n"].to_list() == list(range(200))
    assert applied.counters == {"overflow": 1}
    assert (applied.upserts.height, applied.removed.height) == (0, 0)


def test_a_loop_that_goes_on_stays_whole_though_it_holds_back_too_many_matches() -> None:
    step = (
        pattern("p", key="k", most=6)
        .begin("a", "kind = 'a'")
        .followed_by("b", "kind = 'b'")
        .one_or_more()
        .followed_by("c", "kind = 'c' AND n = a.n")
        .after_match(skip.to_next())
    )
    rows = [("a", 1), *(("b", n) for n in range(3)), ("a", 2), ("b", 3), ("c", 2), ("b", 4), ("b", 5), ("c", 1)]
    frame = pl.DataFrame(
        [{"k": "x", "kind": kind, "n": n, "x": 0.0, "tags": [], "at": at} for at, (kind, n) in enumerate(rows)],
        schema=SCHEMA,
    )
    operator = bound(step, n="a.n", rows="count(b.*)")
    bounds = TimeBounds(0, 1_000)
    applied = operator.apply(
        pl.DataFrame(schema=operator.state_schema), operator.combine(frame, bounds).partials, bounds
    )
    assert applied.output.select("n", "rows").rows() == [(1, 6), (2, 1)]
    assert applied.counters["overflow"] > 0


def test_a_step_named_like_a_struct_column_reads_its_fields_by_the_step_and_the_column() -> None:
    step = pattern("p", key="k").begin("place", "n > 1").next("b", "n > place.n AND place.place.city = 'x'")
    assert bound(step, schema=PLACED, city="place.place.city", n="place.n").output_schema["city"] == pl.String()
