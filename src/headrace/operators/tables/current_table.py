"""The current table of a changelog: each key's last change, and what a batch did to the table."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from headrace.changelog import CHANGE, CHANGELOG, DELETE, INSERT, POSITION, UNCHANGED, UPDATE_AFTER, UPDATE_BEFORE
from headrace.event_time.record import Edge
from headrace.operators.key_order import join_by_key
from headrace.operators.rows import Rows
from headrace.operators.tables.changes import ORDERED, PLACE, SETS, TIME, ChangeIntake, table_columns
from headrace.operators.tables.deleted import Deleted
from headrace.operators.tables.order import in_order
from headrace.operators.tables.unchanged import filled
from headrace.wheel.operator import Applied, Combined, Due

_WAS = "__was"


@dataclass(frozen=True)
class CurrentTable:
    """Keeps the last position of each key, with the row itself where changes do not bring whole rows."""

    name: str
    rows: Rows
    deleted: Deleted
    before_images: bool

    @property
    def key(self) -> tuple[str, ...]:
        """The table's primary key."""
        return self.rows.key

    @property
    def identity(self) -> tuple[str, ...]:
        """A state row for each key."""
        return self.key

    @property
    def output_time(self) -> str:
        """Changes keep their time."""
        return self.rows.time

    @cached_property
    def _fills(self) -> bool:
        return UNCHANGED in self.rows.schema

    @cached_property
    def _table(self) -> dict[str, pl.DataType]:
        return table_columns(self.rows.schema)

    @cached_property
    def _values(self) -> dict[str, pl.DataType]:
        return {name: dtype for name, dtype in self._table.items() if name not in self.key}

    @cached_property
    def _intake(self) -> ChangeIntake:
        unchanged = {UNCHANGED: self.rows.schema[UNCHANGED]} if self._fills else {}
        return ChangeIntake(self.rows, self.key, {**self._table, **unchanged})

    @property
    def partial_schema(self) -> dict[str, pl.DataType]:
        """Changes travel whole."""
        return self._intake.partial_schema

    @cached_property
    def state_schema(self) -> dict[str, pl.DataType]:
        """Key and last change; the row too where a later change may need it."""
        return {**self.rows.keys, **ORDERED, **(self._values if self.before_images or self._fills else {})}

    @cached_property
    def output_schema(self) -> dict[str, pl.DataType]:
        """A changelog of the same table."""
        return {**self._table, **CHANGELOG}

    @property
    def side_schemas(self) -> dict[str, dict[str, pl.DataType]]:
        """No change is late."""
        return {}

    def combine(self, rows: pl.DataFrame, edge: Edge) -> Combined:
        """Changes travel one by one."""
        return self._intake.combine(rows, edge)

    def merge(self, partials: pl.DataFrame) -> pl.DataFrame:
        """Changes stay as they are."""
        return self._intake.merge(partials)

    def apply(self, state: pl.DataFrame, partials: pl.DataFrame, edge: Edge) -> Applied:
        """Take the last change of every key, say what it did to the table, and forget old deletions."""
        key = list(self.key)
        known = state.join(partials.select(key).unique(), on=key, how="semi", nulls_equal=True)
        ordered = in_order(partials, known, key)
        told = {"stale": ordered.stale, "duplicates": ordered.duplicates}
        last = ordered.last(key)
        if self._fills:
            last, unknown = filled(ordered.changes, known, key=key, columns=list(self._values))
            told["unknown_values"] = unknown
        rest = state.join(last, on=key, how="anti", nulls_equal=True) if last.height else state
        kept = pl.concat([rest, last.select(self.state_schema.keys())])
        over = kept.select(self.deleted.over(edge)).to_series()
        return Applied(
            kept.filter(~over) if over.any() else kept,
            last.select(self.state_schema.keys()).filter(~self.deleted.over(edge)),
            kept.filter(over).select(self.identity),
            self._output(known, last),
            dropped=ordered.dropped,
            told=told,
        )

    def due(self, state: pl.DataFrame, edge: Edge) -> Due:
        """The earliest moment at which a deletion is forgotten."""
        return self.deleted.due(state)

    def _output(self, known: pl.DataFrame, last: pl.DataFrame) -> pl.DataFrame:
        """What a batch did to the table, one change of every key, or two where the old row is asked for too."""
        there = known.filter(SETS)
        was = there.select(*self.key, pl.lit(True).alias(_WAS))
        beside = join_by_key(last, was, self.key, how="left", nulls_equal=True, maintain_order="left")
        changed = beside.filter(pl.col(SETS) | pl.col(_WAS).fill_null(False))
        change = (
            pl.when(~pl.col(SETS))
            .then(pl.lit(DELETE))
            .when(pl.col(_WAS).fill_null(False))
            .then(pl.lit(UPDATE_AFTER))
            .otherwise(pl.lit(INSERT))
        )
        news = changed.select(*self._table, change.alias(CHANGE), pl.col(PLACE).alias(POSITION))
        if not self.before_images:
            return news
        told = news.select(*self.key, CHANGE, POSITION)
        old = join_by_key(there.drop(PLACE, SETS, TIME), told, self.key, nulls_equal=True, maintain_order="left")
        before = pl.when(pl.col(CHANGE) == DELETE).then(pl.lit(DELETE)).otherwise(pl.lit(UPDATE_BEFORE))
        taken = old.select(*self._table, before.alias(CHANGE), POSITION)
        # An old row first, then what takes its place; a deletion is the old row alone.
        return pl.concat([taken, news.filter(pl.col(CHANGE) != DELETE)])
