"""Patterns of rows: the builder, the automaton it is compiled to, and the matcher that runs it."""

from headrace.operators.patterns import skip

__all__ = ["skip"]
