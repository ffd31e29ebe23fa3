"""What a timeline needs of an engine, and what both engines share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import polars as pl

from headrace.event_time.strategy import TimeStrategy
from headrace.testing.elements import At

SOURCE, TIME, PARTITION = "rows", "at", "partition"
MOMENT = pl.Datetime("us", "UTC")


@dataclass(slots=True)
class Setting:
    """What is played: the steps, the time strategy (None: the timeline sets the watermark), the rows' schema."""

    steps: Sequence[Any]
    strategy: TimeStrategy
    by_hand: bool
    schema: dict[str, pl.DataType]
    clock: int
    watermark: int
    outputs: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def give(self, output: str, rows: list[dict[str, Any]]) -> None:
        """Add rows to an output."""
        self.outputs.setdefault(output, []).extend(rows)

    def frame(self, rows: Sequence[At]) -> pl.DataFrame:
        """Rows as a frame of the timeline's schema."""
        columns = {name: [row.time if name == TIME else _value(row, name) for row in rows] for name in self.schema}
        return pl.DataFrame(columns, schema={**self.schema, TIME: pl.Int64()}, strict=False).cast({TIME: MOMENT})


def _value(row: At, name: str) -> Any:
    return row.partition if name == PARTITION and name not in row.columns else row.columns.get(name)


class Engine(Protocol):
    """Runs batches of a setting."""

    def run(self, rows: Sequence[At]) -> None:
        """Run a batch; an empty one too."""

    def finish(self) -> bool:
        """Run the batch again that a crash interrupted, if there is one; whether there was."""

    def crash(self, rows: Sequence[At]) -> None:
        """Die while a batch of these rows runs (or between batches when there are none), and start again."""

    def close(self) -> None:
        """Let go of everything."""


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
