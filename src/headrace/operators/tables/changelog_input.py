"""How steps take in changelogs and what changes do to a table: their order, stale and repeated ones, tombstones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import polars as pl

from headrace.changelog import (
    CHANGE,
    CHANGELOG,
    CHANGES,
    DELETE,
    INSERT,
    POSITION,
    UNCHANGED,
    UPDATE_AFTER,
    UPDATE_BEFORE,
    check_changelog,
    is_setting,
    sortable,
)
from headrace.durations import Duration, positive_microseconds, spoken
from headrace.errors import DefinitionError
from headrace.event_time.record import TimeBounds
from headrace.key_hash import canonical
from headrace.operators.rows import TIME, RowByRow, Rows, check_key, failed_rows, join_by_key
from headrace.operators.step import LateRows, Step
from headrace.schemas import MOMENT
from headrace.wheel.operator import Combined, Due, Uncombined

ROW_POSITION, IS_UPSERT = "__position", "__sets"
LAST_CHANGE: Mapping[str, pl.DataType] = {ROW_POSITION: pl.String(), IS_UPSERT: pl.Boolean(), TIME: pl.Int64()}
"""A change's position, whether it sets its row or removes it, and its event time."""
LACKS_BEFORE = "__lacks_before"
"""Whether a change is an update that came without its before image."""
CHANGED_AT = "changed_at"
VIEW_CHANGELOG: Mapping[str, pl.DataType] = {**CHANGELOG, CHANGED_AT: MOMENT}
"""The columns of a step's changelog that do not belong to its table."""
WEEK = "1 week"
_KNOWN, _KNOWN_UPSERT = "__known_position", "__known_sets"


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


@dataclass(frozen=True)
class TableChanges:
    """The changes of a batch in the order of their positions, and what they do to the stored rows of a table."""

    stored: pl.DataFrame
    """Rows and tombstones before the batch."""
    key: tuple[str, ...]
    changes: pl.DataFrame
    stale: int
    duplicates: int

    @classmethod
    def of(cls, changes: pl.DataFrame, stored: pl.DataFrame, key: Sequence[str]) -> Self:
        """The changes that are newer than what is stored of their key; at one position, removals come first.

        >>> columns = ["id", "__position", "__sets", "__time"]
        >>> def rows(*given): return pl.DataFrame(given, schema=columns, orient="row")
        >>> given = rows((1, "5", True, 20), (1, "3", True, 20), (1, "5", False, 20), (2, "6", False, 30))
        >>> found = TableChanges.of(given, rows((1, "4", True, 10), (2, "4", True, 10), (3, "4", True, 10)), ["id"])
        >>> found.changes["id", "__position", "__sets"].rows(), found.stale, found.duplicates
        ([(1, '5', False), (1, '5', True), (2, '6', False)], 1, 0)
        >>> found.unchanged["id"].to_list(), found.old.rows(), found.new.rows()
        ([3], [(1, '4', True, 20), (2, '4', True, 30)], [(1, '5', True, 20)])
        """
        if changes.is_empty():
            return cls(stored, tuple(key), changes, 0, 0)
        last = stored.select(*key, pl.col(ROW_POSITION).alias(_KNOWN), pl.col(IS_UPSERT).alias(_KNOWN_UPSERT))
        with_known = join_by_key(changes, last, key, how="left", nulls_equal=True, maintain_order="left")
        same_position = pl.col(ROW_POSITION) == pl.col(_KNOWN)
        stale = (pl.col(ROW_POSITION) < pl.col(_KNOWN)) | (same_position & ~pl.col(IS_UPSERT) & pl.col(_KNOWN_UPSERT))
        repeated = same_position & (pl.col(IS_UPSERT) == pl.col(_KNOWN_UPSERT))
        judged = with_known.select(stale.fill_null(False).alias("stale"), repeated.fill_null(False).alias("repeated"))
        newer = with_known.drop(_KNOWN, _KNOWN_UPSERT).filter(~(judged["stale"] | judged["repeated"]))
        in_order = newer.sort(ROW_POSITION, IS_UPSERT, maintain_order=True)
        unique = in_order.unique([*key, ROW_POSITION, IS_UPSERT], keep="first", maintain_order=True)
        duplicates = int(judged["repeated"].sum()) + in_order.height - unique.height
        return cls(stored, tuple(key), unique, int(judged["stale"].sum()), duplicates)

    @property
    def dropped(self) -> int:
        return self.stale + self.duplicates

    @property
    def counters(self) -> dict[str, int]:
        return {"stale": self.stale, "duplicates": self.duplicates}

    @cached_property
    def last(self) -> pl.DataFrame:
        return self.changes.unique(self.key, keep="last", maintain_order=True)

    @cached_property
    def live(self) -> pl.DataFrame:
        return self.stored.filter(IS_UPSERT)

    @cached_property
    def unchanged(self) -> pl.DataFrame:
        return self.live.join(self.last, on=self.key, how="anti", nulls_equal=True, maintain_order="left")

    @cached_property
    def old(self) -> pl.DataFrame:
        """Changed rows as they were; their time is that of the change."""
        times = self.last.select(*self.key, TIME)
        old = join_by_key(self.live.drop(TIME), times, self.key, nulls_equal=True, maintain_order="left")
        return old.select(self.changes.columns)

    @cached_property
    def new(self) -> pl.DataFrame:
        return self.last.filter(IS_UPSERT)

    def rows(self, *, after: bool) -> pl.DataFrame:
        return pl.concat([self.unchanged, self.new if after else self.old])

    @property
    def removed_unknown(self) -> int:
        """Removals of rows that were not there."""
        removals = self.changes.unique(self.key, keep="first").filter(~pl.col(IS_UPSERT))
        return removals.join(self.stored, on=self.key, how="anti", nulls_equal=True).height


def row_changes(before: pl.DataFrame, after: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    """What turns rows into others, all retractions first; a key that has a row before and after is updated."""
    changes = []
    for rows, others, update, otherwise in (
        (before, after, UPDATE_BEFORE, DELETE),
        (after, before, UPDATE_AFTER, INSERT),
    ):
        known = others.select(*key, pl.lit(update).alias(CHANGE))
        found = join_by_key(rows.select(key), known, key, how="left", nulls_equal=True, maintain_order="left")
        changes.append(rows.with_columns(found[CHANGE].fill_null(otherwise)))
    return pl.concat(changes)


def view_changes(before: pl.DataFrame, after: pl.DataFrame, key: Sequence[str], bounds: TimeBounds) -> pl.DataFrame:
    """What a batch changes in a view."""
    # One position per batch is enough: a row of the view is removed and added at most once in it.
    position = sortable(pl.lit(bounds.batch)).alias(POSITION)
    return row_changes(before, after, key).with_columns(position, pl.col(TIME).cast(MOMENT).alias(CHANGED_AT))
