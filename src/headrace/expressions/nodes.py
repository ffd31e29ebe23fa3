"""The typed tree of one SQL expression: the parser builds it, Polars and the pattern matcher compute it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from datetime import date, datetime
from decimal import Decimal
from itertools import chain
from typing import Literal

import polars as pl

ComparisonOperator = Literal["=", "<>", "<", "<=", ">", ">=", "<=>"]
ArithmeticOperator = Literal["+", "-", "*", "/", "%", "div"]
StepFunction = Literal["first", "last", "count", "sum", "avg", "min", "max", "elapsed"]
_WILDCARDS = {"%": ".*", "_": "."}


@dataclass(frozen=True, slots=True)
class _Node:
    sql: str
    """This part of the text, as Spark writes it."""

    @property
    def children(self) -> tuple[Expression, ...]:
        values = (getattr(self, field.name) for field in fields(self))
        parts = chain.from_iterable(value if isinstance(value, tuple) else (value,) for value in values)
        return tuple(part for part in parts if isinstance(part, _Node))  # type: ignore[misc]  # nodes are expressions


@dataclass(frozen=True, slots=True)
class _Unary(_Node):
    operand: Expression


@dataclass(frozen=True, slots=True)
class _Binary(_Node):
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class ColumnRef(_Node):
    """A column, or a field of a struct column: ``a``, ``a.b.c``."""

    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WholeRow(_Node):
    """``struct(*)``: all columns of a row."""


@dataclass(frozen=True, slots=True)
class StructOf(_Node):
    """``struct(a, b AS c)``: several values under names."""

    names: tuple[str, ...]
    values: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Constant(_Node):
    """A literal with the type that Spark gives it."""

    value: bool | int | float | Decimal | str | date | datetime | None
    dtype: pl.DataType


@dataclass(frozen=True, slots=True)
class StepValue(_Node):
    """A value of the rows that a step of a pattern has matched: ``a.x``, ``sum(a.x)``, ``elapsed()``."""

    function: StepFunction
    step: str | None
    """None for ``elapsed()``, which counts from the first row of the match."""
    argument: Expression | None
    """Without the step's name; None for ``count(a.*)`` and ``elapsed``."""

    @property
    def children(self) -> tuple[Expression, ...]:
        return ()  # the argument is computed over each matched row


@dataclass(frozen=True, slots=True)
class Comparison(_Binary):
    """Two values compared; ``<=>`` is the null-safe equality."""

    operator: ComparisonOperator


@dataclass(frozen=True, slots=True)
class Logical(_Binary):
    """Two conditions, both or one of which must hold."""

    operator: Literal["and", "or"]


@dataclass(frozen=True, slots=True)
class Arithmetic(_Binary):
    """Two numbers added, subtracted, multiplied or divided."""

    operator: ArithmeticOperator


@dataclass(frozen=True, slots=True)
class FunctionCall(_Node):
    """A function of some values."""

    operands: tuple[Expression, ...]
    function: str
    """``not``, ``is_null``, ``negative``, ``abs``, or one of `FUNCTIONS`."""


@dataclass(frozen=True, slots=True)
class Cast(_Unary):
    """``CAST(operand AS dtype)``."""

    dtype: pl.DataType


@dataclass(frozen=True, slots=True)
class Like(_Unary):
    """``operand [NOT] LIKE pattern``."""

    pattern: str
    negated: bool

    def regex(self, escape: Callable[[str], str]) -> str:
        return "".join(_WILDCARDS.get(character) or escape(character) for character in self.pattern)


@dataclass(frozen=True, slots=True)
class InList(_Unary):
    """``operand IN (choices)``."""

    choices: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Coalesce(_Node):
    """The first operand that is not null."""

    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class CaseWhen(_Node):
    """The value whose condition is the first to hold, else the default; ``IF`` too."""

    conditions: tuple[Expression, ...]
    values: tuple[Expression, ...]
    default: Expression


Expression = (
    ColumnRef | WholeRow | StructOf | Constant | StepValue | Comparison | Logical | Arithmetic | FunctionCall | Cast
    | Like | InList | Coalesce | CaseWhen
)  # fmt: skip


def walk(tree: Expression) -> Iterator[Expression]:
    """The tree and all parts of it."""
    yield tree
    for child in tree.children:
        yield from walk(child)


def reads_row(tree: Expression) -> bool:
    """Whether the tree reads anything of its own row."""
    return any(isinstance(part, ColumnRef | WholeRow) for part in walk(tree))


def columns_of(tree: Expression) -> list[ColumnRef]:
    """The columns that the tree reads of its own row."""
    return [part for part in walk(tree) if isinstance(part, ColumnRef)]


def step_values_of(tree: Expression) -> list[StepValue]:
    """The values of matched rows that the tree reads."""
    return [part for part in walk(tree) if isinstance(part, StepValue)]
