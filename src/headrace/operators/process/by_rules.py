"""A process with rules: rule rows lie in the state of every key group, beside its keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import polars as pl

from headrace.event_time.record import TimeBounds
from headrace.event_time.strategy import BEGINNING, END
from headrace.operators.process.by_key import Processing
from headrace.operators.process.layout import ARRIVAL, DUE, DUE_CLOCK, KEPT
from headrace.operators.process.rows import Row, python_columns, row_class
from headrace.operators.process.rules import DELETED, RULE, TIME, RuleHistory, RuleIntake
from headrace.wheel.operator import Applied

VERSION = "__version"
COUNTED = KEPT - 1
"""The arrival number of the row that counts the changes; those of rules are below it."""
RULES_VERSION = "rules_version"


@dataclass(frozen=True)
class RuledProcessing(Processing):
    """Calls an author's process with the rules that were valid at the time of each row.

    A rule that event time has not passed waits like a row, so all rows of a batch are older than what still waits, and
    of the rules that were valid only the last of each key is kept.
    """

    second: RuleIntake
    rules_key: str

    @cached_property
    def state_schema(self) -> dict[str, pl.DataType]:
        """Keys, rows that wait, rules that are valid or wait, and how many changes there were."""
        rule = {RULE: self.second.partial_schema[RULE], VERSION: pl.Int64()}
        return {**super().state_schema, **rule}

    @property
    def _carried(self) -> dict[str, pl.DataType]:
        return {**super()._carried, RULES_VERSION: pl.Int64()}

    def apply_both(
        self, state: pl.DataFrame, partials: pl.DataFrame, second: pl.DataFrame, bounds: TimeBounds
    ) -> Applied:
        """Rules first, then rows and timers."""
        known = state.filter(pl.col(ARRIVAL) < KEPT)
        counted = int(known.filter(pl.col(ARRIVAL) == COUNTED)[VERSION].sum())
        stored = known.filter(pl.col(ARRIVAL) < COUNTED)
        following = COUNTED - 1 if stored.is_empty() else int(stored.select(pl.col(ARRIVAL).min()).item()) - 1
        numbers = range(following, following - second.height, -1)
        arrived = self._rule_rows(numbers, {DUE: second[TIME] + 1, RULE: second[RULE]})
        # A rule without a due time is valid; all others have not had their turn.
        valid = stored.filter(pl.col(DUE) == END)
        open_rules = pl.concat([stored.filter(pl.col(DUE) < END).sort(ARRIVAL, descending=True), arrived])
        passed = pl.col(DUE) <= bounds.fire if self.ordered else pl.lit(True)
        changes = open_rules.filter(passed).sort(DUE, maintain_order=True) if self.ordered else open_rules
        applied = self._handled(
            state.filter(pl.col(ARRIVAL) >= KEPT), partials, bounds, self._history(valid, changes, counted)
        )
        return self._with_rules(applied, known, valid, changes, open_rules.filter(~passed), counted)

    def _rule_rows(self, numbers: Sequence[int], columns: Mapping[str, pl.Series]) -> pl.DataFrame:
        """State rows that belong to no key."""
        never = pl.Series([END] * len(numbers), dtype=pl.Int64)
        arrival = pl.Series(numbers, dtype=pl.Int64)
        return self._as_state({DUE: never, DUE_CLOCK: never, ARRIVAL: arrival, **columns})

    def _history(self, valid: pl.DataFrame, changes: pl.DataFrame, counted: int) -> RuleHistory:
        times = (changes[DUE] - 1).to_list() if self.ordered else [BEGINNING] * changes.height
        return RuleHistory(
            {key: rule for key, rule in self._keyed(valid) if rule is not None},
            counted,
            [(time, key, rule) for time, (key, rule) in zip(times, self._keyed(changes), strict=True)],
        )

    def _keyed(self, rules: pl.DataFrame) -> list[tuple[Any, Row | None]]:
        """Each rule with its key; None for one that removes."""
        columns: Mapping[str, pl.DataType] = self.second.schema
        flat = rules[RULE].struct.unnest()
        made = list(map(row_class(columns), zip(*python_columns(flat[name] for name in columns), strict=True)))
        removed = flat[DELETED].fill_null(False).to_list() if DELETED in columns else [False] * flat.height
        keys = flat[self.rules_key].to_list()
        return [(key, None if gone else rule) for key, rule, gone in zip(keys, made, removed, strict=True)]

    def _with_rules(
        self,
        applied: Applied,
        known: pl.DataFrame,
        valid: pl.DataFrame,
        changes: pl.DataFrame,
        waiting: pl.DataFrame,
        counted: int,
    ) -> Applied:
        """What is kept of the rules, in the state beside everything else."""
        total = counted + changes.height
        key = pl.col(RULE).struct.field(self.rules_key)
        standing = (
            pl.concat([valid, changes.with_columns(pl.lit(END, pl.Int64).alias(DUE))])
            .with_columns(key.alias("__key"))
            .unique("__key", keep="last", maintain_order=True)
            .drop("__key")
        )
        if DELETED in self.second.schema:
            standing = standing.filter(~pl.col(RULE).struct.field(DELETED).fill_null(False))
        count = self._rule_rows([COUNTED], {VERSION: pl.Series([total], dtype=pl.Int64)})
        kept = pl.concat([standing, waiting, *([count] if total else [])])
        news = kept.join(known, on=[ARRIVAL, DUE, VERSION], how="anti", nulls_equal=True)
        gone = known.join(kept, on=ARRIVAL, how="anti").select(self.identity)
        return replace(
            applied,
            state=pl.concat([applied.state, kept]),
            upserts=pl.concat([applied.upserts, news]),
            removed=pl.concat([applied.removed, gone]),
        )
