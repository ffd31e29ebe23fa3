"""Changes on their way to a key group: the table's columns, and beside them when and what each change does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from headrace.changelog import CHANGE, CHANGELOG, CHANGES, POSITION, UNCHANGED, UPDATE_AFTER, UPDATE_BEFORE, is_setting
from headrace.event_time.record import Edge
from headrace.operators.rows import Rows
from headrace.wheel.key_hash import canonical
from headrace.wheel.operator import Combined

PLACE, SETS, TIME = "__position", "__sets", "__time"
ORDERED: Mapping[str, pl.DataType] = {PLACE: pl.String(), SETS: pl.Boolean(), TIME: pl.Int64()}
"""A change's position, whether it sets its row or takes it away, and its event time."""
CHANGED_AT = "changed_at"
OWN = (*CHANGELOG, CHANGED_AT)
"""The columns that a changelog has beside those of its table, and the event time of one that a step makes."""
ALONE = "__alone"
"""Whether a change is an update that came without the old row."""


@dataclass(frozen=True)
class ChangeIntake:
    """How a changelog comes to the key groups; its rows are never late, whatever their event time."""

    rows: Rows
    row_key: tuple[str, ...]
    """The table's primary key."""
    columns: Mapping[str, pl.DataType]
    """The table's columns that travel; all that the step needs."""
    name: str = "changes"
    broadcast: bool = False
    late_output: str = "late_right"

    @cached_property
    def needs_old_rows(self) -> bool:
        """Whether an update needs the old row: it may take a row to another key, or rows are not told apart at all."""
        return not self.row_key or not set(self.key) <= set(self.row_key)

    @property
    def key(self) -> tuple[str, ...]:
        """The columns by which changes are spread over key groups."""
        return self.rows.key

    @cached_property
    def partial_schema(self) -> dict[str, pl.DataType]:
        """The table's columns, then position, what the change does, and when."""
        return {**self.columns, **ORDERED, ALONE: pl.Boolean()}

    def combine(self, rows: pl.DataFrame, edge: Edge) -> Combined:
        """Changes travel one by one; a row that does not say what it changes, or when, is a dead letter."""
        unknown = ~pl.col(CHANGE).is_in(CHANGES).fill_null(False)
        unplaced = self._position.is_null()
        bad = rows.select(unknown | unplaced).to_series()
        good = rows.filter(~bad) if bad.any() else rows
        partials = canonical(good, tuple(dict.fromkeys((*self.key, *self.row_key)))).select(
            *self.columns,
            self._position.alias(PLACE),
            is_setting().alias(SETS),
            self.rows.row_time.alias(TIME),
            self._alone.alias(ALONE),
        )
        failed = rows.filter(bad).select(
            pl.when(unknown).then(pl.lit("CHANGE_UNKNOWN")).otherwise(pl.lit("POSITION_NULL")).alias("reason"),
            pl.when(unknown)
            .then(pl.format(f"change is {{}}, not one of {', '.join(CHANGES)}", pl.col(CHANGE).fill_null("null")))
            .otherwise(pl.lit("position is null, so the change has no place among the others of its key"))
            .alias("detail"),
            pl.struct(pl.all()).struct.json_encode().alias("row"),
        )
        return Combined(partials, rows.clear(), good.height, failed=failed)

    @property
    def _position(self) -> pl.Expr:
        """Changes of an earlier step have none: they come once, in their order."""
        return pl.col(POSITION) if POSITION in self.rows.schema else pl.lit("")

    @property
    def _alone(self) -> pl.Expr:
        if not self.needs_old_rows or POSITION not in self.rows.schema:
            return pl.lit(False)
        told = (pl.col(CHANGE) == UPDATE_BEFORE).any().over([*self.row_key, POSITION])
        return (pl.col(CHANGE) == UPDATE_AFTER) & ~told

    def merge(self, partials: pl.DataFrame) -> pl.DataFrame:
        """Changes stay as they are, in the order of their arrival."""
        return partials


def table_columns(schema: Mapping[str, pl.DataType]) -> dict[str, pl.DataType]:
    """The columns of the table that a changelog is about, its event time among them.

    >>> list(table_columns({"id": pl.Int64(), "change": pl.String(), "position": pl.String()}))
    ['id']
    """
    return {name: dtype for name, dtype in schema.items() if name not in (*CHANGELOG, UNCHANGED)}
