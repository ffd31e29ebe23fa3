"""What the batches of a flow read of its sources, and waiting for sources that do not answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

from pyspark.sql import DataFrame

from headrace.checkpoint.outages import OutageMarker
from headrace.checkpoint.storage import Storage
from headrace.connectors.base.enumerator import (
    Enumerator,
    FrameEnumerator,
    NotYet,
    OpenEnumerator,
    Planned,
    SplitEnumerator,
    StoringEnumerator,
)
from headrace.connectors.base.sink import Unreachable
from headrace.errors import HeadraceError
from headrace.event_time.record import BatchRecord, Position, SourceRead
from headrace.graph import Graph
from headrace.wheel.task import Splits

T = TypeVar("T")
LOOK_SECONDS = 0.02
ASKED_AGAIN_SECONDS = 1.0
PATIENCE_SECONDS = 600.0
"""How long a run over what is there waits for a source that does not answer."""


class Cancelled(Exception):
    """A batch was given up because the flow stops and a server does not answer."""


class SourceReads:
    """The sources of one flow."""

    def __init__(self, graph: Graph, sources: Iterable[str], storage: Storage, stopping: threading.Event) -> None:
        self._nodes = {name: graph.sources[name] for name in sources}
        self._enumerators: dict[str, Enumerator] = {
            name: node.enumerator(storage) for name, node in self._nodes.items()
        }
        self._open = {name: each for name, each in self._enumerators.items() if isinstance(each, OpenEnumerator)}
        self._markers = {
            name: OutageMarker(storage, f"source.{name}", each.place) for name, each in self._enumerators.items()
        }
        self._away: set[str] = set()
        self._outages = 0
        self._failed: tuple[int, int] | None = None
        """The last batch whose job has failed, and how many outages there had been."""
        self._stopping = stopping
        self._ends = False

    @property
    def placeholders(self) -> dict[str, DataFrame]:
        """The frames that stand for the rows of those sources that Spark reads."""
        return {name: node.placeholder for name, node in self._nodes.items() if node.placeholder is not None}

    def check(self, positions: Mapping[str, Position]) -> None:
        """Fail when something is missing that sources keep in the checkpoint."""
        for name, enumerator in self._enumerators.items():
            if isinstance(enumerator, StoringEnumerator) and name in positions:
                enumerator.check(positions[name])

    def initial(self, known: Iterable[str]) -> dict[str, Position]:
        """Where the sources begin that are not known yet; none when the flow stops before they answer."""
        found: dict[str, Position] = {}
        for name in self._nodes.keys() - set(known):
            answer = self._ask(name, lambda enumerator: enumerator.initial(), patient=True)
            if answer is None:
                return {}
            found[name] = answer
        return found

    def stop_at_newest(self) -> None:
        """Plan no further than what is there now."""
        self._ends = True
        for name in self._nodes:
            self._ask(name, lambda enumerator: enumerator.stop_at_newest(), patient=True)

    def plan(self, positions: Mapping[str, Any], *, most: int | None = None) -> dict[str, SourceRead]:
        """What the next batch reads, at most this many rows of a source; nothing of one that does not answer."""
        return {name: self._read(name, positions[name], most) for name in self._nodes}

    def _read(self, name: str, since: Any, most: int | None) -> SourceRead:
        asked = self._ask(name, lambda enumerator: enumerator.plan(since, most=most), patient=self._ends)
        planned = Planned(since) if asked is None else asked
        return SourceRead(since, planned.until, planned.unread, planned.partitions)

    def splits(self, record: BatchRecord) -> Splits:
        """What each task of a batch reads."""
        return {
            name: enumerator.splits(record.reads[name].since, record.reads[name].until, tasks=record.tasks)
            for name, enumerator in self._enumerators.items()
            if isinstance(enumerator, SplitEnumerator) and name in record.reads
        }

    def frames(self, record: BatchRecord) -> dict[str, DataFrame]:
        """The rows of a batch that Spark reads; ``Cancelled`` when the flow stops before a source answers."""
        return {
            name: self._insist(name, partial(_frame, read=record.reads[name])) for name in self._read_by_spark(record)
        }

    def were_away(self, record: BatchRecord, failure: BaseException) -> bool:
        """Whether a batch's job may have failed because a source that Spark reads was away; waits until it answers."""
        were_away = [self._insist(name, lambda each: each.was_away(failure)) for name in self._read_by_spark(record)]
        # Without an outage in between, what has failed twice will fail again.
        before, self._failed = self._failed, (record.batch, self._outages)
        return any(were_away) and self._failed != before

    def _read_by_spark(self, record: BatchRecord) -> list[str]:
        """The sources of a batch that Spark reads."""
        read = [name for name, each in self._enumerators.items() if isinstance(each, FrameEnumerator)]
        return [name for name in read if name in record.reads and record.reads[name].brings_rows]

    def _insist(self, name: str, question: Callable[[Any], T]) -> T:
        """A source's answer; ``Cancelled`` when the flow stops before it."""
        answer = self._ask(name, question, patient=True)
        if answer is None:
            raise Cancelled
        return answer

    @property
    def call(self) -> bool:
        """Whether a source has rows that wait, or anything else to say."""
        return any(enumerator.calls for enumerator in self._open.values())

    def conclude(self, record: BatchRecord) -> None:
        """Tell sources that a batch is done."""
        for name, enumerator in self._open.items():
            if name in record.reads:
                enumerator.conclude(record.reads[name].until)

    def close(self) -> None:
        for enumerator in self._open.values():
            enumerator.close()

    def _awaited(self, question: Callable[[], T]) -> T:
        """An answer, once it is known."""
        while True:
            try:
                return question()
            except NotYet:
                if self._stopping.wait(LOOK_SECONDS):
                    raise Cancelled from None

    def _ask(self, name: str, question: Callable[[Enumerator], T], *, patient: bool) -> T | None:
        """A source's answer; None while it does not answer, or when the flow stops meanwhile."""
        asked = time.monotonic()
        while True:
            try:
                answer = self._awaited(partial(question, self._enumerators[name]))
            except Unreachable as problem:
                self._outages += name not in self._away
                self._away.add(name)
                self._markers[name].begin(str(problem))
                if not patient:
                    return None
                if self._ends and time.monotonic() - asked > PATIENCE_SECONDS:
                    raise HeadraceError(
                        "SOURCE_UNREACHABLE",
                        f"{self._enumerators[name].place} has not answered for {PATIENCE_SECONDS:.0f} s: {problem}. "
                        "Start its server, then this run again: it continues where it stopped.",
                    ) from None
                if self._stopping.wait(ASKED_AGAIN_SECONDS):
                    return None
            else:
                if name in self._away:
                    self._away.remove(name)
                    self._markers[name].end()
                return answer


def _frame(enumerator: Any, *, read: SourceRead) -> DataFrame:
    frame: DataFrame = enumerator.frame(read.since, read.until)
    return frame
