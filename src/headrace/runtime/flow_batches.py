"""The batches of one flow: each is planned, run as a Spark job, checked by its account, and concluded."""

from __future__ import annotations

import threading
import time
from typing import Any

from headrace.checkpoint.outages import has_outage
from headrace.checkpoint.storage import LocalStorage
from headrace.checkpoint.sweep import Sweeper
from headrace.errors import declared_at, job_failure, reported
from headrace.event_time.record import BatchRecord
from headrace.event_time.time_keeper import Clock, Reads, TimeKeeper
from headrace.json_codec import decode, encode
from headrace.nodes import NodeId
from headrace.observe import history
from headrace.observe.account import Account, account_of, step_counters
from headrace.observe.history import BatchSeconds, HistoryEntry, StateSize
from headrace.observe.hot_keys import hot_keys
from headrace.operators.lookup.answers import forget_answers
from headrace.reports import BatchReports
from headrace.runtime.batch_outputs import BatchOutputs
from headrace.runtime.batch_plan import FlowPlan
from headrace.runtime.broadcast_tables import BroadcastTables
from headrace.runtime.modes import Mode, Throttle
from headrace.runtime.outputs import FlowOutputs
from headrace.runtime.planner import NO_READS, Planner, Writing, topology_of
from headrace.runtime.source_reads import Cancelled, SourceReads
from headrace.wheel.task import PROPERTY, SIDE, STATE, BatchProperty, take_reports


class FlowBatches:
    """Runs the batches of a flow, from where its log has ended."""

    def __init__(self, outputs: FlowOutputs, clock: Clock, mode: Mode, stopping: threading.Event) -> None:
        self._outputs = outputs
        self._clock = clock
        self._graph, self.node, self._log = outputs.graph, outputs.node, outputs.log
        self._session: Any = outputs.spark
        self._storage = LocalStorage(outputs.folder)
        self.cancelled = False
        """Whether the jobs of this flow were cancelled, because it stops while a server is away."""
        graph, node = self._graph, self.node
        writing = Writing(
            outputs.flow_id.generation,
            outputs.writers,
            graph.slots,
            self._session.sparkContext.defaultParallelism if graph.first_rows is None else 1,
            outputs.flow_id.key_groups,
            {name: repr(graph.steps[name].step) for name in graph.stateful(node.steps)},
        )
        self._tables = BroadcastTables(self._storage, [graph.steps[name].step for name in node.steps])
        keeper = TimeKeeper(topology_of(graph, node), clock, interval=mode.interval, is_away=self._is_away)
        self.planner = Planner(keeper, self._log, writing=writing, complete=self._tables.complete)
        self._sweeper = Sweeper(self._storage, STATE, epoch=self._log.epoch)
        self._throttle = Throttle(mode, last=history.newest(outputs.folder))
        self._total = decode(Account, self.planner.last.total)
        self.reads = SourceReads(graph, node.sources, self._storage, stopping)
        self._plan = FlowPlan(graph, node, self._session, self.reads.placeholders)
        self._steps = ", ".join(node.steps or node.sources)

    def _is_away(self, source: str) -> bool:
        """Whether a source's server does not answer."""
        node = str(NodeId("source", source))
        return any(has_outage(storage, node) for storage in (LocalStorage(self._graph.checkpoint), self._storage))

    def prepare(self) -> None:
        """Check every source and sink, before the first batch; and first that the checkpoint is whole."""
        begun = self._log.record
        self._sweeper.check(self.planner.last.files)
        if begun is not None:
            self._tables.check(begun)
        ends = {} if begun is None else {name: read.until for name, read in begun.reads.items()}
        self.reads.check({**self.planner.last.positions, **ends})
        for name in self.node.sources:
            check = self._graph.sources[name].prepare
            if check is not None:
                check()
        self._tables.versions(self._clock())
        with declared_at(self._outputs.node.line):
            self._outputs.prepare()
        # Files of a batch that a driver before this one did not conclude.
        self._sweeper.all(self.planner.last.files, done=self.planner.last.batch, now=self._clock())

    def begin(self) -> None:
        """Run the batch again that was begun and not concluded; log where sources begin that are new."""
        if self.planner.runs_again:
            self.run()
        positions = self.reads.initial(self.planner.last.positions)
        if positions:
            self.planner.begin_at(positions)

    def look(self) -> Reads:
        """What a batch would read now."""
        return self.reads.plan(self.planner.last.positions, most=self._throttle.cap)

    def run(self, reads: Reads = NO_READS, *, drain: bool = False) -> None:
        """Run the next batch: the one that was begun before, or one that reads this."""
        began = time.monotonic()
        self._outputs.lease.check()
        runs_again = self.planner.runs_again
        record = self.planner.plan(drain=drain, reads=reads)
        while not self._is_done(record, began, runs_again=runs_again):
            runs_again = True

    def _is_done(self, record: BatchRecord, began: float, *, runs_again: bool) -> bool:
        """Run a batch; False when a source that Spark reads was away meanwhile, and the batch must run again."""
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        try:
            self._run_job(record, began, runs_again=runs_again)
        except (Py4JJavaError, PySparkException) as error:
            if self.cancelled:
                raise Cancelled from error
            # A driver that was replaced finds its files gone: that is no damage.
            self._outputs.lease.check()
            problem = reported(error)
            if problem is None and self.reads.were_away(record, error):
                return False
            # The frames of Java are in Spark's log.
            raise problem or job_failure(self.node.name, record.batch, error) from None
        return True

    def _run_job(self, record: BatchRecord, began: float, *, runs_again: bool) -> None:
        self._storage.clear(SIDE)
        forget_answers(self._storage, before=record.batch)
        # What tasks of an attempt that failed have reported does not count.
        take_reports(self._graph.reports.value, flow=self.node.name, batch=record.batch)
        handed = BatchProperty(
            record,
            self.node.name,
            str(self._outputs.folder),
            self._outputs.flow_id.key_groups,
            self._log.epoch,
            self.planner.time.slots,
            self.reads.splits(record),
            runs_again,
        )
        context = self._session.sparkContext
        context.setJobGroup(str(self._outputs.folder), f"{self.node.name}, batch {record.batch}: {self._steps}")
        context.setLocalProperty(PROPERTY, handed.to_text())
        outputs = BatchOutputs(self._outputs, record, self.planner.last.marks, self._plan)
        with self._plan.of_batch(record, self.reads.frames(record)) as frames:
            outputs.write_main(frames)
        computed = time.monotonic()
        reports = take_reports(self._graph.reports.value, flow=self.node.name, batch=record.batch)
        outputs.write_side(reports)
        account = account_of(reports, outputs.written)
        account.check(flow=self.node.name, batch=record.batch)
        self._outputs.lease.check()
        self._total += account
        self.planner.conclude(record, reports, outputs.marked, encode(self._total))
        self.reads.conclude(record)
        self._tables.forget(record.tables)
        self._sweeper.batch(self.planner.last.files, done=record.batch, now=self._clock())
        whole = time.monotonic() - began
        seconds = BatchSeconds(round(computed - began, 3), round(whole, 3))
        history.append(self._outputs.folder, self._entry(record, reports, account, seconds))
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
