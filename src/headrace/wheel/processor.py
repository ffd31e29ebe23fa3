"""What Spark calls for every key group.

At the start of a query Spark asks a fresh Python which state there is, and nothing else. That one needs neither the
operator nor what it is made of, so both are loaded with the first rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

if TYPE_CHECKING:
    from headrace.reports import ReportAccumulator
    from headrace.wheel.operator import AnyOperator

_PAGE = StructType([StructField("page", IntegerType(), False)])
_BYTES = StructType([StructField("blob", BinaryType(), False)])


class WheelProcessor(StatefulProcessor):
    """Hands each key group's blobs and map state to the operator."""

    def __init__(self, operator: AnyOperator, reports: ReportAccumulator) -> None:
        # Its name holds the step's, so another step's state is never loaded.
        self._state = f"pages_{operator.name}"
        # Code on its way to a worker, as Spark itself sends it, and in its own format; nothing of it is ever stored.
        self._sealed = cloudpickle.dumps((operator, reports))

    def init(self, handle: Any) -> None:
        """Declare the state."""
        self._entries = handle.getMapState(self._state, _PAGE, _BYTES)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        """One turn of the wheel for a key group."""
        from headrace.wheel.pack import Blob
        from headrace.wheel.pages import WORKER
        from headrace.wheel.task import current_task
        from headrace.wheel.turn import turn

        operator, reports = self._opened
        blobs = [Blob(key[0], row.origin, row.sequence, bytes(row.blob), row.second) for row in rows]
        result = turn(operator, self._entries, WORKER, current_task(reports), blobs)
        if result is not None:
            yield Row(blob=result)

    def close(self) -> None:
        """Nothing to release: the cache outlives the batch."""

    @cached_property
    def _opened(self) -> Any:
        return cloudpickle.loads(self._sealed)
