"""How far a public name may change: each is marked stable or experimental, as in Flink and Spark."""

from __future__ import annotations

from typing import Literal, TypeVar

Stability = Literal["stable", "experimental"]
Public = TypeVar("Public")

NOTE = "Experimental: this name may change in any release."
# Beside the names, not on them: an attribute of a protocol would be one more member that a sink must have.
_MARKS: dict[object, Stability] = {}


def stable(public: Public) -> Public:
    """Mark a public name that keeps its meaning until the next major release.

    >>> @stable
    ... def tumbling(): ...
    >>> stability_of(tumbling)
    'stable'
    """
    _MARKS[public] = "stable"
    return public


def experimental(public: Public) -> Public:
    """Mark a public name that may change in any release. ``help(name)`` says so.

    >>> @experimental
    ... def split():
    ...     'Split a source.'
    >>> print(split.__doc__)
    Split a source.
    <BLANKLINE>
        Experimental: this name may change in any release.
    """
    public.__doc__ = f"{(public.__doc__ or '').rstrip()}\n\n    {NOTE}"
    _MARKS[public] = "experimental"
    return public


def stability_of(public: object) -> Stability | None:
    """The mark of a public name; None for a name without one."""
    return _MARKS.get(public)
