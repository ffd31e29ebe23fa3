"""The event-time buffer: rows wait in the state of a step until the watermark has passed them.

The arrival number tells the state rows of a step apart: it is positive for a row that waits, ``OF_KEY`` for what is
known of a key, and negative for what all keys see, such as changes of rules, which wait as rows do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from headrace.event_time.record import TimeBounds
from headrace.operators.rows import ARRIVAL, KEY_NUMBER, TIME, arrivals, with_key_numbers, with_schema
from headrace.reports import WaitingRows

OF_KEY = 0
RELEASED_AT = pl.when(pl.col(ARRIVAL) != OF_KEY).then(pl.col(TIME) + 1)
"""When a state row that waits is released, with which it is over unless it is kept; null for all others."""
Numbers = npt.NDArray[np.int64]
_LARGEST = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Released:
    """What a batch does to the rows that wait."""

    rows: pl.DataFrame
    """The rows that the watermark has passed, with their arrival numbers, in no order."""
    stored: pl.DataFrame
    """The new rows that wait, or that are kept, as state rows."""
    counts: WaitingRows


@dataclass(frozen=True, slots=True)
class EventTimeBuffer:
    """The waiting rows in a state of some schema; with ``RELEASED_AT`` as the end of their life none is removed.

    >>> buffer = EventTimeBuffer({"n": pl.Int64(), TIME: pl.Int64(), ARRIVAL: pl.Int64()})
    >>> rows, state = pl.DataFrame({"n": [1, 2], TIME: [30, 10]}), pl.DataFrame(schema=buffer.schema)
    >>> first = buffer.release(state, rows, TimeBounds(20, 20, batch=1))
    >>> second = buffer.release(first.stored, rows.clear(), TimeBounds(40, 40, before=20, batch=2))
    >>> first.rows["n"].to_list(), second.rows["n"].to_list()
    ([2], [1])
    """

    schema: Mapping[str, pl.DataType]
    broadcast: bool = False
    """Whether its rows are for all keys."""
    kept_for: int = 0
    """How long the state keeps a row that was released, for corrections."""

    def release(self, state: pl.DataFrame, arrived: pl.DataFrame, bounds: TimeBounds) -> Released:
        """Take the rows that the watermark has passed, from the state and from those that arrived."""
        numbers, is_held = arrivals(bounds, arrived.height), pl.col(ARRIVAL) > OF_KEY
        if self.broadcast:
            # Behind a rule that is valid no time is left.
            numbers, is_held = -numbers, (pl.col(ARRIVAL) < OF_KEY) & pl.col(TIME).is_not_null()
        new, passed = arrived.with_columns(numbers), pl.col(TIME) < bounds.fire
        held = with_schema(state, new.schema).filter(is_held & (pl.col(TIME) >= bounds.before))
        rows = pl.concat([held.filter(passed), new.filter(passed)])
        counts = WaitingRows(held.height, rows.height, held.height + new.height - rows.height)
        stored = new.filter(pl.col(TIME) + self.kept_for >= bounds.fire)
        return Released(rows, with_schema(stored, self.schema), counts)


@dataclass(frozen=True, slots=True)
class TouchedKeys:
    """The keys of which rows are released or something is due; the place of a key is its number."""

    keys: pl.DataFrame
    """They begin the state rows of the keys."""
    states: pl.DataFrame
    """What is known of them, with the numbers of the keys."""
    numbers: Numbers
    """The number of each released row's key."""

    @classmethod
    def of(cls, key: Sequence[str], released: pl.DataFrame, state: pl.DataFrame, is_due: pl.Expr) -> TouchedKeys:
        of_keys = state.filter(pl.col(ARRIVAL) == OF_KEY)
        due = of_keys.filter(is_due)
        if key:
            # In their own order, so that a batch that runs again gives its rows in the order that it gave them in.
            keys = pl.concat([released.select(key), due.select(key)]).unique().sort(key)
        else:
            keys = pl.DataFrame(height=min(1, released.height + due.height))
        numbers = with_key_numbers(released.select(*key, ARRIVAL), key, of=keys)[KEY_NUMBER].to_numpy()
        of_key = pl.repeat(OF_KEY, keys.height, dtype=pl.Int64, eager=True).alias(ARRIVAL)
        return cls(keys.with_columns(of_key), with_key_numbers(of_keys, key, of=keys), numbers)


def event_time_order(rows: pl.DataFrame, *by: Numbers) -> Numbers:
    """The places of rows in the order of event time, then of arrival; within that of other numbers, the last first.

    >>> event_time_order(pl.DataFrame({TIME: [20, 10, 10], ARRIVAL: [1, 3, 2]})).tolist()
    [2, 1, 0]
    """
    arrived = np.argsort(np.abs(rows[ARRIVAL].to_numpy()), kind="stable")
    # All columns as one number, from place to most important column: one sort of it is ten times as fast as lexsort.
    together, size = np.arange(len(arrived)), max(1, len(arrived))
    columns = [column[arrived] for column in (rows[TIME].to_numpy(), *by)] if len(arrived) else []
    for column in columns:
        least, most = int(column.min()), int(column.max())
        if size * (most - least + 1) > _LARGEST:
            return arrived[np.lexsort(columns)]
        together += (column.astype(np.int64) - least) * size
        size *= most - least + 1
    together.sort()
    return arrived[together % max(1, len(arrived))]
