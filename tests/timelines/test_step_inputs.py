"""Which results of one step another takes: both engines go by the same declarations."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

import headrace as hr
from headrace.operators.step import Step
from headrace.testing import at
from headrace.testing.engine import Setting, schema_of
from headrace.testing.inline import InlineEngine
from headrace.testing.on_spark import SparkEngine

ROW = at("10:00", id=1, name="a", change="insert", position="1")


class Echo(hr.KeyedProcess):
    """Emits every key."""

    def on_row(self, row: Any, context: Any) -> Any:
        yield {"seen": context.key}


async def answer(key: int) -> dict[str, Any]:
    return {"tier": key}


class Levels:
    """A small table."""

    def columns(self) -> dict[str, pl.DataType]:
        return {"id": pl.Int64(), "level": pl.String()}

    def read(self) -> pl.DataFrame:
        return pl.DataFrame(schema=self.columns())


def windows(name: str) -> Any:
    return hr.tumbling(name, size="1 hour", key="id").agg(name="max(name)", position="max(position)")


GIVERS: dict[str, Step] = {
    "final": windows("given").late(hr.side_output()),
    "previewed": windows("given").emit(hr.on_update()).late(hr.drop()),
    "corrected": windows("given").late(hr.update_for("1 hour")),
    "retracted": windows("given").late(hr.update_for("1 hour")).panes(hr.retracting()),
    "discarded": hr.global_window("given", key="id", ttl="1 day")
    .agg(name="max(name)")
    .emit(hr.after_rows(2))
    .panes(hr.discarding())
    .late(hr.drop()),
    "changes": hr.materialize("given", key="id"),
    "grouped changes": hr.table_aggregate("given", key="id").agg(name="max(name)"),
}
TAKERS: dict[str, Any] = {
    "tumbling": hr.tumbling("taken", size="1 hour", key="id").agg(n="count(*)").late(hr.drop()),
    "hopping": hr.hopping("taken", size="1 hour", every="1 minute", key="id").agg(n="count(*)").late(hr.drop()),
    "cumulating": hr.cumulating("taken", step="1 hour", size="1 day", key="id").agg(n="count(*)").late(hr.drop()),
    "session": hr.session("taken", gap="1 hour", key="id").agg(n="count(*)").late(hr.drop()),
    "sliding": hr.sliding("taken", size="1 hour", key="id").agg(n="count(*)").late(hr.drop()),
    "counting": hr.counting("taken", rows=2, key="id", ttl="1 day").agg(n="count(*)").late(hr.drop()),
    "global_window": hr.global_window("taken", key="id", ttl="1 day")
    .agg(n="count(*)")
    .emit(hr.after_rows(2))
    .late(hr.drop()),
    "deduplicate": hr.deduplicate("taken", key="id", within="1 hour").late(hr.drop()),
    "interval_join": hr.interval_join("taken", on="id", between=("0 seconds", "1 hour")).late(hr.drop()),
    "regular_join": hr.regular_join("taken", on="id", ttl="1 day").late(hr.drop()),
    "window_join": hr.window_join("taken", on="id", window="1 hour").late(hr.drop()),
    "temporal_join": hr.temporal_join("taken", on="id", ttl="1 day", versions_late=hr.drop()).late(hr.drop()),
    "table_join": hr.table_join("taken", on="id", left_key="id", right_key="id"),
    "broadcast_join": hr.broadcast_join("taken", Levels(), on="id"),
    "lookup": hr.lookup("taken", answer, on="id", output="tier INT", on_failure="null"),
    "process": hr.process("taken", Echo, key="id", output="seen BIGINT").late(hr.drop()),
    "pattern": hr.pattern("taken", key="id").begin("a", "id > 0").select(n="count(a.*)").late(hr.drop()),
    "pattern_rules": hr.pattern_rules("taken", key="id", output="n BIGINT", rules=hr.rules(key="name")).late(hr.drop()),
    "materialize": hr.materialize("taken", key="id"),
    "table_aggregate": hr.table_aggregate("taken", key="id").agg(n="count(*)"),
    "outbox": hr.outbox("taken", key="id", payload="name"),
}
EVENTS = [
    *("tumbling", "hopping", "cumulating", "session", "sliding", "counting", "global_window", "deduplicate"),
    *("interval_join", "regular_join", "window_join", "temporal_join"),
]
"""Steps that count every row of their first input."""
CHANGES = ["process", "pattern", "materialize", "table_aggregate", "outbox"]
"""Steps that take retractions."""
TWO_INPUTS = ["interval_join", "regular_join", "window_join", "temporal_join", "table_join", "pattern_rules"]


def outcome(engine: str, giver: str, taker: str) -> str | None:
    """The error that refuses a chain of two steps over rows of a changelog; None when it is taken."""
    steps, schema = (GIVERS[giver], TAKERS[taker]), schema_of([ROW], partition=False)
    setting = Setting(steps, hr.event_time("at"), {"left": schema})
    try:
        (InlineEngine if engine == "inline" else SparkEngine)(setting).close()
    except hr.DefinitionError as error:
        return error.id
    return None


@pytest.mark.spark
@pytest.mark.parametrize("taker", EVENTS)
def test_steps_that_count_every_row_refuse_what_is_replaced_later(engine: str, taker: str) -> None:
    assert outcome(engine, "previewed", taker) == "PREVIEWS_INTO_STEP"
    assert outcome(engine, "retracted", taker) == "PREVIEWS_INTO_STEP"
    assert outcome(engine, "changes", taker) == "CHANGELOG_NOT_UNDERSTOOD"
    assert outcome(engine, "grouped changes", taker) == "CHANGELOG_NOT_UNDERSTOOD"


@pytest.mark.spark
@pytest.mark.parametrize("taker", [name for name in EVENTS if not name.endswith("join")])
def test_steps_that_count_every_row_take_what_is_final_or_marked(engine: str, taker: str) -> None:
    assert [outcome(engine, giver, taker) for giver in ("final", "corrected", "discarded")] == [None, None, None]


@pytest.mark.spark
@pytest.mark.parametrize("taker", CHANGES)
def test_steps_that_take_changes_refuse_only_what_is_replaced_without_a_retraction(engine: str, taker: str) -> None:
    assert outcome(engine, "previewed", taker) == "PREVIEWS_INTO_STEP"
    assert outcome(engine, "retracted", taker) is None
    assert outcome(engine, "changes", taker) is None
    assert outcome(engine, "grouped changes", taker) is None


@pytest.mark.spark
@pytest.mark.parametrize("taker", ["table_join", "pattern_rules"])
def test_steps_that_take_changes_on_the_first_of_two_inputs_then_miss_the_second(engine: str, taker: str) -> None:
    assert outcome(engine, "previewed", taker) == "PREVIEWS_INTO_STEP"
    assert [outcome(engine, giver, taker) for giver in ("retracted", "changes")] == ["INPUTS_MISMATCH"] * 2


@pytest.mark.spark
@pytest.mark.parametrize("giver", GIVERS)
def test_a_step_without_state_takes_everything(engine: str, giver: str) -> None:
    assert outcome(engine, giver, "lookup") is None
    assert outcome(engine, giver, "broadcast_join") is None


def test_every_kind_of_step_is_among_them() -> None:
    kinds = {kind.kind for base in Step.__subclasses__() for kind in leaves(base)}
    assert kinds == set(TAKERS)


@pytest.mark.parametrize("taker", TAKERS)
def test_a_step_is_called_with_as_many_frames_as_it_takes(taker: str) -> None:
    step: Step = TAKERS[taker]
    taken = 2 if taker in TWO_INPUTS else 1
    step.check_inputs(taken)
    for given in {0, 1, 2, 3} - {taken}:
        with pytest.raises(hr.DefinitionError, match=rf"\[INPUTS_MISMATCH\] .* but got {given}\. Call step\("):
            step.check_inputs(given)


def leaves(base: type[Step]) -> set[type[Step]]:
    """All kinds of steps."""
    below = base.__subclasses__()
    return {base} if not below else set().union(*map(leaves, below))
