"""Rules: a small broadcast input that every key can read, as it was at the time of each row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import polars as pl

from headrace.errors import DefinitionError
from headrace.event_time.record import TimeBounds
from headrace.event_time.strategy import BEGINNING, END
from headrace.operators.process.context import RuleHistory
from headrace.operators.process.operator import ProcessOperator
from headrace.operators.process.rows import InputRow, input_rows
from headrace.operators.process.state_layout import ARRIVAL, DUE, DUE_CLOCK, OF_KEY
from headrace.operators.rows import Rows, arrivals, with_schema
from headrace.stability import stable
from headrace.wheel.operator import Applied, Combined, Uncombined

DELETED = "deleted"
TIME, RULE, VERSION = "__time", "__rule", "__version"
VERSION_ROW = OF_KEY - 1
"""The arrival number of the state row that counts the changes; those of rules are below it."""
RULES_VERSION = "rules_version"


@dataclass(frozen=True, slots=True)
class Rules:
    """The declaration of a rules input."""

    key: str

    def time(self, step: str, schema: Mapping[str, pl.DataType], time: str) -> pl.Expr:
        """The time of a rule row, once the columns of the rules are checked."""
        if self.key not in schema or schema[self.key].is_nested():
            raise DefinitionError(
                "RULES_KEY",
                f"step {step!r}: {self!r} names no column of the rules that can be a key. Existing columns: "
                f"{', '.join(schema)}.",
            )
        if schema.get(DELETED, pl.Boolean()) != pl.Boolean():
            raise DefinitionError(
                "RULES_DELETED",
                f"step {step!r}: column 'deleted' of the rules is {schema[DELETED]}. It must be BOOLEAN.",
            )
        return Rows(step, (), time, dict(schema)).row_time

    def __repr__(self) -> str:
        return f"hr.rules(key={self.key!r})"


@stable
def rules(*, key: str) -> Rules:
    """Rules as rows of a second input: the last row of a key is valid; a row with ``deleted`` true removes the rule.

    >>> rules(key="rule_id")
    hr.rules(key='rule_id')
    """
    if not isinstance(key, str):
        raise DefinitionError(
            "RULES_KEY", f"hr.rules(key={key!r}): the key of rules is one column. Name it, as in key='rule_id'."
        )
    return Rules(key)


class BroadcastInput(Uncombined):
    """The broadcast input of rules: every slot gets all of them, and none is late."""

    name = "rules"
    broadcast = True
    late_output = "late_rules"
    key: tuple[str, ...] = ()


@dataclass(frozen=True)
class BroadcastRulesInput(BroadcastInput):
    """The rules of a process, sent whole."""

    schema: Mapping[str, pl.DataType]
    time: pl.Expr
    """The time of a rule row in microseconds."""

    @property
    def partial_schema(self) -> dict[str, pl.DataType]:
        return {TIME: pl.Int64(), RULE: pl.Struct(dict(self.schema))}

    def combine(self, rows: pl.DataFrame, bounds: TimeBounds) -> Combined:
        """Rules are sent as they are; a late one is valid from now on."""
        partials = rows.select(self.time.alias(TIME), pl.struct(self.schema.keys()).alias(RULE))
        return Combined(partials, rows.clear(), rows.height)


@dataclass(frozen=True)
class RulesProcessOperator(ProcessOperator):
    """Calls a process with the rules that were valid at the time of each row.

    Rules lie in the shared state, which all slots see. A rule ahead of the watermark waits like a row, so all
    rows of a batch are older than what still waits, and of the valid rules only the last of each key is stored.
    """

    second: BroadcastRulesInput
    rules_key: str

    @cached_property
    def state_schema(self) -> dict[str, pl.DataType]:
        return {**super().state_schema, RULE: self.second.partial_schema[RULE], VERSION: pl.Int64()}

    @property
    def _added(self) -> dict[str, pl.DataType]:
        return {**super()._added, RULES_VERSION: pl.Int64()}

    def apply_both(
        self, state: pl.DataFrame, partials: pl.DataFrame, second: pl.DataFrame, bounds: TimeBounds
    ) -> Applied:
        """Apply rules first, then rows and timers."""
        known = state.filter(pl.col(ARRIVAL) < OF_KEY)
        version = int(known.filter(pl.col(ARRIVAL) == VERSION_ROW)[VERSION].sum())
        stored = known.filter(pl.col(ARRIVAL) < VERSION_ROW)
        arrived = self._rule_rows(
            VERSION_ROW - arrivals(bounds, second.height), {DUE: second[TIME] + 1, RULE: second[RULE]}
        )
        # A rule without a due time is valid; the others wait.
        valid = stored.filter(pl.col(DUE) == END)
        open_rules = pl.concat([stored.filter(pl.col(DUE) < END).sort(ARRIVAL, descending=True), arrived])
        passed = pl.col(DUE) <= bounds.fire if self.ordered else pl.lit(True)
        changes = open_rules.filter(passed).sort(DUE, maintain_order=True) if self.ordered else open_rules
        history = self._history(valid, changes, version)
        applied = self.apply(state.filter(pl.col(ARRIVAL) >= OF_KEY), partials, bounds, history)
        total = version + changes.height
        count = self._rule_rows(pl.Series([VERSION_ROW], dtype=pl.Int64), {VERSION: pl.Series([total], dtype=pl.Int64)})
        after = pl.concat([self._still_valid(valid, changes), open_rules.filter(~passed), *([count] if total else [])])
        changed = after.join(known, on=[ARRIVAL, DUE, VERSION], how="anti", nulls_equal=True)
        gone = known.join(after, on=ARRIVAL, how="anti").select(self.identity)
        return replace(applied, shared=(changed, gone))

    def _rule_rows(self, numbers: pl.Series, columns: Mapping[str, pl.Series]) -> pl.DataFrame:
        """State rows that belong to no key."""
        never = pl.repeat(END, len(numbers), dtype=pl.Int64, eager=True)
        rows = pl.DataFrame({DUE: never, DUE_CLOCK: never, ARRIVAL: numbers, **columns})
        return with_schema(rows, self.state_schema)

    def _history(self, valid: pl.DataFrame, changes: pl.DataFrame, version: int) -> RuleHistory:
        times = (changes[DUE] - 1).to_list() if self.ordered else [BEGINNING] * changes.height
        return RuleHistory(
            {key: rule for key, rule in self._keyed(valid) if rule is not None},
            version,
            [(time, key, rule) for time, (key, rule) in zip(times, self._keyed(changes), strict=True)],
        )

    def _keyed(self, rules: pl.DataFrame) -> list[tuple[Any, InputRow | None]]:
        """Each rule with its key; None for one that is deleted."""
        flat = rules[RULE].struct.unnest()
        made = input_rows(flat.get_columns())
        deleted = flat[DELETED].fill_null(False).to_list() if DELETED in flat.columns else [False] * flat.height
        keys = flat[self.rules_key].to_list()
        return [(key, None if gone else rule) for key, rule, gone in zip(keys, made, deleted, strict=True)]

    def _still_valid(self, valid: pl.DataFrame, changes: pl.DataFrame) -> pl.DataFrame:
        """The last rule of each key that is not deleted."""
        rules = pl.concat([valid, changes.with_columns(pl.lit(END, pl.Int64).alias(DUE))])
        key = pl.col(RULE).struct.field(self.rules_key).alias("__key")
        last = rules.with_columns(key).unique("__key", keep="last", maintain_order=True).drop("__key")
        if DELETED not in self.second.schema:
            return last
        return last.filter(~pl.col(RULE).struct.field(DELETED).fill_null(False))
