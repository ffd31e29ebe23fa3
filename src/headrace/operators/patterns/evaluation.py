"""Conditions over what has been matched, as functions that are called for each candidate row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl
from sqlglot import exp

from headrace.expressions.listed import unsupported
from headrace.expressions.operands import common_type
from headrace.expressions.rows import row_expression
from headrace.expressions.translation import Scope
from headrace.operators.patterns.evaluated_conditions import CONDITIONS
from headrace.operators.patterns.evaluated_values import VALUES, brought_to
from headrace.operators.patterns.getters import getter
from headrace.operators.patterns.terms import Columns, Getter, Term, physical, term_of

_COMPUTING = (exp.Add, exp.Sub, exp.Mul, exp.Neg, exp.Abs)


@dataclass(slots=True)
class Evaluation:
    """Compiles one text; parts of it that read the row alone are columns, parts of one step's rows are terms."""

    text: str
    steps: Sequence[str]
    columns: Columns
    terms: list[Term] = field(default_factory=list)

    def condition(self, node: exp.Expr) -> Getter:
        """A function that tells whether a condition holds: true, false, or None where SQL has null."""
        node = self.computable(node)
        typed = row_expression(self.with_terms(node), self.text).node
        self._scope().condition(typed)
        return self.compiled(node)

    def computable(self, node: exp.Expr) -> exp.Expr:
        """The tree with averages of DECIMALs as DOUBLEs where they are computed with: they are rounded anyway."""

        def as_double(part: exp.Expr) -> exp.Expr:
            around = part.parent
            while isinstance(around, exp.Paren):
                around = around.parent
            computed = isinstance(part, exp.Avg) and isinstance(around, _COMPUTING)
            return exp.cast(part, "DOUBLE") if computed and isinstance(self.type_of(part), pl.Decimal) else part

        return node.transform(as_double)

    def with_terms(self, node: exp.Expr) -> exp.Expr:
        """The tree with a column in place of each term."""
        term = term_of(node, self.steps, self.text)
        if term is not None:
            if term not in self.terms:
                self.terms.append(term)
            return exp.column(exp.to_identifier(term.text, quoted=True))
        copied = node.copy()
        for name, value in list(copied.args.items()):
            if isinstance(value, exp.Expr):
                copied.set(name, self.with_terms(value))
            elif isinstance(value, list):
                copied.set(name, [self.with_terms(each) if isinstance(each, exp.Expr) else each for each in value])
        return copied

    @property
    def types(self) -> dict[str, pl.DataType]:
        """The type of each term, by its text, which is also the name of its column."""
        return {term.text: term.type(self.columns.schema) for term in self.terms}

    def _scope(self) -> Scope:
        return Scope(self.text, {**self.columns.schema, **self.types})

    def type_of(self, node: exp.Expr) -> pl.DataType:
        """The type of a part."""
        typed = self.with_terms(node)
        return self._scope().operand(typed).dtype

    def compiled(self, node: exp.Expr) -> Getter:
        """A part of the text as a function."""
        term = term_of(node, self.steps, self.text)
        if term is not None:
            return getter(term, self.columns, self.steps)
        if not self._has_terms(node):
            return self._of_row(node)
        compile_node = COMPILED.get(type(node))
        if compile_node is None:
            raise unsupported(self.text, f"'{node.sql(dialect='spark')}' over what has been matched")
        return compile_node(self, node)

    def _has_terms(self, node: exp.Expr) -> bool:
        return any(term_of(part, self.steps, self.text) is not None for part in node.walk())

    def _of_row(self, node: exp.Expr) -> Getter:
        if node.find(exp.Column) is None:
            operand = self._scope().operand(node)
            constant = pl.select(operand.value.cast(operand.dtype).cast(physical(operand.dtype))).item()
            return lambda row, matched: constant
        place = self.columns.place(row_expression(node, node.sql(dialect="spark")))
        return lambda row, matched: row[place]  # type: ignore[index]  # a condition is asked of a row

    def alike(self, *nodes: exp.Expr) -> tuple[list[Getter], pl.DataType]:
        """Functions of nodes brought to their common type, and that type."""
        types = [self.type_of(node) for node in nodes]
        shared = types[0]
        for dtype in types[1:]:
            shared = common_type(shared, dtype) or shared
        return [
            brought_to(self.compiled(node), dtype, shared) for node, dtype in zip(nodes, types, strict=True)
        ], shared


Compilation = Callable[[Evaluation, exp.Expr], Getter]
COMPILED: Mapping[type[exp.Expr], Compilation] = {**VALUES, **CONDITIONS}
