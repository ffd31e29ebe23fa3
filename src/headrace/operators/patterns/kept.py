"""What is kept of a key between batches: the rows of its partial matches once, and how the matches share them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from headrace.operators.patterns.automaton import FINAL
from headrace.operators.patterns.matcher import NUMBER, TIME, VALUES, KeyMatches, Node, Partial, Row

PARENT, STEP, ROW = "__node_parent", "__node_step", "__node_row"
"""A node for each row that a branch has taken: the node before it (or -1), the step, the row."""
STATE, LAST = "__partial_state", "__partial_node"
"""A partial match: its state (``FINAL`` for a match that waits for earlier ones), and its last node."""
ROW_TIME = "__row_time"
LINKS = (PARENT, STEP, ROW, STATE, LAST)


def row_value(number: int) -> str:
    """The column that holds a value of the kept rows."""
    return f"__row_value_{number}"


def kept_schema(types: Sequence[pl.DataType]) -> dict[str, pl.DataType]:
    """The columns of what is kept of a key, given the types of the values of its rows."""
    return {
        **dict.fromkeys(LINKS, pl.List(pl.Int32())),
        ROW_TIME: pl.List(pl.Int64()),
        **{row_value(number): pl.List(dtype) for number, dtype in enumerate(types)},
    }


def matches_of(kept: pl.DataFrame, values: int) -> list[KeyMatches]:
    """The partial matches of each key of a frame."""
    if kept.is_empty():
        return []
    names = [*LINKS, ROW_TIME, *map(row_value, range(values))]
    return [_matches(*lists) for lists in zip(*(kept[name].to_list() for name in names), strict=True)]


def _matches(
    parents: list[int],
    steps: list[int],
    rows: list[int],
    states: list[int],
    lasts: list[int],
    times: list[int],
    *values: list[Any],
) -> KeyMatches:
    taken: list[Row] = list(zip(times, range(len(times)), *values, strict=True))
    nodes: list[Node] = []
    starts: list[Row] = []
    for parent, step, row in zip(parents, steps, rows, strict=True):
        nodes.append((taken[row], step, nodes[parent] if parent >= 0 else None))
        starts.append(starts[parent] if parent >= 0 else taken[row])
    key = KeyMatches(rows=len(taken))
    for state, last in zip(states, lasts, strict=True):
        (key.held if state == FINAL else key.partials).append((state, starts[last], nodes[last]))
    return key


@dataclass(slots=True)
class KeptColumns:
    """Collects the partial matches of keys as columns."""

    types: Sequence[pl.DataType]
    lists: dict[str, list[list[Any]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.lists = {name: [] for name in kept_schema(self.types)}

    def add(self, key: KeyMatches) -> None:
        """A key with its partial matches; only rows that one of them holds are kept."""
        numbers: dict[int, int] = {}
        nodes: list[Node] = []
        partials: list[Partial] = [*key.partials, *key.held]
        for _, _, node in partials:
            fresh: list[Node] = []
            chain: Node | None = node
            while chain is not None and id(chain) not in numbers:
                fresh.append(chain)
                chain = chain[2]
            for each in reversed(fresh):
                numbers[id(each)] = len(nodes)
                nodes.append(each)
        rows = sorted({node[0][NUMBER]: node[0] for node in nodes}.items())
        places = {number: place for place, (number, _) in enumerate(rows)}
        lists = self.lists
        lists[PARENT].append([-1 if node[2] is None else numbers[id(node[2])] for node in nodes])
        lists[STEP].append([node[1] for node in nodes])
        lists[ROW].append([places[node[0][NUMBER]] for node in nodes])
        lists[STATE].append([state for state, _, _ in partials])
        lists[LAST].append([numbers[id(node)] for _, _, node in partials])
        lists[ROW_TIME].append([row[TIME] for _, row in rows])
        for number in range(len(self.types)):
            lists[row_value(number)].append([row[VALUES + number] for _, row in rows])

    def frame(self) -> pl.DataFrame:
        """All keys, in the order in which they were added."""
        schema = kept_schema(self.types)
        return pl.DataFrame({name: pl.Series(name, self.lists[name], dtype) for name, dtype in schema.items()})
