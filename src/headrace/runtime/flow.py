"""Runs one flow: a loop that looks for work, runs batch after batch, and waits while there is nothing to do."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pyspark.sql import SparkSession

from headrace.checkpoint.lease import Lease
from headrace.checkpoint.outages import OutageMarker, clear_outages, outages
from headrace.checkpoint.room import has_room, is_full
from headrace.checkpoint.storage import LocalStorage
from headrace.errors import HeadraceError
from headrace.event_time.record import BatchLog
from headrace.event_time.time_keeper import Clock, Reads
from headrace.graph import FlowNode, Graph
from headrace.plan.identity import identity_of
from headrace.redaction import redacted_error
from headrace.runtime.flow_batches import FlowBatches
from headrace.runtime.modes import Mode, check_mode
from headrace.runtime.outputs import FlowOutputs
from headrace.runtime.planner import check_not_drained
from headrace.runtime.session import batch_session
from headrace.runtime.source_reads import Cancelled

WATCH_SECONDS = 0.05
ROOM_SECONDS = 2.0
"""How long a flow waits before it looks whether a full disk has room again."""
CLAIMED_SECONDS = 20 * 3600.0
"""Kafka forgets the marks of a writer that is quiet for days, so they are renewed daily."""


class Flow:
    """The driver's side of one ``hr.write``."""

    def __init__(
        self, graph: Graph, node: FlowNode, spark: SparkSession, clock: Clock, mode: Mode, lease: Lease
    ) -> None:
        self.node = node
        self.folder = graph.checkpoint / node.name
        self._graph = graph
        self._session: Any = batch_session(spark)
        self._clock = clock
        self._mode = mode
        self._lease = lease
        self._claimed = 0.0
        self._looks_at = self._begins_at = 0.0
        self._stopping = threading.Event()
        self.failure: BaseException | None = None
        self._storage = LocalStorage(self.folder)
        self._worker = threading.Thread(target=self._work, name=f"headrace-{node.name}", daemon=True)
        check_mode(mode, node, graph)
        self._log = BatchLog(self._storage)
        self._outputs = FlowOutputs(graph, node, self._session, self.folder, lease, self._log)
        self._log.take_over(self._identify)
        self.batches = self._from_the_log()
        if mode.kind != "bounded":
            check_not_drained(self.batches.planner.last)

    def _identify(self, said: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """What this driver says of the flow when it takes over, after what the last one has said."""
        known = self._lease.flows.get(self.node.name)
        return identity_of(self._graph, self.node, stored=said, storage=self._storage, known=known)

    @property
    def id(self) -> str:
        """The flow's own id, made with its checkpoint."""
        return self._outputs.flow_id.id

    def _from_the_log(self) -> FlowBatches:
        return FlowBatches(self._outputs, self._clock, self._mode, self._stopping)

    def prepare(self) -> None:
        """Check every source and sink, before the first batch."""
        clear_outages(self._storage)
        self.batches.prepare()
        self._claimed = time.monotonic()

    def start(self) -> None:
        self._worker.start()

    def stop(self) -> None:
        """Finish the batch that runs, then stop."""
        self._stopping.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end; whether it has come. A flow that stops does not wait for servers."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._worker.is_alive() and (deadline is None or time.monotonic() < deadline):
            self._worker.join(WATCH_SECONDS)
            if self._stopping.is_set() and outages(self._storage):
                self.batches.cancelled = True
                self._session.sparkContext.cancelJobGroup(str(self.folder))
        return not self._worker.is_alive()

    def _work(self) -> None:
        try:
            self._session._jvm.SparkSession.setActiveSession(self._session._jsparkSession)
            while not self._has_run():
                # What is on the disk counts now, and not what this process remembers, as after a crash.
                self.batches.reads.close()
                self._log.read_again()
                self.batches = self._from_the_log()
        except Cancelled:
            pass  # the next start runs the batch again
        except BaseException as failure:
            self.failure = redacted_error(failure)
        finally:
            self.batches.reads.close()

    def _has_run(self) -> bool:
        """Run until the end; False when a disk was full meanwhile, and has room again."""
        try:
            self.batches.begin()
            if self._mode.kind == "micro_batch":
                self._run_until_stopped()
            else:
                self._run_to_the_end()
        except (OSError, HeadraceError) as problem:
            if not is_full(problem):
                raise
            self._wait_for_room(problem)
            return False
        return True

    def _wait_for_room(self, problem: BaseException) -> None:
        marker = OutageMarker(self._storage, "room", f"room on the disk of {str(self.folder)!r}")
        # There may be no room for this either.
        with suppress(OSError):
            marker.begin(str(problem))
        while True:
            if self._stopping.wait(ROOM_SECONDS):
                raise Cancelled
            self._lease.check()
            if has_room(self._storage):
                break
        marker.end()

    def _run_until_stopped(self) -> None:
        while (reads := self._next_reads()) is not None:
            self.batches.run(reads)

    def _next_reads(self) -> Reads | None:
        """Wait until there is something to do; None when the flow is to stop.

        After a batch that left rows unread the next one comes at once; else at the interval, for rows or for what is
        due. A source that calls is asked before the next look, but not within the interval of a batch.
        """
        while not self._stopping.is_set():
            self._lease.check()
            self._claim_when_due()
            now = time.monotonic()
            if now >= self._looks_at or (now >= self._begins_at and self.batches.reads.call):
                reads = self.batches.look()
                waiting = any(rows for read in reads.values() for rows in read.unread.values())
                self._looks_at = now if waiting else now + self._mode.interval / 1_000_000
                if brings_rows(reads) or self.batches.planner.time.wants_batch():
                    self._begins_at = self._looks_at
                    return reads
            self._stopping.wait(min(WATCH_SECONDS, max(0.0, self._looks_at - time.monotonic())))
        return None

    def _run_to_the_end(self) -> None:
        """Read what is there and close what that made due; at a drain close everything. Tables are read all at once."""
        batches = self.batches
        if self._mode.kind == "available_now":
            batches.reads.stop_at_newest()
            while not self._stopping.is_set():
                reads = batches.look()
                if not (brings_rows(reads) or batches.planner.time.wants_batch()):
                    break
                batches.run(reads)
        if self._mode.drain and not batches.planner.last.drained and not self._stopping.is_set():
            batches.run(batches.look(), drain=True)

    def _claim_when_due(self) -> None:
        """Renew the marks in sinks that forget those of quiet writers."""
        if time.monotonic() - self._claimed > CLAIMED_SECONDS:
            try:
                self._outputs.prepare()
            except HeadraceError as problem:
                # Marks live for days: the next renewal is early enough, and the next batch waits for the sink.
                if problem.id != "SINK_UNREACHABLE":
                    raise
            self._claimed = time.monotonic()


def brings_rows(reads: Reads) -> bool:
    """Whether a batch that reads this has any row."""
    return any(read.brings_rows for read in reads.values())
