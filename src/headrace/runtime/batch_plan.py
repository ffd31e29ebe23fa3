"""The plans of a batch: a flow's plans with the batch's tasks, its clock, and the rows that Spark reads of a source."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headrace.connectors.base.source import SPLIT_LEAF, SPLIT_TASKS
from headrace.event_time.record import BatchRecord
from headrace.graph import FlowNode, Graph
from headrace.plans import Plan, scala_map, scala_object
from headrace.runtime.chains import chains
from headrace.runtime.shared_rows import shared_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CLOCKS = frozenset({"CurrentTimestamp", "LocalTimestamp", "CurrentDate", "Now"})
"""Expressions that ask for the time; a batch that runs again must get the same answer."""
_FLOWS = itertools.count(1)
Replaced = Iterable[tuple[Any, Any]]
"""Nodes of a plan, each with what takes its place."""


class FlowPlan:
    """The analyzed plans of a flow, from which those of each batch are made."""

    def __init__(
        self, graph: Graph, node: FlowNode, session: SparkSession, placeholders: Mapping[str, DataFrame]
    ) -> None:
        self._session: Any = session
        self._jvm: Any = session._jvm
        self._tasks = session.sparkContext.defaultParallelism
        # Spark's cache goes by equal plans, so the plans of two flows must differ.
        self._first = next(_FLOWS) * SPLIT_TASKS
        shared = shared_rows(graph, node)
        # What is shared may be read by what is shared above it, so the plans are made from the top down.
        replaced = [pair for rows in shared for pair in rows.packed] + chains(graph, node)
        packed = [(Plan.of(old).java, self._rows(Plan.of(old).java, new)) for old, new in replaced]
        self._shared = [self._prepared(rows.frame, packed) for rows in shared]
        self._mains = {main.name: self._prepared(main.frame, packed) for main in node.mains}
        whole = [*self._shared, *self._mains.values()]
        ids = {name: Plan.of(each).columns for name, each in placeholders.items()}
        leaves = [leaf for plan in whole for leaf in plan.leaves]
        self._numbered = [leaf.java for leaf in leaves if _numbers_tasks(leaf, self._first)]
        self._placed = [(name, leaf.java) for leaf in leaves for name, own in ids.items() if leaf.columns == own]
        self._clocks = [clock for plan in whole for clock in _clocks(plan)]

    @contextmanager
    def of_batch(self, record: BatchRecord, frames: Mapping[str, DataFrame]) -> Iterator[dict[str, DataFrame]]:
        """The main frames of a batch by name; ``frames`` are the rows of those sources that Spark reads."""
        leaves = [(leaf, self._rows(leaf, frames[name])) for name, leaf in self._placed if name in frames]
        if record.tasks != self._tasks:
            leaves += [(leaf, self._numbers(leaf, record.tasks)) for leaf in self._numbered]
        moments = self._moments(self._clocks, record)
        kept: list[DataFrame] = []
        try:
            for plan in self._shared:
                kept.append(self._frame(self._of_batch(plan, leaves, moments)).persist())
            yield {name: self._frame(self._of_batch(plan, leaves, moments)) for name, plan in self._mains.items()}
        finally:
            for frame in reversed(kept):
                frame.unpersist()

    def at_clock(self, frame: DataFrame, record: BatchRecord) -> DataFrame:
        """A frame that gets the batch's clock where it asks for the time."""
        plan = Plan.of(frame)
        moments = self._moments(_clocks(plan), record)
        return self._frame(self._of_batch(plan, [], moments)) if moments else frame

    def _of_batch(self, plan: Plan, leaves: Replaced, moments: Replaced) -> Any:
        java = plan.java.transformDown(scala_map(self._jvm, leaves)) if leaves else plan.java
        return java.transformAllExpressionsWithSubqueries(scala_map(self._jvm, moments)) if moments else java

    def _prepared(self, frame: DataFrame, packed: Replaced) -> Plan:
        """A frame's plan with what it shares, and with leaves of its own that hand every task its number."""
        given = Plan.of(frame)
        shared = Plan(given.java.transformDown(scala_map(self._jvm, packed)), given.kind)
        leaves = [leaf.java for leaf in shared.leaves if _numbers_tasks(leaf, SPLIT_LEAF)]
        numbered = scala_map(self._jvm, ((leaf, self._numbers(leaf, self._tasks)) for leaf in leaves))
        return Plan(shared.java.transformDown(numbered), given.kind)

    def _frame(self, plan: Any) -> DataFrame:
        from pyspark.sql.classic.dataframe import DataFrame

        datasets = scala_object(self._jvm.org.apache.spark.sql.classic, "Dataset")
        return DataFrame(datasets.ofRows(self._session._jsparkSession, plan), self._session)

    def _numbers(self, leaf: Any, tasks: int) -> Any:
        logical, some = self._jvm.org.apache.spark.sql.catalyst.plans.logical, self._jvm.scala.Some
        return logical.Range(self._first, self._first + tasks, 1, some(tasks), leaf.output(), False)

    def _rows(self, node: Any, frame: DataFrame) -> Any:
        """The rows of a frame under the columns of the node whose place they take."""
        catalyst, scala = self._jvm.org.apache.spark.sql.catalyst, self._jvm.scala
        nothing, none = scala_object(scala.collection.immutable, "Nil"), scala_object(scala, "None")
        given, wanted = frame._jdf.queryExecution().analyzed(), node.output()
        columns = nothing
        for place in reversed(range(wanted.size())):
            column = wanted.apply(place)
            alias = catalyst.expressions.Alias(
                given.output().apply(place), column.name(), column.exprId(), nothing, none, nothing
            )
            columns = columns.prepended(alias)
        return catalyst.plans.logical.Project(columns, given)

    def _moments(self, clocks: Iterable[Any], record: BatchRecord) -> Replaced:
        zone = self._jvm.scala.Some(self._session.conf.get("spark.sql.session.timeZone"))
        expressions = self._jvm.org.apache.spark.sql.catalyst.expressions
        now = record.clock // 1000
        return [(each, expressions.CurrentBatchTimestamp(now, each.dataType(), zone).toLiteral()) for each in clocks]


def _numbers_tasks(leaf: Plan, first: int) -> bool:
    return bool(leaf.kind == "Range" and leaf.java.start() == first)


def _clocks(plan: Plan) -> Iterator[Any]:
    for node in plan.nodes:
        yield from (each.java for each in node.expressions if each.kind in CLOCKS)
        for subquery in node.subqueries:
            yield from _clocks(subquery)
