"""The columns on which two inputs are joined, as an author says them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from headrace.errors import DefinitionError
from headrace.operators.step import check_key

OnColumns = str | Sequence[str | tuple[str, str]] | Mapping[str, str]
"""One column, several, or pairs of a left and a right column where their names differ."""


@dataclass(frozen=True, slots=True)
class On:
    """Pairs of a left and a right column whose values must be equal; null equals nothing."""

    pairs: tuple[tuple[str, str], ...]

    @property
    def left(self) -> tuple[str, ...]:
        """The left columns, under whose names the key leaves."""
        return tuple(left for left, _ in self.pairs)

    @property
    def right(self) -> tuple[str, ...]:
        """The right columns."""
        return tuple(right for _, right in self.pairs)

    @property
    def said(self) -> str | list[str] | dict[str, str]:
        """The columns as an author would write them."""
        if self.left != self.right:
            return dict(self.pairs)
        return self.left[0] if len(self.left) == 1 else list(self.left)

    def check(self, step: str, left: Mapping[str, pl.DataType], right: Mapping[str, pl.DataType]) -> None:
        """Both columns of each pair exist, can be keys, and have one type."""
        check_key(step, self.left, left)
        check_key(step, self.right, right)
        for ours, theirs in self.pairs:
            if left[ours] != right[theirs]:
                raise DefinitionError(
                    "JOIN_KEY_TYPES",
                    f"step {step!r}: on={self.said!r} compares the left column {ours!r}, which is {left[ours]}, with "
                    f"the right column {theirs!r}, which is {right[theirs]}. Cast one of them before the join.",
                )


def _is_pair(column: object) -> bool:
    """A name for both sides, or one for each."""
    return isinstance(column, str) or (isinstance(column, tuple) and len(column) == 2)


def on_columns(on: OnColumns, *, step: str) -> On:
    """What ``on=`` says.

    >>> on_columns("user", step="join").pairs
    (('user', 'user'),)
    >>> on_columns({"user": "user_id"}, step="join").pairs
    (('user', 'user_id'),)
    """
    if not isinstance(on, str | Sequence | Mapping) or not all(map(_is_pair, on if isinstance(on, Sequence) else ())):
        raise DefinitionError(
            "JOIN_ON",
            f"step {step!r}: on={on!r} names no columns. Write on='user', ['user', 'shop'] or {{'user': 'id'}}.",
        )
    given = [on] if isinstance(on, str) else list(on.items()) if isinstance(on, Mapping) else list(on)
    pairs = tuple((each, each) if isinstance(each, str) else (each[0], each[1]) for each in given)
    if not pairs:
        raise DefinitionError(
            "KEY_MISSING",
            f"step {step!r}: rows meet only where columns are equal. Name them, as in on='user' or "
            "on={'user': 'user_id'}.",
        )
    for side in zip(*pairs, strict=True):
        if len(set(side)) < len(side):
            raise DefinitionError(
                "JOIN_KEY_TWICE", f"step {step!r}: on={on!r} names a column twice. Name each column once on its side."
            )
    return On(pairs)
