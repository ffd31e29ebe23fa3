"""Patterns of events: what an author says, the automaton it becomes, and the matcher that runs it."""

from headrace.operators.patterns import skip

__all__ = ["skip"]
