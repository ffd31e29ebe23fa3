"""How the state of a process lies in a frame: a row for each key, and beside them rows that wait and rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from headrace.operators.process.declarations import Declared, DeclaredMap
from headrace.operators.process.fitting import one_nan
from headrace.operators.process.lists import nested, unnested

ARRIVAL = "__arrival"
"""0 in the row of a key; the number of a row that waits; below 0 in the rows of rules."""
KEPT = 0
DUE, DUE_CLOCK = "__due", "__due_clock"
"""When something happens to a row of state though no row comes: for one that waits, when event time has passed it.

The end of time stands for never, so that both are plain arrays of numbers.
"""
ROW, TIMERS = "__row", "__timers"
TIMER = pl.List(pl.Struct({"name": pl.String(), "time": pl.Int64(), "payload": pl.String(), "clock": pl.Boolean()}))


@dataclass(frozen=True)
class Layout:
    """The columns that hold the states and timers of keys."""

    states: Mapping[str, Declared[Any]]

    @cached_property
    def columns(self) -> dict[str, pl.DataType]:
        """The columns of one key: its timers, and each state with the time at which it was written."""
        columns: dict[str, pl.DataType] = {TIMERS: TIMER}
        for name, declared in self.states.items():
            columns[f"state.{name}"] = declared.column()
            if _has_time(declared):
                columns[f"state.{name}@written"] = pl.Int64()
        return columns

    def cells(self, stored: pl.DataFrame) -> list[tuple[Any, ...]]:
        """The cells of each row, in the order of the states, then its timers."""
        columns: list[Sequence[Any]] = []
        for name, declared in self.states.items():
            column = stored[f"state.{name}"]
            if _is_many(declared):
                lists = unnested(column)
                columns.append([_mapped(each) for each in lists] if isinstance(declared, DeclaredMap) else lists)
            else:
                written = stored[f"state.{name}@written"].to_list() if _has_time(declared) else [0] * stored.height
                columns.append(list(zip(column.to_list(), written, strict=True)))
        return list(zip(*columns, unnested(stored[TIMERS]), strict=True))

    def series(self, cells: Sequence[tuple[Any, ...]]) -> dict[str, pl.Series]:
        """Cells, timers and due times of keys as columns."""
        columns = list(zip(*cells, strict=True)) if cells else [()] * (len(self.states) + 3)
        *states, timers, due, due_clock = columns
        made = {
            DUE: pl.Series(due, dtype=pl.Int64),
            DUE_CLOCK: pl.Series(due_clock, dtype=pl.Int64),
            TIMERS: nested(timers, TIMER),
        }
        for (name, declared), column in zip(self.states.items(), states, strict=True):
            dtype = self.columns[f"state.{name}"]
            if isinstance(declared, DeclaredMap):
                lists = [None if cell is None else [(key, *entry) for key, entry in cell.items()] for cell in column]
                made[f"state.{name}"] = nested(lists, dtype)
            elif _is_many(declared):
                made[f"state.{name}"] = nested(column, dtype)
            else:
                values = [None if cell is None else cell[0] for cell in column]
                made[f"state.{name}"] = pl.Series(values, dtype=dtype, strict=True)
                if _has_time(declared):
                    written = [None if cell is None else cell[1] for cell in column]
                    made[f"state.{name}@written"] = pl.Series(written, dtype=pl.Int64)
        return made


def is_empty(cells: tuple[Any, ...]) -> bool:
    """Whether nothing is left of a key: no state, no timer."""
    *states, timers, _, _ = cells
    return not timers and all(cell is None for cell in states)


def _is_many(declared: Declared[Any]) -> bool:
    return declared.kind in ("list", "map")


def _has_time(declared: Declared[Any]) -> bool:
    return declared.life.ttl is not None and not _is_many(declared)


def _mapped(entries: list[tuple[Any, ...]]) -> dict[Any, tuple[Any, int]]:
    return {one_nan(key): (value, written) for key, value, written in entries}
