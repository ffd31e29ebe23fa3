"""Pattern matching on the wheel: rows wait until event time has passed them, then step through the automaton."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import repeat

import numpy as np
import polars as pl

from headrace.event_time.lateness import Lateness
from headrace.event_time.record import TimeBounds
from headrace.operators.patterns.bound import BoundPattern
from headrace.operators.patterns.collector import cycles_not_searched
from headrace.operators.patterns.kept import KeptColumns, kept_schema, matches_of
from headrace.operators.patterns.match_values import physical
from headrace.operators.patterns.matcher import Found, KeyMatches
from headrace.operators.patterns.useful import HITS, TIME, useful_rows
from headrace.operators.rows import ARRIVAL, KEY_NUMBER, Rows, next_arrival
from headrace.schemas import MOMENT
from headrace.wheel.key_groups import canonical
from headrace.wheel.operator import Applied, Combined, Due

KEPT = -1
"""A waiting row's number; ``KEPT`` for a key, whose ``TIME`` is when something runs out."""
MATCHED_AT, TIMED_OUT_AT, WAITED_FOR = "matched_at", "timed_out_at", "waited_for"
TIMED_OUT = "timed_out"
TAKEN = (MATCHED_AT, TIMED_OUT_AT, WAITED_FOR)


@dataclass(frozen=True)
class PatternMatching:
    """Finds the matches of a pattern among the rows of each key.

    A state row is a waiting row, or what is kept of a key: its partial matches and the rows they share.
    """

    name: str
    rows: Rows
    pattern: BoundPattern
    lateness: Lateness

    @property
    def key(self) -> tuple[str, ...]:
        """The key columns."""
        return self.rows.key

    @property
    def identity(self) -> tuple[str, ...]:
        """A key, or one of its waiting rows."""
        return (*self.key, ARRIVAL)

    @property
    def output_time(self) -> str:
        """A match's time is that of the row, or the end of time, that made it certain."""
        return MATCHED_AT

    @cached_property
    def _types(self) -> list[pl.DataType]:
        _ = self.pattern.matcher, self.pattern.measures
        return [physical(dtype) for dtype in self.pattern.columns.types]

    @cached_property
    def _values(self) -> list[str]:
        return [f"__value_{number}" for number in range(len(self._types))]

    @cached_property
    def _read(self) -> list[pl.Expr]:
        """What conditions over the match and measures read of a row; nobody reads one that meets no condition."""
        expressions = zip(self.pattern.columns.expressions.values(), self._values, self._types, strict=True)
        return [
            pl.when(pl.col(HITS) != 0).then(each.to_polars(self.rows.schema).cast(dtype)).alias(name)
            for each, name, dtype in expressions
        ]

    @cached_property
    def partial_schema(self) -> dict[str, pl.DataType]:
        """Key, time, the conditions that the row meets, and the values that conditions and measures read."""
        values = dict(zip(self._values, self._types, strict=True))
        return {**self.rows.keys, TIME: pl.Int64(), HITS: pl.Int64(), **values}

    @cached_property
    def state_schema(self) -> dict[str, pl.DataType]:
        """Waiting rows, and keys with their partial matches."""
        return {**self.partial_schema, ARRIVAL: pl.Int64(), **kept_schema(self._types)}

    @cached_property
    def output_schema(self) -> dict[str, pl.DataType]:
        """Key, measures, and when the match was complete."""
        return {**self.rows.keys, **self.pattern.measures.schema, MATCHED_AT: MOMENT}

    @cached_property
    def side_schemas(self) -> Mapping[str, Mapping[str, pl.DataType]]:
        """Late rows, and what had been matched of partial matches that ran out of time."""
        late = {"late": self.rows.late_schema} if self.lateness.keeps_rows else {}
        if self.pattern.definition.within is None and not self.pattern.automaton.limits:
            return late
        told = {WAITED_FOR: pl.String(), TIMED_OUT_AT: MOMENT}
        return {**late, TIMED_OUT: {**self.rows.keys, **self.pattern.measures.schema, **told}}

    def combine(self, rows: pl.DataFrame, bounds: TimeBounds) -> Combined:
        """Judge lateness, ask the conditions of whole columns, and drop rows that no step can use."""
        accepted, late = self.rows.split_late(rows, bounds)
        asked = accepted.with_columns(self.pattern.hits.alias(HITS))
        if not self.pattern.definition.sees_every_row:
            asked = asked.filter(pl.col(HITS) != 0)
        travelling = asked.select(*self.key, self.rows.row_time.alias(TIME), HITS, *self._read)
        return Combined(canonical(travelling, self.key), late, accepted.height)

    def merge(self, partials: pl.DataFrame) -> pl.DataFrame:
        """Rows stay as they are, in the order of their arrival."""
        return partials

    def apply(self, state: pl.DataFrame, partials: pl.DataFrame, bounds: TimeBounds) -> Applied:
        """Let rows wait, step through those that event time has passed, and let time run out."""
        arrived = self._numbered(state, partials)
        is_key = pl.col(ARRIVAL) == KEPT
        kept, waiting = state.filter(is_key), state.filter(~is_key)
        passed = pl.col(TIME) < bounds.fire
        taken, still_waiting = waiting.filter(passed), arrived.filter(~passed)
        released = pl.concat([taken.select(arrived.columns), arrived.filter(passed)])
        due = kept.filter(pl.col(TIME) <= bounds.fire)
        if released.is_empty() and due.is_empty():
            # The usual batch of a quiet watermark: nothing is taken and nothing is due.
            fresh = self._as_state(still_waiting)
            return Applied(pl.concat([state, fresh]), fresh, state.clear().select(self.identity), self._no_output)
        numbers = self._key_numbers(pl.concat([released.select(self.key), due.select(self.key)]))
        touched = kept.join(numbers, on=self.identity, nulls_equal=True)
        matches: list[KeyMatches | None] = [None] * numbers.height
        with cycles_not_searched():
            for number, key in zip(touched[KEY_NUMBER].to_list(), matches_of(touched, len(self._types)), strict=True):
                matches[number] = key
            found = self._stepped(self._useful(released, numbers, matches), matches, bounds)
            living = self._living(matches, numbers)
            matched, timed_out = self._matched(found, numbers), self._timed_out(found, numbers)
            overflow = found.overflow
            del matches, found
        gone = touched.join(living, on=self.identity, how="anti", nulls_equal=True)
        untouched = kept.join(numbers, on=self.identity, how="anti", nulls_equal=True)
        fresh = self._as_state(still_waiting)
        return Applied(
            pl.concat([untouched, living, waiting.filter(~passed), fresh]),
            pl.concat([living, fresh]),
            pl.concat([gone.select(self.identity), taken.select(self.identity)]),
            matched,
            side=timed_out,
            counters={"overflow": overflow} if overflow else {},
        )

    def due(self, state: pl.DataFrame, bounds: TimeBounds) -> Due:
        """The earliest moment at which a row is taken or a partial match runs out of time."""
        if state.is_empty():
            return Due()
        when = pl.when(pl.col(ARRIVAL) == KEPT).then(pl.col(TIME)).otherwise(pl.col(TIME) + 1)
        return Due(state.select(when.min()).item())

    @cached_property
    def _no_output(self) -> pl.DataFrame:
        return pl.DataFrame(schema=self.output_schema)

    def _numbered(self, state: pl.DataFrame, partials: pl.DataFrame) -> pl.DataFrame:
        """Rows that arrive, numbered behind those that wait already."""
        following = next_arrival(state)
        return partials.with_columns(pl.int_range(following, following + pl.len(), dtype=pl.Int64).alias(ARRIVAL))

    def _as_state(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Waiting rows or keys in the state's columns; what only the others have is null."""
        return rows.select(pl.col(name) if name in rows.columns else self._nulls[name] for name in self.state_schema)

    @cached_property
    def _nulls(self) -> dict[str, pl.Expr]:
        return {name: pl.lit(None, dtype).alias(name) for name, dtype in self.state_schema.items()}

    def _key_numbers(self, keys: pl.DataFrame) -> pl.DataFrame:
        """The keys that something happens to, each with a number."""
        # In their own order, so that a batch that runs again gives its rows in the order that it gave them in.
        distinct = keys.unique().sort(self.key) if self.key else pl.DataFrame(height=1)
        return distinct.with_columns(pl.lit(KEPT, pl.Int64).alias(ARRIVAL)).with_row_index(KEY_NUMBER)

    def _useful(self, released: pl.DataFrame, numbers: pl.DataFrame, matches: list[KeyMatches | None]) -> pl.DataFrame:
        """Rows that can matter, with the numbers of their keys, those of a key together in the order of event time."""
        # Joined by two columns at least: by one that is sorted, Polars (2.1) finds no NaN.
        keys = released.select(self.identity).with_columns(pl.lit(KEPT, pl.Int64).alias(ARRIVAL))
        numbered = keys.join(numbers, on=self.identity, nulls_equal=True, maintain_order="left")[KEY_NUMBER]
        number, time, hits = numbered.to_numpy(), released[TIME].to_numpy(), released[HITS].to_numpy()
        order = np.lexsort((released[ARRIVAL].to_numpy(), time, number))
        living = np.array([key is not None for key in matches], dtype=np.bool_)
        useful = useful_rows(self.pattern, number[order], time[order], hits[order], living)
        return released.select(numbered, TIME, HITS, *self._values)[order[useful]]

    def _stepped(self, useful: pl.DataFrame, matches: list[KeyMatches | None], bounds: TimeBounds) -> FoundOfKeys:
        """Step every key through its rows and let its time run up to the bounds; ``matches`` is changed."""
        columns = [useful[name].to_list() for name in self._values]
        values = zip(*columns, strict=True) if columns else repeat((), useful.height)
        given = list(zip(useful[TIME].to_list(), useful[HITS].to_list(), values, strict=True))
        ends = np.searchsorted(useful[KEY_NUMBER].to_numpy(), np.arange(len(matches)), side="right").tolist()
        matcher, found = self.pattern.matcher, FoundOfKeys()
        begin = 0
        for number, end in enumerate(ends):
            key = matches[number]
            if key is None:
                if begin == end:
                    continue
                key = KeyMatches()
            matcher.take(key, given[begin:end], found)
            matcher.expire(key, bounds.fire, found)
            found.belongs_to(number)
            matches[number] = key if key.partials else None
            begin = end
        return found

    def _living(self, matches: list[KeyMatches | None], numbers: pl.DataFrame) -> pl.DataFrame:
        """The keys that have partial matches, as state rows."""
        kept = KeptColumns(self._types)
        alive: list[int] = []
        due: list[int | None] = []
        for number, key in enumerate(matches):
            if key is not None:
                alive.append(number)
                due.append(self.pattern.matcher.due(key))
                kept.add(key)
        keys = numbers[alive].select(*self.key, ARRIVAL)
        return self._as_state(
            pl.concat([keys.with_columns(pl.Series(TIME, due, pl.Int64)), kept.frame()], how="horizontal")
        )

    def _matched(self, found: FoundOfKeys, numbers: pl.DataFrame) -> pl.DataFrame:
        if not found.matches:
            return self._no_output
        told = self.pattern.measures.of([node for node, _ in found.matches])
        at = pl.Series(MATCHED_AT, [time for _, time in found.matches], pl.Int64).cast(MOMENT)
        keys = numbers[found.match_keys].select(self.key)
        return pl.concat([keys, told, at.to_frame()], how="horizontal").select(self.output_schema.keys())

    def _timed_out(self, found: FoundOfKeys, numbers: pl.DataFrame) -> dict[str, pl.DataFrame]:
        if not found.timed_out:
            return {}
        told = self.pattern.measures.of([node for node, _, _ in found.timed_out])
        waited = pl.Series(WAITED_FOR, [step for _, _, step in found.timed_out], pl.String)
        at = pl.Series(TIMED_OUT_AT, [time for _, time, _ in found.timed_out], pl.Int64).cast(MOMENT)
        keys = numbers[found.timed_out_keys].select(self.key)
        return {TIMED_OUT: pl.concat([keys, told, waited.to_frame(), at.to_frame()], how="horizontal")}


@dataclass(slots=True)
class FoundOfKeys(Found):
    """What came out of the rows of several keys, and of which key each is."""

    match_keys: list[int] = field(default_factory=list)
    timed_out_keys: list[int] = field(default_factory=list)

    def belongs_to(self, number: int) -> None:
        """All that has been found since the last call is of this key."""
        self.match_keys += [number] * (len(self.matches) - len(self.match_keys))
        self.timed_out_keys += [number] * (len(self.timed_out) - len(self.timed_out_keys))
