"""How rows are aggregated: the aggregates of one step over rows of one schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import polars as pl

from headrace.errors import HeadraceError
from headrace.event_time.record import Edge
from headrace.event_time.strategy import END as END_OF_TIME
from headrace.expressions import Aggregate
from headrace.schemas import MOMENT

WINDOW = pl.Struct({"start": MOMENT, "end": MOMENT})
CHANGE = pl.String()


@dataclass(frozen=True)
class Aggregation:
    """What every window step asks of its rows: their time, their partial aggregates, the results of those."""

    step: str
    key: tuple[str, ...]
    time: str
    aggregates: tuple[Aggregate, ...]
    schema: Mapping[str, pl.DataType]
    """Columns of the rows that come in; the time is a timestamp or the window of an earlier step."""

    @cached_property
    def keys(self) -> dict[str, pl.DataType]:
        """The key columns and their types."""
        return {name: self.schema[name] for name in self.key}

    @cached_property
    def states(self) -> dict[str, pl.DataType]:
        """The columns of a partial result and their types."""
        return dict(chain.from_iterable(each.state_types(self.schema).items() for each in self.aggregates))

    @cached_property
    def results(self) -> dict[str, pl.DataType]:
        """The columns of a result and their types."""
        return {each.name: each.result_type(self.schema) for each in self.aggregates}

    @property
    def row_time(self) -> pl.Expr:
        """The time of a row in microseconds; of a window the last moment that belongs to it."""
        if isinstance(self.schema[self.time], pl.Struct):
            return pl.col(self.time).struct.field("end").cast(pl.Int64) - 1
        return pl.col(self.time).cast(pl.Int64)

    @cached_property
    def partial(self) -> dict[str, pl.Expr]:
        """Rows of a group made one partial result."""
        return dict(chain.from_iterable(each.partial(self.schema, self.row_time).items() for each in self.aggregates))

    @cached_property
    def nothing(self) -> dict[str, pl.Expr]:
        """The partial result of no rows."""
        none = pl.DataFrame(schema=dict(self.schema)).select(**self.partial)
        return {column.name: pl.lit(column).first() for column in none}

    @cached_property
    def merged(self) -> dict[str, pl.Expr]:
        """Partial results of a group made one."""
        return dict(chain.from_iterable(each.merge(self.schema).items() for each in self.aggregates))

    def result(self, partials: pl.DataFrame) -> list[pl.Expr]:
        """The results of partial results, once each is known to fit its type."""
        for each in self.aggregates:
            overflowed = each.overflowed(self.schema)
            if overflowed is not None and partials.select(overflowed.any()).item():
                key = partials.filter(overflowed).select(*self.key).row(0) if self.key else ()
                of = f" for key {', '.join(map(repr, key))}" if key else ""
                raise HeadraceError(
                    "SUM_OVERFLOW",
                    f"step {self.step!r}: {each.name} = {each.text}{of} is beyond the range of BIGINT. Cast the column "
                    "to DECIMAL(38, 0) or DOUBLE before it is summed.",
                )
        return [each.result(self.schema) for each in self.aggregates]

    @property
    def late_schema(self) -> dict[str, pl.DataType]:
        """A late row: the whole row, and how far its time was behind the watermark."""
        return {**self.schema, "late_by": pl.Duration("us")}

    def late(self, rows: pl.DataFrame, edge: Edge) -> pl.DataFrame:
        """Late rows with how late each was."""
        # At a drain the watermark is the end of time, from which no distance can be told.
        watermark = pl.lit(edge.fire if edge.fire < END_OF_TIME else edge.late, pl.Int64)
        return rows.with_columns((watermark - self.row_time).cast(pl.Duration("us")).alias("late_by"))

    @property
    def is_correction(self) -> pl.Expr:
        """Whether a row is an earlier step's correction, which is late for this step whatever window it falls into.

        The first result has been taken in already, so an open window would count both.
        """
        follows_windows = isinstance(self.schema[self.time], pl.Struct) and "pane" in self.schema
        return pl.col("pane") == "late" if follows_windows else pl.lit(False)
