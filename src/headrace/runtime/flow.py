"""Runs one flow: plans each batch, writes its sinks, checks the account, and starts a batch when something is due."""

from __future__ import annotations

import shutil
import threading
import time
from typing import TYPE_CHECKING, Any

from headrace.checkpoint.lease import Lease
from headrace.checkpoint.storage import LocalStorage
from headrace.checkpoint.sweep import Sweeper
from headrace.errors import HeadraceError, reported
from headrace.event_time.record import BatchLog, BatchRecord
from headrace.event_time.time_keeper import Clock, TimeKeeper, Topology
from headrace.graph import FlowNode, Graph
from headrace.nodes import NodeId
from headrace.observe import history
from headrace.observe.account import Account, account_of, step_counters
from headrace.observe.history import BatchSeconds, HistoryEntry, StateSize
from headrace.observe.hot_keys import hot_keys
from headrace.outages import clear_outages, has_outage, outages
from headrace.plan.identity import check_identity
from headrace.reports import BatchReports
from headrace.runtime.broadcast_tables import broadcast_tables
from headrace.runtime.checkpoint import brings_rows, partitions
from headrace.runtime.modes import Mode, Throttle
from headrace.runtime.outputs import BatchOutputs, FlowOutputs
from headrace.runtime.planner import Planner, Writing
from headrace.storage import write_durably
from headrace.wheel.task import PROPERTY, STATE, property_text, take_reports

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

WATCH_SECONDS = 0.05
KEPT_TICKS = 100
CLAIMED_SECONDS = 20 * 3600.0
"""Kafka forgets the marks of a writer that is quiet for days, so they are renewed daily."""


def _topology(graph: Graph, node: FlowNode) -> Topology:
    return Topology(
        {name: graph.sources[name].time for name in node.sources if graph.sources[name].time is not None},
        {name: tuple(map(graph.time_node, graph.steps[name].inputs)) for name in graph.stateful(node.steps)},
        {name: cap for name in node.sources if (cap := graph.sources[name].cap) is not None},
        frozenset(name for name in node.sources if graph.sources[name].divided),
        {name: graph.steps[name].step.holdback for name in node.steps},
    )


class Flow:
    """The driver's side of one ``hr.write``."""

    def __init__(
        self, graph: Graph, node: FlowNode, spark: SparkSession, clock: Clock, mode: Mode, lease: Lease
    ) -> None:
        self.node = node
        self.folder = graph.checkpoint / node.name
        self._graph = graph
        self._spark = spark
        self._clock = clock
        self._mode = mode
        self._lease = lease
        self._drain = False
        self._ticked = False
        self._closed = self._refused = False
        self._claimed = 0.0
        self._busy = threading.Lock()
        self._stopping = threading.Event()
        self.failure: BaseException | None = None
        flow_id = check_identity(LocalStorage(self.folder), graph, node)
        log = BatchLog(LocalStorage(self.folder))
        self._outputs = FlowOutputs(graph, node, spark, self.folder, flow_id, lease, log)
        endless = [name for name in node.sources if graph.sources[name].fingerprint["kind"] == "generator"]
        if mode.drain and endless:
            raise HeadraceError(
                "DRAIN_WITHOUT_END",
                f"flow {node.name!r}: drain=True closes every window at the end of the data, but source {endless[0]!r} "
                "never ends. Use hr.available_now() or hr.micro_batch().",
            )
        slots = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
        definitions = {name: repr(graph.steps[name].step) for name in graph.stateful(node.steps)}
        writing = Writing(flow_id.generation, self._outputs.writers, slots, flow_id.key_groups, definitions)
        self._tables = broadcast_tables(LocalStorage(self.folder), [graph.steps[name].step for name in node.steps])
        keeper = TimeKeeper(_topology(graph, node), clock, interval=mode.interval, is_away=self._is_away)
        self.planner = Planner(keeper, log, writing=writing, complete=self._tables.complete)
        if self.planner.drained:
            raise HeadraceError(
                "CHECKPOINT_DRAINED",
                f"flow {node.name!r}: checkpoint {str(self.folder)!r} was drained: all its windows were closed at the "
                "end of time, so any further row would be late. Start with a new checkpoint.",
            )
        self._sweeper = Sweeper(LocalStorage(self.folder), STATE, epoch=self.planner.epoch)
        self._throttle = Throttle(mode, node.name, {name: graph.sources[name].caps for name in node.sources})
        self._worker = threading.Thread(target=self._work, name=f"headrace-{node.name}", daemon=True)

    def _is_away(self, source: str) -> bool:
        """Whether a source's server does not answer."""
        node = str(NodeId("source", source))
        return any(has_outage(folder, node) for folder in (self._graph.checkpoint, self.folder))

    def prepare(self) -> None:
        """Check every source and sink, before the first batch."""
        clear_outages(self.folder)
        for name in self.node.sources:
            check = self._graph.sources[name].prepare
            if check is not None:
                check()
        self._tables.versions(self._clock())
        self._outputs.prepare()
        # Files of a batch that a driver before this one did not conclude.
        self._sweeper.all(self.planner.files, done=self.planner.done, now=self._clock())
        self._claimed = time.monotonic()

    def start(self) -> None:
        """Start working in the background."""
        self._worker.start()

    def stop(self) -> None:
        """Finish the batch that runs, then stop."""
        self._stopping.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end; whether it has come."""
        self._worker.join(timeout)
        return not self._worker.is_alive()

    def _work(self) -> None:
        try:
            if self._mode.kind == "micro_batch":
                self._run(processingTime=f"{self._mode.interval / 1_000_000} seconds")
            else:
                self._run_available()
        except BaseException as failure:
            self.failure = self.failure or failure

    def _run_available(self) -> None:
        """Read what is there, close what that made due, and at a drain close everything."""
        self._run(availableNow=True)
        while self.planner.time.wants_batch() and not self._stopping.is_set():
            self.tick()
            self._run(availableNow=True)
        self._drain = self._mode.drain
        while self._drain and not self.planner.drained and not self._stopping.is_set():
            self.tick()
            self._run(availableNow=True)

    def begin(self, **trigger: Any) -> StreamingQuery:
        """Start the flow's Spark query."""
        writer = self.node.frame.writeStream.foreachBatch(self._batch).queryName(self.node.name)
        return writer.option("checkpointLocation", str(self.folder / "spark")).trigger(**trigger).start()

    def _run(self, **trigger: Any) -> None:
        self._closed = self._refused = False
        query = self.begin(**trigger)
        try:
            while query.isActive and not self._stopping.wait(WATCH_SECONDS):
                self._lease.check()
                if self._mode.kind == "micro_batch":
                    self._tick_when_due()
                    self._claim_when_due()
        finally:
            self._close(query)
        error = query.exception()
        if error is not None and not self._refused:
            raise self.failure or reported(error) or self._understood(error) or error

    def _understood(self, error: BaseException) -> HeadraceError | None:
        """A failure of Spark's own reading as the source explains it."""
        readings = (self._graph.sources[name].understand for name in self.node.sources)
        found = (understand(error) for understand in readings if understand is not None)
        return next((problem for problem in found if problem is not None), None)

    def _close(self, query: StreamingQuery) -> None:
        """Finish the batch that runs, unless it waits for a sink, and stop.

        Spark's stop waits for its thread, and that thread may be asking for the next batch: the lock must be free then.
        """
        while not self._busy.acquire(timeout=WATCH_SECONDS):
            if outages(self.folder):
                self._closed = self._refused = True
                query.stop()
                return
        self._closed = True
        self._busy.release()
        query.stop()

    def _tick_when_due(self) -> None:
        if self._busy.acquire(blocking=False):
            try:
                # One tick until the next batch: Spark may take seconds to plan it, and would read each further one.
                if not self._ticked and self.planner.time.wants_batch():
                    self.tick()
                    self._ticked = True
            finally:
                self._busy.release()

    def _claim_when_due(self) -> None:
        """Renew the marks in sinks that forget those of quiet writers."""
        if time.monotonic() - self._claimed > CLAIMED_SECONDS and self._busy.acquire(blocking=False):
            try:
                self._outputs.prepare()
            except HeadraceError as problem:
                # Marks live for days: the next renewal is early enough, and the next batch waits for the sink.
                if problem.id != "SINK_UNREACHABLE":
                    raise
            finally:
                self._claimed = time.monotonic()
                self._busy.release()

    def tick(self) -> None:
        """Ask for a batch though no row has come."""
        for name in self.node.sources:
            folder = self._graph.sources[name].ticks
            # A batch that runs again needs its tick, so only long finished ones leave.
            for old in sorted(folder.glob("*.tick"))[:-KEPT_TICKS]:
                old.unlink(missing_ok=True)
            # Spark passes over empty files.
            write_durably(folder / f"{time.time_ns()}.tick", "tick")

    def _batch(self, frame: DataFrame, batch: int) -> None:
        """Run one batch; Spark commits it when this returns."""
        with self._busy:
            if self._closed:
                self._refused = True
                raise HeadraceError(
                    "FLOW_STOPPED",
                    f"flow {self.node.name!r}: batch {batch} was not begun because the flow is stopping; "
                    "the next start runs it.",
                )
            self._ticked = False
            try:
                self._run_batch(frame, batch)
            except BaseException as failure:
                if not self._refused:
                    self.failure = reported(failure) or failure
                raise

    def _run_batch(self, frame: DataFrame, batch: int) -> None:
        began = time.monotonic()
        self._lease.check()
        drain = self._drain and not brings_rows(self.folder / "spark", batch)
        if self.planner.is_done(batch):
            # Spark had not noted it when the process ended; state and sinks have the batch.
            return
        record = self.planner.plan(drain=drain, partitions=partitions(self.folder / "spark", batch))
        side_folder = self.folder / "side"
        shutil.rmtree(side_folder, ignore_errors=True)
        text = property_text(
            record,
            flow=self.node.name,
            side_folder=str(side_folder),
            key_groups=self._outputs.flow_id.key_groups,
            epoch=self.planner.epoch,
            slots=self.planner.time.slots,
        )
        self._spark.sparkContext.setLocalProperty(PROPERTY, text)
        outputs = BatchOutputs(self._outputs, record, self.planner.marks)
        outputs.write_main(frame)
        computed = time.monotonic()
        reports = take_reports(self._graph.reports.value, flow=self.node.name, batch=batch)
        outputs.write_side(reports)
        account = account_of(reports, outputs.written)
        account.check(flow=self.node.name, batch=batch)
        self._lease.check()
        self.planner.conclude(record, reports, outputs.marked)
        self._tables.forget(record.tables)
        self._sweeper.batch(self.planner.files, done=batch, now=self._clock())
        whole = time.monotonic() - began
        seconds = BatchSeconds(round(computed - began, 3), round(whole, 3))
        history.append(self.folder, self._entry(record, reports, account, seconds))
        self._throttle.learn(rows=account.read, seconds=whole)

    def _entry(
        self, record: BatchRecord, reports: BatchReports, account: Account, seconds: BatchSeconds
    ) -> HistoryEntry:
        time = self.planner.time
        slots = [slot for held in time.slots.values() for slot in held.values()]
        sources = {name: reports.of_source(name) for name in self.node.sources}
        return HistoryEntry(
            flow=self.node.name,
            batch=record.batch,
            clock=record.clock,
            watermarks=record.watermarks,
            partitions={name: tracker.saved().partitions for name, tracker in time.trackers.items()},
            account=account,
            unread={name: sum(reports.unread(name).values()) for name in sources},
            cap=self._throttle.cap,
            hot_keys=hot_keys(reports),
            counters=step_counters(reports),
            rules_versions=self.planner.rules_versions,
            tables=self._tables.read_in(record),
            lost={name: sum(report.lost for report in parts) for name, parts in sources.items()},
            skipped={name: sum(report.skipped for report in parts) for name, parts in sources.items()},
            seconds=seconds,
            state=StateSize(sum(slot.rows for slot in slots), sum(slot.bytes for slot in slots)),
        )
