"""What ``start`` would refuse, as findings: the same checks, each on its own, and nothing is changed."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from headrace.checkpoint.lease import Lease, last_holder
from headrace.checkpoint.storage import LocalStorage, MemoryStorage
from headrace.checkpoint.sweep import Sweeper
from headrace.errors import HeadraceError, declared_at
from headrace.event_time.record import BatchLog
from headrace.graph import FlowNode, Graph
from headrace.plan.check import Finding
from headrace.plan.identity import compare_flows, identity_of
from headrace.runtime.broadcast_tables import BroadcastTables
from headrace.runtime.flow_sinks import Check, FlowSinks
from headrace.runtime.modes import Mode, check_mode
from headrace.runtime.outputs import FlowOutputs
from headrace.runtime.planner import check_not_drained
from headrace.runtime.source_reads import SourceReads
from headrace.wheel.task import STATE


def refusals(
    graph: Graph, session: SparkSession, mode: Mode, *, checkpoint: Path | None, connect: bool
) -> Iterator[Finding]:
    """An error for each thing that would stop a start in this mode: with a checkpoint, and with the servers it needs.

    Without ``connect`` no server is asked. Nobody takes the checkpoint, so a pipeline may run on it meanwhile.
    """
    holder = None if checkpoint is None else last_holder(LocalStorage(checkpoint))
    known = {} if holder is None else holder.flows
    if holder is not None:
        yield from _found(partial(_check_flows, graph, known))
    for node in graph.flows.values():
        folder = graph.checkpoint / node.name
        yield from _found(partial(check_mode, mode, node, graph))
        with declared_at(node.line):
            yield from _found(*FlowSinks(graph, node, session, folder).checks(connect=connect))
        if holder is not None:
            stored = _Stored(graph, node, LocalStorage(folder))
            yield from _found(partial(stored.check_identity, mode, known.get(node.name)))
            # While a pipeline runs, its files and marks change under whoever looks.
            if holder.released or holder.has_ended:
                yield from _found(stored.check_files, *([partial(stored.check_marks, session)] if connect else []))
        if connect:
            yield from _found(*_sources(graph, node), partial(_check_tables, graph, node))


def _found(*checks: Check) -> Iterator[Finding]:
    for check in checks:
        try:
            check()
        except HeadraceError as error:
            yield Finding.of(error)


def _sources(graph: Graph, node: FlowNode) -> Iterator[Check]:
    for name in node.sources:
        prepare = graph.sources[name].prepare
        if prepare is not None:
            yield prepare


def _check_flows(graph: Graph, known: Mapping[str, str]) -> None:
    compare_flows(graph, known)


def _check_tables(graph: Graph, node: FlowNode) -> None:
    """Read the tables of joins, as a start does."""
    BroadcastTables(MemoryStorage(), [graph.steps[name].step for name in node.steps]).versions(0)


@dataclass(frozen=True, slots=True)
class _Stored:
    """What a checkpoint has of a flow."""

    graph: Graph
    node: FlowNode
    storage: LocalStorage

    def check_identity(self, mode: Mode, known: str | None) -> None:
        """Refuse what does not fit the flow, or was drained."""
        log = BatchLog(self.storage)
        identity_of(self.graph, self.node, stored=log.identity, storage=self.storage, known=known)
        if log.outcome is not None:
            check_not_drained(log.outcome)

    def check_files(self) -> None:
        """Refuse a checkpoint of which a part is missing."""
        log = BatchLog(self.storage)
        if log.outcome is None:
            return
        Sweeper(self.storage, STATE, epoch=0).check(log.outcome.files)
        ends = {} if log.record is None else {name: read.until for name, read in log.record.reads.items()}
        reads = SourceReads(self.graph, self.node.sources, self.storage, threading.Event())
        reads.check({**log.outcome.positions, **ends})
        if log.record is not None:
            BroadcastTables(self.storage, [self.graph.steps[name].step for name in self.node.steps]).check(log.record)

    def check_marks(self, session: SparkSession) -> None:
        """Refuse sinks that hold what the log does not know."""
        log = BatchLog(self.storage)
        if log.identity is not None:
            nobody = Lease(LocalStorage(self.graph.checkpoint), 0)
            FlowOutputs(self.graph, self.node, session, self.storage.folder, nobody, log).check_marks()
