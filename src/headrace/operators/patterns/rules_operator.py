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
from headrace.operators.patterns.partial_match_codec import (
    NODES,
    PARTIALS,
    ROW_TIME,
    VALUES,
    values_as_text,
    values_from_text,
)
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
)
from headrace.operators.process.rules import BroadcastInput
from headrace.operators.rows import ARRIVAL, Rows, arrivals, arrived_rows, failed_rows, with_schema
from headrace.schemas import MOMENT
from headrace.state.key_hash import canonical
from headrace.wheel.operator import Applied, Combined, Due

RULE, PATTERN, ROW, VERSION = "rule", "__pattern", "__row", "__version"
VALID = KEY_STATE - 1
"""The arrival number of a rule that is valid; those of changes to come are below it, those of waiting rows above."""
_FIXED = (NODES, PARTIALS, ROW_TIME)


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
class _Rule:
    """A valid rule during a batch."""

    pattern: str
    version: int
    operator: PatternOperator
    before: pl.DataFrame
    """The state of its operator for the keys of the batch."""
    after: pl.DataFrame
    touched: list[pl.DataFrame] = field(default_factory=list)
    """Keys whose partial matches have changed."""


@dataclass(slots=True)
class _Turn:
    """The rules of a slot during a batch, and their results."""

    rules: dict[str, _Rule]
    output: list[pl.DataFrame] = field(default_factory=list)
    timed_out: list[pl.DataFrame] = field(default_factory=list)
    overflow: int = 0


@dataclass(frozen=True)
class PatternRulesOperator(BufferedRows):
    """Matches rows against every rule that is valid at their time.

    Of a key the state has its waiting rows, and one row for each rule with the partial matches of its pattern. Beside
    them all slots see the valid rules, and the changes of rules that event time has not passed. A rule that is
    replaced gets another version; partial matches of an earlier one no longer count.
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
        rule = {ARRIVAL: pl.Int64(), RULE: pl.String(), PATTERN: pl.String(), VERSION: pl.Int64()}
        matches = {**dict.fromkeys(_FIXED, pl.List(pl.Int64())), VALUES: pl.List(pl.String())}
        return {**self.partial_schema, **rule, **matches}

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
        waiting = state.filter(pl.col(ARRIVAL) > KEY_STATE)
        waiting = pl.concat([waiting, arrived_rows(partials, bounds, self.state_schema)])
        changes = pl.concat([state.filter(pl.col(ARRIVAL) < VALID), self._numbered(second, bounds)])
        valid = state.filter(pl.col(ARRIVAL) == VALID)
        taken = waiting.filter(passed).sort(TIME, ARRIVAL)
        rows = taken[ROW].struct.unnest().with_columns(taken[TIME])
        turn = _Turn(dict(self._valid(valid, state.filter(pl.col(ARRIVAL) == KEY_STATE))))
        begin = 0
        due = changes.filter(passed).sort(TIME, -pl.col(ARRIVAL))
        for time, rule, pattern, number in due.select(TIME, RULE, PATTERN, ARRIVAL).rows():
            end = begin + int(rows[begin:].select((pl.col(TIME) < time).sum()).item())
            self._run(turn, rows[begin:end], time, bounds)
            begin = end
            self._change(turn, rule, pattern, number)
        self._run(turn, rows[begin:], bounds.fire, bounds)
        matches, ended = self._changed_matches(turn, state)
        arrived = waiting.filter(~passed).join(state, on=self.identity, how="anti", nulls_equal=True)
        over = state.filter((pl.col(ARRIVAL) > KEY_STATE) & passed)
        return Applied(
            pl.concat([matches, arrived]),
            pl.concat([ended, over.select(self.identity)]),
            _fitted(turn.output, self.output_schema),
            side={TIMED_OUT: _fitted(turn.timed_out, self.side_schemas[TIMED_OUT])} if turn.timed_out else {},
            counters={"overflow": turn.overflow} if turn.overflow else {},
            shared=self._changed_rules(turn, state, valid, changes, passed),
        )

    def due(self, bounds: TimeBounds) -> Due:
        """When a row or a change of a rule is taken, or a partial match times out."""
        when = pl.when(pl.col(ARRIVAL) == KEY_STATE).then(pl.col(TIME))
        return Due(when.when(pl.col(ARRIVAL) != VALID).then(pl.col(TIME) + 1))

    def _numbered(self, changes: pl.DataFrame, bounds: TimeBounds) -> pl.DataFrame:
        """Changes of rules as state rows, with numbers that no change of an earlier batch has had."""
        return with_schema(changes.with_columns(VALID - arrivals(bounds, changes.height)), self.state_schema)

    def _rule(self, pattern: str, version: int, matches: pl.DataFrame | None = None) -> _Rule:
        operator = rule_operator(self.context, pattern)
        known = pl.DataFrame(schema=operator.state_schema)
        if matches is not None and matches.height:
            known = with_schema(matches.with_columns(values_from_text(operator.carried_types)), operator.state_schema)
        return _Rule(pattern, version, operator, known, known)

    def _valid(self, valid: pl.DataFrame, matches: pl.DataFrame) -> Iterator[tuple[str, _Rule]]:
        """The rules by their ids, each with the partial matches of its version."""
        for rule, pattern, version in valid.select(RULE, PATTERN, VERSION).rows():
            of_rule = matches.filter((pl.col(RULE) == rule) & (pl.col(VERSION) == version))
            yield rule, self._rule(pattern, version, of_rule)

    def _run(self, turn: _Turn, rows: pl.DataFrame, fire: int, bounds: TimeBounds) -> None:
        """Step all rules through some rows, and let time run."""
        until = TimeBounds(BEGINNING, fire, bounds.before, bounds.clock)
        for name, rule in turn.rules.items():
            operator = rule.operator
            if rows.is_empty() and not rule.after.select((pl.col(TIME) <= fire).any()).item():
                continue
            applied = operator.apply(rule.after, operator.combine(rows.drop(TIME), until).partials, until)
            changed = pl.concat([applied.upserts.select(operator.identity), applied.removed])
            kept = rule.after.join(changed, on=operator.identity, how="anti", nulls_equal=True)
            rule.after = pl.concat([kept, applied.upserts])
            rule.touched.append(changed)
            turn.overflow += applied.counters.get("overflow", 0)
            label = pl.lit(name).alias(RULE)
            turn.output.append(applied.output.with_columns(label))
            turn.timed_out += [timed_out.with_columns(label) for timed_out in applied.side.values()]

    def _change(self, turn: _Turn, rule: str, pattern: str | None, version: int) -> None:
        """Remove a rule, add it, or start it again with another pattern."""
        if pattern is None:
            turn.rules.pop(rule, None)
        elif rule not in turn.rules or turn.rules[rule].pattern != pattern:
            turn.rules[rule] = self._rule(pattern, version)

    def _changed_matches(self, turn: _Turn, state: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Partial matches by key and rule that are different now, and those that are gone."""
        upserts = [pl.DataFrame(schema=self.state_schema)]
        for name, rule in turn.rules.items():
            if rule.touched:
                on = rule.operator.identity
                changed = rule.after.join(pl.concat(rule.touched).unique(), on=on, how="semi", nulls_equal=True)
                marks = (pl.lit(name).alias(RULE), pl.lit(rule.version, pl.Int64).alias(VERSION))
                as_text = changed.with_columns(values_as_text(rule.operator.carried_types), *marks)
                upserts.append(with_schema(as_text, self.state_schema))
        now = [rule.after.select(*self.key, ARRIVAL, pl.lit(name).alias(RULE)) for name, rule in turn.rules.items()]
        living = pl.concat([pl.DataFrame(schema={name: self.state_schema[name] for name in self.identity}), *now])
        known = state.filter(pl.col(ARRIVAL) == KEY_STATE).select(self.identity)
        return pl.concat(upserts), known.join(living, on=self.identity, how="anti", nulls_equal=True)

    def _changed_rules(
        self, turn: _Turn, state: pl.DataFrame, valid: pl.DataFrame, changes: pl.DataFrame, passed: pl.Expr
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The rules and changes to come that are new, and those that are gone."""
        stored = [
            (VALID, name, rule.pattern, rule.version) for name, rule in sorted(turn.rules.items(), key=itemgetter(0))
        ]
        columns = {name: self.state_schema[name] for name in (ARRIVAL, RULE, PATTERN, VERSION)}
        now = with_schema(pl.DataFrame(stored, columns, orient="row"), self.state_schema)
        new = now.join(valid, on=[RULE, VERSION], how="anti")
        to_come = changes.filter(~passed).join(state, on=self.identity, how="anti", nulls_equal=True)
        gone = pl.concat([valid.join(now, on=RULE, how="anti"), state.filter((pl.col(ARRIVAL) < VALID) & passed)])
        return pl.concat([new, to_come]), gone.select(self.identity)


def _fitted(results: list[pl.DataFrame], schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """The results of the rules in the columns of the step; a measure that a rule does not have is null."""
    fitted = (with_schema(each, schema).cast(pl.Schema(schema)) for each in results if not each.is_empty())
    return pl.concat([pl.DataFrame(schema=dict(schema)), *fitted])
