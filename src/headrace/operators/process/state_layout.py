"""The state of a process as a frame: a row for each key, beside rows that wait for the watermark and rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from headrace.operators.process.keyed_process import StateDescriptor
from headrace.operators.process.value_types import canonical_nan

DUE, DUE_CLOCK = "__due", "__due_clock"
"""When a timer or an expiry of a key is due, by event time and by the clock; the end of time stands for never."""
ROW, TIMERS = "__row", "__timers"
TIMER = pl.List(pl.Struct({"name": pl.String(), "time": pl.Int64(), "payload": pl.String(), "clock": pl.Boolean()}))


@dataclass(frozen=True)
class StateLayout:
    """The columns that hold the states and timers of keys."""

    states: Mapping[str, StateDescriptor[Any]]

    @cached_property
    def columns(self) -> dict[str, pl.DataType]:
        """The columns of one key: its timers, and each state with the time at which it was written."""
        columns: dict[str, pl.DataType] = {TIMERS: TIMER}
        for name, declared in self.states.items():
            columns[f"state.{name}"] = declared.column
            if _has_time(declared):
                columns[f"state.{name}@written"] = pl.Int64()
        return columns

    def cells(self, stored: pl.DataFrame) -> list[tuple[Any, ...]]:
        """The cells of each key in the order of the states, then its timers."""
        columns: list[Sequence[Any]] = []
        for name, declared in self.states.items():
            column = stored[f"state.{name}"]
            if declared.key_type is not None:
                lists = tuples_of(column)
                columns.append([{canonical_nan(key): (value, at) for key, value, at in each} for each in lists])
            elif declared.is_collection:
                columns.append(tuples_of(column))
            else:
                written = stored[f"state.{name}@written"].to_list() if _has_time(declared) else [0] * stored.height
                columns.append(list(zip(column.to_list(), written, strict=True)))
        return list(zip(*columns, tuples_of(stored[TIMERS]), strict=True))

    def series(self, cells: Sequence[tuple[Any, ...]]) -> dict[str, pl.Series]:
        columns = list(zip(*cells, strict=True)) if cells else [()] * (len(self.states) + 3)
        *states, timers, due, due_clock = columns
        made = {
            DUE: pl.Series(due, dtype=pl.Int64),
            DUE_CLOCK: pl.Series(due_clock, dtype=pl.Int64),
            TIMERS: list_column(timers, TIMER),
        }
        for (name, declared), column in zip(self.states.items(), states, strict=True):
            dtype = self.columns[f"state.{name}"]
            if declared.key_type is not None:
                lists = [None if cell is None else [(key, *entry) for key, entry in cell.items()] for cell in column]
                made[f"state.{name}"] = list_column(lists, dtype)
            elif declared.is_collection:
                made[f"state.{name}"] = list_column(column, dtype)
            else:
                values = [None if cell is None else cell[0] for cell in column]
                made[f"state.{name}"] = pl.Series(values, dtype=dtype, strict=True)
                if _has_time(declared):
                    written = [None if cell is None else cell[1] for cell in column]
                    made[f"state.{name}@written"] = pl.Series(written, dtype=pl.Int64)
        return made


def _has_time(declared: StateDescriptor[Any]) -> bool:
    return declared.ttl_config.ttl is not None and not declared.is_collection


def tuples_of(column: pl.Series) -> list[list[tuple[Any, ...]]]:
    """A column of lists of structs as lists of tuples; a null cell is empty.

    >>> column = pl.Series([[{"a": 1, "b": 2}], None], dtype=pl.List(pl.Struct({"a": pl.Int64, "b": pl.Int64})))
    >>> tuples_of(column)
    [[(1, 2)], []]
    """
    arrow = column.to_arrow(compat_level=pl.CompatLevel.oldest())
    lengths = pc.fill_null(pc.list_value_length(arrow), 0).to_pylist()
    # From Arrow: Polars expressions take many times longer when there are few cells.
    flat = iter(zip(*(pl.Series(field).to_list() for field in arrow.flatten().flatten()), strict=True))
    return [list(islice(flat, length)) for length in lengths]


def list_column(cells: Sequence[Sequence[tuple[Any, ...]] | None], dtype: pl.DataType) -> pl.Series:
    """A column of lists of structs from lists of tuples; an empty cell is null.

    >>> list_column([[(1, 2)], None], pl.List(pl.Struct({"a": pl.Int64, "b": pl.Int64}))).to_list()
    [[{'a': 1, 'b': 2}], None]
    """
    arrow = pl.Series(dtype=dtype).to_arrow(compat_level=pl.CompatLevel.oldest()).type
    return pl.Series(pa.array([cell or None for cell in cells], arrow), dtype=dtype)
