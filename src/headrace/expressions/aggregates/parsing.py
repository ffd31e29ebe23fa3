"""Aggregates from SQL text, from values of ``hr``, or from user-defined classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from sqlglot import exp

from headrace.errors import DefinitionError
from headrace.expressions import nodes
from headrace.expressions.aggregates.accumulators import UserDefinedAggregate
from headrace.expressions.aggregates.aggregate import Aggregate, AggregateFunction, reads_no_column
from headrace.expressions.aggregates.chosen_values import Extreme, ValueAtExtreme, check_limit
from headrace.expressions.aggregates.computed import Computed
from headrace.expressions.aggregates.hyperloglog import ApproximateCountDistinct
from headrace.expressions.aggregates.percentile import Percentile
from headrace.expressions.aggregates.sums import Average, Count, CountDistinct, Sum, Variance
from headrace.expressions.parser import OPERATIONS, ExpressionParser, is_supported, read_sql, sql_of
from headrace.expressions.rows import RowExpression, row_expression

LISTED_AGGREGATES = (
    "count(*), count(x), count(DISTINCT x), approx_count_distinct(x[, error]), sum(x), avg(x), min(x), max(x), "
    "stddev(x), stddev_samp(x), stddev_pop(x), variance(x), var_samp(x), var_pop(x), first(x), last(x), min_by(x, y), "
    "max_by(x, y), approx_percentile(x, p), approx_percentile(x, array(p, ...)), each with FILTER (WHERE ...) if "
    "need be; expressions over them, as in sum(x) / count(*); and hr.percentile, hr.top, hr.collect_list, "
    "hr.collect_set, hr.ewm"
)


def parse_aggregate(given: object, *, name: str) -> Aggregate:
    """Read one aggregate; the names of its partial columns begin with ``name``.

    >>> parse_aggregate("count(*) FILTER (WHERE amount > 0)", name="payments").columns
    frozenset({'amount'})
    """
    if isinstance(given, str):
        return _SqlAggregate(given, name).aggregate()
    if isinstance(given, UserDefinedAggregate):
        given = given.unnamed()
    if isinstance(given, Aggregate):
        return replace(given, name=name)
    shown = f"{given.__name__}, a class" if isinstance(given, type) else repr(given)
    raise DefinitionError(
        "AGGREGATE_EXPECTED",
        f"aggregate '{name}' is {shown}. Write SQL text as in 'sum(amount)', a value as in hr.percentile('amount', "
        "0.99), or your accumulator, as in MyAccumulator('amount').",
    )


@dataclass(frozen=True, slots=True)
class _SqlAggregate:
    text: str
    name: str

    def aggregate(self) -> Aggregate:
        node = read_sql(self.text)
        while isinstance(node, exp.Paren):
            node = node.this
        if is_supported(node):
            raise self.of_one_row(self.text)
        if not is_aggregate(node) and type(node) in OPERATIONS and any(map(is_aggregate, node.walk())):
            return self.computed(node)
        return self.alone(node, self.text)

    def computed(self, node: exp.Expr) -> Aggregate:
        """An expression over several aggregates."""
        parser = _ResultParser(self.text, self)
        tree = parser.expression(node)
        parts = tuple(replace(part, name=str(number)) for number, part in enumerate(parser.parts.values()))
        read = [part.function.arguments for part in parts] + [(each.condition,) for each in parts if each.condition]
        arguments = tuple(argument for arguments in read for argument in arguments)
        function = Computed(arguments, tree, tuple(parser.parts), parts)
        return Aggregate(self.text, function, repr(self.text), None, self.name)

    def alone(self, node: exp.Expr, text: str) -> Aggregate:
        """One of the listed aggregates, with a filter if it has one."""
        condition = None
        if isinstance(node, exp.Filter):
            where = node.expression.this
            node, condition = node.this, row_expression(where, sql_of(where))
            if is_supported(node):
                raise self.of_one_row(sql_of(node))
        if isinstance(node, exp.ArrayAgg | exp.ArrayUniqueAgg):
            function = "collect_list" if isinstance(node, exp.ArrayAgg) else "collect_set"
            check_limit(None, argument="at_most", text=f"hr.{function}({sql_of(node.this)!r})")
        arguments, build = _FUNCTIONS.get(type(node), (frozenset(), None))
        given = {key for key, value in node.args.items() if value and key != "big_int"}
        if build is None or not given <= arguments:
            raise self.unsupported()
        return Aggregate(text, build(self, node), repr(text), condition, self.name)

    def of_one_row(self, part: str) -> DefinitionError:
        return DefinitionError(
            "AGGREGATE_EXPECTED",
            f"aggregate '{self.name}': '{part}' is a value of one row, not of a group of rows. Put it into one of "
            f"{LISTED_AGGREGATES}.",
        )

    def arguments(self, *given: exp.Expr) -> tuple[RowExpression, ...]:
        if any(isinstance(node, exp.Distinct | exp.Order) for node in given):
            raise self.unsupported()
        arguments = tuple(row_expression(node, sql_of(node)) for node in given)
        if not all(argument.columns for argument in arguments):
            raise reads_no_column(f"aggregate '{self.name}': '{self.text}'")
        return arguments

    def number(self, node: exp.Expr) -> float:
        sign, literal = (-1, node.this) if isinstance(node, exp.Neg) else (1, node)
        if not isinstance(literal, exp.Literal) or literal.is_string:
            raise self.unsupported(f"'{sql_of(node)}' must be a number as in 0.99. ")
        return sign * float(literal.this)

    def unsupported(self, reason: str = "") -> DefinitionError:
        return DefinitionError(
            "EXPRESSION_UNSUPPORTED",
            f"aggregate '{self.name}': '{self.text}' is not one of the supported aggregates: {LISTED_AGGREGATES}. "
            f"{reason}The name of the result is given outside the text.",
        )


def _count(text: _SqlAggregate, node: exp.Expr) -> AggregateFunction:
    if isinstance(node.this, exp.Star | exp.Literal):
        return Count(())
    if isinstance(node.this, exp.Distinct):
        if len(node.this.expressions) != 1:
            raise text.unsupported("Count the distinct values of one expression. ")
        return CountDistinct(text.arguments(node.this.expressions[0]))
    return Count(text.arguments(node.this))


def _approximate_count(text: _SqlAggregate, node: exp.Expr) -> AggregateFunction:
    error = node.args.get("accuracy")
    accuracy = {} if error is None else {"error": text.number(error)}
    return ApproximateCountDistinct(text.arguments(node.this), **accuracy)


def _percentile(text: _SqlAggregate, node: exp.Expr) -> AggregateFunction:
    share = node.args["quantile"]
    is_list = isinstance(share, exp.Array)
    shares = tuple(map(text.number, share.expressions if is_list else [share]))
    return Percentile(text.arguments(node.this), shares, is_list)


@dataclass(frozen=True)
class _ResultParser(ExpressionParser):
    """The parser of an expression over aggregates; each becomes a column that holds its result."""

    aggregate: _SqlAggregate
    parts: dict[nodes.ColumnRef, Aggregate] = field(default_factory=dict)

    def expression(self, node: exp.Expr) -> nodes.Expression:
        if is_aggregate(node):
            result = nodes.ColumnRef(sql_of(node), (sql_of(node),))
            self.parts.setdefault(result, self.aggregate.alone(node, sql_of(node)))
            return result
        if isinstance(node, exp.Column | exp.Dot | exp.Struct):
            raise self.aggregate.of_one_row(sql_of(node))
        return super().expression(node)


def is_aggregate(node: exp.Expr) -> bool:
    """Whether a syntax tree is one of the listed aggregates."""
    return type(node) in _FUNCTIONS or isinstance(node, exp.Filter)


_ONE, _TWO = frozenset({"this"}), frozenset({"this", "expression"})
_FUNCTIONS: Mapping[type[exp.Expr], tuple[frozenset[str], Callable[[_SqlAggregate, exp.Expr], AggregateFunction]]] = {
    exp.Count: (_ONE, _count),
    exp.ApproxDistinct: (frozenset({"this", "accuracy"}), _approximate_count),
    exp.Sum: (_ONE, lambda text, node: Sum(text.arguments(node.this))),
    exp.Avg: (_ONE, lambda text, node: Average(text.arguments(node.this))),
    exp.Min: (_ONE, lambda text, node: Extreme(text.arguments(node.this), "min")),
    exp.Max: (_ONE, lambda text, node: Extreme(text.arguments(node.this), "max")),
    exp.Stddev: (_ONE, lambda text, node: Variance(text.arguments(node.this), "stddev", True, True)),
    exp.StddevSamp: (_ONE, lambda text, node: Variance(text.arguments(node.this), "stddev_samp", True, True)),
    exp.StddevPop: (_ONE, lambda text, node: Variance(text.arguments(node.this), "stddev_pop", False, True)),
    exp.Variance: (_ONE, lambda text, node: Variance(text.arguments(node.this), "variance", True, False)),
    exp.VariancePop: (_ONE, lambda text, node: Variance(text.arguments(node.this), "var_pop", False, False)),
    exp.First: (_ONE, lambda text, node: ValueAtExtreme(text.arguments(node.this), "first", "min")),
    exp.Last: (_ONE, lambda text, node: ValueAtExtreme(text.arguments(node.this), "last", "max")),
    exp.ArgMin: (_TWO, lambda text, node: ValueAtExtreme(text.arguments(node.this, node.expression), "min_by", "min")),
    exp.ArgMax: (_TWO, lambda text, node: ValueAtExtreme(text.arguments(node.this, node.expression), "max_by", "max")),
    exp.ApproxQuantile: (frozenset({"this", "quantile"}), _percentile),
}
