"""The operator of pattern rules: patterns come and go while a flow runs, each with its own state over the same rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from operator import itemgetter

import polars as pl

from headrace.errors import DefinitionError
from headrace.event_time.lateness import Lateness
from headrace.event_time.record import TimeBounds
from headrace.event_time.strategy import BEGINNING
from headrace.expressions.operands import common_type
from headrace.operators.patterns.pattern_json import pattern_from_json
from headrace.operators.patterns.pattern_operator import (
    KEY_STATE,
    MATCHED_AT,
    TIME,
    TIMED_OUT,
    TIMED_OUT_AT,
    WAITED_FOR,
    BufferedRows,
    PatternOperator,
    pattern_operator,
)
from headrace.operators.process.rules import BroadcastInput
from headrace.operators.rows import ARRIVAL, Rows, failed_rows, with_schema
from headrace.schemas import MOMENT
from headrace.wheel.codec import decode, encode
from headrace.wheel.key_groups import canonical
from headrace.wheel.operator import Applied, Combined

RULE, PATTERN, ROW, STATE = "rule", "__pattern", "__row", "__state"
VALID = KEY_STATE
"""The arrival number of a rule that is valid; those of changes to come are below it, those of waiting rows above."""


@dataclass(frozen=True)
class RuleContext:
    """What the patterns of a step's rules have in common."""

    step: str
    key: tuple[str, ...]
    time: str
    schema: tuple[tuple[str, pl.DataType], ...]
    output: tuple[tuple[str, pl.DataType], ...]
    most: int

    @property
    def rows(self) -> Rows:
        return Rows(self.step, self.key, self.time, dict(self.schema))


@lru_cache(maxsize=1_024)
def rule_operator(context: RuleContext, text: str) -> PatternOperator:
    """The operator of one rule, or a definition error that says what is wrong with it."""
    definition = pattern_from_json(text)
    definition.check("the rule")
    if not definition.measures:
        raise DefinitionError("MEASURES_MISSING", "the rule has no measures. Add .select(...) to its pattern.")
    operator = pattern_operator(definition, context.rows, context.most, Lateness("drop"))
    output = dict(context.output)
    for name, dtype in operator.pattern.measures.schema.items():
        if name not in output or common_type(dtype, output[name]) != output[name]:
            declared = ", ".join(f"{column} {of}" for column, of in output.items())
            raise DefinitionError(
                "RULE_OUTPUT",
                f"measure {name!r} is {dtype}, but the step's output has {declared}. Give the rule's measures "
                "the names and types of the output.",
            )
    return operator


@dataclass(frozen=True)
class RuleInput(BroadcastInput):
    """The second input: every key group gets all rules; those that cannot be read become dead letters."""

    context: RuleContext
    rule: str
    """The column that identifies a rule."""
    deleted: bool
    """Whether rows can remove a rule."""
    time: pl.Expr

    @property
    def partial_schema(self) -> dict[str, pl.DataType]:
        """Time, rule, and its pattern; without one the rule is removed."""
        return {TIME: pl.Int64(), RULE: pl.String(), PATTERN: pl.String()}

    def combine(self, rows: pl.DataFrame, bounds: TimeBounds) -> Combined:
        """Pass on the rules that can be read; a late one counts from now on."""
        gone = pl.col("deleted").fill_null(False) if self.deleted else pl.lit(False)
        pattern = pl.when(gone).then(None).otherwise(pl.col("pattern").fill_null(""))
        given = rows.select(self.time.alias(TIME), pl.col(self.rule).alias(RULE), pattern.alias(PATTERN))
        problems = pl.Series([self._problem(*each) for each in given.select(RULE, PATTERN).rows()], dtype=pl.String)
        good = given.filter(problems.is_null())
        unusable = rows.filter(problems.is_not_null())
        failed = failed_rows(unusable, pl.lit("RULE_UNREADABLE"), problems.drop_nulls())
        return Combined(good, rows.clear(), good.height, failed=failed)

    def _problem(self, rule: str | None, text: str | None) -> str | None:
        """Why a rule cannot be used, or None."""
        if rule is None:
            return f"[RULE_ID_MISSING] {self.rule} is null, so the rule cannot be identified. Give it a value."
        if text is None:
            return None
        try:
            rule_operator(self.context, text)
        except DefinitionError as error:
            return str(error)
        except Exception as error:
            # Whatever somebody writes into a rule, the flow goes on with the others.
            return f"[PATTERN_UNREADABLE] the pattern cannot be used ({type(error).__name__}: {error}). Simplify it."
        return None


@dataclass(slots=True)
class _Turn:
    """The rules of a key group during a batch, and their results."""

    rules: dict[str, tuple[str, pl.DataFrame, int | None]]
    """Pattern, state and due time of each rule."""
    changed: set[str] = field(default_factory=set)
    output: list[pl.DataFrame] = field(default_factory=list)
    timed_out: list[pl.DataFrame] = field(default_factory=list)
    overflow: int = 0


@dataclass(frozen=True)
class PatternRulesOperator(BufferedRows):
    """Matches rows against every rule that is valid at their time.

    A state row is a waiting row, a valid rule with the state of its operator (an Arrow stream), or a change of a rule
    that event time has not passed.
    """

    name: str
    context: RuleContext
    second: RuleInput
    lateness: Lateness

    @property
    def key(self) -> tuple[str, ...]:
        return self.context.key

    @property
    def identity(self) -> tuple[str, ...]:
        return (*self.key, ARRIVAL, RULE)

    @cached_property
    def _rows(self) -> Rows:
        return self.context.rows

    @cached_property
    def partial_schema(self) -> dict[str, pl.DataType]:
        """Whole rows: which columns the rules read is known only where the rules are."""
        return {**self._rows.keys, TIME: pl.Int64(), ROW: pl.Struct(dict(self.context.schema))}

    @cached_property
    def state_schema(self) -> dict[str, pl.DataType]:
        rule = {RULE: pl.String(), PATTERN: pl.String(), STATE: pl.Binary()}
        return {**self.partial_schema, ARRIVAL: pl.Int64(), **rule}

    @cached_property
    def output_schema(self) -> dict[str, pl.DataType]:
        return {**self._rows.keys, RULE: pl.String(), **dict(self.context.output), MATCHED_AT: MOMENT}

    @cached_property
    def side_schemas(self) -> Mapping[str, Mapping[str, pl.DataType]]:
        late = self._rows.late_output(self.lateness)
        ended = {RULE: pl.String(), **dict(self.context.output), WAITED_FOR: pl.String(), TIMED_OUT_AT: MOMENT}
        return {**late, TIMED_OUT: {**self._rows.keys, **ended}}

    def combine(self, rows: pl.DataFrame, bounds: TimeBounds) -> Combined:
        accepted, late = self._rows.split_late(rows, bounds)
        whole = pl.struct(dict(self.context.schema).keys()).alias(ROW)
        partials = accepted.select(*self.key, self._rows.row_time.alias(TIME), whole)
        return Combined(canonical(partials, self.key), late, accepted.height)

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
        due = changes.filter(passed).sort(TIME, -pl.col(ARRIVAL))
        for time, rule, pattern in due.select(TIME, RULE, PATTERN).rows():
            end = begin + int(rows[begin:].select((pl.col(TIME) < time).sum()).item())
            self._run(turn, rows[begin:end], time, bounds)
            begin = end
            self._change(turn, rule, pattern)
        self._run(turn, rows[begin:], bounds.fire, bounds)
        upserts, gone = self._changed_rules(turn, valid)
        unchanged = valid.join(pl.concat([upserts, gone]), on=RULE, how="anti", nulls_equal=True)
        still = pl.concat([waiting.filter(~passed), changes.filter(~passed)])
        arrived = still.join(state, on=self.identity, how="anti", nulls_equal=True)
        over = state.filter((pl.col(ARRIVAL) != VALID) & passed)
        return Applied(
            pl.concat([unchanged, upserts, still]),
            pl.concat([upserts, arrived]),
            pl.concat([gone, over]).select(self.identity),
            _fitted(turn.output, self.output_schema),
            side={TIMED_OUT: _fitted(turn.timed_out, self.side_schemas[TIMED_OUT])} if turn.timed_out else {},
            counters={"overflow": turn.overflow} if turn.overflow else {},
        )

    def _numbered(self, state: pl.DataFrame, arriving: pl.DataFrame, *, up: bool) -> pl.DataFrame:
        """What arrives, as state rows, numbered behind what waits already: rows upwards, changes downwards."""
        known = pl.concat([state[ARRIVAL], pl.Series([VALID])])
        step = 1 if up else -1
        first = int(known.max() if up else known.min()) + step  # type: ignore[arg-type]
        number = pl.int_range(first, first + step * arriving.height, step, dtype=pl.Int64, eager=True)
        return with_schema(arriving.with_columns(number.alias(ARRIVAL)), self.state_schema)

    def _new_state(self, pattern: str) -> pl.DataFrame:
        return pl.DataFrame(schema=rule_operator(self.context, pattern).state_schema)

    def _stored(self, valid: pl.DataFrame) -> Iterator[tuple[str, tuple[str, pl.DataFrame, int | None]]]:
        for rule, pattern, blob, due in valid.select(RULE, PATTERN, STATE, TIME).rows():
            yield rule, (pattern, self._new_state(pattern) if blob is None else decode([blob]), due)

    def _run(self, turn: _Turn, rows: pl.DataFrame, fire: int, bounds: TimeBounds) -> None:
        """Step all rules through some rows, and let time run."""
        for rule, (pattern, state, due) in turn.rules.items():
            if rows.is_empty() and (due is None or due > fire):
                continue
            operator = rule_operator(self.context, pattern)
            until = TimeBounds(BEGINNING, fire, bounds.before, bounds.clock)
            applied = operator.apply(state, operator.combine(rows.drop(TIME), until).partials, until)
            turn.rules[rule] = (pattern, applied.state, operator.due(applied.state, until).event)
            turn.overflow += applied.counters.get("overflow", 0)
            if applied.upserts.height + applied.removed.height:
                turn.changed.add(rule)
            label = pl.lit(rule).alias(RULE)
            turn.output.append(applied.output.with_columns(label))
            turn.timed_out += [timed_out.with_columns(label) for timed_out in applied.side.values()]

    def _change(self, turn: _Turn, rule: str, pattern: str | None) -> None:
        """Remove a rule, add it, or start it again with another pattern."""
        if pattern is None:
            turn.rules.pop(rule, None)
        elif rule not in turn.rules or turn.rules[rule][0] != pattern:
            turn.rules[rule] = (pattern, self._new_state(pattern), None)
            turn.changed.add(rule)

    def _changed_rules(self, turn: _Turn, valid: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The rules that are different now, and those that are gone."""
        stored = [
            (VALID, due, rule, pattern, None if state.is_empty() else encode(state))
            for rule, (pattern, state, due) in sorted(turn.rules.items(), key=itemgetter(0))
            if rule in turn.changed
        ]
        columns = {name: self.state_schema[name] for name in (ARRIVAL, TIME, RULE, PATTERN, STATE)}
        upserts = with_schema(pl.DataFrame(stored, columns, orient="row"), self.state_schema)
        return upserts, valid.filter(~pl.col(RULE).is_in(list(turn.rules)))


def _fitted(results: list[pl.DataFrame], schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """The results of the rules in the columns of the step; a measure that a rule does not have is null."""
    fitted = (with_schema(each, schema).cast(pl.Schema(schema)) for each in results if not each.is_empty())
    return pl.concat([pl.DataFrame(schema=dict(schema)), *fitted])
