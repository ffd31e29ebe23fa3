"""Changes on their way to a key group: the table's columns, and beside them when and what each change does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from headrace.changelog import CHANGE, CHANGELOG, CHANGES, POSITION, UNCHANGED, UPDATE_AFTER, UPDATE_BEFORE, is_setting
from headrace.durations import Duration, positive_microseconds, spoken
from headrace.event_time.record import TimeBounds
from headrace.event_time.strategy import BEGINNING
from headrace.operators.rows import Rows, join_by_key
from headrace.wheel.key_groups import canonical
from headrace.wheel.operator import Combined, Due

PLACE, SETS, TIME = "__position", "__sets", "__time"
ORDERED: Mapping[str, pl.DataType] = {PLACE: pl.String(), SETS: pl.Boolean(), TIME: pl.Int64()}
"""A change's position, whether it sets its row or takes it away, and its event time."""
CHANGED_AT = "changed_at"
OWN = (*CHANGELOG, CHANGED_AT)
"""The columns that a changelog has beside those of its table, and the event time of one that a step makes."""
ALONE = "__alone"
"""Whether a change is an update that came without the old row."""


@dataclass(frozen=True)
class ChangelogInput:
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

    def combine(self, rows: pl.DataFrame, bounds: TimeBounds) -> Combined:
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


_KNOWN, _KNOWN_SETS = "__known_position", "__known_sets"


@dataclass(frozen=True, slots=True)
class OrderedChanges:
    """The changes of a batch that count, in the order of their positions, and how many do not."""

    changes: pl.DataFrame
    stale: int
    """Changes before the last that was taken of their key."""
    duplicates: int
    """Changes that were taken already."""

    @property
    def dropped(self) -> int:
        """Changes that do not count."""
        return self.stale + self.duplicates

    def last(self, key: Sequence[str]) -> pl.DataFrame:
        """The last change of every key."""
        return self.changes.unique(list(key), keep="last", maintain_order=True)


def ordered_changes(changes: pl.DataFrame, known: pl.DataFrame, key: Sequence[str]) -> OrderedChanges:
    """The changes that come after what is known of their key; of one position, what removes comes before what sets.

    An update's two rows may come in any order, because the place of each among a key's changes is in the row itself.

    >>> def rows(*given): return pl.DataFrame(given, schema=["id", "__position", "__sets"], orient="row")
    >>> found = ordered_changes(rows((1, "5", True), (1, "3", True), (1, "5", False)), rows((1, "4", True)), ["id"])
    >>> found.changes.rows(), found.stale, found.duplicates
    ([(1, '5', False), (1, '5', True)], 1, 0)
    """
    last = known.select(*key, pl.col(PLACE).alias(_KNOWN), pl.col(SETS).alias(_KNOWN_SETS))
    beside = join_by_key(changes, last, key, how="left", nulls_equal=True, maintain_order="left")
    same_place = pl.col(PLACE) == pl.col(_KNOWN)
    stale = (pl.col(PLACE) < pl.col(_KNOWN)) | (same_place & ~pl.col(SETS) & pl.col(_KNOWN_SETS))
    repeated = same_place & (pl.col(SETS) == pl.col(_KNOWN_SETS))
    judged = beside.select(stale.fill_null(False).alias("stale"), repeated.fill_null(False).alias("repeated"))
    counting = beside.drop(_KNOWN, _KNOWN_SETS).filter(~(judged["stale"] | judged["repeated"]))
    placed = counting.sort(PLACE, SETS, maintain_order=True)
    fresh = placed.unique([*key, PLACE, SETS], keep="first", maintain_order=True)
    repeats = int(judged["repeated"].sum()) + placed.height - fresh.height
    return OrderedChanges(fresh, int(judged["stale"].sum()), repeats)


WEEK = "1 week"


@dataclass(frozen=True, slots=True)
class TombstoneRetention:
    """Deleted keys stay known for ``kept`` microseconds of event time, or for ever."""

    kept: int | None

    def over(self, bounds: TimeBounds) -> pl.Expr:
        """Whether a row of state is a deleted key that has been known long enough."""
        passed = pl.lit(False) if self.kept is None else pl.col(TIME) <= max(bounds.fire - self.kept, BEGINNING)
        return ~pl.col(SETS) & passed

    def due(self, state: pl.DataFrame) -> Due:
        """When the first deleted key is forgotten."""
        if self.kept is None:
            return Due()
        first = state.select(pl.col(TIME).filter(~pl.col(SETS)).min()).item()
        return Due(None if first is None else int(first) + self.kept)

    def __str__(self) -> str:
        if self.kept is None:
            return "the last position of each deleted key, for ever"
        return f"the last position of each deleted key, until event time is {spoken(self.kept)} behind its deletion"

    def most(self, *, tables: int, moving: bool = False) -> str:
        """How many rows a step holds at the most that keeps whole tables, as a formula and with numbers.

        Where rows may move to another place, the one that they have left is remembered as if they had been deleted.
        """
        rows, a_second = tables * 1_000_000, 1_000_000
        here = f"{rows:,} rows in the table" + "s" * (tables > 1)
        leaving = "deletions and moves" if moving else "deletions"
        if self.kept is None:
            return f"at most rows + {leaving}; with {here} and 1,000,000 {leaving} {rows + 1_000_000:,} rows"
        most = rows + 10 * self.kept // a_second
        return (
            f"at most rows + {leaving} a second x ({spoken(self.kept)} + lag), where lag is how far event time is "
            f"behind the newest change; with {here}, 10 {leaving}/s and no lag {most:,} rows"
        )

    @property
    def arguments(self) -> dict[str, object]:
        """The argument that makes it; none where it is the default."""
        if self == tombstone_retention(WEEK):
            return {}
        return {"keep_deleted": None if self.kept is None else spoken(self.kept)}


def tombstone_retention(duration: Duration | None) -> TombstoneRetention:
    """What ``keep_deleted=`` says.

    >>> str(tombstone_retention("1 week"))
    'the last position of each deleted key, until event time is 1 week behind its deletion'
    """
    return TombstoneRetention(None if duration is None else positive_microseconds(duration, argument="keep_deleted"))
