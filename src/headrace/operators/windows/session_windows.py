"""Session windows: those that are emitted once, when they are over, those that may be emitted again, and the step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import polars as pl

from headrace.durations import Duration, positive_microseconds, spoken
from headrace.errors import DefinitionError
from headrace.event_time.lateness import Lateness
from headrace.event_time.record import TimeBounds
from headrace.keys import Key, key_argument, key_columns
from headrace.operators.windows.aggregation import GIVEN, REVISION, ROW_COUNT, SHOWN_AS, Aggregation
from headrace.operators.windows.emission import ACCUMULATING, PREVIEW_AT, Emission
from headrace.operators.windows.session_operator import CHAIN, END, FIRST, PLACE, ROOT, Gap, SessionOperator
from headrace.operators.windows.window_step import TAKEN, WindowStep
from headrace.stability import stable
from headrace.wheel.operator import Applied, Operator


@dataclass(frozen=True)
class FinalSessionOperator(SessionOperator):
    """Aggregates rows by key and session, each a row of the state.

    With a maximum length, where a session is cut depends on all rows before: until event time has passed them, a state
    row has the rows of one key and time.
    """

    @property
    def state_schema(self) -> dict[str, pl.DataType]:
        return self.types

    def apply(self, state: pl.DataFrame, partials: pl.DataFrame, bounds: TimeBounds) -> Applied:
        """Close sessions that no row can extend, add the rows, close sessions that are over then."""
        known = state.with_columns(pl.int_range(pl.len()).alias(PLACE))
        known, over = self._close(known, bounds.late)
        late = None
        if not partials.is_empty():
            chains, late = self._arranged(known, partials, bounds)
            known = self._joined(chains, bounds.fire)
        known, over_now = self._close(known, bounds.fire)
        emitted = pl.concat([over, over_now]).sort(FIRST, *self.key)
        on_time = (pl.lit(0, pl.Int32).alias(REVISION), pl.lit("on_time").alias(SHOWN_AS))
        return Applied(
            known.filter(pl.col(PLACE).is_null()).drop(PLACE),
            self._gone(state, known, bounds),
            self._results(emitted.with_columns(on_time)),
            late,
        )

    def _close(self, known: pl.DataFrame, passed: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The sessions that are open when event time has passed a time, and those that are over."""
        due = known.select(self._end <= passed).to_series()
        if not due.any():
            return known, known.clear()
        if self.max_length is None:
            return known.filter(~due), known.filter(due)
        chains = self._chained(known)
        over = self._over(chains, passed)
        return self._joined(chains.filter(~over), passed), self._joined(chains.filter(over), passed)

    def _joined(self, chains: pl.DataFrame, passed: int) -> pl.DataFrame:
        """The parts of each session merged; where sessions may be cut, later parts only if they have equal times."""
        by: list[str | pl.Expr] = [CHAIN]
        if self.max_length is not None:
            by.append(pl.when(pl.col(END) - self.gap.longest >= passed).then(FIRST).alias("__time"))
        firsts = (pl.col(name).first() for name in self.key)
        # A session of one part is unchanged.
        place = pl.when(pl.len() == 1).then(pl.col(PLACE).first()).alias(PLACE)
        return chains.group_by(by).agg(*firsts, place, **self._merged).select(*self.state_schema, PLACE)


ID = "__id"
TOUCHED, MERGED = "__touched", "__merged"
"""Whether a session has rows of this batch, and whether it has swallowed another one that had been emitted."""


@dataclass(frozen=True)
class RevisedSessionOperator(SessionOperator):
    """Aggregates rows by key and session, each a row of the state, and emits every change of a session."""

    _counted: ClassVar[Mapping[str, pl.Expr]] = ROW_COUNT
    moved = (FIRST, END)
    moments: ClassVar[Mapping[str, pl.Expr]] = {"session_id": pl.coalesce(ID, ROOT)}
    marks: ClassVar[Mapping[str, pl.Expr]] = {ID: pl.coalesce(ID, ROOT), PLACE: pl.lit(None, pl.Int64)}

    @cached_property
    def state_schema(self) -> dict[str, pl.DataType]:
        return {**self.types, PREVIEW_AT: pl.Int64(), ID: pl.Int64(), **self._ledger}

    @property
    def _has_change(self) -> bool:
        return True

    def apply(self, state: pl.DataFrame, partials: pl.DataFrame, bounds: TimeBounds) -> Applied:
        """Close sessions that no row can extend, add the rows, emit what has changed."""
        outputs: list[pl.DataFrame] = []
        late = None
        known = state.with_columns(
            pl.int_range(pl.len()).alias(PLACE), pl.lit(False).alias(TOUCHED), pl.lit(False).alias(MERGED)
        ).sort(FIRST)
        known, rows = self._show(known, (self._end > bounds.before) & (self._end <= bounds.late), pane="on_time")
        outputs += rows
        known = self._unexpired(known, bounds.late)
        if not partials.is_empty():
            chains, late = self._arranged(known, partials, bounds)
            known, rows = self._joined(chains.with_columns(pl.col(TOUCHED).fill_null(True)), bounds)
            outputs += rows
        open_ = self._end > bounds.fire
        corrected = pl.col(TOUCHED) & (self._end <= bounds.late)
        changed = pl.col(TOUCHED) if self.emission.kind == "on_update" else pl.lit(True)
        # What was retracted is emitted again at once, so that a table never misses it.
        early = (self.emission.shows(self._end, bounds) & changed) | (pl.col(MERGED) & open_)
        closing = ~open_ & (self._end > max(bounds.before, bounds.late))
        for shown, pane in ((corrected, "late"), (early, "early"), (closing, "on_time")):
            known, rows = self._show(known, shown, pane=pane)
            outputs += rows
        known = self._unexpired(known, bounds.fire)
        return Applied(
            known.filter(pl.col(PLACE).is_null()).select(self.state_schema.keys()),
            self._gone(state, known, bounds),
            # The changes of one session leave in the order in which they happened.
            self._sorted(outputs, "session_id", *self.key),
            late,
        )

    def _unexpired(self, known: pl.DataFrame, passed: int) -> pl.DataFrame:
        over = known.select(self._end + self.lateness.correctable <= passed).to_series()
        return known.filter(~over) if over.any() else known

    def _joined(self, chains: pl.DataFrame, bounds: TimeBounds) -> tuple[pl.DataFrame, list[pl.DataFrame]]:
        """The parts of each session merged under the first id that was emitted; other emitted ids are retracted."""
        emitted = pl.col(REVISION).is_not_null()
        swallowed = chains.filter(emitted).filter(~pl.col(CHAIN).is_first_distinct())
        columns = [*self.state_schema, PLACE, TOUCHED, MERGED]
        marks = [
            pl.col(PREVIEW_AT).min(),
            *(pl.col(name).filter(emitted).first() for name in (ID, REVISION, *self._given.values())),
            pl.when(pl.len() == 1).then(pl.col(PLACE).first()).alias(PLACE),
            pl.col(TOUCHED).any(),
            (emitted.sum() > 1).alias(MERGED),
        ]
        firsts = (pl.col(name).first() for name in self.key)
        joined = chains.group_by(CHAIN).agg(*firsts, *marks, **self._merged)
        outputs = []
        if not swallowed.is_empty():
            given = self._as_given(swallowed)
            outputs = [self._results(given, pl.lit("delete"))]
            if self.accumulation.kind == "discarding":
                # To a session, all that the swallowed ones have emitted is new.
                totals = self._totals(joined, given)
                joined = joined.drop(self.aggregation.states).join(totals, on=CHAIN)
        planned = self.emission.next_preview(pl.col(FIRST), bounds).alias(PREVIEW_AT)
        return joined.with_columns(planned).select(columns), outputs

    def _totals(self, *frames: pl.DataFrame) -> pl.DataFrame:
        parts = pl.concat([frame.select(CHAIN, *self.aggregation.states) for frame in frames])
        return parts.group_by(CHAIN).agg(**self.aggregation.merged)

    def _emitted_in_all(self, windows: pl.DataFrame) -> list[pl.Series]:
        numbered = windows.with_row_index(CHAIN)
        given = self._as_given(numbered.filter(pl.col(REVISION).is_not_null()))
        totals = self._totals(numbered, given).sort(CHAIN)
        return totals.drop(CHAIN).select(pl.all().name.suffix(GIVEN)).get_columns()


@dataclass(frozen=True, kw_only=True, repr=False)
class Session(WindowStep):
    """Session windows."""

    kind = "session"
    result_columns = TAKEN
    window_id = ("session_id",)

    gap: Gap
    max_length: int | None

    def emit(self, emission: Emission) -> Self:
        """Choose when results are emitted; ``hr.on_close()`` by default."""
        if isinstance(emission, Emission) and (emission.kind == "early_only" or emission.late is not None):
            raise self._no_emission(emission, "sessions. Use hr.on_close(), also with early=, or hr.on_update().")
        return super().emit(emission)

    def _operator(self, aggregation: Aggregation, lateness: Lateness) -> Operator:
        self.gap.check(self.name, aggregation.schema)
        if self.max_length is not None and (self.retracts or self.accumulation != ACCUMULATING):
            raise self._wrong(
                "SESSION_LENGTH_EMITTED_ONCE",
                "with max_length a late row may move every later cut, so a session is "
                "emitted once. Leave max_length out, or use hr.on_close(), hr.accumulating(), and hr.side_output() or "
                "hr.drop().",
            )
        given = (aggregation, lateness, self.emission, self.accumulation, self.gap, self.max_length)
        return RevisedSessionOperator(*given) if self.retracts else FinalSessionOperator(*given)

    @property
    def retracts(self) -> bool:
        """Sessions that may be emitted again may also merge, and then all but one are retracted."""
        return super().retracts or self.emission.previews or self.corrects

    @property
    def state_description(self) -> str:
        more = "" if self.max_length is None else ", and one for each key and time that the watermark has not passed"
        return f"a row for each key and open session, {self._until('the session')}{more}"

    @property
    def combines(self) -> bool:
        """Rows of a key that are close to each other are combined before the shuffle, unless sessions may be cut."""
        return self.max_length is None

    @property
    def horizon(self) -> int:
        return self.max_length or self.gap.longest

    @property
    def _identity(self) -> Mapping[str, object]:
        return {**super()._identity, "state": "revised" if self.retracts else "once"}

    @property
    def _arguments(self) -> Mapping[str, object]:
        column = {} if self.gap.column is None else {"gap_column": self.gap.column}
        longest = {} if self.max_length is None else {"max_length": spoken(self.max_length)}
        return {"gap": spoken(self.gap.longest), **column, "key": key_argument(self.key), **longest}


@stable
def session(
    name: str, *, gap: Duration, key: Key, gap_column: str | None = None, max_length: Duration | None = None
) -> Session:
    """Windows of rows of a key that are less than a gap apart; rows exactly a gap apart are in two sessions.

    With ``gap_column`` each row has its own gap; ``gap`` is then the upper limit, and the gap of rows that have null.
    With ``max_length`` a row that is at least this long after the first row of a session begins another one.

    >>> session("visits", gap="30 minutes", key="visitor").agg(clicks="count(*)")
    hr.session('visits', gap='30 minutes', key='visitor').agg(clicks='count(*)').emit(hr.on_close())
    """
    silence = positive_microseconds(gap, argument="gap")
    longest = None if max_length is None else positive_microseconds(max_length, argument="max_length")
    if longest is not None and longest <= silence:
        raise DefinitionError(
            "SESSION_LENGTH_WITHIN_GAP",
            f"window {name!r}: max_length={max_length!r} is not longer than gap={gap!r}. Make it longer.",
        )
    if longest is not None and gap_column is not None:
        raise DefinitionError(
            "SESSION_LENGTH_AND_GAP_COLUMN",
            f"window {name!r}: max_length={max_length!r}, gap_column={gap_column!r} cannot be combined. Leave out one.",
        )
    return Session(name=name, key=key_columns(key), gap=Gap(silence, gap_column), max_length=longest)
