"""The changelog guard: steps that treat every row as a separate event refuse rows that retract others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import polars as pl
from pyspark.sql import DataFrame

from headrace.changelog import CHANGE, CHANGELOG
from headrace.errors import DefinitionError
from headrace.graph import Graph
from headrace.nodes import NodeId
from headrace.plans import Plan
from headrace.schemas import polars_schema


def check_events(frame: DataFrame, graph: Graph, node: NodeId, *, step: str) -> None:
    """Refuse the changelog of a source or step, unless the user has selected which of its changes are wanted."""
    is_source = node.kind == "source"
    retracts = graph.sources[node.name].changes if is_source else graph.steps[node.name].step.retracts
    if retracts and not selects_changes(frame, graph, node):
        check_not_a_changelog(polars_schema(frame.schema), f"{node.kind} {node.name!r}", step=step)


def check_not_a_changelog(schema: Mapping[str, pl.DataType], giver: str, *, step: str) -> None:
    """Refuse the rows of a source or step that retracts rows, unless they no longer say what they change."""
    if all(schema.get(name) == kind for name, kind in CHANGELOG.items()):
        raise DefinitionError(
            "CHANGELOG_NOT_UNDERSTOOD",
            f"step {step!r} treats each row as a separate event, but {giver} gives a changelog, in which a row may "
            "retract an earlier one, so updates and deletes would count as new rows. "
            "Use hr.table_aggregate, hr.table_join or hr.materialize, or select the changes that are wanted before the "
            f"step: .where(\"{CHANGE} = 'insert'\"), or .drop({CHANGE!r}) if all are.",
        )


def selects_changes(frame: DataFrame, graph: Graph, node: NodeId) -> bool:
    """Whether a filter on the change column of a node's rows lies between the node and a frame, on every path."""
    found = _followed(Plan.of(frame, inlined=True), graph, lambda nodes: node in nodes)
    return found is not None and found.is_filtered


def is_changelog(frame: DataFrame, graph: Graph) -> bool:
    """Whether the column ``change`` of a frame is that of a changelog; else it is the author's own, if there is one."""
    if CHANGE not in frame.columns:
        return False
    plan = Plan.of(frame, inlined=True)
    found = _followed(plan, graph, graph.gives_changelog)
    return found is not None and not found.columns.isdisjoint(_changes(plan))


@dataclass(frozen=True, slots=True)
class _Followed:
    """The columns of a plan that hold a change or are computed from it; whether rows were filtered by them."""

    columns: frozenset[int]
    is_filtered: bool


def _followed(plan: Plan, graph: Graph, gives: Callable[[frozenset[NodeId]], bool]) -> _Followed | None:
    """The change column in the rows of a plan; None where no row comes from nodes that give the changes."""
    nodes = graph.nodes_of_function(plan.function)
    if nodes is not None and not gives(nodes):
        return None
    children = plan.children
    branches = [(child, _followed(child, graph, gives)) for child in children]
    below = [(child, found) for child, found in branches if found is not None]
    is_filtered = bool(below) and all(found.is_filtered for _, found in below)
    if nodes is not None:
        # The node runs in this function, or it is below one that hands its columns on under their names.
        return _Followed(_changes(plan), is_filtered)
    if not below:
        return None
    columns = frozenset[int]().union(*(found.columns for _, found in below))
    if plan.kind == "Project":
        handed_on = frozenset(column for column, sources in plan.projected.items() if sources & columns)
    elif plan.kind == "Union":
        handed_on = frozenset[int]().union(*(_at_same_places(plan, child, found.columns) for child, found in below))
    else:
        # A user's own function gives new columns: the change is the one of that name, unless it was dropped before.
        new = _changes(plan) - {column for child in children for column, _ in child.columns}
        handed_on = columns | new if columns else columns
    filters = plan.kind == "Filter" and bool(plan.condition & columns)
    return _Followed(handed_on, is_filtered or filters)


def _at_same_places(union: Plan, side: Plan, followed: frozenset[int]) -> frozenset[int]:
    pairs = zip(union.columns, side.columns, strict=True)
    return frozenset(column for (column, _), (other, _) in pairs if other in followed)


def _changes(plan: Plan) -> frozenset[int]:
    return frozenset(column for column, name in plan.columns if name == CHANGE)
