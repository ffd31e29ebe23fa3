"""The plans of a batch: a flow's plans with the batch's tasks, its clock, and the rows that Spark reads of a source."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from headrace.connectors.base.source import SPLIT_LEAF, SPLIT_TASKS
from headrace.event_time.record import BatchRecord
from headrace.graph import FlowNode, Graph
from headrace.plans import Plan, plan_of, scala_map, scala_object
from headrace.runtime.chains import chains
from headrace.runtime.shared_rows import shared_rows

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
        self._placeholders = {name: Plan.of(each).java for name, each in placeholders.items()}
        sharing = shared_rows(graph, node)
        replaced = [pair for rows in sharing.rows for pair in rows.packed]
        replaced += [*sharing.replaced, *chains(graph, node, sharing.read_again)]
        by_function = {Plan.of(old).function: new for old, new in replaced}
        self._shared = [self._prepared(rows.frame, by_function) for rows in sharing.rows]
        self._mains = {main.name: self._prepared(main.frame, by_function) for main in node.mains}
        whole = [*self._shared, *self._mains.values()]
        leaves = [leaf for plan in whole for leaf in plan.leaves]
        self._numbered = [leaf.java for leaf in leaves if _numbers_tasks(leaf, self._first)]
        self._placed = [(name, leaf.java) for leaf in leaves if (name := self._placeholder(leaf)) is not None]
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
                compute(kept[-1])
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

    def _prepared(self, frame: DataFrame, by_function: Mapping[int | None, DataFrame]) -> Plan:
        """A frame's plan with what it shares, with tasks of its own, and with leaves that are this flow's only."""
        plan = Plan.of(frame)
        # What takes a node's place may read what is replaced too. Spark gives the columns of copies other ids.
        while found := [node.java for node in plan.nodes if node.function in by_function]:
            new = ((java, self._rows(java, by_function[plan_of(java).function])) for java in found)
            plan = plan_of(plan.java.transformDown(scala_map(self._jvm, new)))
        plan = plan_of(plan.java.transformDown(scala_map(self._jvm, self._alone(plan))))
        leaves = [leaf.java for leaf in plan.leaves if _numbers_tasks(leaf, SPLIT_LEAF)]
        own = [(leaf, self._numbers(leaf, self._tasks)) for leaf in leaves]
        own += [(leaf.java, self._marked(leaf.java)) for leaf in plan.leaves if self._placeholder(leaf) is not None]
        return plan_of(plan.java.transformUp(scala_map(self._jvm, own)))

    def _alone(self, plan: Plan) -> Iterator[tuple[Any, Any]]:
        """Nodes that would compute several partitions of ours in one task, or one in several, with those that do not.

        Reports are known by the number of their task, so each partition must be computed in a task of its own, once.
        """
        logical = self._jvm.org.apache.spark.sql.catalyst.plans.logical
        for node in plan.nodes:
            if node.kind == "Repartition" and not node.java.shuffle() and self._reads_source(node):
                yield node.java, logical.Repartition(node.java.numPartitions(), True, node.java.child())
            elif node.kind == "Join" and self._may_multiply(node):
                (left, right), join = node.children, node.java
                sides = self._computed_once(left, right), self._computed_once(right, left)
                yield join, logical.Join(*sides, join.joinType(), join.condition(), join.hint())

    def _may_multiply(self, join: Plan) -> bool:
        """Whether Spark may compute one side of a join for each partition of the other."""
        planning = self._jvm.org.apache.spark.sql.catalyst.planning
        has_keys = scala_object(planning, "ExtractEquiJoinKeys").unapply(join.java).isDefined()
        return str(join.java.joinType()) in ("Inner", "Cross") and not has_keys and self._reads_source(join)

    def _computed_once(self, side: Plan, other: Plan) -> Any:
        """A side of such a join: a small table goes to all tasks; beside another, a stream's rows are shuffled."""
        logical = self._jvm.org.apache.spark.sql.catalyst.plans.logical
        if self._reads_source(side):
            return side.java if self._is_small(other) else logical.Repartition(self._tasks, True, side.java)
        if self._is_small(side):
            broadcast = scala_object(logical, "BROADCAST")
            return logical.ResolvedHint(side.java, logical.HintInfo(self._jvm.scala.Some(broadcast)))
        return side.java

    def _is_small(self, table: Plan) -> bool:
        if table.kind == "ResolvedHint" and "strategy=broadcast" in table.text:
            return True
        size = self._frame(table.java)._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()
        return bool(int(str(size)) <= self._session._jsparkSession.sessionState().conf().autoBroadcastJoinThreshold())

    def _reads_source(self, plan: Plan) -> bool:
        return any(_numbers_tasks(leaf, SPLIT_LEAF) or self._placeholder(leaf) is not None for leaf in plan.leaves)

    def _placeholder(self, leaf: Plan) -> str | None:
        """The source whose rows take the place of a leaf."""
        return next((name for name, own in self._placeholders.items() if leaf.java.sameResult(own)), None)

    def _marked(self, leaf: Any) -> Any:
        """A leaf below a condition that is always true, but tells Spark's cache this flow's plans from another's."""
        catalyst = self._jvm.org.apache.spark.sql.catalyst
        number = scala_object(catalyst.expressions, "Literal").apply(self._first)
        return catalyst.plans.logical.Filter(catalyst.expressions.EqualTo(number, number), leaf)

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


def compute(kept: DataFrame) -> None:
    """Compute the rows of a frame that is kept.

    Whoever reads them first would do it, but a task that is tried again then finds the rows, and its report is lost.
    """
    session: Any = kept.sparkSession
    cached = session._jsparkSession.sharedState().cacheManager().lookupCachedData(kept._jdf).get()
    cached.cachedRepresentation().cacheBuilder().cachedColumnBuffers().count()


def _numbers_tasks(leaf: Plan, first: int) -> bool:
    return bool(leaf.kind == "Range" and leaf.java.start() == first)


def _clocks(plan: Plan) -> Iterator[Any]:
    for node in plan.nodes:
        yield from (each.java for each in node.expressions if each.kind in CLOCKS)
        for subquery in node.subqueries:
            yield from _clocks(subquery)
