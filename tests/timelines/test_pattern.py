"""Patterns on the wheel: order by event time, late rows, time that runs out, crashes, keys, measures."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

import headrace as hr
from headrace.operators.patterns import skip
from headrace.operators.patterns.pattern import Pattern, pattern
from headrace.testing import at, batch, crash, expect, late_by, play, row, timeline, watermark


def abc(**more: Any) -> Pattern:
    """a, then one or more b, then c, all within ten minutes."""
    return (
        pattern("abc", key="k", **more)
        .begin("a", "kind = 'a'")
        .followed_by("b", "kind = 'b'")
        .one_or_more()
        .greedy()
        .followed_by("c", "kind = 'c'")
        .within("10 minutes")
    )


SUMMED = abc().select(start="a.at", total="sum(b.n)", rows="count(b.*)", end="c.at").late(hr.side_output())
PAIR = (
    pattern("pair", key="k")
    .begin("a", "kind = 'a'")
    .followed_by("b", "kind = 'b'")
    .within("5 minutes")
    .select(a="a.n", b="b.n")
    .late(hr.side_output())
)


@pytest.mark.spark
def test_rows_are_matched_in_event_time_order_however_they_come() -> None:
    timeline(
        SUMMED,
        at("10:04", k="x", kind="c", n=0),
        at("10:02", k="x", kind="b", n=3),
        batch(),
        at("10:00", k="x", kind="a", n=1),
        at("10:01", k="x", kind="b", n=2),
        batch(),
        expect(),
        watermark("10:04:00.000001"),
        expect(k="x", start="10:00", total=5, rows=2, end="10:04", matched_at="10:04"),
    )


@pytest.mark.spark
def test_a_partial_match_survives_crashes_in_its_middle() -> None:
    timeline(
        SUMMED,
        at("10:00", k="x", kind="a", n=1),
        crash(),
        batch(),
        at("10:01", k="x", kind="b", n=2),
        watermark("10:02"),
        crash(),
        at("10:02", k="x", kind="b", n=3),
        crash(),
        watermark("10:03"),
        at("10:04", k="x", kind="c", n=0),
        crash(),
        batch(),
        watermark("10:05"),
        expect(k="x", start="10:00", total=5, rows=2, matched_at="10:04"),
        watermark("11:00"),
        expect(),
    )


def test_a_row_that_time_has_passed_is_late() -> None:
    timeline(
        PAIR,
        at("10:00", k="x", kind="a", n=1),
        watermark("10:02"),
        at("10:01", k="x", kind="b", n=2),
        at("10:02", k="x", kind="b", n=3),
        watermark("10:03"),
        expect(k="x", a=1, b=3, matched_at="10:02"),
        expect(row(k="x", kind="b", n=2, late_by=late_by("1 minute")), output="late"),
    )


@pytest.mark.spark
def test_what_runs_out_of_time_leaves_on_a_quiet_stream_with_what_was_matched() -> None:
    timeline(
        SUMMED,
        at("10:00", k="x", kind="a", n=1),
        at("10:01", k="x", kind="b", n=2),
        at("10:03", k="y", kind="a", n=7),
        watermark("10:09:59"),
        expect(output="timed_out"),
        watermark("10:10"),
        expect(
            row(k="x", start="10:00", total=2, rows=1, end=None, waited_for="c", timed_out_at="10:10"),
            output="timed_out",
        ),
        crash(),
        watermark("11:00"),
        expect(
            row(k="y", start="10:03", total=None, rows=0, end=None, waited_for="b", timed_out_at="10:13"),
            output="timed_out",
        ),
        expect(),
    )


def test_within_is_strict() -> None:
    timeline(
        PAIR,
        at("10:00", k="in", kind="a", n=1),
        at("10:00", k="out", kind="a", n=1),
        at("10:04:59.999999", k="in", kind="b", n=2),
        at("10:05", k="out", kind="b", n=2),
        watermark("10:10"),
        expect(k="in", a=1, b=2, matched_at="10:04:59.999999"),
        expect(row(k="out", a=1, b=None, waited_for="b", timed_out_at="10:05"), output="timed_out"),
    )


@pytest.mark.spark
def test_a_negation_at_the_end_matches_when_the_time_is_over_without_any_row() -> None:
    silent = (
        pattern("silent", key="k")
        .begin("order", "kind = 'order'")
        .not_followed_by("paid", "kind = 'paid'")
        .within("1 hour")
        .select(ordered="order.at")
        .late(hr.drop())
    )
    timeline(
        silent,
        at("10:00", k="x", kind="order"),
        at("10:05", k="y", kind="order"),
        at("10:30", k="y", kind="paid"),
        watermark("10:59:59"),
        expect(),
        crash(),
        watermark("11:00"),
        expect(k="x", ordered="10:00", matched_at="11:00"),
        watermark("20:00"),
        expect(),
        expect(output="timed_out"),
    )


@pytest.mark.spark
def test_conditions_look_at_earlier_steps_and_at_time() -> None:
    testing_a_card = (
        pattern("card_testing", key="card")
        .begin("probe", "amount < 2.0")
        .times_or_more(3)
        .consecutive()
        .greedy()
        .next("take", "amount > 100.0 AND amount > 10 * avg(probe.amount) AND elapsed() < 60")
        .within("10 minutes")
        .after_match(skip.past_last())
        .select(probes="count(probe.*)", mean="avg(probe.amount)", amount="take.amount", took="elapsed()")
        .late(hr.drop())
    )
    timeline(
        testing_a_card,
        *(at(f"10:00:{second:02d}", card="fraud", amount=1.0) for second in (0, 10, 20)),
        at("10:00:50", card="fraud", amount=500.0),
        *(at(f"10:00:{second:02d}", card="slow", amount=1.0) for second in (0, 10, 20)),
        at("10:01:00", card="slow", amount=500.0),
        *(at(f"10:00:{second:02d}", card="two", amount=1.0) for second in (0, 10)),
        at("10:00:20", card="two", amount=500.0),
        watermark("10:30"),
        expect(card="fraud", probes=3, mean=1.0, amount=500.0, took=50.0, matched_at="10:00:50"),
    )


def test_rows_with_equal_times_are_taken_in_the_order_of_their_arrival() -> None:
    timeline(
        PAIR,
        at("10:00", k="x", kind="a", n=1),
        at("10:00", k="x", kind="b", n=2),
        at("10:00", k="y", kind="b", n=3),
        batch(),
        at("10:00", k="y", kind="a", n=4),
        at("10:00", k="y", kind="b", n=5),
        watermark("10:01"),
        expect(row(k="x", a=1, b=2), row(k="y", a=4, b=5)),
    )


@pytest.mark.spark
def test_a_match_held_back_by_an_earlier_one_survives_a_crash() -> None:
    step = (
        pattern("held", key="k")
        .begin("a", "kind IN ('a', 'b')")
        .followed_by_any("c", "kind = 'c'")
        .followed_by("d", "kind = 'd' OR kind = 'e' AND a.kind = 'b'")
        .within("3 minutes")
        .after_match(skip.past_last())
        .select(a="a.n", d="d.n")
        .late(hr.drop())
    )
    timeline(
        step,
        at("10:01", k="x", kind="a", n=1),
        at("10:02", k="x", kind="b", n=2),
        at("10:03", k="x", kind="c", n=3),
        at("10:03:30", k="x", kind="e", n=4),
        watermark("10:03:40"),
        expect(),
        crash(),
        watermark("10:10"),
        expect(k="x", a=2, d=4, matched_at="10:04"),
    )


def test_a_row_that_meets_no_condition_breaks_what_must_follow_directly() -> None:
    strict = (
        pattern("strict", key="k")
        .begin("a", "kind = 'a'")
        .next("b", "kind = 'b'")
        .within("1 hour")
        .select(a="a.n", b="b.n")
        .late(hr.drop())
    )
    timeline(
        strict,
        at("10:00", k="x", kind="a", n=1),
        at("10:01", k="x", kind="z", n=2),
        at("10:02", k="x", kind="b", n=3),
        at("10:03", k="x", kind="a", n=4),
        watermark("10:03:30"),
        at("10:05", k="x", kind="b", n=6),
        at("10:04", k="x", kind="z", n=5),
        at("10:06", k="x", kind="a", n=7),
        batch(),
        at("10:07", k="x", kind="b", n=8),
        watermark("10:10"),
        expect(k="x", a=7, b=8),
    )


def test_what_had_run_out_of_time_before_a_row_broke_it_is_told() -> None:
    strict = (
        pattern("strict", key="k")
        .begin("a", "kind = 'a'")
        .next("b", "kind = 'b'")
        .next("c", "kind = 'c'")
        .within("5 minutes")
        .select(a="a.n", b="b.n")
        .late(hr.drop())
    )
    timeline(
        strict,
        at("10:00", k="x", kind="a", n=1),
        at("10:04:59", k="x", kind="z", n=2),
        at("10:10", k="x", kind="a", n=3),
        at("10:15", k="x", kind="z", n=4),
        at("10:20", k="x", kind="a", n=5),
        at("10:21", k="x", kind="b", n=6),
        at("10:26", k="x", kind="c", n=7),
        watermark("11:00"),
        expect(),
        expect(
            row(k="x", a=3, b=None, waited_for="b", timed_out_at="10:15"),
            row(k="x", a=5, b=6, waited_for="c", timed_out_at="10:25"),
            output="timed_out",
        ),
    )


def test_a_pattern_without_a_key_takes_all_rows_together_and_null_is_a_key() -> None:
    keyless = pattern("all", key=None).begin("a", "kind = 'a'").next("b", "kind = 'b'").select(n="b.n").late(hr.drop())
    timeline(
        keyless.within("5 minutes"),
        at("10:00", kind="a", n=1),
        batch(),
        at("10:01", kind="b", n=2),
        at("10:02", kind="a", n=3),
        watermark("10:03"),
        expect(n=2),
        watermark("10:07"),
        expect(row(n=None, waited_for="b", timed_out_at="10:07"), output="timed_out"),
    )
    timeline(
        PAIR,
        at("10:00", k=None, kind="a", n=1),
        at("10:00", k="x", kind="a", n=2),
        watermark("10:00:30"),
        at("10:01", k=None, kind="b", n=3),
        watermark("10:02"),
        expect(k=None, a=1, b=3),
    )


def test_matches_go_on_time_into_a_following_window() -> None:
    hourly = hr.tumbling("hourly", size="1 hour", key="k").agg(n="count(*)").late(hr.side_output())
    timeline(
        (PAIR, hourly),
        at("10:59", k="x", kind="a", n=1),
        at("11:01", k="x", kind="b", n=1),
        watermark("12:00"),
        watermark("12:01"),
        expect(k="x", window="11:00/12:00", n=1),
        expect(output="late"),
    )


def test_a_pattern_reads_the_results_of_windows() -> None:
    hourly = hr.tumbling("hourly", size="1 hour", key="k").agg(n="count(*)").late(hr.drop())
    rising = (
        pattern("rising", key="k")
        .begin("low", "n < 2")
        .next("high", "n > low.n")
        .within("2 hours")
        .select(since="low.window.start", n="high.n")
        .late(hr.drop())
    )
    timeline(
        (hourly, rising),
        at("10:00", k="x", kind="a"),
        at("11:10", k="x", kind="a"),
        at("11:20", k="x", kind="a"),
        watermark("12:00"),
        watermark("12:01"),
        expect(k="x", since="10:00", n=2, matched_at="11:59:59.999999"),
    )


def test_of_too_many_partial_matches_of_a_key_those_are_dropped_that_have_waited_longest() -> None:
    few = (
        pattern("few", key="k", most=2)
        .begin("a", "kind = 'a'")
        .followed_by("b", "kind = 'b'")
        .within("1 hour")
        .select(a="a.n")
        .late(hr.drop())
    )
    timeline(
        few,
        *(at(f"10:0{minute}", k="x", kind="a", n=minute) for minute in range(4)),
        watermark("10:05"),
        at("10:06", k="x", kind="b", n=6),
        watermark("10:10"),
        expect(row(k="x", a=2), row(k="x", a=3)),
        expect(output="timed_out"),
    )


def test_a_measure_is_typed_as_spark_types_it() -> None:
    step = abc().select(
        first="first(b.n)",
        last="b.n",
        least="min(b.n)",
        most="max(b.n)",
        mean="avg(b.n)",
        known="count(b.n)",
        product="sum(b.price * b.price)",
        shouted="upper(a.kind)",
        none="coalesce(b.nothing, 'none')",
        at="max(b.at)",
    )
    played = play(
        step.late(hr.drop()),
        at("10:00", k="x", kind="a", n=9, price=1.0, nothing=None),
        at("10:01", k="x", kind="b", n=3, price=2.0, nothing=None),
        at("10:02", k="x", kind="b", n=None, price=3.0, nothing=None),
        at("10:03", k="x", kind="b", n=4, price=0.5, nothing=None),
        at("10:04", k="x", kind="c", n=0, price=1.0, nothing=None),
        watermark("11:00"),
    )
    assert played.main == [
        {
            "k": "x",
            "first": 3,
            "last": 4,
            "least": 3,
            "most": 4,
            "mean": 3.5,
            "known": 2,
            "product": 13.25,
            "shouted": "A",
            "none": "none",
            "at": datetime(2026, 1, 1, 10, 3, tzinfo=UTC),
            "matched_at": datetime(2026, 1, 1, 10, 4, tzinfo=UTC),
        }
    ]


def test_a_loop_that_goes_on_stays_whole_though_a_key_has_too_many_partial_matches() -> None:
    looping = (
        pattern("few", key="k", most=10)
        .begin("a", "kind = 'a'")
        .followed_by("b", "kind = 'b'")
        .one_or_more()
        .followed_by("c", "kind = 'c'")
        .select(b="count(b.*)")
        .after_match(skip.past_last())
        .late(hr.drop())
    )
    timeline(
        looping,
        at("10:00", k="x", kind="a"),
        *(at(f"10:{minute}", k="x", kind="b") for minute in range(10, 59)),
        watermark("11:00"),
        at("11:01", k="x", kind="c"),
        watermark("11:02"),
        expect(k="x", b=49),
    )


@pytest.mark.parametrize("quantified", [lambda b: b, lambda b: b.one_or_more(), lambda b: b.times(1, 2)])
@pytest.mark.spark
def test_what_must_not_follow_a_step_for_some_time_is_waited_for_behind_a_loop_too(quantified: Any) -> None:
    calm = quantified(pattern("calm", key="k").begin("a", "kind = 'a'").followed_by("b", "kind = 'b'"))
    calm = calm.not_followed_by("c", "kind = 'c'").within("5 minutes", since="previous")
    timeline(
        calm.select(b="count(b.*)").late(hr.drop()),
        at("10:00", k="x", kind="a"),
        at("10:00", k="y", kind="a"),
        at("10:01", k="x", kind="b"),
        at("10:01", k="y", kind="b"),
        at("10:05:59.999999", k="y", kind="c"),
        crash(),
        watermark("10:06"),
        expect(k="x", b=1, matched_at="10:06"),
        at("10:11", k="x", kind="c"),
        watermark("20:00"),
        expect(),
    )


def test_a_step_behind_a_look_at_the_next_row_runs_out_of_time_on_a_quiet_key() -> None:
    after = (
        pattern("after", key="k").begin("a", "kind = 'a'").not_next("n", "kind = 'n'").followed_by("b", "kind = 'b'")
    )
    limited = after.within("5 minutes", since="previous").select(a="a.at").late(hr.drop())
    played = play(limited, at("10:00", k="x", kind="a"), watermark("10:05"), watermark("20:00"))
    assert [each["timed_out_at"].hour for each in played.outputs["timed_out"]] == [10]


def test_a_look_at_the_next_row_waits_for_it_though_the_step_behind_may_be_missing_and_has_a_limit() -> None:
    looked = pattern("looked", key="k").begin("a", "kind = 'a'").not_next("x", "kind = 'x'")
    optional = looked.followed_by("b", "kind = 'b'").optional().within("2 minutes", since="previous")
    timeline(
        optional.select(b="count(b.*)").late(hr.drop()),
        at("10:00", k="x", kind="a"),
        watermark("10:04"),
        at("10:05", k="x", kind="z"),
        watermark("12:00"),
        expect(k="x", b=0, matched_at="10:05"),
    )


def test_what_must_not_come_in_a_group_counts_on_where_the_groups_last_step_is_missing() -> None:
    inner = hr.group().begin("g", "kind = 'a'").not_followed_by("x", "kind = 'x'").followed_by("h", "kind = 'h'")
    step = (
        pattern("grouped", key="k")
        .begin("s", "kind = 's'")
        .next(inner.optional())
        .followed_by("e", "kind = 'e'")
        .within("1 hour")
        .select(g="count(g.*)", h="count(h.*)")
        .late(hr.drop())
    )
    timeline(
        step,
        *(at(f"10:0{minute}", k="x", kind=kind) for minute, kind in enumerate("sazxe")),
        *(at(f"10:0{minute}", k="y", kind=kind) for minute, kind in enumerate("sazhxe")),
        crash(),
        watermark("12:00"),
        expect(k="y", g=1, h=1),
    )


@pytest.mark.spark
def test_a_row_that_a_negation_forbids_is_no_later_step_be_it_the_last_or_not() -> None:
    calm = pattern("calm", key="k").begin("a", "kind = 'a'").not_followed_by("b", "kind = 'b'")
    last = calm.followed_by("s", "kind IN ('b', 'c')")
    rows = (
        *(at(f"10:0{minute}", k="forbidden", kind=kind) for minute, kind in enumerate("abcd")),
        *(at(f"10:0{minute}", k="allowed", kind=kind) for minute, kind in enumerate("acbd")),
    )
    for step in (last, last.followed_by("d", "kind = 'd'")):
        chosen = step.within("1 hour").select(s="s.kind").late(hr.drop())
        timeline(chosen, *rows, crash(), watermark("12:00"), expect(k="allowed", s="c"))


def test_rows_that_are_a_match_when_the_time_is_over_do_not_run_out_of_time_too() -> None:
    step = (
        pattern("quiet", key="k")
        .begin("s", "kind = 's'")
        .next("a", "kind = 'a'")
        .one_or_more()
        .not_followed_by("b", "kind = 'b'")
        .within("10 minutes")
        .select(a="count(a.*)")
        .late(hr.drop())
    )
    timeline(
        step,
        at("10:00", k="x", kind="s"),
        at("10:01", k="x", kind="a"),
        at("10:02", k="x", kind="z"),
        watermark("10:03"),
        crash(),
        watermark("12:00"),
        expect(k="x", a=1, matched_at="10:10"),
        expect(output="timed_out"),
    )


def test_a_pattern_that_looks_at_any_next_row_waits_for_no_step() -> None:
    looked = pattern("looked", key="k").begin("a", "kind = 'a'").not_next("x", "kind = 'x'").within("5 minutes")
    timeline(
        looked.select(a="a.at").late(hr.drop()),
        at("10:00", k="x", kind="a"),
        watermark("12:00"),
        expect(row(k="x", a="10:00", waited_for=None, timed_out_at="10:05"), output="timed_out"),
    )


def test_skipping_to_the_first_row_of_a_loop_that_begins_the_pattern_keeps_what_begins_later_in_it() -> None:
    loop = pattern("loop", key="k").begin("b", "kind = 'b'").one_or_more().consecutive().next("c", "kind = 'c'")
    timeline(
        loop.within("1 hour").after_match(skip.to_first("b")).select(b="count(b.*)").late(hr.drop()),
        *(at(f"10:0{minute}", k="x", kind=kind) for minute, kind in enumerate("bbbc")),
        watermark("12:00"),
        expect(row(k="x", b=3), row(k="x", b=2), row(k="x", b=1)),
    )


def test_amounts_may_be_decimals() -> None:
    raised = (
        pattern("raised", key="k")
        .begin("probe", "amount < 2.0")
        .times(2)
        .next("take", "amount > 10 * avg(probe.amount)")
        .within("1 hour")
        .select(mean="avg(probe.amount)", taken="take.amount")
        .late(hr.drop())
    )
    timeline(
        raised,
        *(
            at(f"10:0{minute}", k="x", amount=Decimal(amount))
            for minute, amount in enumerate(["1.00", "1.50", "12.51"])
        ),
        *(
            at(f"10:0{minute}", k="y", amount=Decimal(amount))
            for minute, amount in enumerate(["1.00", "1.50", "12.50"])
        ),
        watermark("12:00"),
        expect(k="x", mean=Decimal("1.250000"), taken=Decimal("12.51")),
    )


@pytest.mark.spark
def test_whole_rows_structs_and_lists_are_measures() -> None:
    step = abc().select(
        began="struct(a.*)",
        first="first(struct(b.*))",
        last="last(struct(b.n, b.tags AS labels))",
        tags="b.tags",
        both="struct(a.n AS n, last(b.shop) AS shop)",
    )
    shop = {"name": "mill", "opened": datetime(2026, 1, 1, tzinfo=UTC)}
    began = {"k": "x", "kind": "a", "n": 1, "tags": None, "shop": shop, "at": "10:00"}
    first = {**began, "kind": "b", "n": 2, "tags": ["s", None], "shop": None}
    timeline(
        step.late(hr.drop()),
        at("10:00", k="x", kind="a", n=1, tags=None, shop=shop),
        batch(),
        at("10:01", k="x", kind="b", n=2, tags=["s", None], shop=None),
        watermark("10:01:30"),
        crash(),
        batch(),
        at("10:02", k="x", kind="b", n=3, tags=[], shop=shop),
        at("10:03", k="x", kind="c", n=0, tags=None, shop=None),
        watermark("10:04"),
        expect(
            k="x",
            began=began,
            first={**first, "at": "10:01"},
            last={"n": 3, "labels": []},
            tags=[],
            both={"n": 1, "shop": shop},
        ),
    )
    timeline(
        step.late(hr.drop()),
        at("10:00", k="x", kind="a", n=1, tags=None, shop=shop),
        watermark("12:00"),
        expect(
            k="x",
            began=began,
            first=None,
            last=None,
            tags=None,
            both={"n": 1, "shop": None},
            waited_for="b",
            output="timed_out",
        ),
    )


def test_a_whole_row_names_its_step() -> None:
    with pytest.raises(hr.DefinitionError, match=r"\[STEP_MISSING\] measure 'm': .* Write it as in 'a.\*'"):
        play(abc().select(m="struct(*)").late(hr.drop()), at("10:00", k="x", kind="a", n=1))
