"""How terms are computed from the rows of a match."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal, localcontext
from functools import partial
from typing import Any

import polars as pl

from headrace.expressions.operands import LARGEST_PRECISION, fits
from headrace.operators.patterns.matcher import TIME, Node, Row
from headrace.operators.patterns.terms import ELAPSED, Columns, Getter, Term


def getter(term: Term, columns: Columns, steps: Sequence[str]) -> Getter:
    """How a term is computed from the rows of a match."""
    number = None if term.step is None else steps.index(term.step)
    if term.function == ELAPSED:
        return _since_start if number is None else partial(_since_step, number)
    assert number is not None  # for the type checker: only elapsed() has no step
    if term.argument is None:
        return partial(_row_count, number)
    place = columns.place(term.argument)
    if term.function == "last":
        return partial(_last, number, place)
    if term.function == "first":
        return partial(_first, number, place)
    return partial(_aggregated, number, place, _AGGREGATES[term.function], term.type(columns.schema))


def _since_start(row: Row | None, node: Node | None) -> float | None:
    if node is None:
        return 0.0
    last, first = node[0], node
    while first[2] is not None:
        first = first[2]
    return float(((last if row is None else row)[TIME] - first[0][TIME]) / 1_000_000)


def _since_step(step: int, row: Row | None, node: Node | None) -> float | None:
    last = None if node is None else node[0]
    while node is not None and node[1] != step:
        node = node[2]
    here = last if row is None else row
    return None if node is None or here is None else float((here[TIME] - node[0][TIME]) / 1_000_000)


def _row_count(step: int, row: Row | None, node: Node | None) -> int:
    count = 0
    while node is not None:
        count += node[1] == step
        node = node[2]
    return count


def _last(step: int, place: int, row: Row | None, node: Node | None) -> Any:
    while node is not None:
        if node[1] == step:
            return node[0][place]
        node = node[2]
    return None


def _first(step: int, place: int, row: Row | None, node: Node | None) -> Any:
    value = None
    while node is not None:
        if node[1] == step:
            value = node[0][place]
        node = node[2]
    return value


def _aggregated(
    step: int,
    place: int,
    aggregate: Callable[[list[Any], pl.DataType], Any],
    dtype: pl.DataType,
    row: Row | None,
    node: Node | None,
) -> Any:
    values = []
    while node is not None:
        if node[1] == step and node[0][place] is not None:
            values.append(node[0][place])
        node = node[2]
    values.reverse()
    return aggregate(values, dtype)


def _sum(values: list[Any], dtype: pl.DataType) -> Any:
    if not values:
        return None
    with localcontext(prec=2 * LARGEST_PRECISION):
        total = sum(values)
    if dtype == pl.Int64():
        return total if fits(total, dtype) else None
    return _rounded(Decimal(total), dtype) if isinstance(dtype, pl.Decimal) else float(total)


def _average(values: list[Any], dtype: pl.DataType) -> Any:
    if not values:
        return None
    if not isinstance(dtype, pl.Decimal):
        return float(sum(values)) / len(values)
    with localcontext(prec=2 * LARGEST_PRECISION):
        return _rounded(Decimal(sum(values)) / len(values), dtype)


def _rounded(value: Decimal, dtype: pl.Decimal) -> Decimal | None:
    with localcontext(prec=2 * LARGEST_PRECISION):
        rounded = value.quantize(Decimal(1).scaleb(-dtype.scale), rounding=ROUND_HALF_UP)
    return rounded if abs(rounded.scaleb(dtype.scale)) < 10**dtype.precision else None


def _largest_last(value: Any) -> tuple[bool, Any]:
    # NaN is larger than every number, as in Spark.
    return value != value, value


def _least(values: list[Any], dtype: pl.DataType) -> Any:
    return min(values, key=_largest_last, default=None)


def _greatest(values: list[Any], dtype: pl.DataType) -> Any:
    return max(values, key=_largest_last, default=None)


def _count(values: list[Any], dtype: pl.DataType) -> int:
    return len(values)


_AGGREGATES: Mapping[str, Callable[[list[Any], pl.DataType], Any]] = {
    "count": _count,
    "sum": _sum,
    "avg": _average,
    "min": _least,
    "max": _greatest,
}
