"""Aggregates written as SQL text, split into partials that merge in any grouping of the rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

import polars as pl
from sqlglot import exp

from headrace.errors import DefinitionError
from headrace.expressions.operands import LARGEST_PRECISION, Operand, Schema, is_float, is_integer, is_number
from headrace.expressions.rows import RowExpression, is_listed, read, row_expression

_FUNCTIONS: Mapping[type[exp.Expr], str] = {
    exp.Count: "count",
    exp.Sum: "sum",
    exp.Min: "min",
    exp.Max: "max",
    exp.Avg: "avg",
}
LISTED_AGGREGATES = "count(*), count(x), sum(x), min(x), max(x), avg(x)"

_WHOLE = pl.Decimal(LARGEST_PRECISION, 0)
# Sums of decimals with more digits than this could pass 38 digits; they are kept as two halves.
_LARGEST_SINGLE_SUM = 28
_HALF = 10**19


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One aggregate of a group of rows: rows become partials, partials merge, and a partial gives the result.

    >>> rows = pl.DataFrame({"shop": ["a", "a", "b"], "amount": [1, 2, None]})
    >>> total = parse_aggregate("sum(amount)", name="total")
    >>> partials = rows.group_by("shop", maintain_order=True).agg(**total.partial(rows.schema))
    >>> partials.select("shop", total.result(rows.schema)).rows()
    [('a', 3), ('b', None)]
    """

    function: str
    argument: RowExpression | None
    text: str
    name: str

    @property
    def columns(self) -> frozenset[str]:
        """The columns of the row that the aggregate reads."""
        return frozenset() if self.argument is None else self.argument.columns

    def partial(self, schema: Schema) -> dict[str, pl.Expr]:
        """The partial columns, as expressions over the rows of a group."""
        if self.argument is None:
            return {self._state("count"): pl.len().cast(pl.Int64)}
        operand = self._operand(schema)
        value = operand.value
        if self.function == "count":
            return {self._state("count"): value.count().cast(pl.Int64)}
        if self.function in ("min", "max"):
            return {self._state(self.function): self._extreme(value, operand.dtype)}
        sums = {self._state(suffix): part for suffix, part in _sum_parts(operand).items()}
        return sums if self.function == "sum" else {**sums, self._state("count"): value.count().cast(pl.Int64)}

    def merge(self, schema: Schema) -> dict[str, pl.Expr]:
        """The partial columns of several partials made one, as expressions over the partials of a group."""
        merged: dict[str, pl.Expr] = {}
        for state, dtype in self.state_types(schema).items():
            column = pl.col(state)
            if self.function in ("min", "max"):
                merged[state] = self._extreme(column, dtype)
            else:
                merged[state] = _sum_or_null(column, column.sum())
        return merged

    def result(self, schema: Schema) -> pl.Expr:
        """The aggregate's value, as an expression over one partial; it carries the aggregate's name."""
        if self.function in ("count", "min", "max"):
            return pl.col(self._state(self.function)).alias(self.name)
        dtype = self._operand(schema).dtype
        if is_float(dtype):
            total = pl.col(self._state("sum"))
        else:
            total = self._exact_total(dtype)
        if self.function == "avg":
            total = _average(total, pl.col(self._state("count")), dtype)
        return _as_result(total, self.result_type(schema)).alias(self.name)

    def result_type(self, schema: Schema) -> pl.DataType:
        """The type of the result, as Spark's aggregate of the same text has it."""
        if self.function == "count":
            return pl.Int64()
        dtype = self._operand(schema).dtype
        if self.function in ("min", "max"):
            return dtype
        if isinstance(dtype, pl.Decimal):
            more, scale = (10, dtype.scale) if self.function == "sum" else (4, dtype.scale + 4)
            return pl.Decimal(min(LARGEST_PRECISION, dtype.precision + more), min(LARGEST_PRECISION, scale))
        return pl.Int64() if self.function == "sum" and is_integer(dtype) else pl.Float64()

    def state_types(self, schema: Schema) -> dict[str, pl.DataType]:
        """The names and types of the partial columns; all of them have an Arrow and a Spark counterpart."""
        if self.function == "count":
            return {self._state("count"): pl.Int64()}
        dtype = self._operand(schema).dtype
        if self.function in ("min", "max"):
            return {self._state(self.function): dtype}
        sums = {self._state(suffix): kind for suffix, kind in _sum_types(dtype).items()}
        return sums if self.function == "sum" else {**sums, self._state("count"): pl.Int64()}

    def _state(self, suffix: str) -> str:
        return f"{self.name}.{suffix}"

    def _operand(self, schema: Schema) -> Operand:
        """The argument, once its type is known to suit the function."""
        assert self.argument is not None  # only count(*) has none
        operand = Operand(self.argument.to_polars(schema), self.argument.type(schema))
        if self.function == "count":
            return operand
        suits = is_number(operand.dtype) if self.function in ("sum", "avg") else not operand.dtype.is_nested()
        if not suits or operand.dtype == pl.Null():
            needed = "numbers" if self.function in ("sum", "avg") else "values with an order"
            raise DefinitionError(
                "AGGREGATE_TYPE",
                f"aggregate '{self.name}': '{self.argument.text}' is {operand.dtype}, and {self.function} is defined "
                f"for {needed}. Use another column or function.",
            )
        return operand

    def _extreme(self, value: pl.Expr, dtype: pl.DataType) -> pl.Expr:
        if not is_float(dtype):
            return value.min() if self.function == "min" else value.max()
        # NaN is the greatest: nan_max gives it if there is one, min gives it only if there is nothing else.
        extreme = value.min() if self.function == "min" else value.nan_max()
        zero, nan = pl.lit(0.0, dtype=dtype), pl.lit(float("nan"), dtype=dtype)
        return pl.when(extreme == 0.0).then(zero).when(extreme.is_nan()).then(nan).otherwise(extreme)

    def _exact_total(self, dtype: pl.DataType) -> pl.Expr:
        """The sum as an unscaled Int128; null if there was no value or it has more than 38 digits."""
        if set(_sum_types(dtype)) == {"sum"}:
            return pl.col(self._state("sum")).to_physical()
        high, low = (pl.col(self._state(half)).to_physical() for half in ("sum_high", "sum_low"))
        carried = high + low // _HALF
        inside = (carried >= -_HALF) & (carried < _HALF)
        return pl.when(inside).then(carried * _HALF + low % _HALF)


def parse_aggregate(text: str, *, name: str) -> Aggregate:
    """Read one aggregate; its partial columns are called after ``name``.

    >>> parse_aggregate("count(*)", name="payments").function
    'count'
    """
    node = read(text)
    while isinstance(node, exp.Paren):
        node = node.this
    function = _FUNCTIONS.get(type(node))
    if function is None and is_listed(node):
        raise DefinitionError(
            "AGGREGATE_EXPECTED",
            f"aggregate '{name}': '{text}' is a value of one row, not of a group of rows. Put it into one of "
            f"{LISTED_AGGREGATES}.",
        )
    given = {key for key, value in node.args.items() if value and key != "big_int"}
    if function is None or given != {"this"} or isinstance(node.this, exp.Distinct):
        raise DefinitionError(
            "EXPRESSION_UNSUPPORTED",
            f"aggregate '{name}': '{text}' is not one of the supported aggregates: {LISTED_AGGREGATES}. "
            "Use one of them alone; the name of the result is given outside the text.",
        )
    if function == "count" and isinstance(node.this, exp.Star | exp.Literal):
        return Aggregate(function, None, text, name)
    argument = row_expression(node.this, node.this.sql(dialect="spark"))
    if not argument.columns:
        raise DefinitionError(
            "EXPRESSION_UNSUPPORTED", f"aggregate '{name}': '{text}' reads no column. Use count(*) to count rows."
        )
    return Aggregate(function, argument, text, name)


def _sum_types(dtype: pl.DataType) -> dict[str, pl.DataType]:
    if is_float(dtype):
        return {"sum": pl.Float64()}
    if not isinstance(dtype, pl.Decimal):
        return {"sum": _WHOLE}
    if dtype.precision <= _LARGEST_SINGLE_SUM:
        return {"sum": pl.Decimal(LARGEST_PRECISION, dtype.scale)}
    return {"sum_high": _WHOLE, "sum_low": _WHOLE}


def _sum_parts(operand: Operand) -> dict[str, pl.Expr]:
    value, dtype = operand.value, operand.dtype
    if is_float(dtype):
        return {"sum": _sum_or_null(value, value.cast(pl.Float64).sum())}
    if not isinstance(dtype, pl.Decimal):
        return {"sum": _sum_or_null(value, value.cast(pl.Int128).sum()).cast(_WHOLE)}
    if dtype.precision <= _LARGEST_SINGLE_SUM:
        return {"sum": _sum_or_null(value, value.sum())}
    unscaled = value.to_physical()
    return {
        "sum_high": _sum_or_null(value, (unscaled // _HALF).sum()).cast(_WHOLE),
        "sum_low": _sum_or_null(value, (unscaled % _HALF).sum()).cast(_WHOLE),
    }


def _sum_or_null(value: pl.Expr, total: pl.Expr) -> pl.Expr:
    # Polars sums nothing to zero, SQL to null.
    return pl.when(value.count() > 0).then(total)


def _average(total: pl.Expr, count: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    if not isinstance(dtype, pl.Decimal):
        return total.cast(pl.Float64) / count
    # Four more digits than the sum, rounded half away from zero, without ever passing 128 bits on the way.
    wide, added = count.cast(pl.Int128), 10 ** min(4, LARGEST_PRECISION - dtype.scale)
    whole, rest = total.abs() // wide, total.abs() % wide
    rounded = whole * added + (rest * added * 2 + wide) // (wide * 2)
    fitting = whole < 10**LARGEST_PRECISION // added
    return pl.when(fitting).then(pl.when(total < 0).then(rounded * -1).otherwise(rounded))


def _as_result(total: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """The total in the result's type, null where it does not fit, as Spark's try_sum and try_avg have it."""
    if not isinstance(dtype, pl.Decimal):
        return total.cast(dtype, strict=False)
    fitting = pl.when(total.abs() < 10**dtype.precision).then(total).cast(_WHOLE)
    # Whole times 0.01 is the same digits with two of them after the point; the digits themselves do not change.
    return (fitting * pl.lit(Decimal(1).scaleb(-dtype.scale))).cast(dtype)
