"""Mistakes in the definition of a process, all told before any data is read; and what its identity says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl
import pytest

import headrace as hr
from headrace.nodes import DeclaredState
from headrace.operators.process.keyed_process import declared_states

SCHEMA: dict[str, pl.DataType] = {"user": pl.String(), "tags": pl.List(pl.String()), "at": pl.Datetime("us", "UTC")}


class Seen(hr.KeyedProcess):
    """Knows users."""

    seen = hr.value_state("INT", ttl="1 day")

    def on_row(self, row: Any, context: Any) -> None:
        self.seen.set(1)


class Limited(Seen):
    """Needs an argument."""

    def __init__(self, limit: int) -> None:
        self.limit = limit


class Instance(Seen):
    """Declares a state where only one object would have it."""

    def __init__(self) -> None:
        self.more = hr.value_state("INT", ttl="1 day")


class Overwritten(Seen):
    """Takes the name of a state for a setting."""

    def __init__(self) -> None:
        self.seen = 7  # type: ignore[assignment]


@dataclass
class Annotated(hr.KeyedProcess):
    """Assigns to each annotated name when it is made, the declared state among them."""

    limit: int = 3
    seen: Any = Seen.seen

    def on_row(self, row: Any, context: Any) -> None:
        self.seen.set(1)


class Framed(hr.FrameProcess):
    """The same over frames."""

    last = hr.value_state("INT", ttl="1 day")
    quiet = hr.timer()

    def on_rows(self, frame: pl.DataFrame, context: Any) -> pl.DataFrame:
        return frame


class Listing(Framed):
    """Declares a state that is no column."""

    recent = hr.list_state("INT", ttl="1 day")


def framed(process: Any = Framed, **more: Any) -> Any:
    return seen(process, **more).late(hr.drop())


def seen(process: Any = Seen, **more: Any) -> Any:
    return hr.process("seen", process, **{"key": "user", "output": "user STRING", **more})


@pytest.mark.parametrize(
    ("mistake", "error"),
    [
        (lambda: hr.value_state("INT"), "TTL_MISSING"),
        (lambda: hr.value_state("INT", ttl="1 day", keep_forever=True), "TTL_TWICE"),
        (lambda: hr.value_state("INT", ttl="0 days"), "DURATION_NOT_POSITIVE"),
        (lambda: hr.value_state("INT", ttl="1 day", ttl_time="wall"), "TTL_UNKNOWN"),  # type: ignore[arg-type]
        (lambda: hr.value_state("INT", ttl="1 day", refresh="never"), "TTL_UNKNOWN"),  # type: ignore[arg-type]
        (lambda: hr.value_state("WHOLE", ttl="1 day"), "SCHEMA_UNREADABLE"),
        (lambda: hr.value_state("INT, b STRING", ttl="1 day"), "SCHEMA_UNREADABLE"),
        (lambda: hr.value_state(["INT"], ttl="1 day"), "SCHEMA_UNREADABLE"),  # type: ignore[arg-type]
        (lambda: hr.map_state("STRING, b INT", "INT", ttl="1 day"), "SCHEMA_UNREADABLE"),
        (lambda: hr.value_state("INT NOT NULL", ttl="1 day"), "NULLS_UNCHECKED"),
        (lambda: hr.map_state("INT NOT NULL", "INT", ttl="1 day"), "NULLS_UNCHECKED"),
        (lambda: hr.list_state("ARRAY<STRUCT<a: INT NOT NULL>>", ttl="1 day"), "NULLS_UNCHECKED"),
        (lambda: hr.value_state("INT", ttl=5), "DURATION_UNREADABLE"),  # type: ignore[arg-type]
        (lambda: hr.list_state("MAP<STRING, INT>", ttl="1 day"), "SCHEMA_UNSUPPORTED"),
        (lambda: hr.list_state("INT", ttl="1 day", most=0), "MOST_NOT_POSITIVE"),
        (lambda: hr.list_state("INT", ttl="1 day", most="many"), "MOST_NOT_POSITIVE"),  # type: ignore[arg-type]
        (lambda: hr.map_state("ARRAY<INT>", "INT", ttl="1 day"), "MAP_KEY_TYPE"),
        (lambda: hr.reducing_state("INT", 7, ttl="1 day"), "REDUCER_UNKNOWN"),  # type: ignore[arg-type]
        (lambda: hr.aggregating_state("sum", ttl="1 day"), "ACCUMULATOR_UNKNOWN"),  # type: ignore[arg-type]
        (lambda: hr.aggregating_state(dict, ttl="1 day"), "ACCUMULATOR_UNKNOWN"),  # type: ignore[arg-type]
        (lambda: seen(7), "PROCESS_INCOMPLETE"),
        (lambda: seen(dict), "PROCESS_INCOMPLETE"),
        (lambda: seen(hr.KeyedProcess), "PROCESS_INCOMPLETE"),
        (lambda: seen(Limited), "PROCESS_INCOMPLETE"),
        (lambda: seen(hr.FrameProcess), "PROCESS_INCOMPLETE"),
        (lambda: seen(Framed, ordered=False), "FRAMES_UNSUPPORTED"),
        (lambda: seen(Framed, on_error="dead_letter"), "FRAMES_UNSUPPORTED"),
        (lambda: seen(Framed, outputs={"x": "user STRING"}), "FRAMES_UNSUPPORTED"),
        (lambda: seen(Framed, rules=hr.rules(key="user")), "FRAMES_UNSUPPORTED"),
        (lambda: seen(Framed).late(hr.deliver()).bind(SCHEMA, "at"), "FRAMES_UNSUPPORTED"),
        (lambda: framed(Listing).bind(SCHEMA, "at"), "STATE_NOT_A_COLUMN"),
        (lambda: framed().bind({**SCHEMA, "last": pl.Int64()}, "at"), "COLUMN_RESERVED"),
        (lambda: framed().bind({**SCHEMA, "quiet": pl.Int64()}, "at"), "COLUMN_RESERVED"),
        (lambda: framed().bind({**SCHEMA, "emit": pl.Int64()}, "at"), "COLUMN_RESERVED"),
        (lambda: framed(key="timer").bind({**SCHEMA, "timer": pl.Int64()}, "at"), "COLUMN_RESERVED"),
        (lambda: Framed().last, "STATE_OUT_OF_REACH"),
        (lambda: seen(key=[]), "KEY_MISSING"),
        (lambda: seen(output="user"), "SCHEMA_UNREADABLE"),
        (lambda: seen(output=7), "SCHEMA_UNREADABLE"),
        (lambda: seen(output="user STRING NOT NULL"), "NULLS_UNCHECKED"),
        (lambda: seen(outputs={"more": "part STRUCT<a: INT NOT NULL>"}), "NULLS_UNCHECKED"),
        (lambda: seen(outputs=["x"]), "OUTPUTS_INVALID"),
        (lambda: seen(outputs="x INT"), "OUTPUTS_INVALID"),
        (lambda: seen(outputs={7: "x INT"}), "OUTPUTS_INVALID"),
        (lambda: seen(outputs={"x": 7}), "OUTPUTS_INVALID"),
        (lambda: seen(outputs={"late": "user STRING"}), "OUTPUT_NAME_TAKEN"),
        (lambda: seen(outputs={"main": "user STRING"}), "OUTPUT_NAME_TAKEN"),
        (lambda: seen(outputs={"state": "user STRING"}), "OUTPUT_NAME_TAKEN"),
        (lambda: seen(outputs={"not a name": "user STRING"}), "NAME_INVALID"),
        (lambda: seen(on_error="ignore"), "ON_ERROR_UNKNOWN"),
        (lambda: hr.retry(0, then="stop"), "ON_ERROR_UNKNOWN"),
        (lambda: hr.retry(1.5, then="stop"), "ON_ERROR_UNKNOWN"),  # type: ignore[arg-type]
        (lambda: hr.retry("3", then="stop"), "ON_ERROR_UNKNOWN"),  # type: ignore[arg-type]
        (lambda: hr.retry(True, then="stop"), "ON_ERROR_UNKNOWN"),
        (lambda: seen(on_error=["stop"]), "ON_ERROR_UNKNOWN"),
        (lambda: seen(rules="id"), "RULES_UNKNOWN"),
        (lambda: hr.rules(key=["id"]), "RULES_KEY"),  # type: ignore[arg-type]
        (lambda: hr.retry(1, then="ignore"), "ON_ERROR_UNKNOWN"),  # type: ignore[arg-type]
        (lambda: seen().late(hr.update_for("1 minute")), "CORRECTIONS_IMPOSSIBLE"),
        (lambda: seen().bind(SCHEMA, "at"), "LATE_NOT_CHOSEN"),
        (lambda: seen(key="nobody").late(hr.drop()).bind(SCHEMA, "at"), "COLUMN_UNKNOWN"),
        (lambda: seen(key="tags").late(hr.drop()).bind(SCHEMA, "at"), "KEY_TYPE"),
        (lambda: seen(key="__due").late(hr.drop()).bind({**SCHEMA, "__due": pl.Int64()}, "at"), "COLUMN_RESERVED"),
        (
            lambda: (
                seen(rules=hr.rules(key="user")).late(hr.drop()).bind(SCHEMA, "at", {**SCHEMA, "__x": pl.Int64()}, "at")
            ),
            "COLUMN_RESERVED",
        ),
        (lambda: seen(output="at DATE, event_time DATE").late(hr.drop()).bind(SCHEMA, "at"), "OUTPUT_NAME_TAKEN"),
        (
            lambda: (
                seen(output="rules_version INT", rules=hr.rules(key="user"))
                .late(hr.drop())
                .bind(SCHEMA, "at", SCHEMA, "at")
            ),
            "OUTPUT_NAME_TAKEN",
        ),
        (lambda: Seen().seen.get(), "STATE_OUT_OF_REACH"),
        (lambda: seen(Instance), "STATE_NOT_IN_CLASS"),
        (lambda: seen(Overwritten), "STATE_ASSIGNED"),
    ],
)
def test_a_mistake_has_an_id_of_its_own(mistake: Any, error: str) -> None:
    with pytest.raises(hr.DefinitionError) as raised:
        mistake()
    assert raised.value.id == error


def test_a_process_may_be_a_dataclass() -> None:
    assert seen(Annotated).states == (DeclaredState("seen", 86_400_000_000, "event"),)
    assert repr(seen(Annotated(limit=5))).startswith("hr.process('seen', Annotated(limit=5), key='user'")


def test_states_say_how_long_they_live() -> None:
    class Several(Seen):
        clocked = hr.list_state("INT", ttl="1 second", ttl_time="clock")
        kept = hr.map_state("STRING", "INT", keep_forever=True)

    assert seen(Several).states == (
        DeclaredState("clocked", 1_000_000, "clock"),
        DeclaredState("kept", None, "event"),
        DeclaredState("seen", 86_400_000_000, "event"),
    )
    assert seen(Several).state_description == (
        "of each key clocked for 1 second of processing time, kept for ever, seen for 1 day of event time, its timers, "
        "rows until event time has passed them"
    )


def test_states_are_ordered_by_name_because_a_class_that_travels_may_forget_their_order() -> None:
    class Many(Seen):
        last = hr.value_state("INT", ttl="1 day")
        first = hr.map_state("STRING", "INT", ttl="1 day")
        between = hr.list_state("INT", ttl="1 day")

    assert list(declared_states(Many())) == ["between", "first", "last", "seen"]


def test_the_identity_of_a_process_is_its_key_its_states_and_its_order() -> None:
    class Longer(hr.KeyedProcess):
        seen = hr.value_state("INT", ttl="2 days", refresh="read_and_write")

        def on_row(self, row: Any, context: Any) -> None:
            """Other code."""

    class Other(Longer):
        seen = hr.value_state("BIGINT", ttl="1 day")

    class Clocked(Longer):
        seen = hr.value_state("INT", ttl="1 day", ttl_time="clock")

    known = seen().fingerprint
    assert known == {
        "kind": "process",
        "key": ["user"],
        "states": {"seen": "value INT by event"},
        "ordered": True,
        "rules": None,
    }
    assert seen(Longer, output="x INT", on_error="dead_letter").fingerprint == known
    assert seen(Other).fingerprint != known
    assert seen(Clocked).fingerprint != known
    assert seen(ordered=False).fingerprint != known
    assert seen(rules=hr.rules(key="id")).fingerprint != known
