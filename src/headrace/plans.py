"""A frame's analyzed plan as a tree of nodes, whose columns and functions are known by Spark's expression ids."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ID = re.compile(r"#\d+L?")
_FIELDS = 5
"""How many of a node's columns its text shows."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A node of a plan, or of an expression in it."""

    java: Any
    kind: str
    """The name of its class, such as ``Filter``."""

    @classmethod
    def of(cls, frame: DataFrame, *, inlined: bool = False) -> Plan:
        """The root of a frame's plan: what is done last; ``inlined`` puts CTEs in the places that refer to them."""
        plan, spark = frame._jdf.queryExecution().analyzed(), cast(Any, frame.sparkSession)
        if inlined:
            plan = spark._jvm.org.apache.spark.sql.catalyst.optimizer.InlineCTE(True, False).apply(plan)
        return plan_of(plan)

    @property
    def children(self) -> list[Plan]:
        return [plan_of(child) for child in elements(self.java.children())]

    @property
    def nodes(self) -> Iterator[Plan]:
        """This node and all below it."""
        yield self
        for child in self.children:
            yield from child.nodes

    @property
    def leaves(self) -> Iterator[Plan]:
        """The nodes that read something."""
        return (node for node in self.nodes if not node.children)

    @property
    def subqueries(self) -> list[Plan]:
        """The plans inside its expressions, as of ``IN (SELECT ...)``."""
        return [plan_of(each) for each in elements(self.java.subqueries())]

    @property
    def expressions(self) -> Iterator[Plan]:
        """What this node computes, each expression with all inside it."""
        for expression in elements(self.java.expressions()):
            yield from plan_of(expression).nodes

    @property
    def columns(self) -> list[tuple[int, str]]:
        """Id and name of each column; a column keeps its id as long as nothing computes it anew."""
        return [(column.exprId().id(), column.name()) for column in elements(self.java.output())]

    @property
    def is_repeatable(self) -> bool:
        """Whether the same rows give the same answer again, as Spark knows it."""
        return bool(self.java.deterministic())

    @property
    def text(self) -> str:
        """The node as Spark shows it, without ids."""
        return _ID.sub("", str(self.java.simpleString(_FIELDS)))

    @property
    def function(self) -> int | None:
        """The id of its Python function, which copies of the node share; None if it is not a ``mapInArrow``."""
        return int(self.java.functionExpr().resultId().id()) if self.kind == "MapInArrow" else None

    def is_copy(self, other: Plan) -> bool:
        """Whether another node has the same Python function."""
        return other.function is not None and other.function == self.function

    @property
    def condition(self) -> frozenset[int]:
        """The columns that the condition of a ``Filter`` refers to."""
        return _references(self.java.condition())

    @property
    def projected(self) -> dict[int, frozenset[int]]:
        """The columns that each column of a ``Project`` is computed from."""
        return {each.exprId().id(): _references(each) for each in elements(self.java.projectList())}


def plan_of(java: Any) -> Plan:
    """A node of Spark's."""
    return Plan(java, str(java.getClass().getSimpleName()))


def elements(sequence: Any) -> Iterator[Any]:
    """The elements of a sequence of Scala."""
    return (sequence.apply(number) for number in range(sequence.size()))


def _references(expression: Any) -> frozenset[int]:
    return frozenset(column.exprId().id() for column in elements(expression.references().toSeq()))


def scala_object(package: Any, name: str) -> Any:
    """A singleton object of Scala, such as ``Nil``."""
    return getattr(getattr(package, f"{name}$"), "MODULE$")


def scala_map(jvm: Any, pairs: Iterable[tuple[Any, Any]]) -> Any:
    """A map of Scala; one is also a partial function."""
    found = scala_object(jvm.scala.collection.immutable, "HashMap").empty()
    for key, value in pairs:
        found = found.updated(key, value)
    return found
