"""The operator of a pattern: rows wait until event time has passed them, then step through the automaton."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat

import numpy as np
import polars as pl

from headrace.event_time.lateness import Lateness
from headrace.event_time.record import TimeBounds
from headrace.key_hash import canonical
from headrace.operators.event_time_buffer import RELEASED_AT, EventTimeBuffer, Numbers, TouchedKeys, event_time_order
from headrace.operators.patterns.compiler import compile_automaton
from headrace.operators.patterns.definition import PatternDefinition
from headrace.operators.patterns.live_rows import LiveRows
from headrace.operators.patterns.match_values import CarriedColumns, Measures, bind_measures, physical
from headrace.operators.patterns.matcher import KeyMatches, Match, Matcher, MatchResults, TimedOut
from headrace.operators.patterns.partial_match_codec import (
    decode_partial_matches,
    encode_partial_matches,
    partial_match_schema,
)
from headrace.operators.rows import ARRIVAL, KEY_NUMBER, TIME, RowByRow, Rows, with_schema
from headrace.schemas import MOMENT
from headrace.wheel.operator import Applied, Combined, Due

HITS = "__hits"
"""The conditions that a row meets by itself."""
MATCHED_AT, TIMED_OUT_AT, WAITED_FOR = "matched_at", "timed_out_at", "waited_for"
TIMED_OUT = "timed_out"
RESULT_COLUMNS = (MATCHED_AT, TIMED_OUT_AT, WAITED_FOR)


@dataclass(frozen=True)
class PatternOperator(RowByRow):
    """Finds the matches of a pattern among the rows of each key.

    A state row is a waiting row, or a key with its partial matches, when they are due, and the rows they share.
    """

    rows: Rows
    definition: PatternDefinition
    most: int
    lateness: Lateness

    output_time = MATCHED_AT

    def __post_init__(self) -> None:
        _ = self.state_schema, self.output_schema  # all types are checked here, before any data is read

    @property
    def name(self) -> str:
        return self.rows.step

    @property
    def identity(self) -> tuple[str, ...]:
        return (*self.key, ARRIVAL)

    @cached_property
    def _columns(self) -> CarriedColumns:
        return CarriedColumns(self.rows.schema)

    @cached_property
    def _matcher(self) -> Matcher:
        definition = self.definition
        functions = [condition.bind(self._columns, definition.steps) for condition in definition.conditions]
        over_match = {1 << number: function for number, function in enumerate(functions) if function is not None}
        automaton = compile_automaton(definition.elements)
        return Matcher(automaton, within=definition.within, skip=definition.skip, most=self.most, conditions=over_match)

    @cached_property
    def measures(self) -> Measures:
        return bind_measures(dict(self.definition.measures), self._columns, self.definition.steps)

    @cached_property
    def _carried(self) -> dict[str, pl.DataType]:
        """The names of the carried columns, and their types while matching."""
        _ = self._matcher, self.measures  # binding them collects the columns
        return {f"__value_{number}": physical(of.dtype) for number, of in enumerate(self._columns.operands.values())}

    @cached_property
    def carried_types(self) -> list[pl.DataType]:
        return list(self._carried.values())

    @cached_property
    def _read(self) -> list[pl.Expr]:
        """The carried columns; a row that meets no condition is never read, so it carries nulls."""
        carried = zip(self._carried.items(), self._columns.operands.values(), strict=True)
        is_read = pl.when(pl.col(HITS) != 0)
        return [is_read.then(operand.value.cast(dtype)).alias(name) for (name, dtype), operand in carried]

    @cached_property
    def _hits(self) -> pl.Expr:
        """The conditions that a row meets by itself, as one number."""
        met = pl.lit(0, pl.Int64)
        for number, condition in enumerate(self.definition.conditions):
            holds = pl.all_horizontal(True, *(part.truth(self.rows.schema) for part in condition.of_row))
            met += pl.when(holds).then(pl.lit(1 << number, pl.Int64)).otherwise(pl.lit(0, pl.Int64))
        return met

    @cached_property
    def partial_schema(self) -> dict[str, pl.DataType]:
        """Key, time, the conditions that the row meets, and the carried columns."""
        return {**self.rows.keys, TIME: pl.Int64(), HITS: pl.Int64(), **self._carried}

    @cached_property
    def state_schema(self) -> dict[str, pl.DataType]:
        return {**self.partial_schema, ARRIVAL: pl.Int64(), **partial_match_schema(self.carried_types)}

    @cached_property
    def output_schema(self) -> dict[str, pl.DataType]:
        return {**self.rows.keys, **self.measures.schema, MATCHED_AT: MOMENT}

    @cached_property
    def side_schemas(self) -> Mapping[str, Mapping[str, pl.DataType]]:
        late = self.rows.late_output(self.lateness)
        if self.definition.within is None and not self._matcher.limits:
            return late
        ended = {WAITED_FOR: pl.String(), TIMED_OUT_AT: MOMENT}
        return {**late, TIMED_OUT: {**self.rows.keys, **self.measures.schema, **ended}}

    def combine(self, rows: pl.DataFrame, bounds: TimeBounds) -> Combined:
        """Divide off late rows, compute the conditions on whole columns, and drop rows that no step can use."""
        accepted, late = self.rows.split_late(rows, bounds)
        asked = accepted.with_columns(self._hits.alias(HITS))
        if not self.definition.sees_every_row:
            asked = asked.filter(pl.col(HITS) != 0)
        partials = asked.select(*self.key, self.rows.row_time.alias(TIME), HITS, *self._read)
        return Combined(canonical(partials, self.key), late, accepted.height)

    def apply(self, state: pl.DataFrame, partials: pl.DataFrame, bounds: TimeBounds) -> Applied:
        """Let rows wait, step through those that event time has passed, and let partial matches time out."""
        buffered = EventTimeBuffer(self.state_schema).release(state, partials, bounds)
        touched = TouchedKeys.of(self.key, buffered.rows, state, pl.col(TIME) <= bounds.fire)
        if touched.keys.is_empty():
            # The usual batch of a quiet watermark: nothing is released and nothing is due.
            return Applied(
                buffered.stored, state.clear().select(self.identity), pl.DataFrame(schema=self.output_schema)
            )
        matches: list[KeyMatches | None] = [None] * touched.keys.height
        with _without_cyclic_gc():
            decoded = decode_partial_matches(touched.states, self.carried_types)
            for number, key in zip(touched.states[KEY_NUMBER], decoded, strict=True):
                key.number = number
                matches[number] = key
            results = self._stepped(self._pruned(buffered.rows, touched.numbers, matches), matches, bounds)
            living = self._encoded(matches, touched.keys)
            matched = self._rows_of(results.matches, touched.keys, self.output_schema)
            side = {}
            if results.timed_out:
                side[TIMED_OUT] = self._rows_of(results.timed_out, touched.keys, self.side_schemas[TIMED_OUT])
            overflow = results.overflow
            del matches, decoded, results
        gone = touched.states.join(living, on=self.identity, how="anti", nulls_equal=True)
        return Applied(
            pl.concat([living, buffered.stored]),
            gone.select(self.identity),
            matched,
            side=side,
            counters={"overflow": overflow} if overflow else {},
        )

    def due(self, bounds: TimeBounds) -> Due:
        """When a row is released, or a partial match times out."""
        return Due(pl.coalesce(RELEASED_AT, TIME), dead_at=RELEASED_AT, written_once=True)

    @cached_property
    def _live_rows(self) -> LiveRows:
        matcher = self._matcher
        return LiveRows(matcher.table, matcher.asked, self.definition.within, bool(matcher.limits))

    def _pruned(self, released: pl.DataFrame, number: Numbers, matches: list[KeyMatches | None]) -> pl.DataFrame:
        """Rows that can matter, with the numbers of their keys, those of a key together in the order of event time."""
        time, hits = released[TIME].to_numpy(), released[HITS].to_numpy()
        order = event_time_order(released, number)
        in_order = number[order]
        first_of_key = np.r_[True, in_order[1:] != in_order[:-1]][: len(order)]
        living = np.array([matches[each] is not None for each in in_order[first_of_key].tolist()], dtype=np.bool_)
        needed = self._live_rows.needed(first_of_key, time[order], hits[order], living)
        return released.select(pl.Series(KEY_NUMBER, number), TIME, HITS, *self._carried)[order[needed]]

    def _stepped(self, rows: pl.DataFrame, matches: list[KeyMatches | None], bounds: TimeBounds) -> MatchResults:
        """Step every key through its rows and let its time run up to the watermark; ``matches`` is changed."""
        columns = [rows[name].to_list() for name in self._carried]
        values = zip(*columns, strict=True) if columns else repeat((), rows.height)
        given = list(zip(rows[TIME].to_list(), rows[HITS].to_list(), values, strict=True))
        ends = np.searchsorted(rows[KEY_NUMBER].to_numpy(), np.arange(len(matches)), side="right").tolist()
        matcher, results = self._matcher, MatchResults()
        begin = 0
        for number, end in enumerate(ends):
            key = matches[number]
            if key is None:
                if begin == end:
                    continue
                key = KeyMatches(number=number)
            matcher.take(key, given[begin:end], results)
            matcher.expire(key, bounds.fire, results)
            matches[number] = key if key.partials else None
            begin = end
        return results

    def _encoded(self, matches: list[KeyMatches | None], keys: pl.DataFrame) -> pl.DataFrame:
        alive = [(number, key) for number, key in enumerate(matches) if key is not None]
        encoded = encode_partial_matches([key for _, key in alive], self.carried_types)
        due = pl.Series(TIME, [self._matcher.due(key) for _, key in alive], pl.Int64)
        states = keys[[number for number, _ in alive]].with_columns(due)
        return with_schema(pl.concat([states, encoded], how="horizontal"), self.state_schema)

    def _rows_of(
        self, found: Sequence[Match] | Sequence[TimedOut], keys: pl.DataFrame, schema: Mapping[str, pl.DataType]
    ) -> pl.DataFrame:
        """Key, measures, time and perhaps the awaited step of matches or time-outs."""
        if not found:
            return pl.DataFrame(schema=dict(schema))
        numbers, nodes, times, *steps = zip(*found, strict=True)
        moments = pl.Series(times, dtype=pl.Int64).cast(MOMENT)
        waited_for = {WAITED_FOR: pl.Series(steps[0], dtype=pl.String)} if steps else {}
        ended = pl.DataFrame({MATCHED_AT: moments, TIMED_OUT_AT: moments, **waited_for})
        parts = [keys[list(numbers)].select(self.key), self.measures.of(nodes), ended]
        return pl.concat(parts, how="horizontal").select(schema.keys())


@contextmanager
def _without_cyclic_gc() -> Iterator[None]:
    """Matching makes many tuples and no cycle: the collector would look through all of them and find nothing."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
