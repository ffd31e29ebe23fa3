"""The rows that come to a step: their key, their time, and which of them are late."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from headrace.errors import DefinitionError
from headrace.event_time.record import TimeBounds
from headrace.event_time.strategy import END as END_OF_TIME

RESERVED = "__"
LATE_BY = "late_by"


@dataclass(frozen=True)
class Rows:
    """What every step asks of its rows."""

    step: str
    key: tuple[str, ...]
    time: str
    schema: Mapping[str, pl.DataType]
    """Columns of the rows that come in; the time is a timestamp or the window of an earlier step."""

    def __post_init__(self) -> None:
        taken = sorted(name for name in self.schema if name.startswith(RESERVED))
        if taken:
            raise DefinitionError(
                "COLUMN_RESERVED",
                f"step {self.step!r}: column {taken[0]!r} begins with {RESERVED!r}, as columns do that Headrace adds "
                f"to its state. Rename it before the step, as in .withColumnRenamed({taken[0]!r}, "
                f"{taken[0].lstrip('_')!r}).",
            )

    @cached_property
    def keys(self) -> dict[str, pl.DataType]:
        """The key columns and their types."""
        return {name: self.schema[name] for name in self.key}

    @property
    def row_time(self) -> pl.Expr:
        """The time of a row in microseconds; of a window the last moment that belongs to it."""
        if isinstance(self.schema[self.time], pl.Struct):
            return pl.col(self.time).struct.field("end").cast(pl.Int64) - 1
        return pl.col(self.time).cast(pl.Int64)

    @property
    def late_schema(self) -> dict[str, pl.DataType]:
        """A late row: the whole row, and how far its time was behind the watermark."""
        if LATE_BY in self.schema:
            raise DefinitionError(
                "COLUMN_RESERVED",
                f"step {self.step!r}: the rows have a column {LATE_BY!r}, in which late rows leave with how late they "
                f"were. Rename it before the step, or use .late(hr.drop()).",
            )
        return {**self.schema, LATE_BY: pl.Duration("us")}

    def late(self, rows: pl.DataFrame, bounds: TimeBounds) -> pl.DataFrame:
        """Late rows with how late each was."""
        # At a drain the watermark is the end of time, from which no distance can be told.
        watermark = pl.lit(bounds.fire if bounds.fire < END_OF_TIME else bounds.late, pl.Int64)
        return rows.with_columns((watermark - self.row_time).cast(pl.Duration("us")).alias(LATE_BY))

    @property
    def is_correction(self) -> pl.Expr:
        """Whether a row is an earlier step's correction, which is late for this step whatever window it falls into.

        The first result has been taken in already, so an open window would count both.
        """
        follows_windows = isinstance(self.schema[self.time], pl.Struct) and "pane" in self.schema
        return pl.col("pane") == "late" if follows_windows else pl.lit(False)

    def parted(self, rows: pl.DataFrame, bounds: TimeBounds) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The rows on time, and those that event time has already passed, with how late each was."""
        late = rows.select((self.row_time < bounds.late) | self.is_correction).to_series()
        on_time = rows.filter(~late) if late.any() else rows
        return on_time, self.late(rows.filter(late), bounds)
