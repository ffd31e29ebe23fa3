"""The process step: the user's own code for the rows and timers of each key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from headrace.durations import spoken
from headrace.errors import DefinitionError, check_choice, check_name
from headrace.keys import Key, key_argument, key_columns
from headrace.nodes import DeclaredState
from headrace.operators.process.errors import OnError, Then
from headrace.operators.process.frame_operator import FrameProcessOperator
from headrace.operators.process.frame_process import FrameProcess, check_columns
from headrace.operators.process.keyed_process import KeyedProcess, StatefulProcess, declared_states
from headrace.operators.process.operator import ProcessOperator
from headrace.operators.process.rows import RESERVED_OUTPUTS
from headrace.operators.process.rules import RULES_VERSION, BroadcastRulesInput, Rules, RulesProcessOperator
from headrace.operators.process.value_types import parse_columns
from headrace.operators.rows import Rows
from headrace.operators.step import LateRows, Step
from headrace.stability import stable
from headrace.wheel.operator import AnyOperator

EVENT_TIME = "event_time"
_TIME_DOMAINS = {"event": "event time", "clock": "processing time"}


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

    process: StatefulProcess
    output: str
    side_outputs: Mapping[str, str] = field(default_factory=dict)
    rules: Rules | None = None
    ordered: bool = True
    on_error: OnError

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.rules is None or isinstance(self.rules, Rules)):
            raise self._wrong("RULES_UNKNOWN", f"rules must be hr.rules(key=...) or None, not {self.rules!r}.")
        given = self.side_outputs
        if not isinstance(given, Mapping) or not all(isinstance(each, str) for pair in given.items() for each in pair):
            example = "outputs={'suspects': 'user STRING, failures INT'}"
            raise self._wrong("OUTPUTS_INVALID", f"outputs={given!r} must name outputs and columns, as in {example}.")
        for name in given:
            check_name("output", name)
            if name in RESERVED_OUTPUTS:
                raise self._wrong("OUTPUT_NAME_TAKEN", f"an output cannot be named {name!r}. Choose another name.")
        _ = self._output_columns  # unreadable columns are refused here
        if isinstance(self.process, FrameProcess):
            refused = self._arguments.keys() & {"outputs", "rules", "ordered", "on_error"}
            if refused:
                name = min(refused)
                raise self._wrong(
                    "FRAMES_UNSUPPORTED",
                    f"{name}={self._arguments[name]!r} is not possible with an hr.FrameProcess: it takes rows in "
                    "order, has one output and stops at an error. Leave it out, or use an hr.KeyedProcess.",
                )

    @property
    def inputs(self) -> tuple[str, ...]:
        return ("frame",) if self.rules is None else ("frame", "rules_frame")

    @property
    def _call_hint(self) -> str:
        return super()._call_hint if self.rules else "Call step(frame), or add rules=hr.rules(key=...) for rules."

    def bind(
        self,
        schema: Mapping[str, pl.DataType],
        time: str,
        rules_schema: Mapping[str, pl.DataType] | None = None,
        rules_time: str | None = None,
    ) -> AnyOperator:
        lateness = self._chosen_lateness()
        given = (
            Rows(self.name, self.key, time, dict(schema)),
            self._output_columns,
            self._time_column(schema, time),
            self.ordered,
            self.on_error,
            lateness,
        )
        if isinstance(self.process, FrameProcess):
            if lateness.kind == "deliver":
                raise self._wrong(
                    "FRAMES_UNSUPPORTED",
                    f".late({lateness!r}) is not possible with an hr.FrameProcess, which takes rows in order. Use "
                    "hr.drop() or hr.side_output().",
                )
            check_columns(self.name, self.process, self.key, list(schema))
            return FrameProcessOperator(self.name, self.process, *given)
        if self.rules is None or rules_schema is None or rules_time is None:
            return ProcessOperator(self.name, self.process, *given)
        rule_time = self.rules.time(self.name, rules_schema, rules_time)
        broadcast = BroadcastRulesInput(dict(rules_schema), rule_time)
        return RulesProcessOperator(self.name, self.process, *given, broadcast, self.rules.key)

    @property
    def _output_columns(self) -> dict[str, dict[str, pl.DataType]]:
        declared = {"main": self.output, **self.side_outputs}
        return {name: parse_columns(ddl) for name, ddl in declared.items()}

    def _time_column(self, schema: Mapping[str, pl.DataType], time: str) -> str:
        """The time column of output rows: named as that of the input, unless an output declares that name."""
        declared = {name for columns in self._output_columns.values() for name in columns}
        column = EVENT_TIME if time in declared or isinstance(schema[time], pl.Struct) else time
        clashing = {column, *([RULES_VERSION] if self.rules else [])} & declared
        if clashing:
            taken = ", ".join(sorted(clashing))
            message = f"an output declares {taken}, which every row has already. Choose another name."
            raise self._wrong("OUTPUT_NAME_TAKEN", message)
        return column

    @property
    def states(self) -> tuple[DeclaredState, ...]:
        declared = declared_states(self.process)
        return tuple(DeclaredState(name, each.ttl_config.ttl, each.ttl_config.time) for name, each in declared.items())

    @property
    def _identity(self) -> Mapping[str, object]:
        # Times to live may change.
        states = {name: declared.text for name, declared in declared_states(self.process).items()}
        rules = None if self.rules is None else self.rules.key
        return {"key": list(self.key), "states": states, "ordered": self.ordered, "rules": rules}

    @property
    def state_description(self) -> str:
        states = (
            f"{each.name} for {'ever' if each.ttl is None else f'{spoken(each.ttl)} of {_TIME_DOMAINS[each.time]}'}, "
            for each in self.states
        )
        order = ", rows until event time has passed them"
        without = "; without order, so results may depend on batches"
        return f"{'of each key ' if self.key else ''}{''.join(states)}its timers{order if self.ordered else without}"

    @property
    def _positional(self) -> tuple[str, ...]:
        arguments = ", ".join(f"{name}={value!r}" for name, value in vars(self.process).items())
        return (f"{type(self.process).__name__}({arguments})",)

    @property
    def _arguments(self) -> Mapping[str, object]:
        given = {"outputs": self.side_outputs, "rules": self.rules, "ordered": self.ordered, "on_error": self.on_error}
        defaults: dict[str, object] = {"outputs": {}, "rules": None, "ordered": True, "on_error": OnError(0, "stop")}
        chosen = {name: value for name, value in given.items() if value != defaults[name]}
        return {"key": key_argument(self.key), "output": self.output, **chosen}


@stable
def process(
    name: str,
    process: type[StatefulProcess] | StatefulProcess,
    *,
    key: Key,
    output: str,
    outputs: Mapping[str, str] | None = None,
    rules: Rules | None = None,
    ordered: bool = True,
    on_error: Then | OnError = "stop",
) -> Process:
    """Run your own code, with state and timers, for the rows of each key.

    An ``hr.KeyedProcess`` gets row by row, an ``hr.FrameProcess`` the rows of many keys as one frame. With ``key=None``
    the whole stream is one key, and all of it runs in one slot.

    >>> class Counts(KeyedProcess):
    ...     def on_row(self, row, context):
    ...         yield {"user": context.key}
    >>> process("seen", Counts, key="user", output="user STRING")
    hr.process('seen', Counts(), key='user', output='user STRING')
    """
    if not isinstance(on_error, OnError):
        check_choice(Then, step=name, on_error=on_error)
        on_error = OnError(0, on_error)
    return Process(
        name=name,
        process=_instance(name, process),
        key=key_columns(key, needed_by=None if key is None else name),
        output=output,
        side_outputs={} if outputs is None else outputs,
        rules=rules,
        ordered=ordered,
        on_error=on_error,
    )


def _instance(name: str, given: Any) -> StatefulProcess:
    if isinstance(given, type) and issubclass(given, StatefulProcess):
        called = "on_rows(self, frame, context)" if issubclass(given, FrameProcess) else "on_row(self, row, context)"
        if given.__abstractmethods__:
            raise DefinitionError("PROCESS_INCOMPLETE", f"step {name!r}: {given.__name__} has no {called}. Define it.")
        try:
            given = given()
        except TypeError as error:
            raise DefinitionError(
                "PROCESS_INCOMPLETE",
                f"step {name!r}: {given.__name__} cannot be created without arguments ({error}). Pass an instance, as "
                f"in {given.__name__}(limit=5).",
            ) from error
    if not isinstance(given, KeyedProcess | FrameProcess):
        raise DefinitionError(
            "PROCESS_INCOMPLETE",
            f"step {name!r}: {given!r} is not an hr.KeyedProcess. Pass a class that extends it, or an instance.",
        )
    return given
