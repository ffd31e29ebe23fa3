"""What an aggregate reads of each row."""

from __future__ import annotations

from headrace.errors import DefinitionError
from headrace.expressions.rows import RowExpression, parse_row_expression


def parse_argument(text: str) -> RowExpression:
    """Read an expression over one row that reads at least one column of it.

    >>> sorted(parse_argument("price * pieces").columns)
    ['pieces', 'price']
    """
    argument = parse_row_expression(text)
    if not argument.columns:
        raise reads_nothing(f"'{text}'")
    return argument


def reads_nothing(what: str) -> DefinitionError:
    """The error for an argument that is the same for every row."""
    return DefinitionError("EXPRESSION_UNSUPPORTED", f"{what} reads no column. Use count(*) to count rows.")
