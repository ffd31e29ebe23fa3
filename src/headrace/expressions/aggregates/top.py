"""The n largest values of a group."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from headrace.errors import DefinitionError
from headrace.expressions.aggregates.arguments import parse_argument
from headrace.expressions.aggregates.binding import Binding, Rows
from headrace.expressions.aggregates.bounds import check_bound
from headrace.expressions.aggregates.measure import Measure
from headrace.expressions.aggregates.ordering import Ordering
from headrace.expressions.rows import RowExpression


@dataclass(frozen=True, slots=True)
class Top:
    """The largest values in falling order, NaN first and nulls left out; perhaps with what each is a value of."""

    arguments: tuple[RowExpression, ...]
    """The value and, if it is wanted, its owner; equal values are in the rising order of it, null first."""
    n: int

    def state_types(self, of: Binding) -> dict[str, pl.DataType]:
        return {"top": self.result_type(of)}

    def partial(self, of: Binding, rows: Rows) -> dict[str, pl.Expr]:
        values = [of.canonical(argument, "top").value for argument in self.arguments]
        entry = values[0]
        if len(values) > 1:
            entry = pl.struct(value.alias(name) for value, name in zip(values, self._fields, strict=True))
        return {"top": self._largest(of, rows.kept(entry).filter(rows.kept(values[0].is_not_null())))}

    def merge(self, of: Binding) -> dict[str, pl.Expr]:
        return {"top": self._largest(of, of.elements("top"))}

    def result(self, of: Binding) -> pl.Expr:
        return of.state("top")

    def result_type(self, of: Binding) -> pl.DataType:
        types = [of.ordered(argument, "top").dtype for argument in self.arguments]
        return pl.List(types[0] if len(types) == 1 else pl.Struct(dict(zip(self._fields, types, strict=True))))

    @property
    def _fields(self) -> tuple[str, ...]:
        """The names of the struct's fields; of ``a.b`` it is ``b``, as in SQL, unless the other has that name too."""
        names = tuple(argument.node.name or argument.text for argument in self.arguments)
        return names if len(set(names)) == len(names) else tuple(each.text.strip() for each in self.arguments)

    def _largest(self, of: Binding, entry: pl.Expr) -> pl.Expr:
        if len(self.arguments) == 1:
            return entry.sort(descending=True).head(self.n).implode()
        ordering = Ordering(self._fields, (True, False), self.n)
        return entry.implode().map_batches(ordering.first, self.result_type(of), is_elementwise=True)


def top(value: str, *, n: int, of: str | None = None) -> Measure:
    """The ``n`` largest values in falling order; with ``of``, each in a struct with what it is a value of.

    >>> top("amount", n=3, of="shop")
    hr.top('amount', n=3, of='shop')
    """
    bound = check_bound(n, argument="n", text=f"hr.top({value!r})")
    arguments = tuple(parse_argument(text) for text in (value, of) if text is not None)
    if of is not None and arguments[0].node == arguments[1].node:
        raise DefinitionError(
            "TOP_OF_ITSELF", f"hr.top({value!r}, of={of!r}): each value would stand there twice. Leave of= out."
        )
    owner = "" if of is None else f", of={of!r}"
    return Measure(f"hr.top({value!r}, n={bound}{owner})", Top(arguments, bound))
