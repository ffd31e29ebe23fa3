"""Bounded lists: collect_list, collect_set and top."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from headrace.errors import DefinitionError
from headrace.expressions.aggregates.aggregate import (
    AggregateScope,
    FilteredRows,
    UnaryFunction,
    UnnamedAggregate,
    map_groups,
    parse_argument,
)
from headrace.expressions.aggregates.columns import Lists
from headrace.expressions.rows import RowExpression
from headrace.stability import stable


@dataclass(frozen=True, slots=True)
class Ordering:
    """An order by several fields, and how many elements to keep.

    >>> entries = pl.Series([[{"x": 1, "of": "b"}, {"x": 2, "of": "a"}, {"x": 1, "of": "a"}], []])
    >>> Ordering(("x", "of"), (True, False), 2).first(entries).to_list()
    [[{'x': 2, 'of': 'a'}, {'x': 1, 'of': 'a'}], []]
    """

    fields: tuple[str, ...]
    descending: tuple[bool, ...]
    limit: int

    def first(self, groups: pl.Series) -> pl.Series:
        """The first elements of each list, in order.

        All lists are sorted as one frame. (Sorting within ``agg`` by more than one field of exploded lists reads
        foreign memory in Polars 2.1.)
        """
        lists = Lists.of(groups)
        owner = "\0owner"
        frame = lists.elements.struct.unnest().with_columns(pl.Series(owner, lists.owners))
        ordered = frame.sort(owner, *self.fields, descending=[False, *self.descending]).drop(owner)
        return Lists(ordered.to_struct(), lists.lengths).first(self.limit).series()


@dataclass(frozen=True, slots=True)
class CollectList(UnaryFunction):
    """The first values by event time, those of one time in ascending order; nulls are left out."""

    limit: int

    def state_types(self, scope: AggregateScope) -> dict[str, pl.DataType]:
        value = scope.ordered(self.argument, "collect_list").dtype
        return {"values": pl.List(pl.Struct({"time": pl.Int64(), "value": value}))}

    def partial(self, scope: AggregateScope, rows: FilteredRows) -> dict[str, pl.Expr]:
        value = scope.canonical(self.argument, "collect_list").value
        timed = rows.select(pl.struct(rows.time.alias("time"), value.alias("value")))
        return {"values": self._first(scope, timed.filter(rows.select(value.is_not_null())))}

    def merge(self, scope: AggregateScope) -> dict[str, pl.Expr]:
        return {"values": self._first(scope, scope.elements("values"))}

    def result(self, scope: AggregateScope) -> pl.Expr:
        return scope.state("values").list.eval(pl.element().struct.field("value"))

    def result_type(self, scope: AggregateScope) -> pl.DataType:
        return pl.List(scope.ordered(self.argument, "collect_list").dtype)

    def _first(self, scope: AggregateScope, timed: pl.Expr) -> pl.Expr:
        ordering = Ordering(("time", "value"), (False, False), self.limit)
        return map_groups(timed, ordering.first, self.state_types(scope)["values"])


@dataclass(frozen=True, slots=True)
class CollectSet(UnaryFunction):
    """The least distinct values in ascending order; nulls are left out."""

    limit: int

    def state_types(self, scope: AggregateScope) -> dict[str, pl.DataType]:
        return {"values": pl.List(scope.ordered(self.argument, "collect_set").dtype)}

    def partial(self, scope: AggregateScope, rows: FilteredRows) -> dict[str, pl.Expr]:
        return {"values": self._least(rows.select(scope.canonical(self.argument, "collect_set").value).drop_nulls())}

    def merge(self, scope: AggregateScope) -> dict[str, pl.Expr]:
        return {"values": self._least(scope.elements("values"))}

    def _least(self, value: pl.Expr) -> pl.Expr:
        return value.unique().sort().head(self.limit).implode()


@dataclass(frozen=True, slots=True)
class Top(UnaryFunction):
    """The largest values in descending order, NaN first and nulls left out; with an owner, structs of both.

    Equal values are in the ascending order of the owner, null first.
    """

    owner: RowExpression | None
    limit: int

    @property
    def arguments(self) -> tuple[RowExpression, ...]:
        return (self.argument,) if self.owner is None else (self.argument, self.owner)

    def state_types(self, scope: AggregateScope) -> dict[str, pl.DataType]:
        types = [scope.ordered(argument, "top").dtype for argument in self.arguments]
        entry = types[0] if len(types) == 1 else pl.Struct(dict(zip(self._fields, types, strict=True)))
        return {"top": pl.List(entry)}

    def partial(self, scope: AggregateScope, rows: FilteredRows) -> dict[str, pl.Expr]:
        values = [scope.canonical(argument, "top").value for argument in self.arguments]
        entry = values[0]
        if len(values) > 1:
            entry = pl.struct(value.alias(name) for value, name in zip(values, self._fields, strict=True))
        return {"top": self._largest(scope, rows.select(entry).filter(rows.select(values[0].is_not_null())))}

    def merge(self, scope: AggregateScope) -> dict[str, pl.Expr]:
        return {"top": self._largest(scope, scope.elements("top"))}

    @property
    def _fields(self) -> tuple[str, ...]:
        """The names of the struct's fields; of ``a.b`` it is ``b``, as in SQL, unless both have that name."""
        names = tuple(argument.name for argument in self.arguments)
        return names if len(set(names)) == len(names) else tuple(each.text.strip() for each in self.arguments)

    def _largest(self, scope: AggregateScope, entry: pl.Expr) -> pl.Expr:
        if self.owner is None:
            return entry.sort(descending=True).head(self.limit).implode()
        ordering = Ordering(self._fields, (True, False), self.limit)
        return map_groups(entry, ordering.first, self.result_type(scope))


@stable
def collect_list(value: str, *, at_most: int | None = None) -> UnnamedAggregate:
    """The first ``at_most`` values in the order of event time; values of one time are in ascending order.

    >>> collect_list("page", at_most=100)
    hr.collect_list('page', at_most=100)
    """
    limit = check_limit(at_most, argument="at_most", text=f"hr.collect_list({value!r})")
    return UnnamedAggregate(f"hr.collect_list({value!r}, at_most={limit})", CollectList(parse_argument(value), limit))


@stable
def collect_set(value: str, *, at_most: int | None = None) -> UnnamedAggregate:
    """The ``at_most`` least distinct values in ascending order, whatever the order in which rows arrive.

    >>> collect_set("shop", at_most=20)
    hr.collect_set('shop', at_most=20)
    """
    limit = check_limit(at_most, argument="at_most", text=f"hr.collect_set({value!r})")
    return UnnamedAggregate(f"hr.collect_set({value!r}, at_most={limit})", CollectSet(parse_argument(value), limit))


@stable
def top(value: str, *, n: int, of: str | None = None) -> UnnamedAggregate:
    """The ``n`` largest values in descending order; with ``of``, each in a struct with the value of that column.

    >>> top("amount", n=3, of="shop")
    hr.top('amount', n=3, of='shop')
    """
    limit = check_limit(n, argument="n", text=f"hr.top({value!r})")
    argument, owner = parse_argument(value), None if of is None else parse_argument(of)
    if owner is not None and argument.tree == owner.tree:
        raise DefinitionError(
            "TOP_OF_ITSELF", f"hr.top({value!r}, of={of!r}): each value would appear twice. Leave of= out."
        )
    more = "" if of is None else f", of={of!r}"
    return UnnamedAggregate(f"hr.top({value!r}, n={limit}{more})", Top(argument, owner, limit))


def check_limit(limit: int | None, *, argument: str, text: str) -> int:
    """Check how many values an aggregate keeps at most; ``text`` is the aggregate without the limit.

    >>> check_limit(3, argument="n", text="hr.top('amount')")
    3
    """
    advice = f"Say how many values to keep, as in {text[:-1]}, {argument}=100)."
    if limit is None:
        raise DefinitionError(
            "BOUND_MISSING", f"{text} would keep every value, and the state would grow for ever. {advice}"
        )
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise DefinitionError("BOUND_NOT_POSITIVE", f"{text}: {argument}={limit!r} must be at least 1. {advice}")
    return limit
