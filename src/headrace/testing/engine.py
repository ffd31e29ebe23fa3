"""What a timeline needs of an engine, and what both engines share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from headrace.errors import DefinitionError
from headrace.event_time.strategy import BEGINNING, TimeStrategy, event_time, valid_times
from headrace.event_time.time_keeper import TimeKeeper
from headrace.event_time.tracker import WatermarkTracker
from headrace.operators.step import Step
from headrace.schemas import MOMENT
from headrace.testing.elements import At, Side, moment

TIME, PARTITION = "at", "partition"
SOURCES: dict[Side, str] = {"left": "rows", "right": "right_rows"}
AFTER_EVERYTHING = moment("2026-01-02T00:00:00")
BY_HAND = event_time(TIME, idle=None, accept=valid_times(max_future=None))
"""The timeline sets the watermarks itself."""


@dataclass(slots=True)
class Setting:
    """What is played: the steps, the time strategy and the rows' schemas; and what has come out."""

    steps: Sequence[Step]
    strategy: TimeStrategy
    schemas: dict[Side, dict[str, pl.DataType]]
    """The columns of the rows on each side that has any; only the first step of a chain may have a right one."""
    split: tuple[str, str] | None = None
    """Conditions for rows of one source to be on the left and on the right of the first step."""
    clock: int = AFTER_EVERYTHING
    watermarks: dict[Side, int] = field(default_factory=lambda: dict.fromkeys(SOURCES, BEGINNING))
    outputs: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def take_over(self, time: TimeKeeper) -> None:
        """Let the timeline set the watermarks of a flow that has just started, if it does."""
        if self.strategy is BY_HAND:
            for side in self.schemas:
                tracker = WatermarkByHand(self, side)
                tracker.restore(time.trackers[SOURCES[side]].saved())
                time.trackers[SOURCES[side]] = tracker

    def give(self, output: str, rows: list[dict[str, Any]]) -> None:
        self.outputs.setdefault(output, []).extend(rows)

    def frames(self, rows: Sequence[At], side: Side) -> dict[int, pl.DataFrame]:
        """Rows of one side by partition, as frames of its schema."""
        schema = {**self.schemas[side], TIME: pl.Int64()}
        partitions: dict[int, list[dict[str, Any]]] = {}
        for row in rows:
            if row.side == side:
                values = {PARTITION: row.partition, **row.columns, TIME: row.time}
                partitions.setdefault(row.partition, []).append(values)
        frames = {}
        for number, given in sorted(partitions.items()):
            columns = {name: [values.get(name) for values in given] for name in schema}
            frames[number] = pl.DataFrame(columns, schema=schema, strict=False).cast({TIME: MOMENT})
        return frames

    def declare(self, outputs: Iterable[str]) -> None:
        for output in ("main", "late", "dead_letters", *outputs):
            self.outputs.setdefault(output, [])

    def rows_of(self, output: str) -> list[dict[str, Any]]:
        if output not in self.outputs:
            raise DefinitionError(
                "OUTPUT_UNKNOWN", f"there is no output {output!r}. The outputs are {', '.join(self.outputs)}."
            )
        return self.outputs[output]


class WatermarkByHand(WatermarkTracker):
    """The watermark that the timeline set last, where a pipeline would compute it; rows do not move it."""

    def __init__(self, setting: Setting, side: Side) -> None:
        super().__init__(setting.strategy)
        self._setting = setting
        self._side = side

    def observe(self, highest: Mapping[str, int], *, unread: Iterable[str] = ()) -> None: ...

    def watermark(self, *, clock: int, waited: int = 0) -> int:
        return max(self._watermark, self._setting.watermarks[self._side])


def schema_of(rows: Sequence[At], *, partition: bool) -> dict[str, pl.DataType]:
    """The columns of a timeline's rows, from the values they have."""
    names = dict.fromkeys(name for row in rows for name in row.columns)
    values = pl.DataFrame({name: [row.columns.get(name) for row in rows] for name in names}, infer_schema_length=None)
    known = {name: _declared(dtype) for name, dtype in values.schema.items()}
    return {**known, **({PARTITION: pl.Int64()} if partition and PARTITION not in known else {}), TIME: MOMENT}


def _declared(dtype: pl.DataType) -> pl.DataType:
    if isinstance(dtype, pl.Datetime):
        return MOMENT
    if isinstance(dtype, pl.Decimal):
        return pl.Decimal(38, dtype.scale)
    return pl.String() if dtype == pl.Null() else dtype
