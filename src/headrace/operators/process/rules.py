"""Rules: a small broadcast input that every key can read, as it was at the time of each row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import polars as pl

from headrace.errors import DefinitionError
from headrace.event_time.record import TimeBounds
from headrace.event_time.strategy import BEGINNING
from headrace.operators.event_time_buffer import OF_KEY, EventTimeBuffer, event_time_order
from headrace.operators.process.context import RuleHistory
from headrace.operators.process.operator import ProcessOperator
from headrace.operators.process.rows import InputRow, input_rows
from headrace.operators.rows import ARRIVAL, TIME, Rows, with_schema
from headrace.stability import stable
from headrace.wheel.operator import Applied, Combined, Uncombined

DELETED = "deleted"
RULE, VERSION = "__rule", "__version"
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
        # A rule without a time is valid; the others wait.
        valid = known.filter((pl.col(ARRIVAL) < VERSION_ROW) & pl.col(TIME).is_null())
        buffered = EventTimeBuffer(self.state_schema, broadcast=True).release(known, second, self._released_by(bounds))
        changes = buffered.rows[event_time_order(buffered.rows)] if self.ordered else buffered.rows
        history = self._history(valid, changes, version)
        applied = self.apply(state.filter(pl.col(ARRIVAL) >= OF_KEY), partials, bounds, history)
        if changes.is_empty():
            return replace(applied, shared=(buffered.stored, known.clear().select(self.identity)))
        after = self._still_valid(valid, changes)
        total = pl.DataFrame({ARRIVAL: [VERSION_ROW], VERSION: [version + changes.height]})
        changed = pl.concat([after.join(valid, on=ARRIVAL, how="anti"), total], how="diagonal")
        gone = valid.join(after, on=ARRIVAL, how="anti").select(self.identity)
        return replace(applied, shared=(pl.concat([with_schema(changed, self.state_schema), buffered.stored]), gone))

    def _history(self, valid: pl.DataFrame, changes: pl.DataFrame, version: int) -> RuleHistory:
        times = changes[TIME].to_list() if self.ordered else [BEGINNING] * changes.height
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
        rules = pl.concat([each.select(ARRIVAL, RULE) for each in (valid, changes)])
        key = pl.col(RULE).struct.field(self.rules_key).alias("__key")
        last = rules.with_columns(key).unique("__key", keep="last", maintain_order=True).drop("__key")
        if DELETED not in self.second.schema:
            return last
        return last.filter(~pl.col(RULE).struct.field(DELETED).fill_null(False))
