"""An aggregate that has no name yet."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headrace.expressions.aggregates.calculation import Calculation
from headrace.expressions.rows import RowExpression, parse_condition


@dataclass(frozen=True, slots=True, repr=False)
class Measure:
    """What ``hr.percentile(...)`` and its like give; ``.agg(name=...)`` names it."""

    text: str
    """What it computes and keeps, all defaults included; the state's identity."""
    calculation: Calculation
    condition: RowExpression | None = None
    code: str | None = None
    """As the author wrote it, where that is not the text."""

    def where(self, condition: str) -> Measure:
        """The same over those rows alone that meet a condition, as ``FILTER (WHERE ...)`` says it in SQL text.

        >>> from headrace.expressions.aggregates.collect import collect_set
        >>> collect_set("shop", at_most=5).where("amount > 0")
        hr.collect_set('shop', at_most=5).where('amount > 0')
        """
        both = condition if self.condition is None else f"({self.condition.text}) AND ({condition})"
        code = None if self.code is None else f"{self.code}.where({condition!r})"
        return replace(self, text=f"{self.text}.where({condition!r})", condition=parse_condition(both), code=code)

    def __repr__(self) -> str:
        return self.text if self.code is None else self.code
