"""Which keys most rows of a step have, estimated from a sample of each frame."""

from __future__ import annotations

from typing import Any

import polars as pl

SAMPLE_ROWS = 2_000
NAMED = 5


class KeySample:
    """Counts the keys of a task's rows in a sample.

    >>> sample = KeySample(("account",))
    >>> sample.take(pl.DataFrame({"account": ["a", "b", "a", "a"]}))
    >>> sample.report()
    {'rows': 4, 'top': [[['a'], 3], [['b'], 1]]}
    """

    def __init__(self, key: tuple[str, ...]) -> None:
        self._key = key
        self._rows = 0
        self._counts: list[pl.DataFrame] = []

    def take(self, frame: pl.DataFrame) -> None:
        """Sample the rows of a frame; what is counted stands for all of them."""
        if not self._key or frame.is_empty():
            return
        # Polars casts neither bytes nor durations to text by itself.
        keys = frame.select(self._key).with_columns(
            pl.selectors.binary().bin.encode("hex"), pl.selectors.duration().dt.to_string("polars")
        )
        keys = keys.cast(pl.String)
        # A sample at equal distances would see only some keys of rows that come in turns.
        sampled = keys if keys.height <= SAMPLE_ROWS else keys.sample(SAMPLE_ROWS, seed=self._rows)
        weight = frame.height / sampled.height
        self._rows += frame.height
        self._counts.append(sampled.group_by(self._key).agg((pl.len() * weight).alias("__rows")))

    def report(self) -> dict[str, Any]:
        """The number of rows, and the keys that most of them have."""
        if not self._counts:
            return {"rows": 0, "top": []}
        totals = pl.concat(self._counts).group_by(self._key).agg(pl.col("__rows").sum())
        top = totals.sort("__rows", *self._key, descending=[True, *(False for _ in self._key)]).head(NAMED)
        return {"rows": self._rows, "top": [[list(row[:-1]), round(row[-1])] for row in top.rows()]}
