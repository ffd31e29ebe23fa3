"""Window assigners: which windows a time falls into, as expressions over integer microseconds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import gcd

import polars as pl


class Windows(ABC):
    """Windows ``[start, end)``, identified by their end, and the panes that they share.

    A pane is an interval that no window divides; rows are aggregated by pane, which is identified by its end too.
    Where windows do not overlap, each is its own pane.
    """

    overlapping = False
    offset: int

    @abstractmethod
    def pane(self, time: pl.Expr) -> pl.Expr:
        """The pane that a time falls into."""

    @abstractmethod
    def start(self, end: pl.Expr) -> pl.Expr:
        """The start of a window."""

    def first(self, pane: pl.Expr) -> pl.Expr:
        """The first window, by its end, that holds a pane."""
        return pane

    def last(self, pane: pl.Expr) -> pl.Expr:
        """The last window that holds a pane."""
        return pane

    def after(self, pane: pl.Expr, bound: int) -> pl.Expr:
        """The first window that holds a pane and ends after a bound; null when there is none."""
        return pl.when(pane > bound).then(pane)

    def all(self, pane: pl.Expr) -> pl.Expr:
        """Every window that holds a pane, as a list."""
        return pl.concat_list(pane)


@dataclass(frozen=True)
class FixedWindows(Windows):
    """Windows of one length, aligned to the epoch and moved by an offset.

    >>> windows = FixedWindows(size=10, offset=3)
    >>> pl.select(windows.pane(pl.lit(12)), windows.start(pl.lit(13)).alias("start")).row(0)
    (13, 3)
    """

    size: int
    offset: int = 0

    def pane(self, time: pl.Expr) -> pl.Expr:
        return ((time - self.offset) // self.size + 1) * self.size + self.offset

    def start(self, end: pl.Expr) -> pl.Expr:
        return end - self.size


@dataclass(frozen=True)
class HoppingWindows(Windows):
    """Windows of one size that start at regular intervals; their panes are as long as the greatest common divisor.

    >>> windows = HoppingWindows(size=10, every=4)
    >>> pl.select(windows.all(windows.pane(pl.lit(9)))).item().to_list()
    [10, 14, 18]
    """

    size: int
    every: int
    offset: int = 0
    overlapping = True

    def pane(self, time: pl.Expr) -> pl.Expr:
        length = gcd(self.size, self.every)
        return ((time - self.offset) // length + 1) * length + self.offset

    def start(self, end: pl.Expr) -> pl.Expr:
        return end - self.size

    def first(self, pane: pl.Expr) -> pl.Expr:
        moved = self.offset + self.size
        return -((moved - pane) // self.every) * self.every + moved

    def last(self, pane: pl.Expr) -> pl.Expr:
        beginning = pane - gcd(self.size, self.every)
        return (beginning - self.offset) // self.every * self.every + self.offset + self.size

    def after(self, pane: pl.Expr, bound: int) -> pl.Expr:
        found = self.first(pl.max_horizontal(pane, pl.lit(bound, pl.Int64) + 1))
        return pl.when(self.last(pane) > bound).then(found)

    def all(self, pane: pl.Expr) -> pl.Expr:
        return pl.int_ranges(self.first(pane), self.last(pane) + 1, step=self.every)


@dataclass(frozen=True)
class CumulatingWindows(Windows):
    """Windows with a common start that end step by step, up to a full size; then the next start together.

    >>> windows = CumulatingWindows(step=5, size=15)
    >>> pl.select(windows.all(windows.pane(pl.lit(7)))).item().to_list()
    [10, 15]
    """

    step: int
    size: int
    offset: int = 0
    overlapping = True

    def pane(self, time: pl.Expr) -> pl.Expr:
        return ((time - self.offset) // self.step + 1) * self.step + self.offset

    def start(self, end: pl.Expr) -> pl.Expr:
        return (end - 1 - self.offset) // self.size * self.size + self.offset

    def last(self, pane: pl.Expr) -> pl.Expr:
        return self.start(pane) + self.size

    def after(self, pane: pl.Expr, bound: int) -> pl.Expr:
        following = self.pane(pl.lit(bound, pl.Int64))
        return pl.when(self.last(pane) > bound).then(pl.max_horizontal(pane, following))

    def all(self, pane: pl.Expr) -> pl.Expr:
        return pl.int_ranges(pane, self.last(pane) + 1, step=self.step)
