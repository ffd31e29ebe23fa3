"""What the two kinds of aggregates that authors write themselves have in common."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import polars as pl

from headrace.errors import DefinitionError
from headrace.expressions.aggregates.arguments import parse_argument
from headrace.expressions.aggregates.calculation import Calculation
from headrace.expressions.aggregates.measure import Measure
from headrace.expressions.rows import RowExpression
from headrace.schemas import parse_ddl, polars_schema


class AuthorsOwn:
    """An aggregate of the author's: what it keeps of a group and what it gives are declared as DDL."""

    state: ClassVar[str] = ""
    """What is kept of a group, as in ``"n BIGINT, total DOUBLE"``."""
    result_type: ClassVar[str] = ""
    """The type of the result, as in ``"DOUBLE"``."""

    def __init__(self, *values: str) -> None:
        kind = type(self).__name__
        if not self.state or not self.result_type:
            raise DefinitionError(
                "ACCUMULATOR_INCOMPLETE",
                f"class {kind} does not say what it keeps and gives. Write state = 'n BIGINT, total DOUBLE' and "
                "result_type = 'DOUBLE' in it.",
            )
        missing = [name for name in dir(type(self)) if getattr(getattr(self, name), "__isabstractmethod__", False)]
        if missing:
            raise DefinitionError(
                "ACCUMULATOR_INCOMPLETE", f"class {kind} does not define {', '.join(missing)}. Define each of them."
            )
        if not values:
            raise DefinitionError(
                "ACCUMULATOR_INCOMPLETE", f"{kind}() reads nothing. Name columns, as in {kind}('amount')."
            )
        self.arguments: tuple[RowExpression, ...] = tuple(map(parse_argument, values))

    @property
    def kept_types(self) -> dict[str, pl.DataType]:
        """The fields of ``state``."""
        return polars_schema(parse_ddl(self.state))

    @property
    def given_type(self) -> pl.DataType:
        """The type of ``result_type``."""
        return polars_schema(parse_ddl(f"result {self.result_type}"))["result"]

    @abstractmethod
    def calculation(self) -> Calculation:
        """What runs."""

    def measure(self) -> Measure:
        """This aggregate as a value that ``.agg(name=...)`` names; its text says what is stored."""
        text = f"{self!r} keeping ({self.state}) for {self.result_type}"
        return Measure(text, self.calculation(), code=repr(self))

    def where(self, condition: str) -> Measure:
        """The same over those rows alone that meet a condition."""
        return self.measure().where(condition)

    def __repr__(self) -> str:
        said = [repr(argument.text) for argument in self.arguments]
        said += [f"{name}={value!r}" for name, value in vars(self).items() if name != "arguments"]
        return f"{type(self).__name__}({', '.join(said)})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(repr(self))
