"""The state of a table aggregate: running totals of each group, counts of each value, and the rows of the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import polars as pl

from headrace.errors import DefinitionError
from headrace.expressions import Aggregate
from headrace.expressions.aggregates.chosen_values import Extreme, extreme
from headrace.expressions.aggregates.sums import Average, Count, CountDistinct, Sum
from headrace.expressions.operands import Schema
from headrace.key_hash import canonical_value
from headrace.operators.rows import KEY_NUMBER, with_schema
from headrace.operators.tables.changelog_input import LAST_CHANGE
from headrace.operators.tables.running_totals import WEIGHT, RunningTotal, argument_of, running_total
from headrace.operators.windows.aggregation import Aggregation

KIND, OF, ROWS = "__kind", "__of", "__rows"
GROUP, VALUE, ROW = 0, 1, 2
"""The kinds of state rows."""
TIMES = "__times"
"""How often a value is in its group."""
CHANGED = "__changed"


@dataclass(frozen=True)
class GroupState:
    """The columns of the state, and how rows change them."""

    aggregation: Aggregation
    rows: Mapping[str, pl.DataType]
    """The table's columns that are stored of every row; none without a primary key."""
    row_key: tuple[str, ...]

    @cached_property
    def running_totals(self) -> tuple[RunningTotal, ...]:
        plain = (each for each in self.aggregation.aggregates if not needs_value_counts(each))
        return tuple(running_total(each, self.aggregation.schema) for each in plain)

    @cached_property
    def value_counts(self) -> tuple[ValueCounts, ...]:
        """Aggregates that read the same values share their counts."""
        shared: dict[tuple[str, str | None], list[Aggregate]] = {}
        for each in filter(needs_value_counts, self.aggregation.aggregates):
            condition = None if each.condition is None else each.condition.text
            shared.setdefault((each.function.arguments[0].text, condition), []).append(each)
        groups = enumerate(map(tuple, shared.values()))
        return tuple(ValueCounts(number, group, self.aggregation.schema) for number, group in groups)

    @cached_property
    def parts(self) -> dict[str, pl.DataType]:
        return {name: dtype for total in self.running_totals for name, dtype in total.parts.items()}

    @cached_property
    def results(self) -> dict[str, pl.DataType]:
        """The columns of a group's last results, in the order of the aggregates."""
        return {f"__result.{name}": dtype for name, dtype in self.aggregation.results.items()}

    @cached_property
    def row_columns(self) -> dict[str, str]:
        """The state columns of the table's rows, by their own names; the group's key has its own columns."""
        return {name: f"__row.{name}" for name in self.rows if name not in self.aggregation.key}

    @cached_property
    def identity(self) -> tuple[str, ...]:
        """A group, one of its values, or one of its rows."""
        values = [each.column for each in self.value_counts]
        rows = [self.row_columns[name] for name in self.row_key if name not in self.aggregation.key]
        return (KIND, *self.aggregation.key, OF, *values, *rows)

    @cached_property
    def schema(self) -> dict[str, pl.DataType]:
        values = {each.column: each.dtype for each in self.value_counts}
        rows = {state: self.rows[name] for name, state in self.row_columns.items()}
        which = {KIND: pl.Int8(), **self.aggregation.keys, OF: pl.Int16()}
        group = {ROWS: pl.Int64(), **self.parts, **self.results}
        return {**which, **group, **values, TIMES: pl.Int64(), **rows, **LAST_CHANGE}

    @cached_property
    def is_empty(self) -> pl.Expr:
        """Whether a state row is a group without rows, or a value with count zero."""
        # The number of rows is not enough: where a row is retracted before it is added, something is still owed. Totals
        # of doubles are zero too when all rows are gone, unless the sum overflowed.
        doubles = [pl.col(name) for name, dtype in self.parts.items() if dtype.is_float()]
        zero = [pl.col(name) == 0 for name, dtype in {ROWS: pl.Int64(), **self.parts}.items() if not dtype.is_float()]
        zero += [(value == 0) | ~value.is_finite() for value in doubles]
        group = (pl.col(KIND) == GROUP) & pl.all_horizontal(zero)
        return (group | ((pl.col(KIND) == VALUE) & (pl.col(TIMES) == 0))).fill_null(False)

    def state_rows(self, kind: int, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows as state rows of a kind, with nulls in the columns that they lack."""
        return with_schema(rows.with_columns(pl.lit(kind, pl.Int8).alias(KIND)), self.schema)

    def totals(
        self, keys: pl.DataFrame, touched: pl.DataFrame, rows: pl.DataFrame
    ) -> tuple[pl.DataFrame, list[pl.DataFrame]]:
        """The totals and results of each numbered group after weighted rows, and the value counts that changed."""
        groups = touched.filter(pl.col(KIND) == GROUP)
        counts = [groups.select(KEY_NUMBER, ROWS), rows.select(KEY_NUMBER, pl.col(WEIGHT).alias(ROWS))]
        totals = keys.join(pl.concat(counts).group_by(KEY_NUMBER).agg(pl.col(ROWS).sum()), on=KEY_NUMBER)
        for each in self.running_totals:
            totals = totals.join(each.total(groups, rows), on=KEY_NUMBER, how="left")
        values = []
        for counted in self.value_counts:
            known = touched.filter((pl.col(KIND) == VALUE) & (pl.col(OF) == counted.number))
            found = counted.total(known, rows)
            totals = totals.join(counted.results(found), on=KEY_NUMBER, how="left")
            values.append(found.filter(CHANGED).with_columns(pl.lit(counted.number, pl.Int16).alias(OF)))
        totals = totals.with_columns(pl.col(name).fill_null(0) for name in self.parts)
        return totals.with_columns(self._results(totals)), values

    def _results(self, totals: pl.DataFrame) -> list[pl.Expr]:
        """The results of groups, after a check that every sum and average fits its type."""
        sums = tuple(each for each in self.aggregation.aggregates if isinstance(each.function, Sum | Average))
        replace(self.aggregation, aggregates=sums).result(totals)
        results = {total.aggregate.name: total.result for total in self.running_totals}
        results |= {each.name: counts.result(each) for counts in self.value_counts for each in counts.aggregates}
        return [result.alias(f"__result.{name}") for name, result in results.items()]


@dataclass(frozen=True)
class ValueCounts:
    """The distinct values of a group and how often each occurs, so that the least or greatest can be retracted."""

    number: int
    aggregates: tuple[Aggregate, ...]
    schema: Schema

    @property
    def column(self) -> str:
        return f"__value.{self.number}"

    @cached_property
    def dtype(self) -> pl.DataType:
        return self.aggregates[0].function.arguments[0].operand(self.schema).dtype

    def total(self, stored: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
        """The value counts of each group with weighted rows added, and which of them the rows changed."""
        value = canonical_value(argument_of(self.aggregates[0], self.schema), self.dtype).alias(self.column)
        given = rows.select(KEY_NUMBER, value, pl.col(WEIGHT).cast(pl.Int64).alias(TIMES)).drop_nulls(self.column)
        before = stored.select(KEY_NUMBER, self.column, TIMES, pl.lit(False).alias(CHANGED))
        both = pl.concat([before, given.with_columns(pl.lit(True).alias(CHANGED))])
        return both.group_by(KEY_NUMBER, self.column).agg(pl.col(TIMES).sum(), pl.col(CHANGED).any())

    def results(self, totals: pl.DataFrame) -> pl.DataFrame:
        """The results of each group that has a value."""
        value, occurrences = pl.col(self.column), pl.len().cast(pl.Int64)
        results = {
            _counted(each): extreme(each.function.which, value, self.dtype)
            if isinstance(each.function, Extreme)
            else occurrences
            for each in self.aggregates
        }
        return totals.filter(pl.col(TIMES) > 0).group_by(KEY_NUMBER).agg(**results)

    def result(self, aggregate: Aggregate) -> pl.Expr:
        """The result of any group, with values or without."""
        result = pl.col(_counted(aggregate))
        return result.fill_null(0) if isinstance(aggregate.function, CountDistinct) else result


def _counted(aggregate: Aggregate) -> str:
    return f"__counted.{aggregate.name}"


def needs_value_counts(aggregate: Aggregate) -> bool:
    """Whether an aggregate needs every value of a group."""
    return isinstance(aggregate.function, Extreme | CountDistinct)


def check_retractable(step: str, aggregate: Aggregate) -> None:
    """Refuse an aggregate that cannot retract rows."""
    if not isinstance(aggregate.function, Count | CountDistinct | Sum | Average | Extreme):
        raise DefinitionError(
            "AGGREGATE_CANNOT_RETRACT",
            f"step {step!r}: {aggregate.name} = {aggregate.text} cannot retract a row that is updated or deleted. "
            "Use count(*), count(x), count(DISTINCT x), sum, avg, min and max.",
        )
