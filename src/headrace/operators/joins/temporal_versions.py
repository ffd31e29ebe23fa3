"""What both temporal joins share: how rows and versions come in and lie in the state, and which version is valid."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from headrace.changelog import CHANGE, POSITION, UNCHANGED, is_setting
from headrace.event_time.lateness import Lateness
from headrace.event_time.record import TimeBounds
from headrace.key_hash import canonical
from headrace.operators.joins.join_columns import InnerOrLeft, JoinedColumns, JoinKey, joined_columns
from headrace.operators.joins.matching import BoolArray, retained
from headrace.operators.rows import (
    ARRIVAL,
    KEY_NUMBER,
    ROW_NUMBER,
    TIME,
    RowByRow,
    Rows,
    arrivals,
    has_closed,
    in_order_of_arrival,
    with_key_numbers,
)
from headrace.operators.tables.changelog_input import known_changes
from headrace.wheel.operator import Combined

KIND, VERSION_POSITION, UNSENT = "__kind", "__position", "__unsent"
ROW, TOMBSTONE, VERSION = 0, 1, 2
"""The kinds of state rows. Of two changes at one position the tombstone comes first."""
OF_ROW, OF_VERSION = "__row.", "__version."
_LIFE, _MATCH, _SINCE = "__life", "__match", "__since"


class TemporalInput(RowByRow):
    """An input of a temporal join."""

    @property
    def partial_schema(self) -> dict[str, pl.DataType]:
        return dict(self.rows.schema)

    def _accepted(
        self, on_time: pl.DataFrame, late: pl.DataFrame, *, failed: pl.DataFrame | None = None, nulls: bool = False
    ) -> Combined:
        """The rows that travel: those with a null key, which match nothing, only with ``nulls``."""
        accepted = on_time if nulls else on_time.drop_nulls(self.key)
        partials = canonical(accepted, self.key).select(self.partial_schema.keys())
        return Combined(partials, late, accepted.height, dropped=on_time.height - accepted.height, failed=failed)


@dataclass(frozen=True)
class VersionInput(TemporalInput):
    """The second input of a temporal join: versions as plain rows, or as a changelog."""

    rows: Rows
    lateness: Lateness | None
    """What happens to late versions; None where no version is late. They may be delivered to rows still to come."""
    name = "versions"

    @cached_property
    def change_columns(self) -> frozenset[str]:
        """The columns that make the versions a changelog, in which a version may also be deleted."""
        types = {CHANGE: pl.String(), POSITION: pl.String(), UNCHANGED: pl.List(pl.String())}
        found = frozenset(name for name, dtype in types.items() if self.rows.schema.get(name) == dtype)
        return found if CHANGE in found else frozenset()

    @property
    def corrects_for(self) -> int:
        """How long a late version still corrects rows that were emitted."""
        return 0 if self.lateness is None else self.lateness.correctable

    def combine(self, rows: pl.DataFrame, bounds: TimeBounds) -> Combined:
        """Set late versions and unknown changes aside."""
        if self.lateness is None or self.lateness.kind == "deliver":
            is_late = pl.lit(False)
        elif self.corrects_for:
            # Where late versions are accepted, a window's correction replaces its first result.
            is_late = has_closed(self.rows.row_time + 1, bounds, self.corrects_for)
        else:
            is_late = self.rows.is_late(bounds)
        on_time, late = self.rows.split_late(rows, bounds, is_late)
        failed = None
        if CHANGE in self.change_columns:
            on_time, failed = known_changes(on_time)
        return self._accepted(on_time, late, failed=failed)


@dataclass(frozen=True)
class TemporalJoinOperator(TemporalInput):
    """Joins each row with a version of its key; the state holds both as rows of one table."""

    name: str
    rows: Rows
    second: VersionInput
    on: JoinKey
    how: InnerOrLeft
    ttl: int | None
    lateness: Lateness | None
    """What happens to late rows; None where no row is late."""

    @property
    def identity(self) -> tuple[str, ...]:
        return (*self.key, ARRIVAL, KIND)

    @property
    def output_time(self) -> str:
        return self.columns.left.get(self.rows.time, self.rows.time)

    @cached_property
    def columns(self) -> JoinedColumns:
        """The columns of a joined row, without those that make the versions a changelog."""
        hidden = self.second.change_columns.difference(self.on.right)
        right = {name: dtype for name, dtype in self.second.rows.schema.items() if name not in hidden}
        own = (CHANGE,) if self.second.corrects_for else ()
        return joined_columns(self.name, self.on, self.rows.schema, right, own=own)

    @cached_property
    def output_schema(self) -> dict[str, pl.DataType]:
        return {**self.columns.schema, **({CHANGE: pl.String()} if self.second.corrects_for else {})}

    @property
    def _version_columns(self) -> dict[str, pl.Expr]:
        """The columns of a version as a state row, without its arrival number."""
        changes = self.second.change_columns
        is_version = is_setting() if CHANGE in changes else pl.lit(True)
        kind = pl.when(is_version).then(pl.lit(VERSION, pl.Int8)).otherwise(pl.lit(TOMBSTONE, pl.Int8))
        columns = {left: pl.col(right) for left, right in self.on.pairs}
        columns |= {TIME: self.second.rows.row_time, KIND: kind}
        columns |= {VERSION_POSITION: pl.col(POSITION)} if self._has_positions else {}
        columns |= {UNSENT: pl.col(UNCHANGED)} if UNCHANGED in changes else {}
        return {**columns, **{f"{OF_VERSION}{name}": pl.col(name) for name in self.columns.right}}

    @cached_property
    def version_schema(self) -> dict[str, pl.DataType]:
        columns = pl.DataFrame(schema=self.second.partial_schema).select(**self._version_columns).schema
        return {**self.columns.key, ARRIVAL: pl.Int64(), **columns}

    @cached_property
    def side_schemas(self) -> dict[str, dict[str, pl.DataType]]:
        inputs = ("late", self.lateness, self.rows), (self.second.late_output, self.second.lateness, self.second.rows)
        return {name: rows.late_schema for name, policy, rows in inputs if policy is not None and policy.keeps_rows}

    @property
    def _has_positions(self) -> bool:
        return POSITION in self.second.change_columns

    def combine(self, rows: pl.DataFrame, bounds: TimeBounds) -> Combined:
        late = self.lateness
        is_late = pl.lit(False) if late is None else self.rows.is_late(bounds, correctable=late.correctable)
        return self._accepted(*self.rows.split_late(rows, bounds, is_late), nulls=self.how == "left")

    def _as_rows(self, partials: pl.DataFrame) -> pl.DataFrame:
        """New rows, named as in the state."""
        renamed = (pl.col(name).alias(f"{OF_ROW}{name}") for name in self.columns.left)
        return partials.select(*self.key, self.rows.row_time.alias(TIME), pl.lit(ROW, pl.Int8).alias(KIND), *renamed)

    def _with_new(self, versions: pl.DataFrame, second: pl.DataFrame, bounds: TimeBounds) -> pl.DataFrame:
        """Known versions and the new ones after them."""
        arrived = second.select(arrivals(bounds, second.height), **self._version_columns)
        return pl.concat([in_order_of_arrival(versions), arrived], how="diagonal")

    def _numbered(self, rows: pl.DataFrame, of: pl.DataFrame) -> pl.DataFrame:
        """The rows or versions whose keys are in ``of``, with their row numbers and key numbers."""
        narrow = [name for name in (*self.key, ARRIVAL, TIME, KIND, VERSION_POSITION) if name in rows.columns]
        return with_key_numbers(rows.select(narrow).with_row_index(ROW_NUMBER), self.key, of=of)

    def _joined(
        self, rows: pl.DataFrame, numbers: pl.Series, versions: pl.DataFrame, matches: pl.Series
    ) -> pl.DataFrame:
        """Joined rows by the row numbers of rows and of the versions that they match; null stands for none."""
        if self.how == "inner" and matches.has_nulls():
            numbers, matches = numbers.filter(matches.is_not_null()), matches.drop_nulls()
        left = rows.select(
            *(pl.col(name).gather(numbers) for name in self.columns.key),
            *(pl.col(f"{OF_ROW}{name}").gather(numbers).alias(new) for name, new in self.columns.left.items()),
        )
        right = (pl.col(f"{OF_VERSION}{name}").gather(matches).alias(new) for name, new in self.columns.right.items())
        return left.with_columns(*versions.select(right).get_columns())

    @property
    @abstractmethod
    def _expires(self) -> pl.Expr:
        """When a state row expires; null where it never does."""

    def _retained(
        self, rows: pl.DataFrame, known: int, bounds: TimeBounds, altered: BoolArray, settled: BoolArray
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        expired = rows.select((self._expires <= bounds.fire).fill_null(False)).to_series().to_numpy()
        return retained(rows, known=known, identity=self.identity, expired=expired, altered=altered, settled=settled)


@dataclass(frozen=True, slots=True)
class VersionedTable:
    """Versions with their row numbers and key numbers: by key, then time if it counts, then position, then arrival."""

    versions: pl.DataFrame
    duplicates: pl.DataFrame
    """Changes that were there already."""

    @classmethod
    def of(cls, versions: pl.DataFrame, *by: str) -> VersionedTable:
        """Order versions that are in the order of arrival: by some columns, and then by position."""
        if VERSION_POSITION not in versions.columns:
            return cls(versions.sort(by, maintain_order=True), versions.clear())
        rank = pl.when(pl.col(VERSION_POSITION).is_not_null()).then(KIND).otherwise(0)
        ordered = versions.sort(*by, VERSION_POSITION, rank, maintain_order=True)
        # Changes without a position are only ordered by their arrival, so none is a duplicate.
        same = pl.col(*by, VERSION_POSITION, KIND)
        repeated = ordered.select(pl.all_horizontal(same == same.shift()).fill_null(False)).to_series()
        return cls(ordered.filter(~repeated), ordered.filter(repeated))

    @property
    def latest(self) -> pl.DataFrame:
        """The last version of every key."""
        return self.versions.unique(KEY_NUMBER, keep="last", maintain_order=True)

    def as_of(self, rows: pl.DataFrame, ttl: int | None) -> pl.Series:
        """The row number of the version that is valid at each row's time; null without one."""
        versions = self.versions.select(TIME, *_VALIDITY)
        found = rows.select(KEY_NUMBER, TIME).join_asof(versions, on=TIME, by=KEY_NUMBER, check_sortedness=False)
        return _valid(found, ttl)

    def by_arrival(self, rows: pl.DataFrame, ttl: int | None) -> pl.Series:
        """The row number of the latest version of each row's key, if it is still valid."""
        versions = self.latest.select(_VALIDITY)
        found = rows.select(KEY_NUMBER, TIME).join(versions, on=KEY_NUMBER, how="left", maintain_order="left")
        return _valid(found, ttl)


_VALIDITY = (KEY_NUMBER, KIND, pl.col(ROW_NUMBER).alias(_MATCH), pl.col(TIME).alias(_SINCE))


def _valid(found: pl.DataFrame, ttl: int | None) -> pl.Series:
    valid = pl.col(KIND) == VERSION
    if ttl is not None:
        valid &= pl.col(TIME) - pl.col(_SINCE) < ttl
    return found.select(pl.when(valid).then(_MATCH)).to_series()


def fill_unsent(everything: pl.DataFrame, versions: pl.DataFrame, *, known: int) -> tuple[pl.DataFrame, BoolArray]:
    """Give versions the values that were not sent because they stayed the same, and tell which rows that altered.

    ``versions`` are the ordered versions of a table. The first ``known`` rows keep their values unless a version before
    them now has others. Values are not carried beyond a tombstone.

    >>> stored = {"__time": [1, 2], "__kind": [2, 2], "__unsent": [None, ["text"]], "__version.text": ["long", None]}
    >>> versions = pl.DataFrame({"__key": [7, 7], "__row_number": [0, 1], "__time": [1, 2], "__kind": [2, 2]})
    >>> rows, _ = fill_unsent(pl.DataFrame(stored), versions, known=0)
    >>> rows["__version.text"].to_list()
    ['long', 'long']
    """
    altered = np.zeros(everything.height, dtype=np.bool_)
    numbers = versions[ROW_NUMBER]
    unsent = everything[UNSENT].gather(numbers) if UNSENT in everything.columns else pl.Series([], dtype=pl.Null)
    if unsent.null_count() == unsent.len():
        return everything, altered
    moment = pl.col(VERSION_POSITION if VERSION_POSITION in versions.columns else TIME)
    # A life of a key ends with a tombstone, except with that of an update, at whose moment the new row comes.
    begins = (pl.col(KIND).shift() == TOMBSTONE) & (moment != moment.shift()).fill_null(True)
    life = begins.fill_null(False).cum_sum().over(KEY_NUMBER).alias(_LIFE)
    ordered = versions.with_columns(unsent, life)
    for name in unsent.drop_nulls().explode().drop_nulls().unique():
        column = f"{OF_VERSION}{name}"
        if column not in everything.columns:
            continue
        sent = ~pl.col(UNSENT).list.contains(name).fill_null(False)
        filled_before = pl.when(pl.col(_LIFE) == 0).then(_last_in_life(sent | (pl.col(ROW_NUMBER) < known)))
        found = ordered.select(pl.coalesce(_last_in_life(sent), filled_before)).to_series()
        sources = pl.int_range(everything.height, dtype=pl.UInt32, eager=True).scatter(numbers, found)
        values = everything[column].gather(sources)
        altered |= values.ne_missing(everything[column]).to_numpy()
        everything = everything.with_columns(values)
    return everything, altered


def _last_in_life(condition: pl.Expr) -> pl.Expr:
    """The last version of the key's life, up to and including this one, that satisfies a condition."""
    return pl.when(condition).then(ROW_NUMBER).forward_fill().over(KEY_NUMBER, _LIFE)
