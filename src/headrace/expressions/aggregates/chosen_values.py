"""Values chosen from a group: min, max, first, last, min_by, max_by, collect_list, collect_set and top.

NaN is the greatest value, and both zeros are 0.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal, overload

import polars as pl

from headrace.errors import DefinitionError
from headrace.expressions.aggregates.aggregate import (
    Aggregate,
    AggregateFunction,
    AggregateScope,
    BoundAggregate,
    Lists,
    map_groups,
    parse_argument,
)
from headrace.expressions.operands import Operand
from headrace.expressions.rows import parse_row_expression
from headrace.key_hash import canonical_value
from headrace.stability import stable

Which = Literal["min", "max"]
BY, TIME, VALUE = "by", "time", "value"
"""The state of a chosen value: what it was chosen by, and itself."""


@dataclass(frozen=True, slots=True)
class Extreme(AggregateFunction):
    """The least or the greatest value."""

    which: Which

    def bind(self, scope: AggregateScope) -> BoundAggregate:
        operand, name = scope.ordered(self.argument, self.which), str(self.which)
        of_rows = {name: extreme(self.which, scope.select(operand.value), operand.dtype)}
        merge = {name: extreme(self.which, scope.state(name), operand.dtype)}
        return BoundAggregate({name: operand.dtype}, of_rows, merge, scope.state(name), operand.dtype)


@dataclass(frozen=True, slots=True)
class ValueAtExtreme(AggregateFunction):
    """The value of the first or last row by event time, or of the row with the least or greatest second argument.

    Of rows that tie it is the first or last by event time, then by position: a group has its rows in that order.
    """

    name: str
    which: Which

    def bind(self, scope: AggregateScope) -> BoundAggregate:
        value = self.arguments[0].operand(scope.schema)
        rows, types = {TIME: scope.time, VALUE: value.value}, {TIME: pl.Int64(), VALUE: value.dtype}
        if len(self.arguments) > 1:
            by = scope.ordered(self.arguments[1], self.name)
            rows, types = {BY: by.value, **rows}, {BY: by.dtype, **types}
        return BoundAggregate(
            types=types,
            partial=self._chosen({name: scope.select(each) for name, each in rows.items()}, types),
            merge=self._chosen({name: scope.state(name) for name in types}, types),
            result=scope.state(VALUE),
            result_type=value.dtype,
        )

    def _chosen(self, rows: Mapping[str, pl.Expr], types: Mapping[str, pl.DataType]) -> dict[str, pl.Expr]:
        """The columns of the first or last row in the order of all columns but the value."""
        chosen: dict[str, pl.Expr] = {}
        left = dict(rows)
        for name in [name for name in rows if name != VALUE]:
            chosen[name] = extreme(self.which, left[name], types[name])
            is_tied = left[name] == chosen[name]
            left = {other: column.filter(is_tied) for other, column in left.items()}
        value = left[VALUE].first() if self.which == "min" else left[VALUE].last()
        return {**chosen, VALUE: canonical_value(value, types[VALUE])}


def extreme(which: Which, value: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """The least or greatest of a group's values, in Spark's order."""
    if not dtype.is_float():
        return value.min() if which == "min" else value.max()
    # NaN is the greatest: nan_max gives it if there is one, min gives it only if there is nothing else.
    return canonical_value(value.min() if which == "min" else value.nan_max(), dtype)


def first_of_each(groups: pl.Series, *, descending: Mapping[str, bool], limit: int) -> pl.Series:
    """The first structs of each list, by these fields, null as the least; those that tie stay in their order.

    >>> entries = pl.Series([[{"x": 1, "of": "b"}, {"x": 2, "of": "a"}, {"x": 1, "of": "a"}], []])
    >>> first_of_each(entries, descending={"x": True, "of": False}, limit=2).to_list()
    [[{'x': 2, 'of': 'a'}, {'x': 1, 'of': 'a'}], []]
    """
    # Sorting within ``agg`` by more than one field of exploded lists reads foreign memory in Polars 2.1.
    lists = Lists.of(groups)
    owner = "\0owner"
    frame = lists.elements.struct.unnest().with_columns(pl.Series(owner, lists.owners))
    by_owner = {owner: False, **descending}
    falling = list(by_owner.values())
    ordered = frame.sort(*by_owner, descending=falling, nulls_last=falling, maintain_order=True)
    return Lists(ordered.drop(owner).to_struct(), lists.lengths).series().list.head(limit)


@dataclass(frozen=True, slots=True)
class CollectList(AggregateFunction):
    """The first values by event time, those of one time by position; nulls are left out."""

    limit: int

    def bind(self, scope: AggregateScope) -> BoundAggregate:
        operand = self.argument.operand(scope.schema)
        value = canonical_value(operand.value, operand.dtype)
        kept = pl.List(pl.Struct({"time": pl.Int64(), "value": operand.dtype}))
        first = partial(first_of_each, descending={"time": False}, limit=self.limit)
        timed = scope.select(pl.struct(scope.time.alias("time"), value.alias("value")))
        known = timed.filter(scope.select(operand.value.is_not_null()))
        return BoundAggregate(
            types={"values": kept},
            partial={"values": map_groups(known, first, kept)},
            merge={"values": map_groups(scope.elements("values"), first, kept)},
            result=scope.state("values").list.eval(pl.element().struct.field("value")),
            result_type=pl.List(operand.dtype),
        )


@dataclass(frozen=True, slots=True)
class CollectSet(AggregateFunction):
    """The least distinct values in ascending order; nulls are left out."""

    limit: int

    def bind(self, scope: AggregateScope) -> BoundAggregate:
        operand = scope.canonical(self.argument, "collect_set")
        kept, given, stored = pl.List(operand.dtype), scope.select(operand.value), scope.elements("values")
        least, merged = (
            {"values": value.unique().sort().head(self.limit).implode()} for value in (given.drop_nulls(), stored)
        )
        return BoundAggregate({"values": kept}, least, merged, scope.state("values"), kept)


@dataclass(frozen=True, slots=True)
class Top(AggregateFunction):
    """The largest values, without nulls; with a second argument, structs of both, of which it orders equal values.

    Structs and lists have no order: there the first by event time, then by position comes first.
    """

    limit: int

    def bind(self, scope: AggregateScope) -> BoundAggregate:
        if len(self.arguments) > 1 and (of := self.arguments[1].operand(scope.schema)).dtype.is_nested():
            by = scope.canonical(self.argument, "top")
            fields = (
                pl.element().struct.field(each).alias(name)
                for each, name in zip((BY, VALUE), self._fields, strict=True)
            )
            return _largest_first(scope, by, of, self.limit, pl.struct(fields), keeps_nulls=False)
        operands = [scope.canonical(argument, "top") for argument in self.arguments]
        entry, kept = operands[0].value, pl.List(operands[0].dtype)
        if len(operands) > 1:
            named = dict(zip(self._fields, operands, strict=True))
            entry = pl.struct(operand.value.alias(name) for name, operand in named.items())
            kept = pl.List(pl.Struct({name: operand.dtype for name, operand in named.items()}))
        known = scope.select(entry).filter(scope.select(operands[0].value.is_not_null()))
        largest, merged = ({"top": self._largest(each, kept)} for each in (known, scope.elements("top")))
        return BoundAggregate({"top": kept}, largest, merged, scope.state("top"), kept)

    @property
    def _fields(self) -> tuple[str, ...]:
        """The names of the struct's fields; of ``a.b`` it is ``b``, as in SQL, unless both have that name."""
        names = tuple(argument.name for argument in self.arguments)
        return names if len(set(names)) == len(names) else tuple(each.text.strip() for each in self.arguments)

    def _largest(self, entry: pl.Expr, kept: pl.DataType) -> pl.Expr:
        if len(self.arguments) == 1:
            return entry.sort(descending=True).head(self.limit).implode()
        order = dict(zip(self._fields, (True, False), strict=True))
        return map_groups(entry, partial(first_of_each, descending=order, limit=self.limit), kept)


@dataclass(frozen=True, slots=True)
class TopRows(AggregateFunction):
    """The whole rows with the largest values, those without a value last; of equal ones the first by event time."""

    limit: int
    gives_rows = True

    def bind(self, scope: AggregateScope) -> BoundAggregate:
        by, row = scope.canonical(self.arguments[0], "top"), self.arguments[1].operand(scope.schema)
        return _largest_first(scope, by, row, self.limit, pl.element().struct.field(VALUE), keeps_nulls=True)


def _largest_first(
    scope: AggregateScope, by: Operand, value: Operand, limit: int, shown: pl.Expr, *, keeps_nulls: bool
) -> BoundAggregate:
    """Values by something else, the largest first, then by event time, then by position; ``shown`` is of an entry."""
    kept = pl.List(pl.Struct({BY: by.dtype, TIME: pl.Int64(), VALUE: value.dtype}))
    largest = partial(first_of_each, descending={BY: True, TIME: False}, limit=limit)
    given = scope.select(pl.struct(by.value.alias(BY), scope.time.alias(TIME), value.value.alias(VALUE)))
    if not keeps_nulls:
        given = given.filter(scope.select(by.value.is_not_null()))
    result = scope.state("top").list.eval(shown)
    return BoundAggregate(
        types={"top": kept},
        partial={"top": map_groups(given, largest, kept)},
        merge={"top": map_groups(scope.elements("top"), largest, kept)},
        result=result,
        result_type=pl.DataFrame(schema={f"{scope.name}.top": kept}).select(result).to_series().dtype,
    )


def _collected(name: str, kind: type[CollectList | CollectSet], value: str, at_most: int | None) -> Aggregate:
    limit = check_limit(at_most, argument="at_most", text=f"hr.{name}({value!r})")
    text = f"hr.{name}({value!r}, at_most={limit})"
    return Aggregate(text, kind((parse_argument(value),), limit), code=text)


@stable
def collect_list(value: str, *, at_most: int | None = None) -> Aggregate:
    """The first ``at_most`` values in the order of event time; values of one time are in the order of their rows.

    >>> collect_list("page", at_most=100)
    hr.collect_list('page', at_most=100)
    """
    return _collected("collect_list", CollectList, value, at_most)


@stable
def collect_set(value: str, *, at_most: int | None = None) -> Aggregate:
    """The ``at_most`` least distinct values in ascending order, whatever the order in which rows arrive.

    >>> collect_set("shop", at_most=20)
    hr.collect_set('shop', at_most=20)
    """
    return _collected("collect_set", CollectSet, value, at_most)


@overload
def top(value: str, *, n: int, of: str | None = None) -> Aggregate: ...


@overload
def top(value: int, *, by: str, rows: Literal[True]) -> Aggregate: ...


@stable
def top(
    value: str | int, *, n: int | None = None, of: str | None = None, by: str | None = None, rows: bool = False
) -> Aggregate:
    """The ``n`` largest values in descending order; with ``of``, each in a struct with the value of that column.

    ``hr.top(n, by=..., rows=True)`` makes each of the ``n`` best rows a row of the output, with its rank.

    >>> top("amount", n=3, of="shop")
    hr.top('amount', n=3, of='shop')
    >>> top(10, by="price", rows=True)
    hr.top(10, by='price', rows=True)
    """
    if rows or by is not None or not isinstance(value, str):
        if by is None or rows is not True or n is not None or of is not None:
            raise DefinitionError(
                "TOP_FORM",
                "hr.top has two forms. Write hr.top('price', n=10) for a list of values, or hr.top(10, by='price', "
                "rows=True) for rows.",
            )
        limit = check_limit(value, argument="n", text=f"hr.top(by={by!r}, rows=True)")  # type: ignore[arg-type]
        text = f"hr.top({limit}, by={by!r}, rows=True)"
        return Aggregate(text, TopRows((parse_argument(by), parse_row_expression("struct(*)")), limit), code=text)
    limit = check_limit(n, argument="n", text=f"hr.top({value!r})")
    arguments = tuple(map(parse_argument, [value] if of is None else [value, of]))
    if len({argument.tree for argument in arguments}) < len(arguments):
        raise DefinitionError(
            "TOP_OF_ITSELF", f"hr.top({value!r}, of={of!r}): each value would appear twice. Leave of= out."
        )
    more = "" if of is None else f", of={of!r}"
    text = f"hr.top({value!r}, n={limit}{more})"
    return Aggregate(text, Top(arguments, limit), code=text)


def check_limit(limit: int | None, *, argument: str, text: str) -> int:
    """Check how many values an aggregate keeps at most; ``text`` is the aggregate without the limit."""
    advice = f"Say how many values to keep, as in {text[:-1]}, {argument}=100)."
    if limit is None:
        raise DefinitionError(
            "BOUND_MISSING", f"{text} would keep every value, and the state would grow for ever. {advice}"
        )
    if type(limit) is not int or limit < 1:
        raise DefinitionError("BOUND_NOT_POSITIVE", f"{text}: {argument}={limit!r} must be at least 1. {advice}")
    return limit
