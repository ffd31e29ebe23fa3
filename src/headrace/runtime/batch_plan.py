"""The plan of one batch: a flow's plan with the batch's tasks, its clock, and the rows that Spark reads of a source."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from headrace.connectors.base.source import SPLIT_LEAF, SPLIT_TASKS
from headrace.event_time.record import BatchRecord
from headrace.plans import Plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CLOCKS = frozenset({"CurrentTimestamp", "LocalTimestamp", "CurrentDate", "Now"})
"""Expressions that ask for the time; a batch that runs again must get the same answer."""
_FLOWS = itertools.count(1)


class FlowPlan:
    """The analyzed plan of a flow, from which each batch's plan is made."""

    def __init__(self, frame: DataFrame, session: SparkSession, placeholders: Mapping[str, DataFrame]) -> None:
        self._session: Any = session
        self._jvm: Any = session._jvm
        self._tasks = session.sparkContext.defaultParallelism
        # Spark's cache goes by equal plans, so the plans of two flows must differ.
        self._first = next(_FLOWS) * SPLIT_TASKS
        given = Plan.of(frame)
        leaves = ((leaf, self._numbers(leaf, self._tasks)) for leaf in _ranges(given, SPLIT_LEAF))
        self._java = given.java.transformUp(self._partial(leaves))
        whole = Plan(self._java, given.kind)
        self._numbered = list(_ranges(whole, self._first))
        self._clocks = [each.java for node in whole.nodes for each in node.expressions if each.kind in CLOCKS]
        ids = {name: Plan.of(each).columns for name, each in placeholders.items()}
        self._placed = {name: leaf.java for leaf in whole.leaves for name, own in ids.items() if leaf.columns == own}

    def of_batch(self, record: BatchRecord, frames: Mapping[str, DataFrame]) -> DataFrame:
        """The frame of a batch; ``frames`` are the rows of those sources that Spark reads."""
        leaves = [(self._placed[name], self._rows(self._placed[name], frame)) for name, frame in frames.items()]
        if record.tasks != self._tasks:
            leaves += [(leaf, self._numbers(leaf, record.tasks)) for leaf in self._numbered]
        plan = self._java
        if leaves:
            plan = plan.transformUp(self._partial(leaves))
        if self._clocks:
            moments = ((clock, self._moment(clock, record.clock)) for clock in self._clocks)
            plan = plan.transformAllExpressions(self._partial(moments))
        return self._frame(plan)

    def _frame(self, plan: Any) -> DataFrame:
        from pyspark.sql.classic.dataframe import DataFrame

        dataset = _object(self._jvm.org.apache.spark.sql.classic, "Dataset").ofRows(self._session._jsparkSession, plan)
        return DataFrame(dataset, self._session)

    def _numbers(self, leaf: Any, tasks: int) -> Any:
        """A leaf that hands every task its number."""
        logical, some = self._jvm.org.apache.spark.sql.catalyst.plans.logical, self._jvm.scala.Some
        return logical.Range(self._first, self._first + tasks, 1, some(tasks), leaf.output(), False)

    def _rows(self, leaf: Any, frame: DataFrame) -> Any:
        """The rows of a frame under the columns of the leaf whose place they take."""
        catalyst, scala = self._jvm.org.apache.spark.sql.catalyst, self._jvm.scala
        nothing, none = _object(scala.collection.immutable, "Nil"), _object(scala, "None")
        given, wanted = frame._jdf.queryExecution().analyzed(), leaf.output()
        columns = nothing
        for place in reversed(range(wanted.size())):
            column = wanted.apply(place)
            alias = catalyst.expressions.Alias(
                given.output().apply(place), column.name(), column.exprId(), nothing, none, nothing
            )
            columns = columns.prepended(alias)
        return catalyst.plans.logical.Project(columns, given)

    def _moment(self, clock: Any, now: int) -> Any:
        zone = self._jvm.scala.Some(self._session.conf.get("spark.sql.session.timeZone"))
        expressions = self._jvm.org.apache.spark.sql.catalyst.expressions
        return expressions.CurrentBatchTimestamp(now // 1000, clock.dataType(), zone).toLiteral()

    def _partial(self, pairs: Iterable[tuple[Any, Any]]) -> Any:
        """A partial function of the JVM: a map is one."""
        function = _object(self._jvm.scala.collection.immutable, "HashMap").empty()
        for key, value in pairs:
            function = function.updated(key, value)
        return function


def _ranges(plan: Plan, first: int) -> Iterator[Any]:
    return (leaf.java for leaf in plan.leaves if leaf.kind == "Range" and leaf.java.start() == first)


def _object(package: Any, name: str) -> Any:
    """A singleton object of Scala."""
    return getattr(getattr(package, f"{name}$"), "MODULE$")
