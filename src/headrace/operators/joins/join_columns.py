"""The columns of a join: the key columns of both inputs, and the columns of a joined row."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import polars as pl

from headrace.errors import DefinitionError
from headrace.expressions.operands import Schema
from headrace.operators.rows import check_key

InnerOrLeft = Literal["inner", "left"]
OnColumns = str | Sequence[str | tuple[str, str]] | Mapping[str, str]
"""What ``on=`` takes: one column, several, or pairs of a left and a right column where their names differ."""


@dataclass(frozen=True, slots=True)
class JoinKey:
    """Pairs of a left and a right column whose values must be equal; without any, all rows have one key."""

    pairs: tuple[tuple[str, str], ...]
    nulls_equal: bool = False
    """Whether null equals null; otherwise it equals nothing."""

    @property
    def nulls_match(self) -> bool:
        return self.nulls_equal or not self.pairs

    @property
    def left(self) -> tuple[str, ...]:
        """The left columns, which name the key in a joined row."""
        return tuple(left for left, _ in self.pairs)

    @property
    def right(self) -> tuple[str, ...]:
        return tuple(right for _, right in self.pairs)

    @property
    def left_of_right(self) -> dict[str, str]:
        return {right: left for left, right in self.pairs}

    @property
    def as_written(self) -> str | list[str] | dict[str, str] | None:
        """The shortest ``on=`` that gives this key."""
        if not self.pairs:
            return None
        if self.left != self.right:
            return dict(self.pairs)
        return self.left[0] if len(self.left) == 1 else list(self.left)

    @property
    def arguments(self) -> dict[str, object]:
        """The arguments that give this key."""
        return {"on": self.as_written, **({"nulls_equal": True} if self.nulls_equal else {})}

    def check(self, step: str, left: Schema, right: Schema) -> None:
        """Both columns of each pair must exist, be usable as keys, and have the same type."""
        check_key(step, self.left, left)
        check_key(step, self.right, right)
        for ours, theirs in self.pairs:
            if left[ours] != right[theirs]:
                raise DefinitionError(
                    "JOIN_KEY_TYPES",
                    f"step {step!r}: on={self.as_written!r} compares the left column {ours!r}, which is {left[ours]}, "
                    f"with the right column {theirs!r}, which is {right[theirs]}. Cast one of them before the join.",
                )


def join_key(on: OnColumns, *, step: str, nulls_equal: bool = False) -> JoinKey:
    """The key that ``on=`` describes.

    >>> join_key("user", step="join").pairs
    (('user', 'user'),)
    >>> join_key({"user": "user_id"}, step="join").pairs
    (('user', 'user_id'),)
    """
    columns = on.items() if isinstance(on, Mapping) else [on] if isinstance(on, str) else on
    if not isinstance(on, Mapping | Sequence) or not all(
        isinstance(each, str) or (isinstance(each, tuple) and len(each) == 2) for each in columns
    ):
        raise DefinitionError(
            "JOIN_ON",
            f"step {step!r}: on={on!r} does not name columns. Write on='user', ['user', 'shop'] or {{'user': 'id'}}.",
        )
    pairs = tuple((each, each) if isinstance(each, str) else (each[0], each[1]) for each in columns)
    if not pairs:
        raise DefinitionError(
            "KEY_MISSING",
            f"step {step!r}: a join needs at least one key column. Write on='user' or on={{'user': 'user_id'}}.",
        )
    for side in zip(*pairs, strict=True):
        if len(set(side)) < len(side):
            raise DefinitionError(
                "JOIN_KEY_TWICE", f"step {step!r}: on={on!r} names a column twice. Name each column once per side."
            )
    return JoinKey(pairs, nulls_equal)


@dataclass(frozen=True, slots=True)
class JoinedColumns:
    """The columns of a joined row: the key under its left names, then the left columns, then the right ones."""

    key: Schema
    left: Mapping[str, str]
    """The left columns without the key: their own name, and their name in a joined row."""
    right: Mapping[str, str]
    left_schema: Schema
    """The left columns without the key, under their names in a joined row."""
    right_schema: Schema

    @property
    def schema(self) -> dict[str, pl.DataType]:
        return {**self.key, **self.left_schema, **self.right_schema}


def joined_columns(step: str, on: JoinKey, left: Schema, right: Schema, *, own: Collection[str] = ()) -> JoinedColumns:
    """Name the columns of a joined row: where both inputs have a column, the right one gets the suffix ``_right``.

    ``own`` are the columns that the join adds. A column with such a name gets ``_left`` or ``_right``.

    >>> text = pl.String()
    >>> key = join_key({"user": "id"}, step="seen")
    >>> columns = joined_columns("seen", key, {"user": text, "page": text}, {"id": text, "page": text})
    >>> list(columns.schema)
    ['user', 'page', 'page_right']
    """
    key = {name: left[name] for name in on.left}
    lefts = {name: f"{name}_left" if name in own else name for name in left if name not in key}
    taken = {*key, *lefts.values(), *own}
    rights = {name: f"{name}_right" if name in taken else name for name in right if name not in on.right}
    names = [*own, *key, *lefts.values(), *rights.values()]
    duplicates = sorted({name for name in names if names.count(name) > 1})
    if duplicates:
        raise DefinitionError(
            "OUTPUT_NAME_TAKEN",
            f"step {step!r}: a joined row would have two columns named {', '.join(duplicates)}. Rename one of them "
            "before the join.",
        )
    return JoinedColumns(
        key,
        lefts,
        rights,
        {joined: left[name] for name, joined in lefts.items()},
        {joined: right[name] for name, joined in rights.items()},
    )
