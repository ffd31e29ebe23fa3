"""Runs one flow: a loop that plans each batch, runs it as a Spark job, checks the account and concludes it."""

from __future__ import annotations

import threading
import time
from typing import Any

from pyspark.sql import SparkSession

from headrace.checkpoint.lease import Lease
from headrace.checkpoint.outages import clear_outages, has_outage, outages
from headrace.checkpoint.storage import LocalStorage
from headrace.checkpoint.sweep import Sweeper
from headrace.errors import HeadraceError, job_failure, reported
from headrace.event_time.record import BatchLog, BatchRecord
from headrace.event_time.time_keeper import Clock, Reads, TimeKeeper, Topology
from headrace.graph import FlowNode, Graph
from headrace.json_codec import decode, encode
from headrace.nodes import NodeId
from headrace.observe import history
from headrace.observe.account import Account, account_of, step_counters
from headrace.observe.history import BatchSeconds, HistoryEntry, StateSize
from headrace.observe.hot_keys import hot_keys
from headrace.operators.lookup.answers import forget_answers
from headrace.plan.identity import check_identity
from headrace.reports import BatchReports
from headrace.runtime.batch_plan import FlowPlan
from headrace.runtime.broadcast_tables import BroadcastTables
from headrace.runtime.modes import Mode, Throttle
from headrace.runtime.outputs import BatchOutputs, FlowOutputs
from headrace.runtime.planner import NO_READS, Planner, Writing
from headrace.runtime.session import batch_session
from headrace.runtime.source_reads import Cancelled, SourceReads
from headrace.wheel.task import PROPERTY, SIDE, STATE, BatchProperty, take_reports

WATCH_SECONDS = 0.05
CLAIMED_SECONDS = 20 * 3600.0
"""Kafka forgets the marks of a writer that is quiet for days, so they are renewed daily."""


def _topology(graph: Graph, node: FlowNode) -> Topology:
    return Topology(
        {name: graph.sources[name].time for name in node.sources if graph.sources[name].time is not None},
        {name: tuple(map(graph.time_node, graph.steps[name].inputs)) for name in graph.stateful(node.steps)},
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
        self._session: Any = batch_session(spark)
        self._clock = clock
        self._mode = mode
        self._lease = lease
        self._claimed = 0.0
        self._looks_at = self._begins_at = 0.0
        self._stopping = threading.Event()
        self._cancelled = False
        self.failure: BaseException | None = None
        self._storage = LocalStorage(self.folder)
        flow_id = check_identity(self._storage, graph, node)
        log = BatchLog(self._storage)
        self._outputs = FlowOutputs(graph, node, self._session, self.folder, flow_id, lease, log)
        endless = [name for name in node.sources if graph.sources[name].endless]
        if mode.drain and endless:
            raise HeadraceError(
                "DRAIN_WITHOUT_END",
                f"flow {node.name!r}: drain=True closes every window at the end of the data, but source {endless[0]!r} "
                "never ends. Use hr.available_now() or hr.micro_batch().",
            )
        writing = Writing(
            flow_id.generation,
            self._outputs.writers,
            graph.slots,
            spark.sparkContext.defaultParallelism,
            flow_id.key_groups,
            {name: repr(graph.steps[name].step) for name in graph.stateful(node.steps)},
        )
        self._tables = BroadcastTables(self._storage, [graph.steps[name].step for name in node.steps])
        keeper = TimeKeeper(_topology(graph, node), clock, interval=mode.interval, is_away=self._is_away)
        self.planner = Planner(keeper, log, writing=writing, complete=self._tables.complete)
        if mode.kind != "bounded":
            self.planner.check_not_drained()
        self._sweeper = Sweeper(self._storage, STATE, epoch=self.planner.epoch)
        last = history.newest(self.folder)
        self._throttle = Throttle(mode, node, graph, last=last)
        self._total = decode(Account, self.planner.last.total)
        self._reads = SourceReads(graph, node.sources, self._storage, self._stopping)
        self._plan = FlowPlan(graph, node, self._session, self._reads.placeholders)
        self._steps = ", ".join(node.steps or node.sources)
        self._worker = threading.Thread(target=self._work, name=f"headrace-{node.name}", daemon=True)

    def _is_away(self, source: str) -> bool:
        """Whether a source's server does not answer."""
        node = str(NodeId("source", source))
        return any(has_outage(storage, node) for storage in (LocalStorage(self._graph.checkpoint), self._storage))

    def prepare(self) -> None:
        """Check every source and sink, before the first batch."""
        clear_outages(self._storage)
        for name in self.node.sources:
            check = self._graph.sources[name].prepare
            if check is not None:
                check()
        self._tables.versions(self._clock())
        self._outputs.prepare()
        # Files of a batch that a driver before this one did not conclude.
        self._sweeper.all(self.planner.last.files, done=self.planner.last.batch, now=self._clock())
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
                self._cancelled = True
                self._session.sparkContext.cancelJobGroup(str(self.folder))
        return not self._worker.is_alive()

    def _work(self) -> None:
        try:
            self._session._jvm.SparkSession.setActiveSession(self._session._jsparkSession)
            self.begin()
            if self._mode.kind == "micro_batch":
                self._run_until_stopped()
            else:
                self._run_to_the_end()
        except Cancelled:
            pass  # the next start runs the batch again
        except BaseException as failure:
            self.failure = failure
        finally:
            self._reads.close()

    def begin(self) -> None:
        """Run the batch again that was begun and not concluded; log where sources begin that are new."""
        if self.planner.runs_again:
            self.run_batch()
        positions = self._reads.initial(self.planner.last.positions)
        if positions:
            self.planner.begin_at(positions)

    def _run_until_stopped(self) -> None:
        while (reads := self._next_reads()) is not None:
            self.run_batch(reads)

    def _next_reads(self) -> Reads | None:
        """Wait until there is something to do; None when the flow is to stop.

        After a batch that left rows unread the next one comes at once; else at the interval, for rows or for what is
        due. A source that calls is asked before the next look, but not within the interval of a batch.
        """
        while not self._stopping.is_set():
            self._lease.check()
            self._claim_when_due()
            now = time.monotonic()
            if now >= self._looks_at or (now >= self._begins_at and self._reads.call):
                reads = self.look()
                waiting = any(rows for read in reads.values() for rows in read.unread.values())
                self._looks_at = now if waiting else now + self._mode.interval / 1_000_000
                if _brings_rows(reads) or self.planner.time.wants_batch():
                    self._begins_at = self._looks_at
                    return reads
            self._stopping.wait(min(WATCH_SECONDS, max(0.0, self._looks_at - time.monotonic())))
        return None

    def look(self) -> Reads:
        """What a batch would read now."""
        return self._reads.plan(self.planner.last.positions, most=self._throttle.cap)

    def _run_to_the_end(self) -> None:
        """Read what is there and close what that made due; at a drain close everything. Tables are read all at once."""
        if self._mode.kind == "available_now":
            self._reads.stop_at_newest()
            while not self._stopping.is_set():
                reads = self.look()
                if not (_brings_rows(reads) or self.planner.time.wants_batch()):
                    break
                self.run_batch(reads)
        if self._mode.drain and not self.planner.last.drained and not self._stopping.is_set():
            self.run_batch(self.look(), drain=True)

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

    def run_batch(self, reads: Reads = NO_READS, *, drain: bool = False) -> None:
        """Run the next batch: the one that was begun before, or one that reads this."""
        began = time.monotonic()
        self._lease.check()
        runs_again = self.planner.runs_again
        record = self.planner.plan(drain=drain, reads=reads)
        while not self._is_done(record, began, runs_again=runs_again):
            runs_again = True

    def _is_done(self, record: BatchRecord, began: float, *, runs_again: bool) -> bool:
        """Run a batch; False when a source that Spark reads was away meanwhile, and the batch must run again."""
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        try:
            self._run(record, began, runs_again=runs_again)
        except (Py4JJavaError, PySparkException) as error:
            if self._cancelled:
                raise Cancelled from error
            problem = reported(error)
            if problem is None and self._reads.were_away(record, error):
                return False
            raise problem or job_failure(self.node.name, record.batch, error) from error
        return True

    def _run(self, record: BatchRecord, began: float, *, runs_again: bool) -> None:
        self._storage.clear(SIDE)
        forget_answers(self._storage, before=record.batch)
        # What tasks of an attempt that failed have reported does not count.
        take_reports(self._graph.reports.value, flow=self.node.name, batch=record.batch)
        handed = BatchProperty(
            record,
            self.node.name,
            str(self.folder),
            self._outputs.flow_id.key_groups,
            self.planner.epoch,
            self.planner.time.slots,
            self._reads.splits(record),
            runs_again,
        )
        context = self._session.sparkContext
        context.setJobGroup(str(self.folder), f"{self.node.name}, batch {record.batch}: {self._steps}")
        context.setLocalProperty(PROPERTY, handed.to_text())
        outputs = BatchOutputs(self._outputs, record, self.planner.last.marks, self._plan)
        with self._plan.of_batch(record, self._reads.frames(record)) as frames:
            outputs.write_main(frames)
        computed = time.monotonic()
        reports = take_reports(self._graph.reports.value, flow=self.node.name, batch=record.batch)
        outputs.write_side(reports)
        account = account_of(reports, outputs.written)
        account.check(flow=self.node.name, batch=record.batch)
        self._lease.check()
        self._total += account
        self.planner.conclude(record, reports, outputs.marked, encode(self._total))
        self._reads.conclude(record)
        self._tables.forget(record.tables)
        self._sweeper.batch(self.planner.last.files, done=record.batch, now=self._clock())
        seconds = BatchSeconds(round(computed - began, 3), round(time.monotonic() - began, 3))
        history.append(self.folder, self._entry(record, reports, account, seconds))
        self._throttle.learn(rows=account.read, seconds=seconds.batch)

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
            total=self._total,
            unread={name: sum(read.unread.values()) for name, read in record.reads.items()},
            cap=self._throttle.cap,
            hot_keys=hot_keys(reports),
            counters=step_counters(reports),
            rules_versions=self.planner.last.rules_versions,
            tables=self._tables.read_in(record),
            lost={name: sum(report.lost for report in parts) for name, parts in sources.items()},
            skipped={name: sum(report.skipped for report in parts) for name, parts in sources.items()},
            seconds=seconds,
            state=StateSize(sum(slot.rows for slot in slots), sum(slot.bytes for slot in slots)),
        )


def _brings_rows(reads: Reads) -> bool:
    return any(read.brings_rows for read in reads.values())
