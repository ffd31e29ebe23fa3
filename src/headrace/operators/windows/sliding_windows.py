"""The sliding step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from headrace.durations import Duration, positive_microseconds, spoken
from headrace.errors import DefinitionError
from headrace.event_time.lateness import Lateness
from headrace.graph import check_name
from headrace.keys import Key, key_argument, key_columns
from headrace.operators.windows.aggregation import Aggregation
from headrace.operators.windows.emission import DISCARDING, AccumulationMode, Emission
from headrace.operators.windows.sliding_operator import SlidingOperator
from headrace.operators.windows.sliding_totals import MOST_SHARES, KeySpread
from headrace.operators.windows.window_step import WindowStep
from headrace.stability import stable
from headrace.wheel.operator import Operator


@dataclass(frozen=True, kw_only=True, repr=False)
class Sliding(WindowStep):
    """A window for every row that ends with the row."""

    kind = "sliding"

    size: int
    shares: int

    def emit(self, emission: Emission) -> Self:
        """Choose when rows are emitted: ``hr.on_close()``, or ``hr.on_update()`` for at once and again when changed."""
        if isinstance(emission, Emission) and emission.early is not None:
            raise DefinitionError(
                "EMISSION_UNKNOWN",
                f"window {self.name!r}: .emit({emission!r}) is not for sliding windows, each of which is complete when "
                "event time has passed its row. Use hr.on_close(), or hr.on_update() to have every row at once.",
            )
        return super().emit(emission)

    def panes(self, panes: AccumulationMode) -> Self:
        """Choose whether a row that is emitted again replaces the one before or retracts it first."""
        if panes == DISCARDING:
            raise DefinitionError(
                "PANES_UNKNOWN",
                f"window {self.name!r}: .panes({panes!r}) is not for sliding windows: every row has an aggregate of "
                "its own, and a part of it would mean nothing. Use hr.accumulating() or hr.retracting().",
            )
        return super().panes(panes)

    def _operator(self, aggregation: Aggregation, lateness: Lateness) -> Operator:
        follows_windows = aggregation.schema[aggregation.time].is_nested()
        taken = [] if follows_windows else [name for name in self.result_columns if name in aggregation.schema]
        taken += [name for name in aggregation.results if name in aggregation.schema]
        if taken:
            raise DefinitionError(
                "RESULT_NAME_TAKEN",
                f"window {self.name!r}: sliding windows add their results to the row's own columns, and "
                f"{taken[0]!r} would be both. Choose another name for the result, or rename the column before.",
            )
        shares = KeySpread(aggregation, self.size, self.shares) if self.shares > 1 else None
        return SlidingOperator(self.name, aggregation, self.size, self.emission, lateness, self.accumulation, shares)

    @property
    def state_description(self) -> str:
        return f"every row, until event time is {spoken(self.size + self.retention)} behind it"

    @property
    def spread(self) -> int:
        return self.shares

    @property
    def horizon(self) -> int:
        return self.size

    @property
    def _shape(self) -> Mapping[str, object]:
        return {"size": self.size, "spread": self.shares}

    @property
    def _arguments(self) -> Mapping[str, object]:
        spread = {"spread": self.shares} if self.shares > 1 else {}
        return {"size": spoken(self.size), "key": key_argument(self.key), **spread}


@stable
def sliding(name: str, *, size: Duration, key: Key, spread: int = 1) -> Sliding:
    """For every row the aggregate of its key over ``(t - size, t]``, added to the row's own columns.

    A window includes all rows of equal times. ``key=None`` puts all rows into one group. ``spread`` divides the rows of
    every key over this many tasks, for keys with too many rows for one.

    >>> sliding("recent", size="1 hour", key="account").agg(spent="sum(amount)")
    hr.sliding('recent', size='1 hour', key='account').agg(spent='sum(amount)').emit(hr.on_close())
    """
    check_name("step", name)
    length = positive_microseconds(size, argument="size")
    if type(spread) is not int or not 1 <= spread <= MOST_SHARES:
        raise DefinitionError(
            "SPREAD_OUT_OF_RANGE",
            f"window {name!r}: spread={spread!r} is not a whole number between 1 and {MOST_SHARES}. Use 1 for keys "
            "that one worker can carry, and for hot keys as many shares as there are cores.",
        )
    return Sliding(name=name, key=key_columns(key), size=length, shares=spread)
