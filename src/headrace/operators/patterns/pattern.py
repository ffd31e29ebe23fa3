"""The steps of patterns: one that the code builds, and patterns that come as rules from a second input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

import polars as pl

from headrace.durations import Duration, positive_microseconds, spoken
from headrace.keys import Key, key_argument, key_columns
from headrace.operators.patterns.automaton import Automaton
from headrace.operators.patterns.chain import Chain
from headrace.operators.patterns.compiler import compile_automaton
from headrace.operators.patterns.definition import PatternDefinition
from headrace.operators.patterns.pattern_json import pattern_to_json
from headrace.operators.patterns.pattern_operator import RESULT_COLUMNS, PatternOperator
from headrace.operators.patterns.rules_operator import RULE, PatternRulesOperator, RuleContext, RuleInput
from headrace.operators.patterns.skip import Skip
from headrace.operators.process.rules import Rules
from headrace.operators.rows import Rows
from headrace.operators.step import FINAL, LateRows, Step
from headrace.schemas import parse_ddl, polars_schema
from headrace.stability import experimental, stable
from headrace.wheel.operator import Joined, Operator

MOST = 1_000


@dataclass(frozen=True, kw_only=True, repr=False)
class MatchingStep(Step):
    """What both steps of patterns share."""

    changelogs = (0,)
    late_rows = LateRows(FINAL, consequence="which can no longer be matched", uncorrectable="matches are not retracted")

    result_columns: ClassVar[tuple[str, ...]] = RESULT_COLUMNS
    """The columns that results have beside the key and what the user selects."""

    most: int = MOST

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self.most) is not int or self.most < 1:
            message = f"most={self.most!r} must be a whole number of at least 1, the partial matches a key may have."
            raise self._wrong("MOST_TOO_SMALL", message)
        self._check_free("key column", self.key, self.result_columns)

    @property
    def _arguments(self) -> Mapping[str, object]:
        return {} if self.most == MOST else {"most": self.most}


@dataclass(frozen=True, kw_only=True, repr=False)
class Pattern(Chain, MatchingStep):
    """A pattern of rows; call ``.select()`` and ``.late()`` before use."""

    kind = "pattern"

    length: int | None = None
    skip: Skip = Skip("none")  # noqa: RUF009 - frozen
    measures: tuple[tuple[str, str], ...] = ()

    def within(self, duration: Duration, *, since: Literal["first", "previous"] = "first") -> Self:
        """The last row comes less than this long after the first; or the latest step's after the row before it."""
        if since != "first":
            return super().within(duration, since=since)
        if self.length is not None:
            raise self._wrong(
                "WITHIN_TWICE", f"it has .within({spoken(self.length)!r}) already. Leave out one of them."
            )
        return replace(self, length=positive_microseconds(duration, argument="within"))

    def after_match(self, skip: Skip) -> Self:
        """Choose what becomes of matches that overlap one; the default is ``hr.skip.none()``."""
        if not isinstance(skip, Skip):
            raise self._wrong(
                "SKIP_UNKNOWN",
                f".after_match({skip!r}) is not a skip strategy. Use one of hr.skip, as in hr.skip.past_last().",
            )
        return replace(self, skip=skip)

    def select(self, **measures: str) -> Self:
        """The measures of a match, as SQL text over its steps: ``total="sum(b.amount)"``."""
        self._check_free("measure", measures, (*self.result_columns, *self.key))
        return replace(self, measures=tuple(measures.items()))

    def bind(self, schema: Mapping[str, pl.DataType], time: str) -> Operator:
        lateness, definition = self._chosen_lateness(), self._checked
        if not self.measures:
            raise self._wrong("MEASURES_MISSING", "it has no measures. Add .select(...), as in n='count(a.*)'.")
        rows = Rows(self.name, self.key, time, dict(schema))
        return PatternOperator(rows, definition, self.most, lateness)

    @property
    def definition(self) -> PatternDefinition:
        """The pattern without its place in a pipeline."""
        return PatternDefinition(self.elements, self.length, self.skip, self.measures)

    @property
    def _checked(self) -> PatternDefinition:
        self.definition.check(self._label)
        return self.definition

    @property
    def automaton(self) -> Automaton:
        """The compiled pattern: ``print`` it, or ``draw()`` it as Mermaid text."""
        return compile_automaton(self._checked.elements)

    def to_json(self) -> str:
        """The pattern as text for a rule of ``hr.pattern_rules``."""
        return pattern_to_json(self._checked)

    @property
    def _identity(self) -> Mapping[str, object]:
        return {"key": list(self.key), "pattern": pattern_to_json(self.definition)}

    @property
    def horizon(self) -> int:
        """How far apart in event time the rows of a match may be."""
        return self.length or 0

    @property
    def state_description(self) -> str:
        until = "complete" if self.length is None else f"complete or {spoken(self.length)} old"
        return f"rows that wait for event time; at most {self.most} partial matches of a key, until {until}"

    @property
    def _label(self) -> str:
        return f"pattern {self.name!r}"

    @property
    def _arguments(self) -> Mapping[str, object]:
        return {"key": key_argument(self.key), **super()._arguments}

    @property
    def _calls(self) -> tuple[str, ...]:
        length = "" if self.length is None else f".within({spoken(self.length)!r})"
        skip = "" if self.skip.kind == "none" else f".after_match({self.skip!r})"
        measures = ", ".join(f"{name}={text!r}" for name, text in self.measures)
        return (*map(repr, self.elements), length, skip, f".select({measures})" if measures else "", self._late_call)


@dataclass(frozen=True, kw_only=True, repr=False)
class PatternRules(MatchingStep):
    """Patterns that come as rules; call ``.late()`` before use."""

    kind = "pattern_rules"

    result_columns = (RULE, *RESULT_COLUMNS)

    output: str
    rules: Rules

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self._output  # unreadable columns are refused here

    @property
    def inputs(self) -> tuple[str, ...]:
        return ("frame", "rules_frame")

    def bind(
        self,
        schema: Mapping[str, pl.DataType],
        time: str,
        rules_schema: Mapping[str, pl.DataType],
        rules_time: str,
    ) -> Joined:
        lateness = self._chosen_lateness()
        wanted = {self.rules.key: pl.String(), "pattern": pl.String()}
        if any(rules_schema.get(name) != dtype for name, dtype in wanted.items()):
            raise self._wrong(
                "RULES_COLUMNS",
                f"the rules need the columns {self.rules.key} STRING and pattern STRING, and if "
                f"they can be removed deleted BOOLEAN. Existing columns: {', '.join(rules_schema)}.",
            )
        context = RuleContext(self.name, self.key, time, tuple(schema.items()), tuple(self._output.items()), self.most)
        _ = context.rows  # its columns are checked here, before any data is read
        rule_time = self.rules.time(self.name, rules_schema, rules_time)
        second = RuleInput(context, self.rules.key, rule_time)
        return PatternRulesOperator(self.name, context, second, lateness)

    @property
    def _output(self) -> dict[str, pl.DataType]:
        output = polars_schema(parse_ddl(self.output))
        self._check_free("output column", output, (*self.result_columns, *self.key))
        return output

    @property
    def _identity(self) -> Mapping[str, object]:
        return {"key": list(self.key), "output": self.output, "rules": self.rules.key}

    @property
    def state_description(self) -> str:
        return (
            f"rules until they are removed; rows that wait for event time; at most {self.most} partial matches of a "
            "key and rule, until complete or out of the rule's time"
        )

    @property
    def _arguments(self) -> Mapping[str, object]:
        return {"key": key_argument(self.key), "output": self.output, "rules": self.rules, **super()._arguments}


@stable
def pattern(name: str, *, key: Key, most: int = MOST) -> Pattern:
    """A sequence of rows of a key to look for; ``most`` is how many partial matches a key may have.

    >>> pattern("guessed", key="user").begin("fail", "NOT ok").times(3).next("hit", "ok").within("1 minute")
    hr.pattern('guessed', key='user').begin('fail', 'NOT ok').times(3).next('hit', 'ok').within('1 minute')
    """
    return Pattern(name=name, key=key_columns(key), most=most)


@experimental
def pattern_rules(name: str, *, key: Key, output: str, rules: Rules, most: int = MOST) -> PatternRules:
    """Patterns that are added and removed while the flow runs: each rule row holds one, made by ``to_json()``.

    >>> from headrace.operators.process.rules import rules
    >>> pattern_rules("alerts", key="card", output="n BIGINT", rules=rules(key="rule_id"))
    hr.pattern_rules('alerts', key='card', output='n BIGINT', rules=hr.rules(key='rule_id'))
    """
    return PatternRules(name=name, key=key_columns(key), output=output, rules=rules, most=most)
