"""SQL text of aggregates and conditions: parsed with Spark's grammar, computed by Polars."""

from headrace.expressions.aggregates.aggregate import Aggregate
from headrace.expressions.aggregates.parsing import parse_aggregate
from headrace.expressions.rows import RowExpression, parse_row_expression

__all__ = ["Aggregate", "RowExpression", "parse_aggregate", "parse_row_expression"]
