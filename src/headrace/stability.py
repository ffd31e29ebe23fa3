"""How far a public name may change: each is marked stable or experimental, as in Flink and Spark."""

from __future__ import annotations

from typing import Literal, TypeVar

Stability = Literal["stable", "experimental"]
Public = TypeVar("Public")

NOTE = "Experimental: this name may change in any release."


def stable(public: Public) -> Public:
    """Mark a public name that keeps its meaning until the next major release.

    >>> @stable
    ... def tumbling(): ...
    >>> stability_of(tumbling)
    'stable'
    """
    return _mark(public, "stable")


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
    return _mark(public, "experimental")


def stability_of(public: object) -> Stability | None:
    """The mark of a public name; None for a name without one."""
    mark: Stability | None = vars(public).get("__stability__")
    return mark


def _mark(public: Public, stability: Stability) -> Public:
    public.__stability__ = stability  # type: ignore[attr-defined]
    return public
