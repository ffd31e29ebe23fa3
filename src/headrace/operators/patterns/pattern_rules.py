"""Patterns read from a second input, as an author says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import polars as pl

from headrace.errors import DefinitionError
from headrace.event_time.lateness import Lateness
from headrace.graph import check_name
from headrace.keys import Key, key_columns, said_key
from headrace.operators.corrections import check_final
from headrace.operators.patterns.by_pattern import TAKEN
from headrace.operators.patterns.by_rules import RuleMatching
from headrace.operators.patterns.pattern import MOST, check_place
from headrace.operators.patterns.rule_intake import RULE, PatternRuleIntake, RulePlace
from headrace.operators.process.rules import DELETED, Rules
from headrace.operators.rows import Rows
from headrace.operators.step import Outputs, check_key, place
from headrace.schemas import parse_ddl, polars_schema
from headrace.wheel.operator import Joined

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, kw_only=True, repr=False)
class PatternRules:
    """A value that becomes an operator once ``late`` is chosen."""

    name: str
    key: tuple[str, ...]
    output: str
    rules: Rules
    most: int = MOST
    lateness: Lateness | None = None

    def late(self, lateness: Lateness) -> Self:
        """Choose what happens to late rows; there is no default."""
        check_final(f"step {self.name!r}", lateness, "matches are not taken back")
        return replace(self, lateness=lateness)

    def __call__(self, frame: DataFrame, rules: DataFrame) -> DataFrame:
        """The matches of all rules."""
        return self.outputs(frame, rules).main

    def outputs(self, frame: DataFrame, rules: DataFrame) -> Outputs:
        """The matches of all rules and, beside them, late rows and what ran out of time."""
        return place(self, self.bind, frame, rules, changelogs=(0,))

    def bind(
        self,
        schema: Mapping[str, pl.DataType],
        time: str,
        rules_schema: Mapping[str, pl.DataType],
        rules_time: str,
    ) -> Joined:
        """The operator that runs over rows and rules of these schemas."""
        if self.lateness is None:
            raise DefinitionError(
                "LATE_NOT_CHOSEN",
                f"step {self.name!r} does not say what happens to late rows, which can no longer be matched. "
                "Add .late(hr.drop()) or .late(hr.side_output()).",
            )
        check_key(self.name, self.key, schema)
        wanted = {self.rules.key: pl.String(), "pattern": pl.String()}
        if any(rules_schema.get(name) != dtype for name, dtype in wanted.items()):
            raise DefinitionError(
                "RULES_COLUMNS",
                f"step {self.name!r}: the rules need the columns {self.rules.key} STRING and pattern STRING, and if "
                f"they can be removed deleted BOOLEAN. Existing columns: {', '.join(rules_schema)}.",
            )
        if rules_schema.get(DELETED, pl.Boolean()) != pl.Boolean():
            raise DefinitionError(
                "RULES_DELETED",
                f"step {self.name!r}: column 'deleted' of the rules is {rules_schema[DELETED]}. It must be BOOLEAN.",
            )
        shared = RulePlace(self.name, self.key, time, tuple(schema.items()), tuple(self._output.items()), self.most)
        _ = shared.rows  # its columns are checked here, before any data is read
        rule_time = Rows(self.name, (), rules_time, dict(rules_schema)).row_time
        intake = PatternRuleIntake(shared, self.rules.key, DELETED in rules_schema, rule_time)
        return RuleMatching(self.name, shared, intake, self.lateness)

    @property
    def _output(self) -> dict[str, pl.DataType]:
        output = polars_schema(parse_ddl(self.output))
        for name in output:
            if name in (RULE, *TAKEN, *self.key):
                raise DefinitionError(
                    "RESULT_NAME_TAKEN",
                    f"step {self.name!r}: output column {name!r} has the name of a key or of a column every match has "
                    f"({', '.join((RULE, *TAKEN))}). Choose another name.",
                )
        return output

    @property
    def fingerprint(self) -> Mapping[str, object]:
        """What must stay the same for the state to stay valid."""
        return {"kind": "pattern_rules", "key": list(self.key), "output": self.output, "rules": self.rules.key}

    @property
    def holds(self) -> str:
        """What the state holds and how long, in words."""
        return (
            f"rules until they are removed; rows that wait for event time; at most {self.most} partial matches of a "
            "key and rule, until complete or out of the rule's time"
        )

    def __repr__(self) -> str:
        said = f"key={said_key(self.key)!r}, output={self.output!r}, rules={self.rules!r}"
        said += "" if self.most == MOST else f", most={self.most}"
        return f"hr.pattern_rules({self.name!r}, {said})" + (
            "" if self.lateness is None else f".late({self.lateness!r})"
        )


def pattern_rules(name: str, *, key: Key, output: str, rules: Rules, most: int = MOST) -> PatternRules:
    """Patterns that are added and removed while the flow runs: each rule row holds one, made by ``to_json()``.

    >>> from headrace.operators.process.rules import rules
    >>> pattern_rules("alerts", key="card", output="n BIGINT", rules=rules(key="rule_id"))
    hr.pattern_rules('alerts', key='card', output='n BIGINT', rules=hr.rules(key='rule_id'))
    """
    check_name("step", name)
    made = PatternRules(name=name, key=key_columns(key), output=output, rules=rules, most=most)
    check_place(f"step {name!r}", made.key, (RULE, *TAKEN), most)
    _ = made._output
    return made
