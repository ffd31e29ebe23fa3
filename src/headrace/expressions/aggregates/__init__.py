"""Aggregates: SQL text, values of ``hr`` and user-defined classes; all keep partials that merge in any order."""

from headrace.expressions.aggregates.aggregate import Aggregate
from headrace.expressions.aggregates.parsing import parse_aggregate

__all__ = ["Aggregate", "parse_aggregate"]
