"""Small tables of a timeline: the rows that a broadcast join finds there change in the middle of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import polars as pl

from headrace.errors import DefinitionError
from headrace.operators.joins.broadcast_join import BroadcastJoin
from headrace.operators.step import Step
from headrace.testing.elements import Row, TableContent
from headrace.testing.engine import columns_of, frame_of


class TableByHand:
    """The table of a broadcast join, with the rows that the timeline gave it last."""

    def __init__(self, step: str, schema: Mapping[str, pl.DataType]) -> None:
        self._step = step
        self._schema = schema
        self.rows: Sequence[Row] | None = None

    def columns(self) -> Mapping[str, pl.DataType]:
        return self._schema

    def read(self) -> pl.DataFrame:
        if self.rows is None:
            raise DefinitionError(
                "TIMELINE_TABLE_LATE",
                f"the first batch reads the table of step {self._step!r}, which has no rows yet. Put "
                f"table({self._step!r}, ...) before that batch.",
            )
        return frame_of(self.rows, self._schema)


def tables_of(contents: Sequence[TableContent]) -> dict[str, TableByHand]:
    """The tables that a timeline gives rows to, by step."""
    tables: dict[str, TableByHand] = {}
    for step in dict.fromkeys(content.step for content in contents):
        given = [content for content in contents if content.step == step]
        declared = next((content.schema for content in given if content.schema is not None), None)
        tables[step] = TableByHand(step, columns_of([row for content in given for row in content.rows], declared))
    return tables


def with_tables(steps: tuple[Step, ...], tables: Mapping[str, TableByHand]) -> tuple[Step, ...]:
    """The steps, where the timeline's tables have taken the place of their own."""
    joins = [step.name for step in steps if isinstance(step, BroadcastJoin)]
    for name in tables.keys() - joins:
        raise DefinitionError(
            "TABLE_UNKNOWN",
            f"table({name!r}, ...) is for a broadcast join of this name, but the timeline has "
            f"{', '.join(joins) or 'none'}. Give the name of such a step.",
        )
    return tuple(
        replace(step, table=tables[step.name]) if isinstance(step, BroadcastJoin) and step.name in tables else step
        for step in steps
    )
