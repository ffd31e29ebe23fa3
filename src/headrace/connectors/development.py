"""Sinks for development and tests: the terminal and the driver's memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import polars as pl
from pyspark.sql import DataFrame
from rich.console import Console
from rich.table import Table

from headrace.connectors.base.sink import BatchIdentity, DriverSink, Guarantee, Written
from headrace.rendering import shown
from headrace.stability import experimental, stable


@dataclass(frozen=True, slots=True)
class ConsoleSink(DriverSink):
    """Prints each batch that has rows as a table."""

    guarantee: ClassVar[Guarantee] = "at_least_once"
    rows: int

    def write(self, frame: DataFrame, batch: BatchIdentity) -> Written:
        # Rows of Spark would have their times in the zone of this process.
        rows = pl.DataFrame(frame.toArrow())
        if not rows.is_empty():
            title = f"{batch.flow} {batch.output}, batch {batch.batch}, {rows.height} rows"
            table = Table(*rows.columns, title=title, title_justify="left")
            for row in rows.head(self.rows).iter_rows():
                table.add_row(*map(shown, row))
            # Values and names must not be read as markup.
            Console(markup=False, emoji=False).print(table)
        return Written(rows.height, rows.height)

    def __repr__(self) -> str:
        return "hr.to_console()"


@stable
def to_console(*, rows: int = 20) -> ConsoleSink:
    """Print the first rows of each batch; collects all rows of a batch on the driver, so for development only.

    >>> to_console()
    hr.to_console()
    """
    return ConsoleSink(rows)


_ROWS: dict[str, dict[BatchIdentity, list[dict[str, Any]]]] = {}


@dataclass(frozen=True, slots=True)
class MemorySink(DriverSink):
    """Keeps rows under a name; a batch that runs again replaces itself."""

    guarantee: ClassVar[Guarantee] = "exactly_once"
    name: str

    def write(self, frame: DataFrame, batch: BatchIdentity) -> Written:
        rows = [row.asDict(recursive=True) for row in frame.collect()]
        # A batch that runs again after a restart has another epoch.
        _ROWS.setdefault(self.name, {})[replace(batch, epoch=0)] = rows
        return Written(len(rows), len(rows))

    def __repr__(self) -> str:
        return f"hr.to_memory({self.name!r})"


@experimental
def to_memory(name: str) -> MemorySink:
    """Keep rows in the driver's memory; ``hr.memory(name)`` returns them.

    >>> to_memory("alerts")
    hr.to_memory('alerts')
    """
    return MemorySink(name)


@experimental
def memory(name: str) -> list[dict[str, Any]]:
    """The rows written to ``hr.to_memory(name)`` so far, in the order of batches.

    >>> memory("nothing yet")
    []
    """
    batches = _ROWS.get(name, {})
    return [row for identity in sorted(batches, key=lambda each: each.batch) for row in batches[identity]]
