"""What a timeline needs of an engine, and what both engines share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from headrace.connectors.base.decoding import type_name
from headrace.errors import DefinitionError
from headrace.event_time.strategy import BEGINNING, TimeStrategy, event_time, valid_times
from headrace.event_time.time_keeper import TimeKeeper
from headrace.event_time.tracker import WatermarkTracker
from headrace.operators.step import Step
from headrace.schemas import MOMENT, parse_ddl, polars_schema
from headrace.testing.elements import At, Row, Side, moment

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
    """The columns of the rows on each side; only the first step of a chain may have a right one."""
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
        partitions: dict[int, list[Row]] = {}
        for row in rows:
            if row.side == side:
                values = {PARTITION: row.partition, **row.columns, TIME: row.time}
                partitions.setdefault(row.partition, []).append(values)
        return {number: frame_of(given, schema).cast({TIME: MOMENT}) for number, given in sorted(partitions.items())}

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


def schema_of(rows: Sequence[At], *, partition: bool, declared: str | None = None) -> dict[str, pl.DataType]:
    """The columns of the rows of one side, with those that a timeline adds."""
    known = columns_of([row.columns for row in rows], declared)
    return {**known, **({PARTITION: pl.Int64()} if partition and PARTITION not in known else {}), TIME: MOMENT}


def columns_of(rows: Sequence[Row], declared: str | None) -> dict[str, pl.DataType]:
    """The columns of rows: as they are declared, or else by the values they have."""
    names = dict.fromkeys(name for row in rows for name in row)
    if declared is not None:
        columns = polars_schema(parse_ddl(declared))
        unknown = [name for name in names if name not in columns]
        if unknown:
            raise DefinitionError(
                "COLUMN_UNKNOWN",
                f"a row of the timeline has column {unknown[0]!r}, but the schema declares {', '.join(columns)}. "
                "Declare it too, or correct the row.",
            )
        return columns
    values = pl.DataFrame({name: [row.get(name) for row in rows] for name in names}, infer_schema_length=None)
    return {name: _declared(dtype) for name, dtype in values.schema.items()}


def frame_of(rows: Sequence[Row], schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """The rows in these columns; a value that does not fit is an error that names its column."""
    return pl.DataFrame([_values(name, [row.get(name) for row in rows], dtype) for name, dtype in schema.items()])


def _values(column: str, values: Sequence[Any], dtype: pl.DataType) -> pl.Series:
    try:
        return pl.Series(column, values, dtype=dtype)
    except (TypeError, OverflowError, pl.exceptions.PolarsError) as problem:
        reason = str(problem).partition("\n")[0]
        raise DefinitionError(
            "TIMELINE_VALUE",
            f"column {column!r} of the timeline has a value that does not fit {type_name(dtype)}: "
            f"{reason}. Correct the row or the schema.",
        ) from problem


def _declared(dtype: pl.DataType) -> pl.DataType:
    if isinstance(dtype, pl.Datetime):
        return MOMENT
    if isinstance(dtype, pl.Decimal):
        return pl.Decimal(38, dtype.scale)
    return pl.String() if dtype == pl.Null() else dtype
