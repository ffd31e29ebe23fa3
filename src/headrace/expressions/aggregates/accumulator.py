"""The author's own aggregate, row by row."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from headrace.expressions.aggregates.authors_own import AuthorsOwn
from headrace.expressions.aggregates.row_by_row import RowByRow

Kept = dict[str, Any]


class Accumulator(AuthorsOwn):
    """An aggregate of the author's that takes one row after the other; ``kept`` is a dict with the fields of ``state``.

    Rows are combined before they travel, so the result may not depend on their grouping and order.

    >>> class Span(Accumulator):
    ...     state = "low DOUBLE, high DOUBLE"
    ...     result_type = "DOUBLE"
    ...     def start(self):
    ...         return {"low": float("inf"), "high": float("-inf")}
    ...     def add(self, kept, value):
    ...         return {"low": min(kept["low"], value), "high": max(kept["high"], value)}
    ...     def merge(self, one, other):
    ...         return {"low": min(one["low"], other["low"]), "high": max(one["high"], other["high"])}
    ...     def result(self, kept):
    ...         return kept["high"] - kept["low"]
    >>> Span("amount")
    Span('amount')
    """

    @abstractmethod
    def start(self) -> Kept:
        """What is kept of no rows."""

    @abstractmethod
    def add(self, kept: Kept, value: Any) -> Kept:
        """Take one row in: its value, or a dict of its values when the aggregate reads several."""

    @abstractmethod
    def merge(self, one: Kept, other: Kept) -> Kept:
        """What is kept of two groups together."""

    @abstractmethod
    def result(self, kept: Kept) -> Any:
        """The value of a group."""

    def calculation(self) -> RowByRow:
        """What runs."""
        return RowByRow(self)
