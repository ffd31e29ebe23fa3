"""What all operators over sessions have in common: rows find their session, and late ones are found out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from headrace.event_time.lateness import Lateness
from headrace.event_time.record import TimeBounds
from headrace.operators.windows.aggregation import WINDOW, Aggregation
from headrace.operators.windows.sessions.chains import CHAIN, END, FIRST
from headrace.operators.windows.sessions.gap import Gap
from headrace.operators.windows.sessions.gathering import WHOLE, SessionCombiner
from headrace.operators.windows.windowing import WindowOperator
from headrace.schemas import MOMENT
from headrace.wheel.operator import Combined

PLACE = "__place"
"""Where a session stands in the state as it was loaded; null for one that is not stored as it is now."""


@dataclass(frozen=True)
class SessionOperator(WindowOperator, ABC):
    """Sessions of keys, of which the state knows those that still take rows."""

    name: str
    aggregation: Aggregation
    gap: Gap
    lateness: Lateness

    @property
    def identity(self) -> tuple[str, ...]:
        """A session of a key, or a part of one, by the time of its first row."""
        return (*self.key, FIRST)

    @cached_property
    def output_schema(self) -> dict[str, pl.DataType]:
        """Key, session, results, pane and revision."""
        told = {"pane": pl.String(), "revision": pl.Int32()}
        return {**self.aggregation.keys, "window": WINDOW, "session_id": MOMENT, **self.aggregation.results, **told}

    @property
    def partial_schema(self) -> dict[str, pl.DataType]:
        """Key, first time and end, partial aggregates, and the row itself where it may be late."""
        return self._combiner.schema

    def combine(self, rows: pl.DataFrame, bounds: TimeBounds) -> Combined:
        """Gather rows of a key that are close to each other."""
        return self._combiner.combine(rows, bounds)

    def merge(self, partials: pl.DataFrame) -> pl.DataFrame:
        """Gather parts of a key that are close to each other."""
        return self._combiner.merge(partials)

    @property
    @abstractmethod
    def _combiner(self) -> SessionCombiner:
        """What makes parts of rows."""

    @property
    @abstractmethod
    def _end(self) -> pl.Expr:
        """Where a session ends."""

    @abstractmethod
    def _chained(self, parts: pl.DataFrame) -> pl.DataFrame:
        """Parts with the session to which each belongs."""

    def _over(self, chains: pl.DataFrame, passed: int) -> pl.Series:
        """Whether the session to which each part belongs takes no more rows when time has passed a moment."""
        sessions = chains.group_by(CHAIN).agg(pl.col(FIRST).min(), pl.col(END).max())
        over = sessions.filter(self._end + self.lateness.correctable <= passed)[CHAIN]
        return chains[CHAIN].is_in(over.implode())

    def _arranged(
        self, known: pl.DataFrame, partials: pl.DataFrame, bounds: TimeBounds
    ) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame | None]:
        """Sessions that nothing has come for; the others with what has come, in chains; and late rows.

        A row is late when its session, with all that is known of it, takes no more rows.
        """
        others, concerned = self._of_keys(known, partials)
        added = {**known.schema, WHOLE: self.partial_schema[WHOLE]}
        parts = pl.concat([_widened(concerned, added), _widened(partials, added)])
        chains = self._chained(parts)
        if partials[WHOLE].null_count() == partials.height:
            return others, chains, None
        late = [self._combiner.rows_of(chains.clear())]
        while (too_late := self._over(chains, bounds.late) & chains[WHOLE].is_not_null()).any():
            late.append(self._combiner.rows_of(chains.filter(too_late)))
            # Without them, cuts behind them may be elsewhere.
            chains = self._chained(chains.filter(~too_late))
        return others, chains, self.aggregation.with_late_by(pl.concat(late), bounds)

    def _of_keys(self, known: pl.DataFrame, parts: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """What is known of other keys, and of the keys of these parts (perhaps of a few more)."""
        if not self.key or 2 * parts.height >= known.height:
            return known.clear(), known
        return (
            known.join(parts, on=self.key, how="anti", nulls_equal=True),
            known.join(parts, on=self.key, how="semi", nulls_equal=True),
        )

    def _gone(self, state: pl.DataFrame, known: pl.DataFrame) -> pl.DataFrame:
        """Identities that the state had and that are not known any more."""
        identity = list(self.identity)
        changed = known.filter(pl.col(PLACE).is_null())
        unchanged = known[PLACE].drop_nulls()
        others = state.select(identity).filter(~pl.int_range(pl.len()).is_in(unchanged.implode()))
        return others.join(changed, on=identity, how="anti", nulls_equal=True)


def _widened(frame: pl.DataFrame, schema: dict[str, pl.DataType]) -> pl.DataFrame:
    missing = (pl.lit(None, dtype).alias(name) for name, dtype in schema.items() if name not in frame.columns)
    return frame.with_columns(*missing).select(schema.keys())
