"""The log as Spark sees it: a stream of entry numbers, dealt out exactly once and in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from headrace.connectors.base.caps import cap_of
from headrace.connectors.postgres.changes.birth import birth_of, failure_in
from headrace.connectors.postgres.changes.change_log import ChangeLog, Entry
from headrace.errors import HeadraceError

FORMAT = "headrace_postgres_changes"
SPANS = "first BIGINT, until BIGINT"
ROWS_OF_A_TASK = 250_000


class ChangeEntries(DataSource):
    """Registered with Spark under its own name."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return FORMAT

    def schema(self) -> str:
        """One row for each span of entries."""
        return SPANS

    def streamReader(self, schema: Any) -> ChangeEntryReader:  # noqa: N802
        """The stream of spans."""
        return ChangeEntryReader(
            self.options["source"], self.options["table"], Path(self.options["folder"]), Path(self.options["caps"])
        )


class SpanPartition(InputPartition):
    """Entries that follow each other, for one task."""

    def __init__(self, first: int, until: int) -> None:
        super().__init__((first, until))


class ChangeEntryReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Decides how far each batch reads; Spark logs it before the batch runs."""

    def __init__(self, source: str, table: str, folder: Path, caps: Path) -> None:
        self._source = source
        self._table = table
        self._folder = folder
        self._caps = caps
        self._target: int | None = None

    @property
    def _log(self) -> ChangeLog:
        birth = birth_of(self._folder)
        assert birth is not None  # the feed has begun before any flow
        return ChangeLog(self._folder / birth.log)

    def _offset(self, entry: int) -> dict[str, Any]:
        return {"source": self._source, "entry": entry}

    def _entry(self, log: ChangeLog, number: int) -> Entry:
        try:
            return log.entry(number)
        except FileNotFoundError:
            # Entries wait for the flows of the pipeline; one that was left out of it is not waited for.
            raise HeadraceError(
                "LOG_SHORTENED",
                f"the log under {self._folder} no longer has entry {number}, up to which this flow has read "
                f"{self._table}: it was removed while the flow was not in the pipeline, so changes would be missing. "
                "Start with a new checkpoint and slot; retention=None keeps a log for flows that come back.",
            ) from None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """A new flow begins with the snapshot."""
        if self._log.first() > 0:
            raise HeadraceError(
                "LOG_SHORTENED",
                f"the log under {self._folder} no longer has the snapshot of {self._table}, so a new flow would begin "
                "in the middle. Start with a new checkpoint and slot; retention=None keeps a log for flows to come.",
            )
        return self._offset(0)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Remember what is there now."""
        self._target = self._log.next()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """How far the next batch reads."""
        log, first = self._log, int(start["entry"])
        until = self._target if self._target is not None else log.next()
        failure = failure_in(self._folder)
        # What was logged before the feed gave up is read first.
        if failure is not None and first >= until:
            raise failure
        cap = cap_of(self._caps)
        rows, end = 0, first
        while end < until and (end == first or cap is None or rows < cap):
            entry = self._entry(log, end)
            # The flow may have to stop at it, and what was logged before is then already through.
            if end > first and entry.is_turn_of(self._table):
                break
            rows += entry.rows_of(self._table)
            end += 1
        return self._offset(end)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Entries in order, so many to a task that it has enough to do."""
        log, spans = self._log, []
        first, rows = int(start["entry"]), 0
        for number in range(first, int(end["entry"])):
            rows += self._entry(log, number).rows_of(self._table)
            if rows >= ROWS_OF_A_TASK:
                spans.append(SpanPartition(first, number + 1))
                first, rows = number + 1, 0
        if first < int(end["entry"]):
            spans.append(SpanPartition(first, int(end["entry"])))
        return spans

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Only what to read: the gate's task reads it."""
        yield partition.value
