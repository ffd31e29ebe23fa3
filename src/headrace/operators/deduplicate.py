"""The deduplicate step: the first or the last row of a key, without repeats of it within a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from headrace.changelog import CHANGE, CHANGELOG, check_free
from headrace.durations import Duration, positive_microseconds, spoken
from headrace.errors import check_choice
from headrace.event_time.lateness import Lateness
from headrace.event_time.record import TimeBounds
from headrace.key_hash import canonical
from headrace.keys import key_argument, key_columns
from headrace.nodes import ResultVersions
from headrace.operators.last_row import LastRowOperator
from headrace.operators.rows import KEY_NUMBER, TIME, RowByRow, Rows, in_key_order, with_key_numbers
from headrace.operators.step import FINAL, LateRows, Step
from headrace.stability import stable
from headrace.wheel.operator import Applied, Combined, Due, Operator

Keep = Literal["first", "last"]
FIRST, PLACE = "__first", "__place"


@dataclass(frozen=True)
class DeduplicateOperator(RowByRow):
    """Emits a row unless one of its key was emitted less than ``within`` from it; the state has those that were."""

    name: str
    rows: Rows
    within: int
    lateness: Lateness

    @property
    def identity(self) -> tuple[str, ...]:
        return (*self.key, FIRST)

    @property
    def output_time(self) -> str:
        return self.rows.time

    @property
    def partial_schema(self) -> Mapping[str, pl.DataType]:
        return self.rows.schema

    @property
    def state_schema(self) -> dict[str, pl.DataType]:
        return {**self.rows.keys, FIRST: pl.Int64()}

    output_schema = partial_schema

    @property
    def side_schemas(self) -> dict[str, dict[str, pl.DataType]]:
        return self.rows.late_output(self.lateness)

    def combine(self, rows: pl.DataFrame, bounds: TimeBounds) -> Combined:
        on_time, late = self.rows.split_late(rows, bounds)
        on_time = canonical(on_time, self.key).with_columns(self.rows.row_time.alias(TIME))
        firsts = on_time.unique([*self.key, TIME], keep="first", maintain_order=True)
        dropped = on_time.height - firsts.height
        return Combined(firsts.select(self.partial_schema.keys()), late, firsts.height, dropped=dropped)

    def apply(self, state: pl.DataFrame, partials: pl.DataFrame, bounds: TimeBounds) -> Applied:
        rows = partials.with_columns(self.rows.row_time.alias(TIME)).with_row_index(PLACE)
        emitted = rows[self._first_places(state, rows)].sort(TIME, PLACE)
        fresh = emitted.select(*self.key, pl.col(TIME).alias(FIRST))
        return Applied(
            fresh.filter(pl.col(FIRST) + self.within > bounds.fire),
            state.clear().select(self.identity),
            emitted.select(self.output_schema.keys()),
            dropped=rows.height - emitted.height,
        )

    def due(self, bounds: TimeBounds) -> Due:
        return Due(dead_at=pl.col(FIRST) + self.within)

    def _first_places(self, state: pl.DataFrame, rows: pl.DataFrame) -> pl.Series:
        known = state.select(*self.key, pl.col(FIRST).alias(TIME), pl.lit(None, pl.UInt32).alias(PLACE))
        both = with_key_numbers(pl.concat([rows.select(known.columns), known]), self.key, of=rows)
        ordered = in_key_order(both, TIME, PLACE)
        if ordered[PLACE].has_nulls():
            around = ordered.rolling(
                TIME, period=f"{2 * self.within}i", offset=f"-{self.within}i", closed="none", group_by=KEY_NUMBER
            )
            repeats = around.agg(pl.col(PLACE).is_null().any().alias("repeats"))["repeats"]
            ordered = ordered.filter(~repeats & ordered[PLACE].is_not_null())
        return ordered[PLACE].gather(_leaps(ordered, self.within))


def _leaps(ordered: pl.DataFrame, within: int) -> npt.NDArray[np.int64]:
    """The first row of every key, and from there on always the next row that is at least ``within`` later."""
    following = ordered.rolling(TIME, period=f"{within}i", offset="0i", closed="left", group_by=KEY_NUMBER)
    number = ordered[KEY_NUMBER].to_numpy()
    rows = len(number)
    # Rows with equal times count each other, so this is right for the first of them; no leap ends at another.
    # A row is always among those that follow it, unless times are so great that Polars' sums of them wrap.
    steps = np.maximum(following.agg(pl.len().alias("rows"))["rows"].to_numpy(), 1)
    behind = np.arange(rows) + steps
    reached = np.flatnonzero(np.r_[True, number[1:] != number[:-1]][:rows])
    leaps = [reached]
    while len(reached):
        ahead = behind[reached]
        inside = ahead < rows
        inside[inside] = number[ahead[inside]] == number[reached[inside]]
        reached = ahead[inside]
        leaps.append(reached)
    return np.concatenate(leaps)


@dataclass(frozen=True, kw_only=True, repr=False)
class Deduplicate(Step):
    """Deduplication by key within a time; call ``.late()`` before use."""

    kind = "deduplicate"
    keeps_key = True
    late_rows = LateRows(
        FINAL,
        consequence="of which it no longer knows whether they are repeats",
        uncorrectable="a row that has been emitted is not retracted when an earlier one of its key comes late",
    )

    within: int

    def bind(self, schema: Mapping[str, pl.DataType], time: str) -> Operator:
        lateness = self._chosen_lateness()
        return DeduplicateOperator(self.name, Rows(self.name, self.key, time, dict(schema)), self.within, lateness)

    @property
    def horizon(self) -> int:
        return self.within

    @property
    def retention(self) -> int:
        return self.within + super().retention

    @property
    def state_description(self) -> str:
        return f"key and time of each row that was kept, until event time is {spoken(self.within)} behind it"

    @property
    def _arguments(self) -> Mapping[str, object]:
        return {"key": key_argument(self.key), "within": spoken(self.within)}


@dataclass(frozen=True, kw_only=True, repr=False)
class KeepLast(Deduplicate):
    """Deduplication that keeps the last row of a key and corrects what it has emitted; call ``.late()`` before use."""

    late_rows = LateRows()
    retracts = True

    def bind(self, schema: Mapping[str, pl.DataType], time: str) -> Operator:
        check_free(schema, self._label, "Drop or rename it before the step", taken=CHANGELOG)
        lateness = self._chosen_lateness()
        return LastRowOperator(self.name, Rows(self.name, self.key, time, dict(schema)), self.within, lateness)

    @property
    def versions(self) -> ResultVersions | None:
        return ResultVersions(tuple((name,) for name in self.key), change=CHANGE)

    @property
    def state_description(self) -> str:
        longer = f"{spoken(self.retention)} behind it"
        return f"the last row of each key, until event time is {longer}"

    @property
    def _arguments(self) -> Mapping[str, object]:
        return {**super()._arguments, "keep": "last"}


@stable
def deduplicate(name: str, *, key: str | Sequence[str], within: Duration, keep: Keep = "first") -> Deduplicate:
    """The first row of every key; further rows of the key less than ``within`` from it are dropped and counted.

    With ``keep="last"`` the last row by event time, as a changelog: a later row takes the one before it back. A key
    without a row for ``within`` is forgotten, and its next row is an insert.

    >>> from headrace.event_time.lateness import drop
    >>> deduplicate("once", key="payment_id", within="1 hour").late(drop())
    hr.deduplicate('once', key='payment_id', within='1 hour').late(hr.drop())
    """
    check_choice(Keep, step=name, keep=keep)
    kind = Deduplicate if keep == "first" else KeepLast
    return kind(
        name=name, key=key_columns(key, needed_by=name), within=positive_microseconds(within, argument="within")
    )
