"""Expressions over aggregates, such as ``sum(a) / count(*)``."""

from __future__ import annotations

from dataclasses import dataclass, replace

import polars as pl

from headrace.expressions import nodes
from headrace.expressions.aggregates.aggregate import Aggregate, AggregateFunction, AggregateScope, BoundAggregate
from headrace.expressions.operands import Operand
from headrace.expressions.rows import PolarsLowering


@dataclass(frozen=True, slots=True)
class Computed(AggregateFunction):
    """The value of an expression over the results of aggregates; its state has the columns of all of them."""

    tree: nodes.Expression
    columns: tuple[nodes.ColumnRef, ...]
    """What stands in the tree for the result of each part."""
    parts: tuple[Aggregate, ...]
    """The aggregates, named by their numbers."""

    def bind(self, scope: AggregateScope) -> BoundAggregate:
        bound = {part.name: part.function.bind(self._scope(scope, part)) for part in self.parts}
        results = [Operand(each.result, each.result_type) for each in bound.values()]
        given = dict(zip(self.columns, results, strict=True))
        result = PolarsLowering(self.tree.sql, {}, given).operand(self.tree)
        overflowed = [each.overflowed for each in bound.values() if each.overflowed is not None]
        if result.dtype.is_integer():
            exact = PolarsLowering(self.tree.sql, {}, given, exact=True).operand(self.tree)
            overflowed.append(exact.value.is_not_null() & result.value.is_null())
        return BoundAggregate(
            types={f"{name}.{part}": dtype for name, each in bound.items() for part, dtype in each.types.items()},
            partial={f"{name}.{part}": value for name, each in bound.items() for part, value in each.partial.items()},
            merge={f"{name}.{part}": value for name, each in bound.items() for part, value in each.merge.items()},
            result=result.value,
            result_type=result.dtype,
            overflowed=pl.any_horizontal(overflowed) if overflowed else None,
        )

    @staticmethod
    def _scope(scope: AggregateScope, part: Aggregate) -> AggregateScope:
        conditions = [scope.condition, None if part.condition is None else part.condition.truth(scope.schema)]
        both = [each for each in conditions if each is not None]
        condition = pl.all_horizontal(both) if both else None
        return replace(scope, name=f"{scope.name}.{part.name}", condition=condition)
