"""What every operator of windows is to the wheel, whatever its windows."""

from __future__ import annotations

import polars as pl

from headrace.event_time.lateness import Lateness
from headrace.operators.windows.aggregation import Aggregation


class WindowOperator:
    """Aggregates rows by key; its results carry a window."""

    aggregation: Aggregation
    lateness: Lateness

    @property
    def key(self) -> tuple[str, ...]:
        """The key columns."""
        return self.aggregation.key

    @property
    def output_time(self) -> str:
        """A result's time is the last moment of its window."""
        return "window"

    @property
    def side_schemas(self) -> dict[str, dict[str, pl.DataType]]:
        """Late rows, when they are kept."""
        return {"late": self.aggregation.late_schema} if self.lateness.keeps_rows else {}
