"""Rows that take others back are kept from steps for which every row is something that happened."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

import polars as pl

from headrace.changelog import CHANGE, CHANGELOG
from headrace.errors import DefinitionError
from headrace.graph import Graph
from headrace.node_id import NodeId
from headrace.schemas import polars_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_CHOICE = re.compile(rf"^\W*Filter .*\b{CHANGE}#\d", re.MULTILINE)


def check_events(frame: DataFrame, graph: Graph, node: NodeId, *, step: str) -> None:
    """Refuse the changelog of a source or step, unless the user has selected which of its changes are wanted."""
    is_source = node.kind == "source"
    retracts = graph.sources[node.name].changes if is_source else graph.steps[node.name].step.retracts
    if retracts and not is_chosen(str(frame._jdf.queryExecution().analyzed().toString()), str(node)):
        check_not_a_changelog(polars_schema(frame.schema), f"{node.kind} {node.name!r}", step=step)


def check_not_a_changelog(schema: Mapping[str, pl.DataType], giver: str, *, step: str) -> None:
    """Refuse the rows of a source or step that retracts rows, unless they no longer say what they change."""
    if all(schema.get(name) == kind for name, kind in CHANGELOG.items()):
        raise DefinitionError(
            "CHANGELOG_NOT_UNDERSTOOD",
            f"step {step!r} takes each row as something that happened, but {giver} gives a changelog, in "
            "which a row may take an earlier one back, so updates and deletes would count as new rows. "
            "Use hr.table_aggregate, hr.table_join or hr.materialize, or choose the changes that are meant before the "
            f"step: .where(\"{CHANGE} = 'insert'\"), or .drop({CHANGE!r}) if all are.",
        )


def is_chosen(plan: str, node: str) -> bool:
    """Whether rows are chosen by their change behind a node; a plan begins with what is done last.

    >>> is_chosen("Filter (change#7 = insert)\\n+- MapInArrow headrace.source.orders(...)", "source.orders")
    True
    >>> is_chosen("Filter (amount#3 > 0)\\n+- MapInArrow headrace.source.orders(...)", "source.orders")
    False
    """
    behind = re.split(rf"headrace\.{re.escape(node)}\b", plan, maxsplit=1)[0]
    return _CHOICE.search(behind) is not None
