"""The listed SQL, node by node, as Polars expressions that mean what Spark means."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import polars as pl
from sqlglot import exp

from headrace.errors import DefinitionError
from headrace.expressions.conditions import CONDITIONS
from headrace.expressions.operands import Operand, Schema, common_type
from headrace.expressions.values import VALUES


@dataclass(frozen=True, slots=True)
class Scope:
    """Translation of one text over one schema."""

    text: str
    schema: Schema

    def operand(self, node: exp.Expr) -> Operand:
        return TRANSLATIONS[type(node)](self, node)

    def same_type(self, node: exp.Expr, parts: list[exp.Expr]) -> list[Operand]:
        """The operands brought to their common type."""
        operands = [self.operand(part) for part in parts]
        dtype = operands[0].dtype
        for operand in operands[1:]:
            wider = common_type(dtype, operand.dtype)
            if wider is None:
                raise self.wrong_type(node, f"{dtype} and {operand.dtype} have no common type", "Use equal types.")
            dtype = wider
        return [operand.to(dtype) for operand in operands]

    def condition(self, node: exp.Expr) -> pl.Expr:
        operand = self.operand(node)
        if operand.dtype not in (pl.Boolean(), pl.Null()):
            raise self.wrong_type(node, f"it is {operand.dtype} where a condition is needed", "Write a comparison.")
        return operand.to(pl.Boolean()).value

    def wrong_type(self, node: exp.Expr, reason: str, advice: str) -> DefinitionError:
        part = node.sql(dialect="spark")
        return DefinitionError("EXPRESSION_TYPE", f"'{self.text}': in '{part}', {reason}. {advice}")


Translation = Callable[[Scope, exp.Expr], Operand]
TRANSLATIONS: Mapping[type[exp.Expr], Translation] = {**VALUES, **CONDITIONS}
