"""The author's own aggregate, as expressions over whole groups."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from headrace.errors import DefinitionError
from headrace.expressions.aggregates.authors_own import AuthorsOwn
from headrace.expressions.aggregates.binding import Binding, Rows
from headrace.expressions.rows import RowExpression


class VectorAccumulator(AuthorsOwn):
    """An aggregate of the author's made of Polars expressions: as fast as those of Headrace.

    >>> class Product(VectorAccumulator):
    ...     state = "product DOUBLE"
    ...     result_type = "DOUBLE"
    ...     def partial(self, value):
    ...         return {"product": value.product()}
    ...     def merge(self, kept):
    ...         return {"product": kept["product"].product()}
    ...     def result(self, kept):
    ...         return kept["product"]
    >>> Product("factor").where("factor > 0")
    Product('factor').where('factor > 0')
    """

    @abstractmethod
    def partial(self, value: Any) -> Mapping[str, pl.Expr]:
        """The fields of ``state`` over the rows of a group; ``value`` is an expression, or a dict if several are read.

        Over no rows they must be such that they merge as nothing.
        """

    @abstractmethod
    def merge(self, kept: Mapping[str, pl.Expr]) -> Mapping[str, pl.Expr]:
        """The fields of ``state`` over several partials of a group."""

    @abstractmethod
    def result(self, kept: Mapping[str, pl.Expr]) -> pl.Expr:
        """The value, over one partial."""

    def calculation(self) -> Vectorised:
        """What runs."""
        return Vectorised(self)


@dataclass(frozen=True, slots=True)
class Vectorised:
    """The author's expressions, once they are known to have the declared types."""

    accumulator: VectorAccumulator

    @property
    def arguments(self) -> tuple[RowExpression, ...]:
        return self.accumulator.arguments

    def state_types(self, of: Binding) -> dict[str, pl.DataType]:
        return self.accumulator.kept_types

    def partial(self, of: Binding, rows: Rows) -> dict[str, pl.Expr]:
        values = {argument.text: rows.kept(of.operand(argument).value) for argument in self.arguments}
        return dict(self.accumulator.partial(next(iter(values.values())) if len(values) == 1 else values))

    def merge(self, of: Binding) -> dict[str, pl.Expr]:
        return dict(self.accumulator.merge(self._kept(of)))

    def result(self, of: Binding) -> pl.Expr:
        return self.accumulator.result(self._kept(of))

    def result_type(self, of: Binding) -> pl.DataType:
        types = self.state_types(of)
        rows = pl.DataFrame(schema=dict(of.schema))
        self._check(of, "partial", types, rows, self.partial(of, Rows(pl.lit(0), None)))
        stored = pl.DataFrame(schema={f"{of.name}.{field}": dtype for field, dtype in types.items()})
        self._check(of, "merge", types, stored, self.merge(of))
        given = self.accumulator.given_type
        self._check(of, "result", {"result": given}, stored, {"result": self.result(of)})
        return given

    def _kept(self, of: Binding) -> dict[str, pl.Expr]:
        return {field: of.state(field) for field in self.state_types(of)}

    def _check(
        self,
        of: Binding,
        method: str,
        declared: Mapping[str, pl.DataType],
        frame: pl.DataFrame,
        expressions: Mapping[str, pl.Expr],
    ) -> None:
        kind = type(self.accumulator).__name__
        try:
            found: object = dict(frame.select(**expressions).schema)
        except pl.exceptions.PolarsError as error:
            found = str(error).splitlines()[0]
        if found != declared:
            raise DefinitionError(
                "ACCUMULATOR_TYPE",
                f"aggregate '{of.name}': {kind}.{method} gives {found}, and the class declares {dict(declared)}. "
                "Cast the expressions, or correct state and result_type.",
            )
