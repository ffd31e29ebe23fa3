"""Results in the driver's memory, for tests and notebooks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headrace.connectors.base.sink import BatchIdentity, DriverSink, Guarantee, Written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_HELD: dict[str, dict[BatchIdentity, list[dict[str, Any]]]] = {}


@dataclass(frozen=True, slots=True)
class MemorySink(DriverSink):
    """Keeps rows under a name; a batch that is run again replaces itself."""

    name: str

    @property
    def guarantee(self) -> Guarantee:
        """Exactly once while the process lives; the rows die with it."""
        return "exactly_once"

    def write(self, frame: DataFrame, batch: BatchIdentity) -> Written:
        """Bring a batch to the driver."""
        rows = [row.asDict(recursive=True) for row in frame.collect()]
        # A batch that is run again after a restart comes with another epoch.
        _HELD.setdefault(self.name, {})[replace(batch, epoch=0)] = rows
        return Written(len(rows), len(rows))

    def __repr__(self) -> str:
        return f"hr.to_memory({self.name!r})"


def to_memory(name: str) -> MemorySink:
    """Keep rows in the driver's memory, to be read with ``hr.memory(name)``.

    >>> to_memory("alerts")
    hr.to_memory('alerts')
    """
    return MemorySink(name)


def memory(name: str) -> list[dict[str, Any]]:
    """The rows that ``hr.to_memory(name)`` has been given so far, batch after batch.

    >>> memory("nothing yet")
    []
    """
    batches = _HELD.get(name, {})
    return [row for identity in sorted(batches, key=lambda each: each.batch) for row in batches[identity]]
