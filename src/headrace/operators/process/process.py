"""A process as an author says it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from headrace.durations import spoken
from headrace.errors import DefinitionError
from headrace.graph import KeptState, check_name
from headrace.keys import key_columns, said_key
from headrace.operators.process.by_key import Processing
from headrace.operators.process.by_rules import RULES_VERSION, RuledProcessing
from headrace.operators.process.declared_types import columns_of
from headrace.operators.process.keyed_process import KeyedProcess, states_of
from headrace.operators.process.on_error import OnError, Then, on_error_of
from headrace.operators.process.outputs import declared_outputs
from headrace.operators.process.rules import DELETED, RuleIntake, Rules
from headrace.operators.rows import Rows
from headrace.operators.step import LateRows, Step, check_key
from headrace.wheel.operator import AnyOperator

EVENT_TIME = "event_time"


@dataclass(frozen=True, kw_only=True, repr=False)
class Process(Step):
    """The user's own code for each key; call ``.late()`` before use."""

    kind = "process"
    changelogs = (0,)
    late_rows = LateRows(
        "hr.drop(), hr.side_output() or hr.deliver()",
        uncorrectable="what a process has emitted is not retracted",
        delivers=True,
    )

    author: KeyedProcess
    output: str
    side_outputs: Mapping[str, str] = field(default_factory=dict)
    rules: Rules | None = None
    ordered: bool = True
    on_error: OnError

    def bind(
        self,
        schema: Mapping[str, pl.DataType],
        time: str,
        rules_schema: Mapping[str, pl.DataType] | None = None,
        rules_time: str | None = None,
    ) -> AnyOperator:
        """The operator that runs over rows of this schema."""
        lateness = self._chosen_lateness()
        if (self.rules is None) != (rules_schema is None):
            raise DefinitionError(
                "RULES_MISMATCH",
                f"step {self.name!r} "
                + (
                    "has rules=..., but got one frame. Call step(frame, rules_frame)."
                    if self.rules
                    else "got a second frame, but has no rules. Add rules=hr.rules(key=...)."
                ),
            )
        check_key(self.name, self.key, schema)
        given = (
            self.name,
            self.author,
            Rows(self.name, self.key, time, dict(schema)),
            {"main": columns_of(self.output), **{name: columns_of(ddl) for name, ddl in self.side_outputs.items()}},
            self._time_column(schema, time),
            self.ordered,
            self.on_error,
            lateness,
        )
        if self.rules is None or rules_schema is None or rules_time is None:
            return Processing(*given)
        _check_rules(self.name, self.rules, rules_schema)
        rule_time = Rows(self.name, (), rules_time, dict(rules_schema)).row_time
        return RuledProcessing(*given, RuleIntake("rules", dict(rules_schema), rule_time), self.rules.key)

    def _time_column(self, schema: Mapping[str, pl.DataType], time: str) -> str:
        """The column in which an output row carries its time: named as that of the input, where the name is free."""
        declared = {name for ddl in (self.output, *self.side_outputs.values()) for name in columns_of(ddl)}
        taken = time in declared or isinstance(schema[time], pl.Struct)
        column = EVENT_TIME if taken else time
        clashing = {column, *([RULES_VERSION] if self.rules else [])} & declared
        if clashing:
            raise DefinitionError(
                "OUTPUT_NAME_TAKEN",
                f"step {self.name!r}: an output declares {', '.join(sorted(clashing))}, which every row carries. "
                "Choose another name.",
            )
        return column

    @property
    def states(self) -> tuple[KeptState, ...]:
        """The declared states with their time to live."""
        return tuple(
            KeptState(name, declared.life.ttl, declared.life.time) for name, declared in states_of(self.author).items()
        )

    @property
    def _identity(self) -> Mapping[str, object]:
        # Times to live may change.
        states = {name: declared.text for name, declared in states_of(self.author).items()}
        rules = None if self.rules is None else self.rules.key
        return {"key": list(self.key), "states": states, "ordered": self.ordered, "rules": rules}

    @property
    def state_description(self) -> str:
        """What the state holds and how long, in words."""
        states = [
            f"{each.name} " + ("for ever" if each.ttl is None else f"for {spoken(each.ttl)} of {_TIMES[each.time]}")
            for each in self.states
        ]
        waiting = ["rows until event time has passed them"] if self.ordered else []
        held = f"of each key {', '.join([*states, 'its timers', *waiting])}"
        return held if self.ordered else f"{held}; without order, so results may depend on batches"

    @property
    def _positional(self) -> tuple[str, ...]:
        return (_said(self.author),)

    @property
    def _arguments(self) -> Mapping[str, object]:
        given: dict[str, object] = {"key": said_key(self.key), "output": self.output}
        given |= {"outputs": dict(self.side_outputs)} if self.side_outputs else {}
        given |= {} if self.rules is None else {"rules": self.rules}
        given |= {} if self.ordered else {"ordered": False}
        given |= {} if self.on_error == OnError(0, "stop") else {"on_error": self.on_error}
        return given


_TIMES = {"event": "event time", "clock": "processing time"}


def process(
    name: str,
    process: type[KeyedProcess] | KeyedProcess,
    *,
    key: str | Sequence[str],
    output: str,
    outputs: Mapping[str, str] | None = None,
    rules: Rules | None = None,
    ordered: bool = True,
    on_error: Then | OnError = "stop",
) -> Process:
    """An author's own code for the rows and timers of each key, with state.

    >>> class Counts(KeyedProcess):
    ...     def on_row(self, row, context):
    ...         yield {"user": context.key}
    >>> process("seen", Counts, key="user", output="user STRING")
    hr.process('seen', Counts(), key='user', output='user STRING')
    """
    check_name("step", name)
    columns = key_columns(key)
    if not columns:
        raise DefinitionError(
            "KEY_MISSING", f"step {name!r}: state is kept for each key. Name the key's columns, as in key='user'."
        )
    if not (rules is None or isinstance(rules, Rules)):
        raise DefinitionError(
            "RULES_UNKNOWN", f"step {name!r}: rules={rules!r} are none. Give hr.rules(key=...), or nothing."
        )
    side = declared_outputs(name, outputs)
    for ddl in (output, *side.values()):
        columns_of(ddl)
    return Process(
        name=name,
        author=_made(name, process),
        key=columns,
        output=output,
        side_outputs=side,
        rules=rules,
        ordered=ordered,
        on_error=on_error_of(on_error, step=name),
    )


def _made(name: str, given: Any) -> KeyedProcess:
    """An instance of the author's class."""
    if isinstance(given, type) and issubclass(given, KeyedProcess):
        if given.on_row is KeyedProcess.on_row:
            raise DefinitionError(
                "PROCESS_INCOMPLETE", f"step {name!r}: {given.__name__} has no on_row(self, row, context). Write it."
            )
        try:
            given = given()
        except TypeError as error:
            raise DefinitionError(
                "PROCESS_INCOMPLETE",
                f"step {name!r}: {given.__name__} cannot be made without arguments ({error}). Give an instance, as in "
                f"{given.__name__}(limit=5).",
            ) from error
    if not isinstance(given, KeyedProcess):
        raise DefinitionError(
            "PROCESS_INCOMPLETE", f"step {name!r}: {given!r} is no hr.KeyedProcess. Give a class that extends it."
        )
    return given


def _check_rules(name: str, rules: Rules, schema: Mapping[str, pl.DataType]) -> None:
    if rules.key not in schema or schema[rules.key].is_nested():
        raise DefinitionError(
            "RULES_KEY",
            f"step {name!r}: {rules!r} names no column of the rules that can be a key. Existing columns: "
            f"{', '.join(schema)}.",
        )
    if schema.get(DELETED, pl.Boolean()) != pl.Boolean():
        raise DefinitionError(
            "RULES_DELETED", f"step {name!r}: column 'deleted' of the rules is {schema[DELETED]}. It must be BOOLEAN."
        )


def _said(author: KeyedProcess) -> str:
    arguments = ", ".join(f"{name}={value!r}" for name, value in vars(author).items())
    return f"{type(author).__name__}({arguments})"
