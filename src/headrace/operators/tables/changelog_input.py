"""How steps take in changelogs: what a change must have, and how long a deleted key is remembered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import polars as pl

from headrace.changelog import (
    CHANGE,
    CHANGELOG,
    CHANGES,
    POSITION,
    UNCHANGED,
    UPDATE_AFTER,
    UPDATE_BEFORE,
    check_changelog,
    is_setting,
)
from headrace.durations import Duration, positive_microseconds, spoken
from headrace.errors import DefinitionError
from headrace.event_time.record import TimeBounds
from headrace.key_hash import canonical
from headrace.nodes import ResultVersions
from headrace.operators.rows import TIME, RowByRow, Rows, check_key, failed_rows
from headrace.operators.step import LateRows, Step
from headrace.wheel.operator import Combined, Due, Uncombined

ROW_POSITION, IS_UPSERT = "__position", "__sets"
LAST_CHANGE: Mapping[str, pl.DataType] = {ROW_POSITION: pl.String(), IS_UPSERT: pl.Boolean(), TIME: pl.Int64()}
"""A change's position, whether it sets its row or removes it, and its event time."""
LACKS_BEFORE = "__lacks_before"
"""Whether a change is an update that came without its before image."""
WEEK = "1 week"


def table_columns(schema: Mapping[str, pl.DataType]) -> dict[str, pl.DataType]:
    """The columns of the table behind a changelog, its event time among them.

    >>> list(table_columns({"id": pl.Int64(), "change": pl.String(), "position": pl.String()}))
    ['id']
    """
    return {name: dtype for name, dtype in schema.items() if name not in (*CHANGELOG, UNCHANGED)}


def check_all_values_sent(step: str, schema: Mapping[str, pl.DataType], *, side: str = "the rows") -> None:
    """The rows of the changelog have all their values."""
    if UNCHANGED in schema:
        raise DefinitionError(
            "VALUES_NOT_SENT",
            f"step {step!r}: {side} have a column {UNCHANGED!r}, which names values that the database did not send. "
            "Put hr.materialize(..., before_images=True) before the step, which fills them in; if every value is sent, "
            f"drop the column with .drop({UNCHANGED!r}).",
        )


def known_changes(rows: pl.DataFrame, position: pl.Expr | None = None) -> tuple[pl.DataFrame, pl.DataFrame | None]:
    """The rows whose ``change`` is known and whose position is not null, and the others as dead letters."""
    unknown = ~pl.col(CHANGE).is_in(CHANGES).fill_null(False)
    is_bad = rows.select(unknown if position is None else unknown | position.is_null()).to_series()
    if not is_bad.any():
        return rows, None
    why_unknown = pl.format(f"change is {{}}, not one of {', '.join(CHANGES)}", pl.col(CHANGE).fill_null("null"))
    no_position = pl.lit("position is null, so the order of the change is unknown")
    reason = pl.when(unknown).then(pl.lit("CHANGE_UNKNOWN")).otherwise(pl.lit("POSITION_NULL"))
    failed = failed_rows(rows.filter(is_bad), reason, pl.when(unknown).then(why_unknown).otherwise(no_position))
    return rows.filter(~is_bad), failed


@dataclass(frozen=True)
class ChangelogInput(RowByRow):
    """One changelog input of a step. Its rows are never late, because positions order them."""

    rows: Rows
    row_key: tuple[str, ...]
    columns: Mapping[str, pl.DataType]
    """The table's columns that the step needs."""
    name: str = "changes"
    side: str = "the rows"
    """The input in error messages."""

    def __post_init__(self) -> None:
        step, schema = self.rows.step, self.rows.schema
        check_changelog(step, schema, side=self.side, placed=bool(self.row_key))
        check_key(step, self.row_key, schema)
        for name in (*self.key, *self.row_key):
            if name in (*CHANGELOG, UNCHANGED):
                raise DefinitionError(
                    "COLUMN_RESERVED",
                    f"step {step!r}: column {name!r} belongs to the changelog and not to its table, so it cannot be a "
                    "key. Use a column of the table.",
                )

    @cached_property
    def partial_schema(self) -> dict[str, pl.DataType]:
        return {**self.columns, **LAST_CHANGE, LACKS_BEFORE: pl.Boolean()}

    def combine(self, rows: pl.DataFrame, bounds: TimeBounds) -> Combined:
        # Changes of an earlier step have no position: they come exactly once, in order.
        position = pl.col(POSITION) if POSITION in self.rows.schema else pl.lit("")
        good, failed = known_changes(rows, position)
        partials = canonical(good, tuple(dict.fromkeys((*self.key, *self.row_key)))).select(
            *self.columns,
            position.alias(ROW_POSITION),
            is_setting().alias(IS_UPSERT),
            self.rows.row_time.alias(TIME),
            self._lacks_before.alias(LACKS_BEFORE),
        )
        return Combined(partials, rows.clear(), good.height, failed=failed)

    @property
    def _lacks_before(self) -> pl.Expr:
        # An update needs its before image where it may move a row to another key, or rows have no identity.
        needed = not self.row_key or not set(self.key) <= set(self.row_key)
        if not needed or POSITION not in self.rows.schema:
            return pl.lit(False)
        has_before = (pl.col(CHANGE) == UPDATE_BEFORE).any().over([*self.row_key, POSITION])
        return (pl.col(CHANGE) == UPDATE_AFTER) & ~has_before


@dataclass(frozen=True, slots=True)
class TombstoneRetention:
    """How long a deleted key is remembered, so that an older change does not bring it back."""

    kept: int | None
    """In microseconds of event time; None means for ever."""

    @property
    def expires(self) -> pl.Expr:
        """When a state row expires: only tombstones do."""
        return pl.when(~pl.col(IS_UPSERT)).then(pl.col(TIME) + pl.lit(self.kept, pl.Int64))

    def __str__(self) -> str:
        if self.kept is None:
            return "the last position of each deleted key, for ever"
        return f"the last position of each deleted key, until event time is {spoken(self.kept)} behind its deletion"

    def upper_bound(self, *, tables: int, moving: bool = False) -> str:
        """The most rows in the state of whole tables; a row that moves to another key leaves a tombstone behind."""
        rows = tables * 1_000_000
        here = f"{rows:,} rows in the table" + "s" * (tables > 1)
        leaving = "deletions and moves" if moving else "deletions"
        if self.kept is None:
            return f"at most rows + {leaving}; with {here} and 1,000,000 {leaving} {rows + 1_000_000:,} rows"
        most = rows + self.kept // 100_000
        return (
            f"at most rows + {leaving} a second x ({spoken(self.kept)} + lag), where lag is how far event time is "
            f"behind the newest change; with {here}, 10 {leaving}/s and no lag {most:,} rows"
        )

    @property
    def arguments(self) -> dict[str, object]:
        """``keep_deleted=`` for printing a step; nothing for the default."""
        kept = None if self.kept is None else spoken(self.kept)
        return {} if kept == WEEK else {"keep_deleted": kept}


def tombstone_retention(keep_deleted: Duration | None) -> TombstoneRetention:
    """The retention that ``keep_deleted=`` describes.

    >>> str(tombstone_retention("1 week"))
    'the last position of each deleted key, until event time is 1 week behind its deletion'
    """
    given = keep_deleted
    return TombstoneRetention(None if given is None else positive_microseconds(given, argument="keep_deleted"))


@dataclass(frozen=True, kw_only=True, repr=False)
class ChangelogStep(Step):
    """A step over changelogs, whose result is a changelog too."""

    changelogs: ClassVar[tuple[int, ...]] = (0,)
    late_rows = LateRows(never="changes are ordered by their positions, so none is late")
    retracts = True
    tombstones: TombstoneRetention

    @property
    def versions(self) -> ResultVersions | None:
        return ResultVersions(tuple((name,) for name in self.key), change=CHANGE)


@dataclass(frozen=True)
class ChangelogOperator(Uncombined):
    """What operators over changelogs share: changes are not combined, none is late, and tombstones expire."""

    name: str
    changelog: ChangelogInput
    """The input, the left one of two."""
    tombstones: TombstoneRetention
    side_schemas: ClassVar[dict[str, dict[str, pl.DataType]]] = {}

    @property
    def key(self) -> tuple[str, ...]:
        return self.changelog.key

    @property
    def identity(self) -> tuple[str, ...]:
        return self.key

    @property
    def partial_schema(self) -> dict[str, pl.DataType]:
        return self.changelog.partial_schema

    def combine(self, rows: pl.DataFrame, bounds: TimeBounds) -> Combined:
        return self.changelog.combine(rows, bounds)

    def due(self, bounds: TimeBounds) -> Due:
        return Due(dead_at=None if self.tombstones.kept is None else self.tombstones.expires)

    def retained(
        self, changed: pl.DataFrame, bounds: TimeBounds, empty: pl.Expr | None = None
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The changed rows that stay, and the identities of those that are empty or expire at once."""
        expired = (self.tombstones.expires <= bounds.fire).fill_null(False)
        gone = changed.select(expired if empty is None else expired | empty).to_series()
        return changed.filter(~gone), changed.filter(gone).select(self.identity)
