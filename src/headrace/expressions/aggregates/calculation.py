"""What an aggregate computes, apart from its name and its condition."""

from __future__ import annotations

from typing import Protocol

import polars as pl

from headrace.expressions.aggregates.binding import Binding, Rows
from headrace.expressions.rows import RowExpression


class Calculation(Protocol):
    """State columns of a group, by short names; the answer is the same for any grouping and order of the rows.

    Partials of no rows merge as nothing. What is compared or stored of floats knows one zero and one NaN.
    """

    @property
    def arguments(self) -> tuple[RowExpression, ...]:
        """What is read of each row."""

    def state_types(self, of: Binding) -> dict[str, pl.DataType]:
        """The state columns."""

    def partial(self, of: Binding, rows: Rows) -> dict[str, pl.Expr]:
        """The state columns over the rows of a group."""

    def merge(self, of: Binding) -> dict[str, pl.Expr]:
        """The state columns over several partials of a group."""

    def result(self, of: Binding) -> pl.Expr:
        """The value, over one partial."""

    def result_type(self, of: Binding) -> pl.DataType:
        """The type of the value."""
