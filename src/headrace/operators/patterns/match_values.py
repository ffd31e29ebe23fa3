"""Values read from the rows of a match, such as ``avg(probe.amount)`` or ``a.at``, and the columns that rows carry."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal, localcontext
from functools import partial
from typing import Any

import polars as pl

from headrace.errors import DefinitionError
from headrace.expressions import RowExpression, parse_aggregate
from headrace.expressions.nodes import ColumnRef, Expression, StepValue, WholeRow, step_values_of, walk
from headrace.expressions.operands import LARGEST_PRECISION, Operand, Schema, fits
from headrace.expressions.rows import PolarsLowering
from headrace.expressions.step_expressions import parse_step_expression
from headrace.operators.patterns.matcher import TIME, VALUES, Node, Row

_Aggregate = Callable[[list[Any], pl.DataType], Any]
Reader = Callable[[Row | None, Node | None], Any]
"""Computes a value from the current row (None once a match is complete) and the rows matched before it."""


@dataclass(slots=True)
class CarriedColumns:
    """The columns that rows carry because conditions over the match or measures read them, each computed once."""

    schema: Schema
    operands: dict[tuple[Expression, bool], Operand] = field(default_factory=dict)

    def place(self, tree: Expression, *, exact: bool = False) -> int:
        plain, found = (PolarsLowering(tree.sql, self.schema, exact=each).operand(tree) for each in (False, exact))
        key = tree, found.dtype != plain.dtype
        self.operands.setdefault(key, found)
        return VALUES + list(self.operands).index(key)


def physical(dtype: pl.DataType) -> pl.DataType:
    """The type of a value while matching: times are whole numbers, which Python handles much faster."""
    if isinstance(dtype, pl.Datetime | pl.Duration):
        return pl.Int64()
    return pl.Int32() if dtype == pl.Date() else dtype


def step_operands(values: Sequence[StepValue], schema: Schema) -> dict[StepValue, Operand]:
    """A column for each value, under which Polars computes with it."""
    return {value: Operand(pl.col(value.sql), _type(value, schema)) for value in values}


def _type(value: StepValue, schema: Schema) -> pl.DataType:
    if value.function == "elapsed":
        return pl.Float64()
    if value.argument is None:
        return pl.Int64()
    argument = RowExpression(value.argument.sql, value.argument)
    _check_not_hidden(value, argument, schema)
    if value.function == "count":
        return pl.Int64()
    if value.function in ("sum", "avg"):
        return parse_aggregate(f"{value.function}({argument.text})", name=value.sql).result_type(schema)
    dtype = argument.operand(schema).dtype
    if value.function in ("min", "max") and dtype.is_nested():
        raise DefinitionError("EXPRESSION_TYPE", f"'{value.sql}': {dtype} cannot be ordered. Use one of its fields.")
    return dtype


def _check_not_hidden(value: StepValue, argument: RowExpression, schema: Schema) -> None:
    """Refuse a field of a struct column that has the step's name: the name stands for the step."""
    step = str(value.step)
    column = schema.get(step)
    fields = dict(column) if isinstance(column, pl.Struct) else {}
    for name in sorted(argument.columns & fields.keys() - schema.keys()):
        raise DefinitionError(
            "STEP_HIDES_COLUMN",
            f"'{step}.{name}' reads column {name!r} of rows matched by step {step!r}, and there is no such column: the "
            f"step's name hides the column {step!r}. Rename the step, or write '{step}.{step}.{name}' for rows that "
            "it matched.",
        )


def reader(value: StepValue, columns: CarriedColumns, steps: Sequence[str], dtype: pl.DataType) -> Reader:
    """The function that computes a value, which has the type ``dtype``."""
    if value.step is None:
        return _since_start  # only elapsed() has no step
    number = steps.index(value.step)
    if value.function == "elapsed":
        return partial(_since_step, number)
    exact = value.function in ("sum", "avg")
    place = TIME if value.argument is None else columns.place(value.argument, exact=exact)
    if value.function in ("first", "last"):
        return partial(_first if value.function == "first" else _last, number, place)
    return partial(_aggregated, number, place, _AGGREGATES[value.function], dtype)


@dataclass(frozen=True, slots=True)
class Measures:
    """The measures of a pattern: SQL text over its steps, bound to the columns that rows carry."""

    operands: Mapping[str, Operand]
    """Each measure as an expression over the step values."""
    step_values: Mapping[str, tuple[pl.DataType, Reader]]

    @property
    def schema(self) -> dict[str, pl.DataType]:
        return {name: operand.dtype for name, operand in self.operands.items()}

    def of(self, matches: Sequence[Node]) -> pl.DataFrame:
        """The measures of matches, each given by its last node."""
        values = {
            name: pl.Series(name, [read(None, node) for node in matches], physical(dtype), strict=True).cast(dtype)
            for name, (dtype, read) in self.step_values.items()
        }
        given = pl.DataFrame(values) if values else pl.DataFrame(height=len(matches))
        return given.select(operand.value.cast(operand.dtype).alias(name) for name, operand in self.operands.items())


def bind_measures(measures: Mapping[str, str], columns: CarriedColumns, steps: Sequence[str]) -> Measures:
    """Parse and bind measures.

    >>> columns = CarriedColumns({"amount": pl.Float64()})
    >>> bind_measures({"most": "max(b.amount)", "rows": "count(b.*)"}, columns, ["a", "b"]).schema
    {'most': Float64, 'rows': Int64}
    """
    trees = {name: parse_step_expression(text, steps) for name, text in measures.items()}
    for name, tree in trees.items():
        for part in walk(tree):
            if isinstance(part, ColumnRef | WholeRow):
                written = part.path[-1] if isinstance(part, ColumnRef) else "*"
                raise DefinitionError(
                    "STEP_MISSING",
                    f"measure {name!r}: '{measures[name]}' does not name the step of '{part.sql}'. "
                    f"Write it as in '{steps[0]}.{written}'. Steps: {', '.join(steps)}.",
                )
    values = step_operands([value for tree in trees.values() for value in step_values_of(tree)], columns.schema)
    operands = {name: PolarsLowering(measures[name], {}, values).operand(tree) for name, tree in trees.items()}
    readers = {each.sql: (of.dtype, reader(each, columns, steps, of.dtype)) for each, of in values.items()}
    return Measures(operands, readers)


def _since_start(row: Row | None, node: Node | None) -> float | None:
    if node is None:
        return 0.0
    last, first = node[0], node
    while first[2] is not None:
        first = first[2]
    return float(((last if row is None else row)[TIME] - first[0][TIME]) / 1_000_000)


def _since_step(step: int, row: Row | None, node: Node | None) -> float | None:
    time = _last(step, TIME, row, node)
    if node is None or time is None:
        return None
    return float(((node[0] if row is None else row)[TIME] - time) / 1_000_000)


def _last(step: int, place: int, _row: Row | None, node: Node | None) -> Any:
    while node is not None:
        if node[1] == step:
            return node[0][place]
        node = node[2]
    return None


def _first(step: int, place: int, _row: Row | None, node: Node | None) -> Any:
    value = None
    while node is not None:
        if node[1] == step:
            value = node[0][place]
        node = node[2]
    return value


def _aggregated(
    step: int, place: int, aggregate: _Aggregate, dtype: pl.DataType, _row: Row | None, node: Node | None
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
    if isinstance(dtype, pl.Decimal) or isinstance(values[0], Decimal):
        with localcontext(prec=2 * LARGEST_PRECISION):
            total = Decimal(sum(values))
            if isinstance(dtype, pl.Decimal):
                return _rounded(total, dtype)
    else:
        total = sum(values)
    if isinstance(dtype, pl.Int64):
        return int(total) if fits(int(total), dtype) else None
    return float(total)


def _average(values: list[Any], dtype: pl.DataType) -> Any:
    if not values:
        return None
    if not isinstance(dtype, pl.Decimal):
        return float(sum(values)) / len(values)
    with localcontext(prec=2 * LARGEST_PRECISION):
        return _rounded(Decimal(sum(values)) / len(values), dtype)


def _rounded(value: Decimal, dtype: pl.Decimal) -> Decimal | None:
    rounded = value.quantize(Decimal(1).scaleb(-dtype.scale), rounding=ROUND_HALF_UP)
    return rounded if abs(rounded.scaleb(dtype.scale)) < 10**dtype.precision else None


def _nan_largest(value: Any) -> tuple[bool, Any]:
    # As in Spark.
    return value != value, value


_AGGREGATES: Mapping[str, _Aggregate] = {
    "count": lambda values, dtype: len(values),
    "sum": _sum,
    "avg": _average,
    "min": lambda values, dtype: min(values, key=_nan_largest, default=None),
    "max": lambda values, dtype: max(values, key=_nan_largest, default=None),
}
