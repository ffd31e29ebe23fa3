"""Sinks for development and tests: the terminal and the driver's memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, ClassVar

from pyspark.sql import DataFrame, Row
from rich.console import Console
from rich.table import Table

from headrace.connectors.base.sink import BatchIdentity, DriverSink, Guarantee, Written
from headrace.stability import experimental, stable


@dataclass(frozen=True, slots=True)
class ConsoleSink(DriverSink):
    """Prints each batch that has rows as a table."""

    guarantee: ClassVar[Guarantee] = "at_least_once"
    rows: int

    def write(self, frame: DataFrame, batch: BatchIdentity) -> Written:
        rows = frame.collect()
        if rows:
            title = f"{batch.flow} {batch.output}, batch {batch.batch}, {len(rows)} rows"
            table = Table(*frame.columns, title=title, title_justify="left")
            for row in rows[: self.rows]:
                table.add_row(*map(_shown, row))
            # Values and names must not be read as markup.
            Console(markup=False, emoji=False).print(table)
        return Written(len(rows), len(rows))

    def __repr__(self) -> str:
        return "hr.to_console()"


def _shown(value: object) -> str:
    """A value for people; of a window the end has a date only if it is on another day.

    >>> _shown(Row(start=datetime(2026, 1, 1, 10), end=datetime(2026, 1, 1, 11)))
    '2026-01-01 10:00 - 11:00'
    >>> _shown(Row(start=datetime(2026, 1, 1, 23, 30), end=datetime(2026, 1, 2, 0, 0, 30)))
    '2026-01-01 23:30:00 - 2026-01-02 00:00:30'
    """
    match value:
        case Row(start=datetime() as start, end=datetime() as end) if len(value) == 2:
            seconds, fraction = (start.second or end.second), (start.microsecond or end.microsecond)
            detail = "microseconds" if fraction else "seconds" if seconds else "minutes"
            same_day = start.date() == end.date()
            until = end.time().isoformat(detail) if same_day else end.isoformat(" ", detail)
            return f"{start.isoformat(' ', detail)} - {until}"
        case _:
            return str(value)


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
