"""The pattern rules step: patterns that come from a second input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from headrace.errors import DefinitionError
from headrace.graph import check_name
from headrace.keys import Key, key_argument, key_columns
from headrace.operators.patterns.pattern import LATE_ROWS, MOST, check_arguments
from headrace.operators.patterns.pattern_operator import RESULT_COLUMNS
from headrace.operators.patterns.rules_operator import RULE, PatternRulesOperator, RuleContext, RuleInput
from headrace.operators.process.rules import DELETED, Rules
from headrace.operators.rows import Rows
from headrace.operators.step import Step, check_key
from headrace.schemas import parse_ddl, polars_schema
from headrace.stability import experimental
from headrace.wheel.operator import Joined


@dataclass(frozen=True, kw_only=True, repr=False)
class PatternRules(Step):
    """Patterns that come as rules; call ``.late()`` before use."""

    kind = "pattern_rules"
    changelogs = (0,)
    late_rows = LATE_ROWS

    output: str
    rules: Rules
    most: int = MOST

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
        """The operator that runs over rows and rules of these schemas."""
        lateness = self._chosen_lateness()
        check_key(self.name, self.key, schema)
        wanted = {self.rules.key: pl.String(), "pattern": pl.String()}
        if any(rules_schema.get(name) != dtype for name, dtype in wanted.items()):
            raise DefinitionError(
                "RULES_COLUMNS",
                f"step {self.name!r}: the rules need the columns {self.rules.key} STRING and pattern STRING, and if "
                f"they can be removed deleted BOOLEAN. Existing columns: {', '.join(rules_schema)}.",
            )
        self.rules.check(self.name, rules_schema)
        context = RuleContext(self.name, self.key, time, tuple(schema.items()), tuple(self._output.items()), self.most)
        _ = context.rows  # its columns are checked here, before any data is read
        rule_time = Rows(self.name, (), rules_time, dict(rules_schema)).row_time
        second = RuleInput(context, self.rules.key, DELETED in rules_schema, rule_time)
        return PatternRulesOperator(self.name, context, second, lateness)

    @property
    def _output(self) -> dict[str, pl.DataType]:
        output = polars_schema(parse_ddl(self.output))
        for name in output:
            if name in (RULE, *RESULT_COLUMNS, *self.key):
                raise DefinitionError(
                    "RESULT_NAME_TAKEN",
                    f"step {self.name!r}: output column {name!r} has the name of a key or of a column of every match "
                    f"({', '.join((RULE, *RESULT_COLUMNS))}). Choose another name.",
                )
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
        most = {} if self.most == MOST else {"most": self.most}
        return {"key": key_argument(self.key), "output": self.output, "rules": self.rules, **most}


@experimental
def pattern_rules(name: str, *, key: Key, output: str, rules: Rules, most: int = MOST) -> PatternRules:
    """Patterns that are added and removed while the flow runs: each rule row holds one, made by ``to_json()``.

    >>> from headrace.operators.process.rules import rules
    >>> pattern_rules("alerts", key="card", output="n BIGINT", rules=rules(key="rule_id"))
    hr.pattern_rules('alerts', key='card', output='n BIGINT', rules=hr.rules(key='rule_id'))
    """
    check_name("step", name)
    made = PatternRules(name=name, key=key_columns(key), output=output, rules=rules, most=most)
    check_arguments(f"step {name!r}", made.key, (RULE, *RESULT_COLUMNS), most)
    _ = made._output
    return made
