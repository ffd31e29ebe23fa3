"""Aggregates in plain Python, slow and obviously right: every answer is computed from all rows of a group at once.

The rows come in the order of their positions.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any


@dataclass(frozen=True)
class Row:
    """A row: its event time in microseconds, a value and another one."""

    time: int
    value: Any
    other: Any = None


def order(value: Any) -> tuple[bool, bool, Any]:
    """Spark's order: null is the least, NaN the greatest, and -0.0 is 0.0."""
    if value is None:
        return (False, False, 0)
    if isinstance(value, float) and math.isnan(value):
        return (True, True, 0)
    return (True, False, value)


def one_zero(value: Any) -> Any:
    """A value in which both zeros are 0.0."""
    return 0.0 if isinstance(value, float) and value == 0.0 else value


def known(rows: Sequence[Row]) -> list[Any]:
    """The values that are not null, in order."""
    return sorted((one_zero(row.value) for row in rows if row.value is not None), key=order)


def different(rows: Sequence[Row]) -> list[Any]:
    """The different values that are not null, in order."""
    values = known(rows)
    return [value for place, value in enumerate(values) if place == 0 or order(values[place - 1]) != order(value)]


def total(rows: Sequence[Row]) -> Any:
    values = known(rows)
    if not values:
        return None
    return math.fsum(values) if all(map(_finite, values)) and isinstance(values[0], float) else sum(values)


def mean(rows: Sequence[Row]) -> Any:
    values = known(rows)
    return float(_sum(values) / len(values)) if values else None


def variance(rows: Sequence[Row], *, sample: bool) -> Any:
    values = known(rows)
    degrees = len(values) - (1 if sample else 0)
    if degrees <= 0:
        return None
    if not all(map(_finite, values)):
        return math.nan
    exact = [Fraction(value) for value in values]
    middle = sum(exact) / len(exact)
    distances = sum((value - middle) ** 2 for value in exact)
    return float(distances / degrees) if distances < sys.float_info.max else math.nan


def deviation(rows: Sequence[Row], *, sample: bool) -> Any:
    found = variance(rows, sample=sample)
    return found if found is None else math.sqrt(found)


def in_order(rows: Sequence[Row]) -> list[Row]:
    """The rows by event time, then by position."""
    return sorted(rows, key=lambda row: row.time)


def ranked(rows: Sequence[Row]) -> list[Row]:
    """The rows with another value by that, then by event time, then by position."""
    return sorted((row for row in in_order(rows) if row.other is not None), key=lambda row: order(row.other))


def first(rows: Sequence[Row]) -> Any:
    return one_zero(in_order(rows)[0].value) if rows else None


def last(rows: Sequence[Row]) -> Any:
    return one_zero(in_order(rows)[-1].value) if rows else None


def min_by(rows: Sequence[Row]) -> Any:
    placed = ranked(rows)
    return one_zero(placed[0].value) if placed else None


def max_by(rows: Sequence[Row]) -> Any:
    placed = ranked(rows)
    return one_zero(placed[-1].value) if placed else None


def top(rows: Sequence[Row], n: int) -> list[Any]:
    return known(rows)[::-1][:n]


def top_of(rows: Sequence[Row], n: int) -> list[tuple[Any, Any]]:
    """The largest values with their owners: equal values in the order of the owners."""
    pairs = sorted(((row.value, row.other) for row in rows if row.value is not None), key=lambda pair: order(pair[1]))
    pairs.sort(key=lambda pair: order(pair[0]), reverse=True)
    return [(one_zero(value), one_zero(other)) for value, other in pairs[:n]]


def collected_list(rows: Sequence[Row], at_most: int) -> list[Any]:
    return [one_zero(row.value) for row in in_order(rows) if row.value is not None][:at_most]


def weighted_mean(rows: Sequence[Row], half_life: int) -> float | None:
    kept = [row for row in rows if row.value is not None]
    if not kept:
        return None
    newest = max(row.time for row in kept)
    weights = [2.0 ** ((row.time - newest) / half_life) for row in kept]
    return math.fsum(w * row.value for w, row in zip(weights, kept, strict=True)) / math.fsum(weights)


def percentile(rows: Sequence[Row], share: float) -> Any:
    """The exact value at a rank: the least that is not less than the share of all values."""
    values = known(rows)
    return values[max(math.ceil(len(values) * share), 1) - 1] if values else None


ANSWERS: dict[str, Callable[[Sequence[Row]], Any]] = {
    "count(*)": len,
    "count(x)": lambda rows: len(known(rows)),
    "count(DISTINCT x)": lambda rows: len(different(rows)),
    "min(x)": lambda rows: known(rows)[0] if known(rows) else None,
    "max(x)": lambda rows: known(rows)[-1] if known(rows) else None,
    "hr.top('x', n=2)": lambda rows: top(rows, 2),
    "hr.top('x', n=3, of='y')": lambda rows: [{"x": x, "y": y} for x, y in top_of(rows, 3)],
    "hr.collect_set('x', at_most=2)": lambda rows: different(rows)[:2],
}
"""For values of any type."""

POSITIONAL: dict[str, Callable[[Sequence[Row]], Any]] = {
    "first(x)": first,
    "last(x)": last,
    "min_by(x, y)": min_by,
    "max_by(x, y)": max_by,
    "hr.collect_list('x', at_most=3)": lambda rows: collected_list(rows, 3),
}
"""The same, where the positions of rows break ties."""

NUMBERS: dict[str, Callable[[Sequence[Row]], Any]] = {
    "sum(x)": total,
    "avg(x)": mean,
    "var_pop(x)": lambda rows: variance(rows, sample=False),
    "var_samp(x)": lambda rows: variance(rows, sample=True),
    "variance(x)": lambda rows: variance(rows, sample=True),
    "stddev(x)": lambda rows: deviation(rows, sample=True),
    "stddev_samp(x)": lambda rows: deviation(rows, sample=True),
    "stddev_pop(x)": lambda rows: deviation(rows, sample=False),
    "hr.ewm('x', half_life='3 microseconds')": lambda rows: weighted_mean(rows, 3),
}
"""For numbers; floats to a billionth."""

COMPUTED: dict[str, Callable[[Sequence[Row]], Any]] = {
    "sum(x) / count(*)": lambda rows: total(rows) / len(rows) if known(rows) else None,
    "max(x) - min(x)": lambda rows: known(rows)[-1] - known(rows)[0] if known(rows) else None,
    "count(*) % 3 + count(x)": lambda rows: len(rows) % 3 + len(known(rows)),
    "coalesce(sum(x) FILTER (WHERE x > 5), 0)": lambda rows: sum(value for value in known(rows) if value > 5),
    "sum(x * 3 - 1)": lambda rows: sum(value * 3 - 1 for value in known(rows)) if known(rows) else None,
}
"""Expressions in and around aggregates, of whole numbers."""


def _finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def _sum(values: Sequence[Any]) -> Any:
    return sum(map(Fraction, values)) if all(map(_finite, values)) else sum(values)
