"""Which rows of an output replace others: what a step says of its results, followed through the author's own PySpark.

The columns that tell versions apart are marked in the schema, so that the marks survive a select and a new name.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from headrace.graph import Graph, Origin
from headrace.nodes import NodeId, ResultVersions, StepDefinition
from headrace.operators.changelog_guard import is_changelog

_RESULT_TAG = "headrace.result"
"""Column metadata: the step and its column."""


def marked(schema: StructType, step: StepDefinition) -> StructType:
    """The schema of a step's results, in which the columns that tell versions apart are marked."""
    needed = _needed(step.versions)
    tags = {name: {_RESULT_TAG: f"{step.name}.{name}"} for name in needed}
    return StructType(
        [
            StructField(field.name, field.dataType, field.nullable, {**field.metadata, **tags.get(field.name, {})})
            for field in schema.fields
        ]
    )


def versions_of(frame: DataFrame, graph: Graph) -> ResultVersions | None:
    """Which rows of a frame are versions of one result; None where every row is a result of its own."""
    givers = {_giver(origin, graph) for origin in graph.origins_behind(frame)}
    if len(givers) == 1:
        return _from(givers.pop(), frame, graph)
    replacing = [giver.name for giver in givers if _replaces(giver, frame, graph)]
    return ResultVersions(unknown=f"results of {replacing[0]!r} are united with other rows") if replacing else None


def _giver(origin: Origin, graph: Graph) -> NodeId:
    """The source or step whose rows come from an origin: a step comes after all that it reads."""
    steps = [node for name in graph.steps if (node := NodeId("step", name)) in origin.nodes]
    return steps[-1] if steps else min(origin.nodes)


def _replaces(giver: NodeId, frame: DataFrame, graph: Graph) -> bool:
    """Whether rows may replace others or take them back."""
    owner = graph.time_node(giver)
    if owner.kind == "source":
        return is_changelog(frame, graph)
    step = graph.steps[owner.name].step
    return step.retracts or step.previews or step.corrects


def _from(giver: NodeId, frame: DataFrame, graph: Graph) -> ResultVersions | None:
    owner = graph.time_node(giver)
    declared = graph.steps[giver.name].step.versions if owner == giver and giver.kind == "step" else None
    tags = {(field.metadata or {}).get(_RESULT_TAG): field.name for field in frame.schema.fields}
    names = {name: tags.get(f"{giver.name}.{name}") for name in _needed(declared)}
    lost = [name for name, now in names.items() if now is None]
    if declared is not None and not lost:
        key = tuple((str(names[name]), *fields) for name, *fields in declared.key)
        return ResultVersions(key, names.get(declared.revision or ""), names.get(declared.change or ""))
    if not _replaces(giver, frame, graph):
        return None
    if lost:
        return ResultVersions(unknown=f"{', '.join(lost)} of step {giver.name!r} is missing or was computed anew")
    between = f", and step {giver.name!r} comes after it" if owner != giver else ""
    return ResultVersions(unknown=f"no column identifies a result of {owner.kind} {owner.name!r}{between}")


def _needed(versions: ResultVersions | None) -> list[str]:
    """The columns that tell versions apart."""
    if versions is None:
        return []
    marks = (versions.revision, versions.change)
    return list(dict.fromkeys([*(name for name, *_ in versions.key), *(mark for mark in marks if mark is not None)]))
