"""Partial matches as state columns: the rows of a key once, and how its partial matches share them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl
import pyarrow as pa

from headrace.operators.patterns.automaton import FINAL
from headrace.operators.patterns.matcher import NUMBER, KeyMatches, Node, Partial, Row

NODES, PARTIALS, ROW_TIME = "__nodes", "__partials", "__row_time"
"""For each row that a branch has taken, (number of the node before it + 1, step, place of the row) in one number; for
each partial match (state + 1, number of its last node); the times of the rows. ``FINAL`` + 1 = 0 is the state of a
match that waits for earlier ones."""
_PARENT, _STEP, _PLACE = 40, 32, (1 << 32) - 1
_STEPS = (1 << (_PARENT - _STEP)) - 1


def partial_match_schema(types: Sequence[pl.DataType]) -> dict[str, pl.List]:
    """The columns of a key's partial matches, given the types of the values that its rows carry."""
    values = {f"__row_value_{number}": pl.List(dtype) for number, dtype in enumerate(types)}
    return {**dict.fromkeys((NODES, PARTIALS, ROW_TIME), pl.List(pl.Int64())), **values}


def decode_partial_matches(state: pl.DataFrame, types: Sequence[pl.DataType]) -> list[KeyMatches]:
    """The partial matches of each key of a frame."""
    if state.is_empty():
        return []
    columns = (state[name].to_list() for name in partial_match_schema(types))
    return [_decoded(*lists) for lists in zip(*columns, strict=True)]


def _decoded(packed: list[int], partials: list[int], times: list[int], *values: list[Any]) -> KeyMatches:
    rows: list[Row] = list(zip(times, range(len(times)), *values, strict=True))
    nodes: list[Node] = []
    starts: list[Row] = []
    for number in packed:
        row, parent = rows[number & _PLACE], (number >> _PARENT) - 1
        if parent < 0:
            nodes.append((row, number >> _STEP & _STEPS, None))
            starts.append(row)
        else:
            nodes.append((row, number >> _STEP & _STEPS, nodes[parent]))
            starts.append(starts[parent])
    key = KeyMatches(rows=len(rows))
    for number in partials:
        state, last = (number >> _STEP) - 1, number & _PLACE
        (key.held if state == FINAL else key.partials).append((state, starts[last], nodes[last]))
    return key


@dataclass(slots=True)
class PartialMatchEncoder:
    """Collects the partial matches of keys as columns: the values of all keys one after the other, and their ends."""

    types: Sequence[pl.DataType]
    nodes: list[int] = field(default_factory=list)
    partials: list[int] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    ends: list[tuple[int, int, int]] = field(default_factory=lambda: [(0, 0, 0)])

    def add(self, key: KeyMatches) -> None:
        """Add a key with its partial matches; rows that none of them holds are dropped."""
        partials: list[Partial] = key.partials + key.held
        rows: dict[int, Row] = {}
        numbers: dict[int, int] = {}
        nodes: list[tuple[int, int, int]] = []
        for state, _, node in partials:
            fresh: list[Node] = []
            chained: Node | None = node
            while chained is not None and id(chained) not in numbers:
                fresh.append(chained)
                chained = chained[2]
            parent = 0 if chained is None else numbers[id(chained)] + 1
            for each in reversed(fresh):
                row = each[0]
                rows[row[NUMBER]] = row
                nodes.append((parent, each[1], row[NUMBER]))
                numbers[id(each)] = parent = len(numbers)
                parent += 1
            self.partials.append(state + 1 << _STEP | numbers[id(node)])
        places = {number: place for place, number in enumerate(sorted(rows))}
        self.nodes += [parent << _PARENT | step << _STEP | places[row] for parent, step, row in nodes]
        self.rows += [rows[number] for number in places]
        self.ends.append((len(self.nodes), len(self.partials), len(self.rows)))

    def frame(self) -> pl.DataFrame:
        """All keys, in the order in which they were added."""
        if not self.partials:
            return pl.DataFrame(schema=dict(partial_match_schema(self.types)))
        times, _, *values = zip(*self.rows, strict=True)
        node_ends, partial_ends, row_ends = (pa.array(ends, pa.int64()) for ends in zip(*self.ends, strict=True))
        numbers = pa.int64()
        columns = [
            _lists(node_ends, pa.array(self.nodes, numbers)),
            _lists(partial_ends, pa.array(self.partials, numbers)),
            _lists(row_ends, pa.array(times, numbers)),
            *(
                _lists(row_ends, pl.Series(each, dtype=dtype).to_arrow())
                for each, dtype in zip(values, self.types, strict=True)
            ),
        ]
        made = pl.from_arrow(pa.Table.from_arrays(columns, list(partial_match_schema(self.types))))
        assert isinstance(made, pl.DataFrame)  # for the type checker: a table always becomes a frame
        return made


# A column of lists from one flat array of their values: many times faster than from a list of lists.
_lists = pa.LargeListArray.from_arrays
