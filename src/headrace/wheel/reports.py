"""Reports of tasks to the driver, exact under retries because the same report replaces itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.accumulators import AccumulatorParam

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.accumulators import Accumulator

Key = tuple[str, int, str, int]
"""(flow, batch, node, partition or key group)"""


class Replacing(AccumulatorParam[dict[Any, Any]]):
    """Merges dictionaries by replacing, where a sum would count a retried task twice."""

    def zero(self, value: dict[Any, Any]) -> dict[Any, Any]:
        """Nothing said yet."""
        return {}

    def addInPlace(self, value1: dict[Any, Any], value2: dict[Any, Any]) -> dict[Any, Any]:  # noqa: N802
        """The later report of a key stands."""
        value1.update(value2)
        return value1


def reports_of(context: SparkContext) -> Accumulator[dict[Any, Any]]:
    """An accumulator for the reports of a pipeline's tasks."""
    return context.accumulator({}, Replacing())


def take(reports: dict[Key, dict[str, Any]], *, flow: str, batch: int) -> dict[str, dict[int, dict[str, Any]]]:
    """Remove a batch's reports (and those of older batches) and return them by node and partition, in their order."""
    taken: dict[str, dict[int, dict[str, Any]]] = {}
    # Tasks of other flows go on reporting meanwhile.
    for key in sorted(key for key in list(reports) if key[0] == flow and key[1] <= batch):
        values = reports.pop(key)
        if key[1] == batch:
            taken.setdefault(key[2], {})[key[3]] = values
    return taken
