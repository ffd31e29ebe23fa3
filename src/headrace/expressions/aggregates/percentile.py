"""approx_percentile: values at given ranks, from counts in logarithmic buckets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil, floor, log
from sys import float_info
from typing import cast

import numpy as np
import numpy.typing as npt
import polars as pl

from headrace.errors import DefinitionError
from headrace.expressions.aggregates.aggregate import (
    Aggregate,
    AggregateFunction,
    AggregateScope,
    BoundAggregate,
    Integers,
    Lists,
    map_groups,
    parse_argument,
)
from headrace.expressions.aggregates.chosen_values import extreme
from headrace.stability import stable

Floats = npt.NDArray[np.float64]

ENTRY = pl.Struct({"bucket": pl.Int32(), "count": pl.Int64()})
# Buckets are kept from the largest magnitude down to a 10**19th of it: for integers, to 1. Smaller ones count as zero.
_REACH = 19 * log(10)
DEFAULT_ERROR = 0.01
_LEAST_ERROR, _LARGEST_ERROR = 0.001, 0.25


@dataclass(frozen=True, slots=True)
class LogBuckets:
    """Sketches that replace each value by that of its bucket, with a relative error of at most ``error``.

    Buckets are numbered in the order of their values, 0 for zero. A sketch is a list of bucket numbers and counts in
    ascending order, which depends only on the values.

    >>> buckets = LogBuckets(0.01)
    >>> buckets.at(0.5, buckets.sketch(pl.Series([[40.0, 41.0, 42.0, 43.0]]))).round(3).to_list()
    [41.323]
    """

    error: float

    def sketch(self, groups: pl.Series) -> pl.Series:
        lists = Lists.of(groups)
        numbers = self._numbers(lists.elements.to_numpy())
        return self._assembled(lists.owners, numbers, np.ones(len(numbers), dtype=np.int64), len(groups))

    def merge(self, groups: pl.Series) -> pl.Series:
        """The merged sketches; each list is several sketches concatenated."""
        lists = Lists.of(groups)
        return self._assembled(lists.owners, *_entries(lists), len(groups))

    def at(self, share: float, sketches: pl.Series) -> pl.Series:
        """The value at a share of each sketch's values; minus infinity stands for the first value, NaN for the last."""
        lists = Lists.of(sketches)
        numbers, counts = _entries(lists)
        reached, ends = np.cumsum(np.append(0, counts)), np.cumsum(lists.lengths)
        before = reached[ends - lists.lengths]
        total = reached[ends] - before
        rank = np.maximum(np.ceil(total * share), 1).astype(np.int64)
        place = np.searchsorted(reached, before + rank) - 1
        # What is found for an empty sketch is not used.
        values = self._values(np.append(numbers, 0)[place])
        values = np.where(rank == 1, -np.inf, np.where(rank == total, np.nan, values))
        return pl.Series(values).set(pl.Series(total == 0), None)

    @property
    def _width(self) -> float:
        """The logarithm of the ratio of a bucket's bounds; from its middle to a bound it is that of ``1 + error``."""
        return 2 * log(1 + self.error)

    @property
    def _below(self) -> int:
        """The power of the bucket below the least normal double; the bucket of 1.0 has 0."""
        return floor(log(float_info.min) / self._width) - 1

    @property
    def _infinity(self) -> int:
        """The bucket of infinity; that of NaN is the next."""
        return ceil(log(float_info.max) / self._width) - self._below + 1

    def _numbers(self, values: Floats) -> Integers:
        """The bucket of each value; magnitudes below 2.3e-308 are in the bucket of zero."""
        size = np.abs(values)
        counted = (size >= float_info.min) & np.isfinite(size)
        power = np.rint(np.log(np.where(counted, size, 1.0)) / self._width).astype(np.int64)
        number = np.where(counted, power - self._below, np.where(np.isinf(size), self._infinity, 0))
        return np.where(np.isnan(values), self._infinity + 1, np.where(values < 0, -number, number))

    def _values(self, numbers: Integers) -> Floats:
        size = np.abs(numbers)
        value = np.exp(np.minimum((size + self._below) * self._width, log(float_info.max)))
        value = np.where(size == 0, 0.0, np.where(size == self._infinity, np.inf, value))
        return np.where(size > self._infinity, np.nan, np.copysign(value, numbers))

    def _assembled(self, owners: Integers, numbers: Integers, counts: Integers, sketches: int) -> pl.Series:
        """Sketches of entries: counts of one bucket are added, and magnitudes out of reach count as zero."""
        size = np.abs(numbers)
        largest = np.zeros(sketches, dtype=np.int64)
        np.maximum.at(largest, owners, np.where(size < self._infinity, size, 0))
        numbers = np.where(size < largest[owners] - ceil(_REACH / self._width) - 1, 0, numbers)
        entries = pl.DataFrame({"owner": owners, "bucket": numbers.astype(np.int32), "count": counts})
        added = entries.group_by("owner", "bucket").agg(pl.col("count").sum()).sort("owner", "bucket")
        lengths = np.bincount(added["owner"].to_numpy(), minlength=sketches)
        return Lists(added.drop("owner").to_struct(), lengths).series()


def _entries(lists: Lists) -> tuple[Integers, Integers]:
    fields = lists.elements.struct
    return fields.field("bucket").to_numpy().astype(np.int64), fields.field("count").to_numpy()


@dataclass(frozen=True, slots=True)
class Percentile(AggregateFunction):
    """The least values that are not less than given shares of the values, with a relative error of ``error``."""

    shares: tuple[float, ...]
    is_list: bool
    """Whether the result is a list."""
    error: float = DEFAULT_ERROR

    def __post_init__(self) -> None:
        are_shares = (
            isinstance(share, int | float) and not isinstance(share, bool) and 0 <= share <= 1 for share in self.shares
        )
        if not self.shares or not all(are_shares):
            raise DefinitionError(
                "PERCENTILE_RANGE",
                f"percentile of '{self.argument.text}': {', '.join(map(repr, self.shares)) or 'nothing'} is not a "
                "number between 0 and 1. Write the 99th percentile as 0.99.",
            )
        if not isinstance(self.error, int | float) or not _LEAST_ERROR <= self.error <= _LARGEST_ERROR:
            raise DefinitionError(
                "SKETCH_ERROR_RANGE",
                f"percentile of '{self.argument.text}': error={self.error!r} must lie between {_LEAST_ERROR} and "
                f"{_LARGEST_ERROR}. error=0.01 means that the result is within 1 % of the true value.",
            )

    def bind(self, scope: AggregateScope) -> BoundAggregate:
        operand, sketches = scope.number(self.argument, "percentile"), LogBuckets(self.error)
        value, dtype = scope.select(operand.value), operand.dtype
        buckets, least, greatest = map(scope.state, ("buckets", "least", "greatest"))

        def at(share: float) -> pl.Expr:
            found = buckets.map_batches(partial(sketches.at, share), pl.Float64(), is_elementwise=True)
            first, last = found <= least.cast(pl.Float64), found >= greatest.cast(pl.Float64)
            # What lies between two values of a type fits the type; the rest is null before the cast.
            between = pl.when(~first & ~last).then(found.round() if dtype.is_integer() else found).cast(dtype)
            return pl.when(first).then(least).when(last).then(greatest).otherwise(between)

        values = [at(share) for share in self.shares]
        return BoundAggregate(
            types={"buckets": pl.List(ENTRY), "least": dtype, "greatest": dtype},
            partial={
                "buckets": map_groups(value.drop_nulls().cast(pl.Float64), sketches.sketch, pl.List(ENTRY)),
                "least": extreme("min", value, dtype),
                "greatest": extreme("max", value, dtype),
            },
            merge={
                "buckets": map_groups(scope.elements("buckets"), sketches.merge, pl.List(ENTRY)),
                "least": extreme("min", least, dtype),
                "greatest": extreme("max", greatest, dtype),
            },
            result=pl.when(buckets.list.len() > 0).then(pl.concat_list(values)) if self.is_list else values[0],
            result_type=pl.List(dtype) if self.is_list else dtype,
        )


@stable
def percentile(value: str, shares: float | Sequence[float], *, error: float = DEFAULT_ERROR) -> Aggregate:
    """The value at a share of all values (0.99: the 99th percentile) with a relative error of ``error``; or a list.

    >>> percentile("latency", [0.5, 0.99])
    hr.percentile('latency', [0.5, 0.99], error=0.01)
    """
    is_list = isinstance(shares, Sequence) and not isinstance(shares, str)
    chosen = tuple(cast(Sequence[float], shares)) if is_list else (cast(float, shares),)
    function = Percentile((parse_argument(value),), chosen, is_list, error)
    text = f"hr.percentile({value!r}, {list(chosen) if is_list else shares!r}, error={error!r})"
    return Aggregate(text, function, code=text)
