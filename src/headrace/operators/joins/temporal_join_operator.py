"""Rows and versions of a temporal join: how both lie in one frame, and which columns leave it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import polars as pl

from headrace.changelog import CHANGE, CHANGES, POSITION, UNCHANGED, is_setting
from headrace.event_time.lateness import Lateness
from headrace.event_time.record import Edge
from headrace.event_time.strategy import BEGINNING
from headrace.operators.arrival import ARRIVAL
from headrace.operators.joins.join_columns import JoinedColumns, JoinKey, joined_columns
from headrace.operators.rows import Rows
from headrace.wheel.key_groups import canonical
from headrace.wheel.operator import Combined

TIME, KIND, PLACED, UNSENT = "__time", "__kind", "__position", "__unsent"
ROW, ENDED, VERSION = 0, 1, 2
"""What a row of state is: a row, the end of a version without another, a version. Of two changes at one position an
end comes first."""
OF_ROW, OF_VERSION = "__row.", "__version."


def before(time: int, by: int) -> int:
    """A time so much earlier; nothing is earlier than the beginning of time.

    >>> before(10, 3), before(BEGINNING, 3) == BEGINNING
    (7, True)
    """
    return max(time - by, BEGINNING)


def parted(
    rows: Rows, given: pl.DataFrame, lateness: Lateness, edge: Edge, *, refused: pl.Expr
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """What a side accepts, and what is refused or comes too late even for a correction, with how late it was."""
    late = given.select((rows.row_time < before(edge.late, lateness.correctable)) | refused).to_series()
    return given.filter(~late) if late.any() else given, rows.late(given.filter(late), edge)


@dataclass(frozen=True)
class TemporalLayout:
    """Where each column of a row and of a version lies in the state, and how a joined row is put together."""

    on: JoinKey
    rows: Rows
    versions: Rows
    corrected: bool = False
    """Whether joined rows may be taken back, so that they carry a ``change``."""

    @property
    def keeps_changes(self) -> bool:
        """Whether the versions are a changelog, in which a version may also end."""
        return self.versions.schema.get(CHANGE) == pl.String()

    @property
    def keeps_positions(self) -> bool:
        """Whether changes of one moment are in the order of their positions."""
        return self.keeps_changes and self.versions.schema.get(POSITION) == pl.String()

    @property
    def keeps_unsent(self) -> bool:
        """Whether versions name columns whose values were not sent, which are those of the version before."""
        return self.keeps_changes and self.versions.schema.get(UNCHANGED) == pl.List(pl.String())

    @cached_property
    def columns(self) -> JoinedColumns:
        """The columns of a joined row; how a version came about is none of them."""
        told = {CHANGE} if self.keeps_changes else set()
        told |= {POSITION} if self.keeps_positions else set()
        told |= {UNCHANGED} if self.keeps_unsent else set()
        right = {name: dtype for name, dtype in self.versions.schema.items() if name not in told - {*self.on.right}}
        own = (CHANGE,) if self.corrected else ()
        return joined_columns(self.rows.step, self.on, self.rows.schema, right, own=own)

    @cached_property
    def output_schema(self) -> dict[str, pl.DataType]:
        """The columns that leave."""
        return {**self.columns.schema, **({CHANGE: pl.String()} if self.corrected else {})}

    @property
    def output_time(self) -> str:
        """A joined row has the time of its row."""
        return self.columns.left.get(self.rows.time, self.rows.time)

    @cached_property
    def version_schema(self) -> dict[str, pl.DataType]:
        """The columns of state that a version needs."""
        told = {ARRIVAL: pl.Int64(), TIME: pl.Int64(), KIND: pl.Int8()}
        placed: dict[str, pl.DataType] = {PLACED: pl.String()} if self.keeps_positions else {}
        placed |= {UNSENT: pl.List(pl.String())} if self.keeps_unsent else {}
        payload = {f"{OF_VERSION}{name}": self.versions.schema[name] for name in self.columns.right}
        return {**self.columns.key, **told, **placed, **payload}

    @cached_property
    def state_schema(self) -> dict[str, pl.DataType]:
        """The columns of state that rows and versions need."""
        payload = {f"{OF_ROW}{name}": self.rows.schema[name] for name in self.columns.left}
        return {**self.version_schema, **payload}

    def rows_in(self, rows: pl.DataFrame, following: int) -> pl.DataFrame:
        """Rows as they enter the state, numbered in the order of their arrival."""
        payload = {name: f"{OF_ROW}{name}" for name in self.columns.left}
        return self._numbered(rows, following, self.on.left, pl.lit(ROW, pl.Int8), self.rows.row_time, payload)

    def versions_in(self, versions: pl.DataFrame, following: int) -> pl.DataFrame:
        """Versions as they enter the state, numbered in the order of their arrival."""
        payload = {name: f"{OF_VERSION}{name}" for name in self.columns.right}
        payload |= {POSITION: PLACED} if self.keeps_positions else {}
        payload |= {UNCHANGED: UNSENT} if self.keeps_unsent else {}
        kind = pl.lit(VERSION, pl.Int8)
        if self.keeps_changes:
            kind = pl.when(is_setting()).then(kind).otherwise(pl.lit(ENDED, pl.Int8))
        return self._numbered(versions, following, self.on.right, kind, self.versions.row_time, payload)

    def _numbered(
        self,
        frame: pl.DataFrame,
        following: int,
        key: tuple[str, ...],
        kind: pl.Expr,
        time: pl.Expr,
        payload: Mapping[str, str],
    ) -> pl.DataFrame:
        arrival = pl.int_range(following, following + pl.len(), dtype=pl.Int64)
        made = {ARRIVAL: arrival, TIME: time, KIND: kind, **{kept: pl.col(name) for name, kept in payload.items()}}
        made |= {left: pl.col(name) for left, name in zip(self.on.left, key, strict=True)}
        return frame.select(
            made[name].alias(name) if name in made else pl.lit(None, dtype).alias(name)
            for name, dtype in self.state_schema.items()
        )

    def joined(self, everything: pl.DataFrame, rows: pl.Series, met: pl.Series) -> pl.DataFrame:
        """Rows by their places, each with the version at another place; where that is null, with none."""
        left = {**{name: name for name in self.columns.key}, **_kept(OF_ROW, self.columns.left)}
        right = _kept(OF_VERSION, self.columns.right)
        return everything.select(
            *(pl.col(kept).gather(rows).alias(joined) for kept, joined in left.items()),
            *(pl.col(kept).gather(met).alias(joined) for kept, joined in right.items()),
        )


def _kept(prefix: str, columns: Mapping[str, str]) -> dict[str, str]:
    return {f"{prefix}{name}": joined for name, joined in columns.items()}


@dataclass(frozen=True)
class VersionInput:
    """The second input of a temporal join."""

    layout: TemporalLayout
    lateness: Lateness | None
    """What happens to late versions; None where none is late."""
    name: str = "versions"
    late_output: str = "late_right"
    broadcast: bool = False

    @property
    def key(self) -> tuple[str, ...]:
        """The key columns under their names among the versions."""
        return self.layout.on.right

    @property
    def partial_schema(self) -> dict[str, pl.DataType]:
        """Versions travel whole."""
        return dict(self.layout.versions.schema)

    def combine(self, rows: pl.DataFrame, edge: Edge) -> Combined:
        """Set late versions aside, and changes of no known kind; drop those without a key, which nothing meets."""
        versions = self.layout.versions
        if self.lateness is None:
            on_time, late = rows, versions.late(rows.clear(), edge)
        else:
            # A correction of a window takes the place of its first result, where late versions may do so.
            refused = pl.lit(False) if self.lateness.correctable else versions.is_correction
            on_time, late = parted(versions, rows, self.lateness, edge, refused=refused)
        failed = None
        if self.layout.keeps_changes:
            known = on_time[CHANGE].is_in(CHANGES).fill_null(False)
            failed = _unknown(on_time.filter(~known)) if not known.all() else None
            on_time = on_time.filter(known)
        accepted = on_time.drop_nulls(self.key)
        return Combined(
            canonical(accepted, self.key).select(versions.schema.keys()),
            late,
            accepted.height,
            dropped=on_time.height - accepted.height,
            failed=failed,
        )

    def merge(self, partials: pl.DataFrame) -> pl.DataFrame:
        """Versions stay as they are, in the order of their arrival."""
        return partials


def _unknown(rows: pl.DataFrame) -> pl.DataFrame:
    """Changes of no known kind, for the dead letters."""
    detail = pl.format("change is {}, not one of {}", pl.col(CHANGE).fill_null("null"), pl.lit(", ".join(CHANGES)))
    return rows.select(
        pl.lit("CHANGE_UNKNOWN").alias("reason"),
        detail.alias("detail"),
        pl.struct(pl.all()).struct.json_encode().alias("row"),
    )


@dataclass(frozen=True)
class TemporalJoinOperator:
    """A join of rows with versions."""

    name: str
    layout: TemporalLayout
    how: Literal["inner", "left"]
    ttl: int | None
    second: VersionInput

    @property
    def key(self) -> tuple[str, ...]:
        """The key columns."""
        return self.layout.on.left

    @property
    def identity(self) -> tuple[str, ...]:
        """Rows and versions are told apart by their arrival."""
        return (ARRIVAL,)

    @property
    def output_time(self) -> str:
        """The time of the row."""
        return self.layout.output_time

    @property
    def partial_schema(self) -> dict[str, pl.DataType]:
        """Rows travel whole."""
        return dict(self.layout.rows.schema)

    @property
    def output_schema(self) -> dict[str, pl.DataType]:
        """The row, and of the version what is not the key."""
        return self.layout.output_schema

    def merge(self, partials: pl.DataFrame) -> pl.DataFrame:
        """Rows stay as they are, in the order of their arrival."""
        return partials
