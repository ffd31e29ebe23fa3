"""The changelog guard: steps that take every row for an event of its own refuse rows that retract others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from headrace.changelog import CHANGE, CHANGELOG
from headrace.errors import DefinitionError
from headrace.graph import Graph
from headrace.nodes import NodeId
from headrace.plans import Plan
from headrace.schemas import polars_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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
            f"step {step!r} takes each row for an event of its own, but {giver} gives a changelog, in which a row may "
            "retract an earlier one, so updates and deletes would count as new rows. "
            "Use hr.table_aggregate, hr.table_join or hr.materialize, or select the changes that are wanted before the "
            f"step: .where(\"{CHANGE} = 'insert'\"), or .drop({CHANGE!r}) if all are.",
        )


def selects_changes(frame: DataFrame, graph: Graph, node: NodeId) -> bool:
    """Whether a filter on the change column of a node's rows lies between the node and a frame, on every way."""
    found = _ChangeColumn(graph, node).follow(Plan.of(frame))
    return found is not None and found.is_filtered


@dataclass(frozen=True, slots=True)
class _Followed:
    """The columns of a plan that hold a node's change or are computed from it; whether rows were filtered by them."""

    columns: frozenset[int]
    is_filtered: bool


@dataclass(frozen=True, slots=True)
class _ChangeColumn:
    """Follows the change column of a node's rows from the node up to a frame."""

    graph: Graph
    node: NodeId
    _definitions: dict[int, tuple[Plan, _Followed]] = field(default_factory=dict)
    """Of each common table expression in which the change is found."""

    def follow(self, plan: Plan) -> _Followed | None:
        """The change column in the rows of a plan; None where no row comes from the node."""
        if plan.kind == "WithCTE":
            *definitions, main = plan.children
            for definition in definitions:
                if (found_in := self.follow(definition)) is not None:
                    self._definitions[definition.definition] = (definition, found_in)
            return self.follow(main)
        if plan.kind == "CTERelationRef":
            if plan.definition not in self._definitions:
                return None
            definition, found_in = self._definitions[plan.definition]
            return _Followed(_at_same_places(plan, definition, found_in), found_in.is_filtered)
        nodes = self.graph.nodes_of_function(plan.function)
        if nodes is not None and self.node not in nodes:
            return None
        children = plan.children
        branches = [self.follow(child) for child in children]
        found = [branch for branch in branches if branch is not None]
        if nodes is not None:
            # The node runs in this function, or it is below one that hands its columns on under their names.
            return _Followed(_changes(plan), bool(found) and all(each.is_filtered for each in found))
        if not found:
            return None
        below = _Followed(frozenset().union(*(each.columns for each in found)), all(each.is_filtered for each in found))
        filters = plan.kind == "Filter" and bool(plan.condition & below.columns)
        return _Followed(_handed_on(plan, children, branches, below), below.is_filtered or filters)


def _changes(plan: Plan) -> frozenset[int]:
    return frozenset(column.id for column in plan.columns if column.name == CHANGE)


def _at_same_places(plan: Plan, below: Plan, found: _Followed) -> frozenset[int]:
    """The columns of a plan that are at the places of the followed ones below."""
    both = zip(plan.columns, below.columns, strict=True)
    return frozenset(column.id for column, other in both if other.id in found.columns)


def _handed_on(
    plan: Plan, children: Sequence[Plan], branches: Sequence[_Followed | None], below: _Followed
) -> frozenset[int]:
    """The columns of a plan that hold what its children's followed columns hold."""
    if plan.kind == "Project":
        return frozenset(column for column, sources in plan.projected.items() if sources & below.columns)
    if plan.kind == "Union":
        sides = zip(children, branches, strict=True)
        return frozenset().union(*(_at_same_places(plan, child, found) for child, found in sides if found is not None))
    # A user's own function gives new columns: the change is the one of that name.
    known = {column.id for child in children for column in child.columns}
    return below.columns | (_changes(plan) - known)
