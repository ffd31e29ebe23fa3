"""The order in which the rows of a state have come to their key group."""

from __future__ import annotations

import polars as pl

ARRIVAL = "__arrival"
"""The number of a row among all that have come to its key group."""


def next_arrival(state: pl.DataFrame, first: int = 0) -> int:
    """The number of the next row that comes.

    >>> next_arrival(pl.DataFrame({ARRIVAL: [0, 2, 1]})), next_arrival(pl.DataFrame(schema={ARRIVAL: pl.Int64}))
    (3, 0)
    """
    return first if state.is_empty() else int(state[ARRIVAL].max()) + 1  # type: ignore[arg-type]


def in_order_of_arrival(state: pl.DataFrame) -> pl.DataFrame:
    """The state as rows came, whether the worker remembers it or has read it: a row that was changed is stored last.

    >>> in_order_of_arrival(pl.DataFrame({ARRIVAL: [0, 2, 1]}))[ARRIVAL].to_list()
    [0, 1, 2]
    """
    return state if state[ARRIVAL].is_sorted() else state.sort(ARRIVAL)
