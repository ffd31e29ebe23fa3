"""Answers that a process remembers for a while, also that a service does not know a key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from headrace.durations import Duration, positive_microseconds, spoken
from headrace.errors import DefinitionError

_ASKED, _USED = "__asked", "__used"


@dataclass(frozen=True, slots=True)
class Cache:
    """How long an answer is believed, and how many are kept."""

    ttl: int
    size: int

    def __repr__(self) -> str:
        return f"hr.cache(ttl={spoken(self.ttl)!r}, size={self.size})"


def cache(*, ttl: Duration, size: int = 100_000) -> Cache:
    """Remember the answers of at most ``size`` keys in each worker, each for ``ttl`` of the batches' clock.

    >>> cache(ttl="10 minutes", size=5_000)
    hr.cache(ttl='10 minutes', size=5000)
    """
    if size < 1:
        raise DefinitionError("CACHE_INVALID", f"hr.cache(size={size}) would remember nothing. Give at least 1.")
    return Cache(positive_microseconds(ttl, argument="ttl"), size)


class Remembered:
    """The answers in one process; those used longest ago are forgotten first."""

    def __init__(self, cache: Cache, on: tuple[str, ...], answers: Mapping[str, pl.DataType]) -> None:
        self._cache = cache
        self._on = list(on)
        self._columns = list(answers)
        self._kept = pl.DataFrame(schema={**answers, _ASKED: pl.Int64(), _USED: pl.Int64()})
        self._turn = 0

    @property
    def size(self) -> int:
        """How many answers are kept."""
        return self._kept.height

    def known(self, keys: pl.DataFrame, clock: int) -> pl.DataFrame:
        """Those of the keys whose answers are remembered, with their answers."""
        self._turn += 1
        # A clock that was set back is no reason to believe answers of the future.
        age = clock - pl.col(_ASKED)
        self._kept = self._kept.filter(age.is_between(0, self._cache.ttl, closed="left"))
        known = self._kept.join(keys, on=self._on, how="semi")
        if not known.is_empty():
            others = self._kept.join(keys, on=self._on, how="anti")
            self._kept = pl.concat([others, known.with_columns(pl.lit(self._turn, pl.Int64).alias(_USED))])
        return known.select(self._columns)

    def remember(self, answers: pl.DataFrame, clock: int) -> None:
        """Keep new answers; the keys must not be among those known."""
        fresh = answers.select(self._columns).with_columns(
            pl.lit(clock, pl.Int64).alias(_ASKED), pl.lit(self._turn, pl.Int64).alias(_USED)
        )
        kept = pl.concat([self._kept, fresh])
        if kept.height > self._cache.size:
            kept = kept.sort(_USED, descending=True, maintain_order=True).head(self._cache.size)
        self._kept = kept
