"""Rules of a process: a second input that every key can read, as it was at the time of each row."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from pyspark import cloudpickle

import headrace as hr
from headrace.testing import at, batch, clock, crash, expect, play, row, timeline, watermark

# Spark's workers cannot import this module, so they get its classes whole.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Limits(hr.KeyedProcess):
    """Tells which limits a row is above."""

    def on_row(self, row: Any, context: Any) -> Any:
        above = sorted(name for name, rule in context.rules.items() if row.n > rule.most)
        yield {"user": context.key, "above": " ".join(above)}


def limits(**more: Any) -> Any:
    given = {"key": "user", "output": "user STRING, above STRING", "rules": hr.rules(key="rule"), **more}
    return hr.process("limits", Limits, **given).late(hr.side_output())


def rule(time: str, name: str, most: int | None = None, *, deleted: bool = False) -> Any:
    return at(time, side="right", rule=name, most=most, deleted=deleted)


@pytest.mark.spark
def test_a_row_sees_the_rules_that_were_valid_at_its_time_whatever_their_arrival() -> None:
    timeline(
        limits(),
        rule("10:10", "low", 100),
        rule("10:00", "low", 1),
        at("10:20", user="a", n=50),
        at("10:05", user="a", n=50),
        at("09:59", user="b", n=50),
        rule("10:15", "high", 40),
        watermark("11:00"),
        expect(
            row(user="b", above="", rules_version=0, at="09:59"),
            row(user="a", above="low", rules_version=1, at="10:05"),
            row(user="a", above="high", rules_version=3, at="10:20"),
        ),
    )


def test_a_rule_is_valid_for_rows_of_its_own_time() -> None:
    timeline(
        limits(),
        at("10:00", user="a", n=5),
        at("09:59:59.999999", user="a", n=5),
        rule("10:00", "low", 1),
        watermark("10:01"),
        expect(row(user="a", above="", rules_version=0), row(user="a", above="low", rules_version=1)),
    )


@pytest.mark.spark
def test_rules_are_replaced_and_removed_while_the_flow_runs_and_survive_crashes() -> None:
    timeline(
        limits(),
        rule("10:00", "low", 1),
        rule("10:00", "high", 10),
        at("10:01", user="a", n=5),
        watermark("10:02"),
        expect(user="a", above="low", rules_version=2),
        crash(),
        rule("10:03", "high", 3),
        at("10:04", user="a", n=5),
        crash(),
        watermark("10:05"),
        expect(user="a", above="high low", rules_version=3),
        rule("10:06", "low", deleted=True),
        at("10:07", user="a", n=5),
        at("10:07", user="new", n=5),
        watermark("10:08"),
        expect(
            row(user="a", above="high", rules_version=4),
            row(user="new", above="high", rules_version=4),
        ),
        rule("10:09", "high", deleted=True),
        watermark("10:10"),
        crash(),
        at("10:11", user="a", n=5),
        watermark("10:12"),
        expect(user="a", above="", rules_version=5),
    )


def test_rows_wait_for_the_rules_to_come_as_far() -> None:
    timeline(
        limits(),
        at("10:05", user="a", n=5),
        rule("09:00", "low", 1),
        watermark("10:10", side="left"),
        expect(),
        rule("10:04", "low", 9),
        watermark("10:10", side="right"),
        expect(user="a", above="", rules_version=2),
    )


def test_a_rule_that_waits_is_not_seen_before_its_time() -> None:
    timeline(
        limits(),
        rule("10:30", "low", 1),
        at("10:05", user="a", n=5),
        watermark("10:10"),
        expect(user="a", above="", rules_version=0),
        crash(),
        at("10:35", user="a", n=5),
        watermark("10:40"),
        expect(user="a", above="low", rules_version=1),
    )


def test_a_late_rule_counts_from_now_on() -> None:
    timeline(
        limits(),
        rule("10:00", "low", 1),
        at("10:05", user="a", n=5),
        watermark("10:10"),
        expect(user="a", above="low", rules_version=1),
        rule("10:01", "low", 9),
        at("10:11", user="a", n=5),
        watermark("10:20"),
        expect(user="a", above="", rules_version=2),
    )


@pytest.mark.streamed
def test_without_order_the_rules_of_a_batch_come_before_its_rows_whatever_their_times() -> None:
    timeline(
        limits(ordered=False),
        at("10:05", user="a", n=5),
        batch(),
        expect(user="a", above="", rules_version=0),
        at("10:05", user="a", n=5),
        rule("10:30", "low", 1),
        rule("10:20", "low", 2),
        batch(),
        expect(user="a", above="low", rules_version=2),
        crash(),
        at("10:05", user="a", n=2),
        batch(),
        expect(user="a", above="", rules_version=2),
    )


def test_a_timer_sees_the_rules_of_its_time() -> None:
    class Later(hr.KeyedProcess):
        def on_row(self, row: Any, context: Any) -> None:
            context.set_timer("later", after="10 minutes")

        def on_timer(self, timer: Any, context: Any) -> Any:
            yield {"user": context.key, "above": ",".join(f"{key}={rule.most}" for key, rule in context.rules.items())}

    step = hr.process("later", Later, key="user", output="user STRING, above STRING", rules=hr.rules(key="rule"))
    timeline(
        step.late(hr.drop()),
        at("10:00", user="a"),
        rule("10:10", "low", 1),
        rule("10:11", "low", 2),
        watermark("11:00"),
        expect(user="a", above="low=1", rules_version=1, at="10:10"),
    )


def test_side_outputs_carry_the_version_too() -> None:
    class Aside(hr.KeyedProcess):
        def on_row(self, row: Any, context: Any) -> Any:
            yield hr.output("aside", {"n": len(context.rules)})

    step = hr.process(
        "aside", Aside, key="user", output="x INT", outputs={"aside": "n INT"}, rules=hr.rules(key="rule")
    ).late(hr.drop())
    played = play(step, rule("10:00", "low", 1), at("10:01", user="a"), watermark("11:00"))
    assert [(each["n"], each["rules_version"]) for each in played.aside] == [(1, 1)]


def test_rules_cannot_be_changed_by_the_authors_code() -> None:
    class Changing(hr.KeyedProcess):
        def on_row(self, row: Any, context: Any) -> Any:
            context.rules["low"] = None

    step = hr.process("changing", Changing, key="user", output="x INT", rules=hr.rules(key="rule")).late(hr.drop())
    with pytest.raises(hr.HeadraceError, match="does not support item assignment"):
        play(step, rule("10:00", "low", 1), at("10:01", user="a"), watermark("11:00"))


def test_a_step_with_rules_needs_a_second_frame_and_one_without_takes_none() -> None:
    with pytest.raises(hr.DefinitionError, match=r"\[TIMELINE_SIDE_EMPTY\] step 'limits' takes 2 inputs"):
        play(limits(), at("10:01", user="a", n=1))
    with pytest.raises(hr.DefinitionError, match=r"\[INPUTS_MISMATCH\] .* got 2\. .* add rules="):
        play(limits(rules=None), at("10:01", user="a", n=1), rule("10:00", "low"))
    with pytest.raises(hr.DefinitionError, match=r"\[RULES_KEY\] step 'limits': hr.rules\(key='id'\) names no column"):
        play(limits(rules=hr.rules(key="id")), at("10:01", user="a", n=1), rule("10:00", "low"))
    with pytest.raises(
        hr.DefinitionError, match=r"\[RULES_DELETED\] step 'limits': column 'deleted' of the rules is Str"
    ):
        play(limits(), at("10:01", user="a", n=1), at("10:00", side="right", rule="low", deleted="no"))


@pytest.mark.spark
def test_rows_wait_for_rules_that_may_still_come_until_the_rules_are_idle() -> None:
    timeline(
        limits(),
        clock("2026-01-02T08:00:00"),
        rule("10:00", "low", 1),
        at("10:01", user="a", n=5),
        batch(),
        clock("2026-01-02T08:00:40"),
        at("10:02", user="a", n=0),
        at("10:03", user="a", n=0),
        batch(),
        clock("2026-01-02T08:00:59"),
        at("10:04", user="a", n=0),
        batch(),
        expect(),
        clock("2026-01-02T08:01:00"),
        batch(),
        expect(row(user="a", above="low"), row(user="a", above=""), row(user="a", above="")),
        rule("09:00", "old", -1),
        at("10:05", user="a", n=0),
        batch(),
        clock("2026-01-02T08:02:00"),
        at("10:06", user="a", n=0),
        batch(),
        batch(),
        expect(row(user="a", above="old", at="10:04"), row(user="a", above="old", at="10:05")),
        event_time=hr.event_time("at", idle="1 minute"),
    )
