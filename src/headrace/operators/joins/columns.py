"""Which columns a joined row has, and where each of them comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from headrace.errors import DefinitionError
from headrace.operators.joins.on import On


@dataclass(frozen=True, slots=True)
class JoinedColumns:
    """The columns of a joined row besides those that the join itself adds.

    The key comes once, under the left names; then the left columns, then the right ones.
    """

    key: Mapping[str, pl.DataType]
    left: Mapping[str, str]
    """The name that each left column has in the joined row, by its own; without the key."""
    right: Mapping[str, str]
    left_schema: Mapping[str, pl.DataType]
    """The left columns as the joined row names them; without the key."""
    right_schema: Mapping[str, pl.DataType]

    @property
    def schema(self) -> dict[str, pl.DataType]:
        """All of them."""
        return {**self.key, **self.left_schema, **self.right_schema}


def joined_columns(
    step: str,
    on: On,
    left: Mapping[str, pl.DataType],
    right: Mapping[str, pl.DataType],
    *,
    own: Sequence[str] = (),
) -> JoinedColumns:
    """The columns of a joined row beside the join's ``own``: of two with one name the right one gets ``_right``.

    A column that has the name of one of the join's own gets ``_left`` or ``_right``.

    >>> text = pl.String()
    >>> found = joined_columns("j", On((("user", "id"),)), {"user": text, "page": text}, {"id": text, "page": text})
    >>> list(found.schema)
    ['user', 'page', 'page_right']
    """
    key = {name: left[name] for name in on.left}
    lefts = {name: f"{name}_left" if name in own else name for name in left if name not in key}
    taken = {*key, *lefts.values(), *own}
    rights = {name: f"{name}_right" if name in taken else name for name in right if name not in on.right}
    names = [*own, *key, *lefts.values(), *rights.values()]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DefinitionError(
            "OUTPUT_NAME_TAKEN",
            f"step {step!r}: a joined row would have two columns named {', '.join(twice)}. Rename one of them before "
            "the join.",
        )
    return JoinedColumns(
        key,
        lefts,
        rights,
        {joined: left[name] for name, joined in lefts.items()},
        {joined: right[name] for name, joined in rights.items()},
    )
