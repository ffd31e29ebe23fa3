"""Bounds of aggregates that keep values: whatever arrives, the state does not grow beyond them."""

from __future__ import annotations

from headrace.errors import DefinitionError


def check_bound(bound: int | None, *, argument: str, text: str) -> int:
    """The bound, once it is known to be a whole number of at least one; ``text`` is the aggregate without it.

    >>> check_bound(3, argument="n", text="hr.top('amount')")
    3
    """
    advice = f"Say how many values to keep, as in {text[:-1]}, {argument}=100)."
    if bound is None:
        raise DefinitionError(
            "BOUND_MISSING", f"{text} would keep every value, and the state would grow for ever. {advice}"
        )
    if not isinstance(bound, int) or isinstance(bound, bool) or bound < 1:
        raise DefinitionError(
            "BOUND_NOT_POSITIVE", f"{text}: {argument}={bound!r} is not a whole number of at least 1. {advice}"
        )
    return bound
