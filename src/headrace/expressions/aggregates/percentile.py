"""approx_percentile: values at given ranks, from counts in buckets that merge exactly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import polars as pl

from headrace.errors import DefinitionError
from headrace.expressions.aggregates.arguments import parse_argument
from headrace.expressions.aggregates.binding import Binding, Rows
from headrace.expressions.aggregates.extremes import extreme
from headrace.expressions.aggregates.log_buckets import ENTRY, LogBuckets
from headrace.expressions.aggregates.measure import Measure
from headrace.expressions.operands import is_integer
from headrace.expressions.rows import RowExpression

DEFAULT_ERROR = 0.01
_LEAST_ERROR, _LARGEST_ERROR = 0.001, 0.25


@dataclass(frozen=True, slots=True)
class Percentile:
    """The least values that are not less than given shares of the values, each within ``error`` of itself."""

    argument: RowExpression
    shares: tuple[float, ...]
    several: bool
    """Whether the result is a list."""
    error: float = DEFAULT_ERROR

    def __post_init__(self) -> None:
        if not self.shares or not all(map(_is_share, self.shares)):
            raise DefinitionError(
                "PERCENTILE_RANGE",
                f"percentile of '{self.argument.text}': {', '.join(map(repr, self.shares)) or 'nothing'} is not a "
                "number between 0 and 1. Write the 99th percentile as 0.99.",
            )
        if not isinstance(self.error, int | float) or not _LEAST_ERROR <= self.error <= _LARGEST_ERROR:
            raise DefinitionError(
                "SKETCH_ERROR_RANGE",
                f"percentile of '{self.argument.text}': error={self.error!r} must lie between {_LEAST_ERROR} and "
                f"{_LARGEST_ERROR}. error=0.01 means that the answer is within 1 % of the true value.",
            )

    @property
    def arguments(self) -> tuple[RowExpression, ...]:
        return (self.argument,)

    def state_types(self, of: Binding) -> dict[str, pl.DataType]:
        dtype = self._dtype(of)
        return {"buckets": pl.List(ENTRY), "least": dtype, "greatest": dtype}

    def partial(self, of: Binding, rows: Rows) -> dict[str, pl.Expr]:
        operand = of.number(self.argument, "percentile")
        value = rows.kept(operand.value)
        return {
            "buckets": self._of_groups(value.drop_nulls().cast(pl.Float64), LogBuckets(self.error).sketch),
            "least": extreme("min", value, operand.dtype),
            "greatest": extreme("max", value, operand.dtype),
        }

    def merge(self, of: Binding) -> dict[str, pl.Expr]:
        dtype = self._dtype(of)
        return {
            "buckets": self._of_groups(of.elements("buckets"), LogBuckets(self.error).merge),
            "least": extreme("min", of.state("least"), dtype),
            "greatest": extreme("max", of.state("greatest"), dtype),
        }

    def result(self, of: Binding) -> pl.Expr:
        values = [self._at(of, share) for share in self.shares]
        if not self.several:
            return values[0]
        return pl.when(of.state("buckets").list.len() > 0).then(pl.concat_list(values))

    def result_type(self, of: Binding) -> pl.DataType:
        return pl.List(self._dtype(of)) if self.several else self._dtype(of)

    def _dtype(self, of: Binding) -> pl.DataType:
        return of.number(self.argument, "percentile").dtype

    def _of_groups(self, value: pl.Expr, function: Callable[[pl.Series], pl.Series]) -> pl.Expr:
        return value.implode().map_batches(function, pl.List(ENTRY), is_elementwise=True)

    def _at(self, of: Binding, share: float) -> pl.Expr:
        dtype, least, greatest = self._dtype(of), of.state("least"), of.state("greatest")
        at = partial(LogBuckets(self.error).at, share)
        value = of.state("buckets").map_batches(at, pl.Float64(), is_elementwise=True)
        first, last = value <= least.cast(pl.Float64), value >= greatest.cast(pl.Float64)
        # What lies between two values of a type fits the type; all else is made null before it is converted.
        between = pl.when(~first & ~last).then(value.round() if is_integer(dtype) else value).cast(dtype)
        return pl.when(first).then(least).when(last).then(greatest).otherwise(between)


def _is_share(share: object) -> bool:
    return isinstance(share, int | float) and not isinstance(share, bool) and 0 <= share <= 1


def percentile(value: str, shares: float | Sequence[float], *, error: float = DEFAULT_ERROR) -> Measure:
    """The value at a share of all values (0.99: the 99th percentile), within ``error`` of itself; or a list of them.

    >>> percentile("latency", [0.5, 0.99])
    hr.percentile('latency', [0.5, 0.99], error=0.01)
    """
    # A text is a sequence too, of its letters.
    several = isinstance(shares, Sequence) and not isinstance(shares, str)
    chosen = tuple(cast(Sequence[float], shares)) if several else (cast(float, shares),)
    calculation = Percentile(parse_argument(value), chosen, several, error)
    said = list(chosen) if several else shares
    return Measure(f"hr.percentile({value!r}, {said!r}, error={error!r})", calculation)
