"""The operator of pattern rules: patterns come and go while a flow runs, each with its own state over the same rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import polars as pl

from headrace.errors import DefinitionError
from headrace.event_time.lateness import Lateness
from headrace.event_time.record import TimeBounds
from headrace.event_time.strategy import BEGINNING
from headrace.expressions.operands import common_type
from headrace.key_hash import canonical
from headrace.operators.event_time_buffer import OF_KEY, RELEASED_AT, EventTimeBuffer, event_time_order
from headrace.operators.patterns.partial_match_codec import MATCHES_AS_TEXT, values_as_text, values_from_text
from headrace.operators.patterns.pattern_json import pattern_from_json
from headrace.operators.patterns.pattern_operator import (
    MATCHED_AT,
    TIMED_OUT,
    TIMED_OUT_AT,
    WAITED_FOR,
    PatternOperator,
)
from headrace.operators.process.rules import DELETED, BroadcastInput
from headrace.operators.rows import ARRIVAL, TIME, Rows, failed_rows, with_schema
from headrace.schemas import MOMENT
from headrace.wheel.operator import Applied, Combined, Due, Uncombined, together

RULE, PATTERN, ROW, VERSION = "rule", "__pattern", "__row", "__version"
VALID = OF_KEY - 1
"""The arrival number of a rule that is valid; those of changes to come are below it."""


@dataclass(frozen=True)
class RuleContext:
    """What the patterns of a step's rules have in common."""

    step: str
    key: tuple[str, ...]
    time: str
    schema: tuple[tuple[str, pl.DataType], ...]
    output: tuple[tuple[str, pl.DataType], ...]
    most: int

    @cached_property
    def rows(self) -> Rows:
        return Rows(self.step, self.key, self.time, dict(self.schema))


@lru_cache(maxsize=1_024)
def rule_operator(context: RuleContext, text: str) -> PatternOperator:
    """The operator of one rule, or a definition error that says what is wrong with it."""
    definition = pattern_from_json(text)
    definition.check("the rule")
    if not definition.measures:
        raise DefinitionError("MEASURES_MISSING", "the rule has no measures. Add .select(...) to its pattern.")
    operator = PatternOperator(context.rows, definition, context.most, Lateness("drop"))
    output = dict(context.output)
    for name, dtype in operator.measures.schema.items():
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
    """The second input: every slot gets all rules; those that cannot be read become dead letters."""

    context: RuleContext
    rule: str
    """The column that identifies a rule."""
    time: pl.Expr

    @property
    def partial_schema(self) -> dict[str, pl.DataType]:
        """Time, rule, and its pattern; without one the rule is removed."""
        return {TIME: pl.Int64(), RULE: pl.String(), PATTERN: pl.String()}

    def combine(self, rows: pl.DataFrame, bounds: TimeBounds) -> Combined:
        """Pass on the rules that can be read; a late one counts from now on."""
        gone = pl.col(DELETED).fill_null(False) if DELETED in rows.columns else pl.lit(False)
        pattern = pl.when(gone).then(None).otherwise(pl.col("pattern").fill_null(""))
        given = rows.select(self.time.alias(TIME), pl.col(self.rule).alias(RULE), pattern.alias(PATTERN))
        problems = pl.Series([self._problem(*each) for each in given.select(RULE, PATTERN).rows()], dtype=pl.String)
        good = given.filter(problems.is_null())
        unusable = rows.filter(problems.is_not_null())
        failed = failed_rows(unusable, pl.lit("RULE_UNREADABLE"), problems.drop_nulls())
        return Combined(good, rows.clear(), good.height, failed=failed)

    def _problem(self, rule: str | None, text: str | None) -> str | None:
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


@dataclass(frozen=True, slots=True)
class _Rule:
    """A rule that is valid from one of a batch's rows on."""

    name: str
    pattern: str
    version: int
    begin: int = 0


@dataclass(frozen=True)
class PatternRulesOperator(Uncombined):
    """Matches rows against every rule that is valid at their time.

    Of a key the state has its waiting rows, and one row for each rule with the partial matches of its pattern. Beside
    them all slots see the valid rules, and the changes of rules that event time has not passed. A rule that is
    replaced gets another version; partial matches of an earlier one no longer count.
    """

    name: str
    context: RuleContext
    second: RuleInput
    lateness: Lateness

    output_time = MATCHED_AT

    @property
    def key(self) -> tuple[str, ...]:
        return self.context.key

    @property
    def identity(self) -> tuple[str, ...]:
        return (*self.key, ARRIVAL, RULE)

    @cached_property
    def partial_schema(self) -> dict[str, pl.DataType]:
        """Whole rows: which columns the rules read is known only where the rules are."""
        return {**self.context.rows.keys, TIME: pl.Int64(), ROW: pl.Struct(dict(self.context.schema))}

    @cached_property
    def state_schema(self) -> dict[str, pl.DataType]:
        rule = {ARRIVAL: pl.Int64(), RULE: pl.String(), PATTERN: pl.String(), VERSION: pl.Int64()}
        return {**self.partial_schema, **rule, **MATCHES_AS_TEXT}

    @cached_property
    def output_schema(self) -> dict[str, pl.DataType]:
        return {**self.context.rows.keys, RULE: pl.String(), **dict(self.context.output), MATCHED_AT: MOMENT}

    @cached_property
    def side_schemas(self) -> Mapping[str, Mapping[str, pl.DataType]]:
        late = self.context.rows.late_output(self.lateness)
        ended = {RULE: pl.String(), **dict(self.context.output), WAITED_FOR: pl.String(), TIMED_OUT_AT: MOMENT}
        return {**late, TIMED_OUT: {**self.context.rows.keys, **ended}}

    def combine(self, rows: pl.DataFrame, bounds: TimeBounds) -> Combined:
        accepted, late = self.context.rows.split_late(rows, bounds)
        whole = pl.struct(dict(self.context.schema).keys()).alias(ROW)
        partials = accepted.select(*self.key, self.context.rows.row_time.alias(TIME), whole)
        return Combined(canonical(partials, self.key), late, accepted.height)

    def apply_both(
        self, state: pl.DataFrame, partials: pl.DataFrame, second: pl.DataFrame, bounds: TimeBounds
    ) -> Applied:
        """Match the rows that event time has passed against the rules; a change counts before the rows of its time."""
        buffered = EventTimeBuffer(self.state_schema).release(state, partials, bounds)
        changes = EventTimeBuffer(self.state_schema, broadcast=True).release(state, second, bounds)
        valid, known = state.filter(pl.col(ARRIVAL) == VALID), state.filter(pl.col(ARRIVAL) == OF_KEY)
        rules, result = self._matched(valid, known, changes.rows, buffered.rows, bounds)
        stored = [(VALID, rule.name, rule.pattern, rule.version) for _, rule in sorted(rules.items())]
        columns = {name: self.state_schema[name] for name in (ARRIVAL, RULE, PATTERN, VERSION)}
        now = with_schema(pl.DataFrame(stored, columns, orient="row"), self.state_schema)
        old = known.join(now, on=[RULE, VERSION], how="anti").select(self.identity)
        ended = pl.concat([result.removed, old]).join(result.upserts, on=self.identity, how="anti", nulls_equal=True)
        changed = pl.concat([now.join(valid, on=[RULE, VERSION], how="anti"), changes.stored])
        gone = valid.join(now, on=RULE, how="anti").select(self.identity)
        upserts = pl.concat([result.upserts, buffered.stored])
        return replace(result, upserts=upserts, removed=ended, shared=(changed, gone))

    def due(self, bounds: TimeBounds) -> Due:
        """When a row or a change of a rule is released, or a partial match times out."""
        return Due(pl.coalesce(RELEASED_AT, TIME), dead_at=RELEASED_AT, written_once=True)

    def _matched(
        self, valid: pl.DataFrame, known: pl.DataFrame, changes: pl.DataFrame, taken: pl.DataFrame, bounds: TimeBounds
    ) -> tuple[dict[str, _Rule], Applied]:
        """The rules after all changes, and what the rows made of each in its time."""
        taken, changes = taken[event_time_order(taken)], changes[event_time_order(changes)]
        rows, times = taken[ROW].struct.unnest(), taken[TIME]
        done = [Applied(known.clear(), known.clear().select(self.identity), pl.DataFrame(schema=self.output_schema))]
        rules = {name: _Rule(name, *rest) for name, *rest in valid.select(RULE, PATTERN, VERSION).rows()}
        for time, name, pattern, version in changes.select(TIME, RULE, PATTERN, ARRIVAL).rows():
            rule = rules.get(name)
            if rule is not None and rule.pattern == pattern:
                continue
            begin = times.search_sorted(time)
            if rule is not None:
                last = self._run(rule, rows[rule.begin : begin], known, time, bounds)
                done += [replace(each, upserts=done[0].upserts, removed=done[0].removed) for each in last]
            if pattern is None:
                rules.pop(name, None)
            else:
                rules[name] = _Rule(name, pattern, version, begin)
        for rule in rules.values():
            done += self._run(rule, rows[rule.begin :], known, bounds.fire, bounds)
        return rules, together(done)

    def _run(
        self, rule: _Rule, rows: pl.DataFrame, known: pl.DataFrame, fire: int, bounds: TimeBounds
    ) -> list[Applied]:
        """Step a rule through some rows and let time run; an empty list if there is nothing to do."""
        matches = known.filter((pl.col(RULE) == rule.name) & (pl.col(VERSION) == rule.version))
        if rows.is_empty() and not matches.select((pl.col(TIME) <= fire).any()).item():
            return []
        operator = rule_operator(self.context, rule.pattern)
        until = TimeBounds(BEGINNING, fire, bounds.before, bounds.clock)
        before = with_schema(matches.with_columns(values_from_text(operator.carried_types)), operator.state_schema)
        applied = operator.apply(before, operator.combine(rows, until).partials, until)
        name, version = pl.lit(rule.name).alias(RULE), pl.lit(rule.version, pl.Int64).alias(VERSION)
        as_text = applied.upserts.with_columns(values_as_text(operator.carried_types), name, version)
        side = {each: _fitted(ended, name, self.side_schemas[each]) for each, ended in applied.side.items()}
        return [
            Applied(
                with_schema(as_text, self.state_schema),
                applied.removed.with_columns(name),
                _fitted(applied.output, name, self.output_schema),
                side=side,
                counters=applied.counters,
            )
        ]


def _fitted(results: pl.DataFrame, rule: pl.Expr, schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """The results of a rule in the columns of the step; a measure that the rule does not have is null."""
    return with_schema(results.with_columns(rule), schema).cast(pl.Schema(schema))
