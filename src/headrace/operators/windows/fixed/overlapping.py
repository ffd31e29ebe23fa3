"""Windows that share rows: kept by pane where each is emitted once, by window where each has a story of its own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from headrace.durations import spoken
from headrace.event_time.lateness import Lateness
from headrace.keys import said_key
from headrace.operators.windows.aggregation import Aggregation
from headrace.operators.windows.fixed.assigners import Windows
from headrace.operators.windows.fixed.by_pane import PaneOperator
from headrace.operators.windows.fixed.by_window import FixedWindowOperator
from headrace.operators.windows.panes import ACCUMULATING
from headrace.operators.windows.window_step import WindowStep
from headrace.wheel.operator import Operator


@dataclass(frozen=True, kw_only=True, repr=False)
class OverlappingWindowStep(WindowStep):
    """A kind of windows in which a row belongs to several."""

    size: int
    offset: int

    @property
    @abstractmethod
    def _lengths(self) -> Mapping[str, int]:
        """The lengths that make the windows, by the author's names."""

    @property
    def combines(self) -> bool:
        """Rows of a key and pane become one before they travel."""
        return True

    @property
    def horizon(self) -> int:
        """How far apart in event time rows of one result may be."""
        return self.size

    @property
    def _shape(self) -> Mapping[str, object]:
        return {**self._lengths, "offset": self.offset, "state": self._kept_by}

    @property
    def _arguments(self) -> Mapping[str, object]:
        lengths = {name: spoken(length) for name, length in self._lengths.items()}
        return {**lengths, "key": said_key(self.key), **({"offset": spoken(self.offset)} if self.offset else {})}

    @property
    def _kept_by(self) -> Literal["pane", "window"]:
        """Previews and results that do not replace each other belong to single windows, not to what these share."""
        return "window" if self.emission.previews or self.accumulation != ACCUMULATING else "pane"

    @property
    def state_description(self) -> str:
        """What the state holds and how long, in words."""
        if self._kept_by == "window":
            return super().state_description
        return f"a row for each key and pane, {self._until('the last window that holds it')}"

    def _over(self, windows: Windows, aggregation: Aggregation, lateness: Lateness) -> Operator:
        if self._kept_by == "pane":
            return PaneOperator(self.name, aggregation, windows, lateness)
        return FixedWindowOperator(self.name, aggregation, windows, self.emission, lateness, self.accumulation)
