"""The first elements of each of many lists of structs."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from headrace.expressions.aggregates.lists import Lists


@dataclass(frozen=True, slots=True)
class Ordering:
    """An order by several fields and how many elements of it are kept.

    >>> entries = pl.Series([[{"x": 1, "of": "b"}, {"x": 2, "of": "a"}, {"x": 1, "of": "a"}], []])
    >>> Ordering(("x", "of"), (True, False), 2).first(entries).to_list()
    [[{'x': 2, 'of': 'a'}, {'x': 1, 'of': 'a'}], []]
    """

    fields: tuple[str, ...]
    falling: tuple[bool, ...]
    count: int

    def first(self, groups: pl.Series) -> pl.Series:
        """The first elements of each list, in order.

        All lists are sorted as one frame. (Sorting within ``agg`` by more than one field of exploded lists reads
        foreign memory in Polars 2.1.)
        """
        lists = Lists.of(groups)
        owner = "\0owner"
        frame = lists.elements.struct.unnest().with_columns(pl.Series(owner, lists.owners))
        ordered = frame.sort(owner, *self.fields, descending=[False, *self.falling]).drop(owner)
        return Lists(ordered.to_struct(), lists.lengths).first(self.count).series()
