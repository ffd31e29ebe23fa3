"""Patterns that come and go while a flow runs: every rule has its own matching, all read the same rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import polars as pl

from headrace.event_time.lateness import Lateness
from headrace.event_time.record import TimeBounds
from headrace.event_time.strategy import BEGINNING
from headrace.operators.patterns.by_pattern import (
    MATCHED_AT,
    TIMED_OUT,
    TIMED_OUT_AT,
    WAITED_FOR,
)
from headrace.operators.patterns.rule_intake import (
    PATTERN,
    RULE,
    TIME,
    PatternRuleIntake,
    RulePlace,
    rule_matching,
)
from headrace.operators.rows import ARRIVAL, Rows
from headrace.schemas import MOMENT
from headrace.wheel.codec import decode, encode
from headrace.wheel.key_groups import canonical
from headrace.wheel.operator import Applied, Combined, Due

ROW, STATE = "__row", "__state"
VALID = -1
"""The arrival number of a rule that is valid; those of changes to come are below it, those of waiting rows above."""


@dataclass(slots=True)
class _Turn:
    """The rules of a key group during a batch, and what came out of them."""

    rules: dict[str, tuple[str, pl.DataFrame, int | None]]
    """Pattern, state and due time of each rule."""
    changed: set[str] = field(default_factory=set)
    output: list[pl.DataFrame] = field(default_factory=list)
    timed_out: list[pl.DataFrame] = field(default_factory=list)
    overflow: int = 0


@dataclass(frozen=True)
class RuleMatching:
    """Matches rows against every rule that is valid at their time.

    A state row is a waiting row, a rule that is valid with the state of its own matching (an Arrow stream), or a change
    of a rule that event time has not passed.
    """

    name: str
    place: RulePlace
    second: PatternRuleIntake
    lateness: Lateness

    @property
    def key(self) -> tuple[str, ...]:
        """The key columns."""
        return self.place.key

    @property
    def identity(self) -> tuple[str, ...]:
        """A waiting row of a key, or a rule."""
        return (*self.key, ARRIVAL, RULE)

    @property
    def output_time(self) -> str:
        """A match's time is that of the row, or the end of time, that made it certain."""
        return MATCHED_AT

    @cached_property
    def _rows(self) -> Rows:
        return self.place.rows

    @cached_property
    def partial_schema(self) -> dict[str, pl.DataType]:
        """Rows travel whole: which columns the rules read is known only where the rules are."""
        return {**self._rows.keys, TIME: pl.Int64(), ROW: pl.Struct(dict(self.place.schema))}

    @cached_property
    def state_schema(self) -> dict[str, pl.DataType]:
        """Waiting rows, and rules."""
        rule = {RULE: pl.String(), PATTERN: pl.String(), STATE: pl.Binary()}
        return {**self.partial_schema, ARRIVAL: pl.Int64(), **rule}

    @cached_property
    def output_schema(self) -> dict[str, pl.DataType]:
        """Key, which rule, its measures, and when the match was complete."""
        return {**self._rows.keys, RULE: pl.String(), **dict(self.place.output), MATCHED_AT: MOMENT}

    @cached_property
    def side_schemas(self) -> Mapping[str, Mapping[str, pl.DataType]]:
        """Late rows, and what had been matched of partial matches that ran out of time."""
        late = {"late": self._rows.late_schema} if self.lateness.keeps_rows else {}
        told = {RULE: pl.String(), **dict(self.place.output), WAITED_FOR: pl.String(), TIMED_OUT_AT: MOMENT}
        return {**late, TIMED_OUT: {**self._rows.keys, **told}}

    def combine(self, rows: pl.DataFrame, bounds: TimeBounds) -> Combined:
        """Judge lateness."""
        accepted, late = self._rows.split_late(rows, bounds)
        travelling = accepted.select(
            *self.key, self._rows.row_time.alias(TIME), pl.struct(dict(self.place.schema).keys()).alias(ROW)
        )
        return Combined(canonical(travelling, self.key), late, accepted.height)

    def merge(self, partials: pl.DataFrame) -> pl.DataFrame:
        """Rows stay as they are, in the order of their arrival."""
        return partials

    def apply_both(
        self, state: pl.DataFrame, partials: pl.DataFrame, second: pl.DataFrame, bounds: TimeBounds
    ) -> Applied:
        """Take rows and changes of rules in the order of event time, a change before the rows of its time."""
        passed = pl.col(TIME) < bounds.fire
        waiting = pl.concat([state.filter(pl.col(ARRIVAL) > VALID), self._numbered(state, partials, up=True)])
        changes = pl.concat([state.filter(pl.col(ARRIVAL) < VALID), self._numbered(state, second, up=False)])
        valid = state.filter(pl.col(ARRIVAL) == VALID)
        taken = waiting.filter(passed).sort(TIME, ARRIVAL)
        rows = taken[ROW].struct.unnest().with_columns(taken[TIME])
        turn = _Turn(dict(self._stored(valid)))
        begin = 0
        for time, rule, pattern in (
            changes.filter(passed).sort(TIME, -pl.col(ARRIVAL)).select(TIME, RULE, PATTERN).rows()
        ):
            end = begin + int(rows[begin:].select((pl.col(TIME) < time).sum()).item())
            self._run(turn, rows[begin:end], time, bounds)
            begin = end
            self._change(turn, rule, pattern)
        self._run(turn, rows[begin:], bounds.fire, bounds)
        upserts, gone = self._news(turn, valid)
        kept = valid.join(pl.concat([upserts, gone]), on=RULE, how="anti", nulls_equal=True)
        still = pl.concat([waiting.filter(~passed), changes.filter(~passed)])
        arrived = still.join(state, on=self.identity, how="anti", nulls_equal=True)
        over = state.filter((pl.col(ARRIVAL) != VALID) & passed)
        return Applied(
            pl.concat([kept, upserts, still]),
            pl.concat([upserts, arrived]),
            pl.concat([gone, over]).select(self.identity),
            self._together(turn.output, self.output_schema),
            side={TIMED_OUT: self._together(turn.timed_out, self.side_schemas[TIMED_OUT])} if turn.timed_out else {},
            counters={"overflow": turn.overflow} if turn.overflow else {},
        )

    def due(self, state: pl.DataFrame, bounds: TimeBounds) -> Due:
        """The earliest moment at which a row or a change is taken, or a partial match runs out of time."""
        if state.is_empty():
            return Due()
        when = pl.when(pl.col(ARRIVAL) == VALID).then(pl.col(TIME)).otherwise(pl.col(TIME) + 1)
        return Due(state.select(when.min()).item())

    def _numbered(self, state: pl.DataFrame, arriving: pl.DataFrame, *, up: bool) -> pl.DataFrame:
        """What arrives, as state rows, numbered behind what waits already: rows upwards, changes downwards."""
        known = pl.concat([state[ARRIVAL], pl.Series([VALID])])
        step = 1 if up else -1
        first = int(known.max() if up else known.min()) + step  # type: ignore[arg-type]
        number = pl.int_range(first, first + step * arriving.height, step, dtype=pl.Int64, eager=True)
        return self._as_state(arriving.with_columns(number.alias(ARRIVAL)))

    def _as_state(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows.select(
            pl.col(name) if name in rows.columns else pl.lit(None, dtype).alias(name)
            for name, dtype in self.state_schema.items()
        )

    def _stored(self, valid: pl.DataFrame) -> Iterator[tuple[str, tuple[str, pl.DataFrame, int | None]]]:
        for rule, pattern, blob, due in valid.select(RULE, PATTERN, STATE, TIME).rows():
            empty = pl.DataFrame(schema=rule_matching(self.place, pattern).state_schema)
            yield rule, (pattern, empty if blob is None else decode([blob]), due)

    def _run(self, turn: _Turn, rows: pl.DataFrame, fire: int, bounds: TimeBounds) -> None:
        """Step all rules through some rows, and let time run."""
        for rule, (pattern, state, due) in turn.rules.items():
            if rows.is_empty() and (due is None or due > fire):
                continue
            matching = rule_matching(self.place, pattern)
            until = TimeBounds(BEGINNING, fire, bounds.before, bounds.clock)
            applied = matching.apply(state, matching.combine(rows.drop(TIME), until).partials, until)
            turn.rules[rule] = (pattern, applied.state, matching.due(applied.state, until).event)
            turn.overflow += applied.counters.get("overflow", 0)
            if applied.upserts.height + applied.removed.height:
                turn.changed.add(rule)
            told = pl.lit(rule).alias(RULE)
            turn.output.append(applied.output.with_columns(told))
            turn.timed_out += [timed_out.with_columns(told) for timed_out in applied.side.values()]

    def _change(self, turn: _Turn, rule: str, pattern: str | None) -> None:
        """A rule is removed, added, or begins anew with another pattern."""
        if pattern is None:
            turn.rules.pop(rule, None)
        elif rule not in turn.rules or turn.rules[rule][0] != pattern:
            empty = pl.DataFrame(schema=rule_matching(self.place, pattern).state_schema)
            turn.rules[rule] = (pattern, empty, None)
            turn.changed.add(rule)

    def _news(self, turn: _Turn, valid: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The rules that are different now, and those that are gone."""
        stored: list[dict[str, Any]] = []
        for rule in sorted(turn.changed & turn.rules.keys()):
            pattern, state, due = turn.rules[rule]
            blob = None if state.is_empty() else encode(state)
            stored.append({ARRIVAL: VALID, TIME: due, RULE: rule, PATTERN: pattern, STATE: blob})
        columns = {name: self.state_schema[name] for name in (ARRIVAL, TIME, RULE, PATTERN, STATE)}
        upserts = self._as_state(pl.DataFrame(stored, schema=columns))
        return upserts, valid.filter(~pl.col(RULE).is_in(list(turn.rules)))

    def _together(self, found: list[pl.DataFrame], schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
        """What the rules gave, in the columns of the step; what a rule does not say is null."""
        fitted = [
            each.select(
                (pl.col(name) if name in each.columns else pl.lit(None)).cast(dtype).alias(name)
                for name, dtype in schema.items()
            )
            for each in found
            if not each.is_empty()
        ]
        return pl.concat(fitted) if fitted else pl.DataFrame(schema=dict(schema))
