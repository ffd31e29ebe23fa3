"""Pipelines: define, check, explain, draw, start and run them."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, overload

from pyspark.sql import DataFrame, SparkSession

from headrace.checkpoint.lease import Renewal, take_lease
from headrace.checkpoint.outages import clear_outages
from headrace.checkpoint.room import needing_room
from headrace.checkpoint.storage import LocalStorage
from headrace.errors import DefinitionError, HeadraceError, check_name
from headrace.event_time.time_keeper import Clock
from headrace.graph import Graph, defining
from headrace.observe.hot_keys import hot_key_findings
from headrace.observe.shown import ShownTable, as_html, as_text
from headrace.observe.status import FlowStatus, shown_status, statuses
from headrace.plan.check import Finding, findings
from headrace.plan.explain import explanation, mermaid
from headrace.plan.identity import check_flows
from headrace.redaction import redacted, redacting
from headrace.runtime.bounded import check_key_groups, slots_for
from headrace.runtime.flow import Flow
from headrace.runtime.modes import BOUNDED, Mode, micro_batch
from headrace.runtime.progress import Progress
from headrace.runtime.refusals import refusals
from headrace.runtime.session import session_findings, spark_session
from headrace.stability import stable
from headrace.state.group_range import KEY_GROUPS
from headrace.wheel.task import reports_of

Define = Callable[..., None]
NO_TABLES: Mapping[str, DataFrame] = {}


def writable(path: str | os.PathLike[str]) -> Path:
    """The absolute path of a checkpoint, once it is known that it can be written; nothing is created yet."""
    folder = Path(path).absolute()
    there = next(each for each in (folder, *folder.parents) if each.exists())
    probe = there / f".writable-{uuid.uuid4().hex}"
    try:
        probe.touch()
        probe.unlink()
    except OSError as problem:
        raise HeadraceError(
            "CHECKPOINT_NOT_WRITABLE",
            f"checkpoint {str(folder)!r} cannot be written ({problem.strerror}), so nothing would survive a restart. "
            "Choose a folder this user may write to.",
        ) from problem
    return folder


@contextmanager
def _held(graph: Graph) -> Iterator[Renewal]:
    """The lease of a pipeline's checkpoint, which is released when the pipeline cannot start."""
    storage = LocalStorage(graph.checkpoint)
    with needing_room(storage):
        renewal = Renewal(take_lease(storage))
        try:
            clear_outages(storage)
            renewal.name_flows(check_flows(graph, renewal.lease.flows))
            yield renewal
        except BaseException:
            renewal.release()
            raise


def system_clock() -> int:
    """Now, in microseconds since the epoch."""
    return time.time_ns() // 1000


class Running:
    """A pipeline that has been started."""

    def __init__(self, graph: Graph, flows: list[Flow], renewal: Renewal) -> None:
        self._flows = flows
        self._checkpoint = graph.checkpoint
        self._renewal = renewal
        self._feeds = [source.feed for source in graph.sources.values() if source.feed is not None]
        renewal.name_flows({**renewal.lease.flows, **{flow.node.name: flow.id for flow in flows}})
        for flow in flows:
            flow.prepare()
        try:
            for feed in self._feeds:
                feed.start()
            for flow in flows:
                flow.start()
        except BaseException:
            for feed in self._feeds:
                feed.stop()
            raise

    def status(self) -> dict[str, FlowStatus | None]:
        """How far each flow is after its newest batch; None before its first one."""
        found = {status.flow: status for status in statuses(self._checkpoint) if status.batch is not None}
        return {flow.node.name: found.get(flow.node.name) for flow in self._flows}

    def __repr__(self) -> str:
        return as_text(self._shown())

    def _repr_html_(self) -> str:
        return as_html(self._shown())

    def _shown(self) -> Iterator[ShownTable]:
        failures = {flow.node.name: flow.failure for flow in self._flows if flow.failure is not None}
        flows = [
            flow for flow in statuses(self._checkpoint) if any(flow.flow == each.node.name for each in self._flows)
        ]
        yield shown_status(flows, failures)
        for flow in flows:
            failure = failures.get(flow.flow)
            for said in flow.waiting if failure is None else [redacted(str(failure))]:
                yield ShownTable((), (), title=flow.flow, note=said)

    def stop(self) -> None:
        """Let every flow finish the batch it is in, then stop."""
        for flow in self._flows:
            flow.stop()
        for flow in self._flows:
            flow.wait()
        self._end()

    def _end(self) -> None:
        for feed in self._feeds:
            feed.stop()
        self._renewal.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all flows have ended; a flow that fails stops the others, and its failure is raised."""
        deadline = None if timeout is None else time.monotonic() + timeout
        waiting = list(self._flows)
        while waiting:
            waiting = [flow for flow in waiting if not flow.wait(0.05)]
            failure = next((flow.failure for flow in self._flows if flow.failure is not None), None)
            if failure is not None:
                self.stop()
                raise failure
            if deadline is not None and time.monotonic() > deadline and waiting:
                return False
        self._end()
        return True


class Pipeline:
    """What ``@hr.pipeline`` makes of a function: flows that can be drawn, explained, checked and run."""

    def __init__(self, function: Define, name: str, key_groups: int | None = None) -> None:
        check_name("pipeline", name)
        check_key_groups(f"pipeline {name!r}", key_groups)
        self._function = function
        self._key_groups = key_groups
        self.name = name
        self.__doc__ = function.__doc__

    def define(
        self, spark: SparkSession, checkpoint: Path, bounded: Mapping[str, DataFrame] = NO_TABLES, **parameters: Any
    ) -> Graph:
        """Run the pipeline's function and return its graph. No data is read."""
        slots = slots_for(spark, bounded.values(), self._key_groups or KEY_GROUPS)
        graph = Graph(self.name, checkpoint, reports_of(spark.sparkContext), self._key_groups, bounded, slots)
        self.define_in(graph, spark, parameters)
        return graph

    def define_in(self, graph: Graph, spark: SparkSession, parameters: Mapping[str, Any]) -> None:
        """Run the pipeline's function for a graph that is empty so far."""
        with defining(graph):
            self._function(spark, **parameters)
        if not graph.flows:
            raise DefinitionError(
                "PIPELINE_EMPTY", f"pipeline {self.name!r} writes nothing. End it with hr.write(name, frame, sink)."
            )

    @redacting()
    def start(
        self,
        *,
        checkpoint: str | os.PathLike[str],
        mode: Mode | None = None,
        spark: SparkSession | None = None,
        clock: Clock = system_clock,
        **parameters: Any,
    ) -> Running:
        """Start in the background; everything that can be wrong is found before the first batch."""
        folder, session = writable(checkpoint), session_for(self.name, spark)
        # A definition that is refused leaves nothing behind.
        graph = self.define(session, folder, NO_TABLES, **parameters)
        with _held(graph) as renewal:
            chosen = mode or micro_batch()
            flows = [Flow(graph, node, session, clock, chosen, renewal.lease) for node in graph.flows.values()]
            return Running(graph, flows, renewal)

    def run(
        self,
        *,
        checkpoint: str | os.PathLike[str],
        mode: Mode | None = None,
        spark: SparkSession | None = None,
        progress: bool = True,
        **parameters: Any,
    ) -> None:
        """Run until the end, or until Ctrl-C or SIGTERM, which let the running batch finish.

        ``progress`` shows on standard error how far the flows are: a live line on a terminal, else a line now and then.
        """
        shown = Progress(self.name, writable(checkpoint)) if progress else None
        with shown or nullcontext():
            running = self.start(checkpoint=checkpoint, mode=mode, spark=spark, **parameters)
            stop = threading.Event()
            with _on_signal(stop):
                while not running.wait(0.2):
                    if shown is not None:
                        shown.look()
                    if stop.is_set():
                        running.stop()

    @redacting()
    def backfill(
        self,
        tables: Mapping[str, DataFrame],
        *,
        checkpoint: str | os.PathLike[str],
        spark: SparkSession | None = None,
        **parameters: Any,
    ) -> None:
        """Run over tables in place of the sources of these names, once, with the results of a drained stream.

        Every flow reads all in one batch and writes its sinks as usual. A run that was interrupted is run again; flows
        that are done are not.

        >>> import headrace as hr
        >>> def last_year(spend, spark):
        ...     payments = spark.read.parquet("archive/payments")
        ...     spend.backfill({"payments": payments}, checkpoint="checkpoints/last_year", spark=spark)
        """
        folder, session = writable(checkpoint), session_for(self.name, spark)
        graph = self.define(session, folder, tables, **parameters)
        differing = sorted(graph.sources.keys() ^ tables.keys())
        if differing:
            raise DefinitionError(
                "TABLES_INVALID",
                f"backfill of pipeline {self.name!r}: {differing[0]!r} is not both a source and a table. Give one "
                f"table for each source: {', '.join(graph.sources)}.",
            )
        with _held(graph) as renewal:
            flows = [Flow(graph, node, session, system_clock, BOUNDED, renewal.lease) for node in graph.flows.values()]
            Running(graph, flows, renewal).wait()

    @redacting()
    def check(
        self,
        *,
        checkpoint: str | os.PathLike[str] | None = None,
        mode: Mode | None = None,
        connect: bool = False,
        spark: SparkSession | None = None,
        **parameters: Any,
    ) -> list[Finding]:
        """All that ``run`` would refuse, and what is worth knowing; no row of a source is read.

        With a checkpoint also what would not fit it, and what its runs have shown; with ``connect`` also what the
        servers say: a missing topic or table, or no answer. Nothing is changed or created there.
        """
        try:
            session = session_for(self.name, spark)
            stored = None if checkpoint is None else writable(checkpoint)
            there = stored if stored is not None and stored.exists() else None
            graph = self._defined(session, parameters, there)
            hot = [] if there is None else hot_key_findings(graph, there)
            refused = refusals(graph, session, mode or micro_batch(), checkpoint=there, connect=connect)
            return [*refused, *findings(graph), *session_findings(session), *hot]
        except HeadraceError as error:
            return [Finding.of(error)]

    @redacting()
    def explain(self, *, spark: SparkSession | None = None, **parameters: Any) -> str:
        """Steps, state, watermark and the guarantee of each sink, as text."""
        return redacted(explanation(self._defined(spark, parameters)))

    @redacting()
    def draw(self, *, spark: SparkSession | None = None, **parameters: Any) -> str:
        """The graph as Mermaid text."""
        return redacted(mermaid(self._defined(spark, parameters)))

    def _defined(
        self, spark: SparkSession | None, parameters: Mapping[str, object], checkpoint: Path | None = None
    ) -> Graph:
        """The graph for a checkpoint, or for one that is thrown away."""
        with tempfile.TemporaryDirectory(prefix="headrace-") as folder:
            return self.define(session_for(self.name, spark), checkpoint or Path(folder), NO_TABLES, **parameters)


@contextmanager
def _on_signal(stop: threading.Event) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM set an event instead of killing the process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda *_: stop.set()) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def session_for(name: str, given: SparkSession | None) -> SparkSession:
    """The given session, else the active one, else a new one."""
    from pyspark.sql import SparkSession

    return given or SparkSession.getActiveSession() or spark_session(name)


@overload
def pipeline(function: Define) -> Pipeline: ...
@overload
def pipeline(*, name: str | None = None, key_groups: int | None = None) -> Callable[[Define], Pipeline]: ...
@stable
def pipeline(
    function: Define | None = None, *, name: str | None = None, key_groups: int | None = None
) -> Pipeline | Callable[[Define], Pipeline]:
    """Make a pipeline of a function that reads sources, applies steps and writes flows.

    ``key_groups`` is the most tasks that can ever share the state of a step, 128 unless given. It is fixed with the
    checkpoint; the number of tasks may change at every start.

    >>> @pipeline
    ... def spend(spark):
    ...     ...
    >>> spend.name
    'spend'
    """
    if function is not None:
        return Pipeline(function, name or function.__name__)
    return lambda decorated: Pipeline(decorated, name or decorated.__name__, key_groups)
