"""The aggregates of a step over rows of one schema, and what all window operators share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import polars as pl

from headrace.errors import HeadraceError
from headrace.event_time.lateness import Lateness
from headrace.expressions import Aggregate
from headrace.operators.rows import Rows
from headrace.schemas import MOMENT

WINDOW = pl.Struct({"start": MOMENT, "end": MOMENT})
CHANGE = pl.String()


@dataclass(frozen=True)
class Aggregation(Rows):
    """What every window step asks of its rows besides: their partial aggregates, and the results of those."""

    aggregates: tuple[Aggregate, ...]

    @cached_property
    def states(self) -> dict[str, pl.DataType]:
        """The columns of a partial result and their types."""
        return dict(chain.from_iterable(each.state_types(self.schema).items() for each in self.aggregates))

    @cached_property
    def results(self) -> dict[str, pl.DataType]:
        """The columns of a result and their types."""
        return {each.name: each.result_type(self.schema) for each in self.aggregates}

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
                raise self._beyond(each, key)
        return [each.result(self.schema) for each in self.aggregates]

    def _beyond(self, aggregate: Aggregate, key: tuple[object, ...]) -> HeadraceError:
        of = f" for key {', '.join(map(repr, key))}" if key else ""
        dtype = aggregate.result_type(self.schema)
        limit, wider = "BIGINT", "DECIMAL(38, 0) or DOUBLE"
        if isinstance(dtype, pl.Decimal):
            limit = f"DECIMAL({dtype.precision}, {dtype.scale})"
            wider = "DOUBLE, or to a DECIMAL with fewer digits behind the point,"
        return HeadraceError(
            "SUM_OVERFLOW",
            f"step {self.step!r}: {aggregate.name} = {aggregate.text}{of} is beyond the range of {limit}. Cast the "
            f"column to {wider} before it is summed.",
        )


class WindowOperator:
    """Aggregates rows by key; its results carry a window."""

    aggregation: Aggregation
    lateness: Lateness

    @property
    def key(self) -> tuple[str, ...]:
        """The key columns."""
        return self.aggregation.key

    @property
    def output_time(self) -> str:
        """A result's time is the last moment of its window."""
        return "window"

    @property
    def side_schemas(self) -> dict[str, dict[str, pl.DataType]]:
        """Late rows, when they are kept."""
        return {"late": self.aggregation.late_schema} if self.lateness.keeps_rows else {}
