"""The checkpoint's identity file: whose state it holds, compared at every restart."""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headrace.errors import HeadraceError
from headrace.graph import FlowNode, Graph
from headrace.storage import write_durably
from headrace.wheel.key_groups import KEY_GROUPS

FILE = "identity.json"
FORMAT = 1


Definition = dict[str, Any]
"""What identifies a flow, a source or a step, as JSON: each kind of source and step has its own fields."""


def identity_of(graph: Graph, flow: FlowNode) -> Definition:
    """Everything that must stay the same for a flow's state and positions to stay valid."""
    return {
        "format": FORMAT,
        "pipeline": graph.pipeline,
        "flow": flow.name,
        "key_groups": KEY_GROUPS,
        "sources": [_source(graph, name) for name in flow.sources],
        "steps": [_step(graph, name) for name in graph.stateful(flow.steps)],
    }


def _source(graph: Graph, name: str) -> Definition:
    node = graph.sources[name]
    time = node.time
    clock = None if time is None else {"kind": time.kind, "column": time.column, "partition": time.partition}
    return {"name": name, **node.fingerprint, "time": clock}


def _step(graph: Graph, name: str) -> Definition:
    node = graph.steps[name]
    return {
        "name": name,
        "inputs": [str(graph.time_node(given)) for given in node.inputs],
        **node.step.fingerprint,
        "state": {column: str(dtype) for column, dtype in node.state.items()},
        "retention": node.step.retention,
        "definition": repr(node.step),
    }


@dataclass(frozen=True, slots=True)
class FlowId:
    """The identity of a flow in its sinks: an id made with its checkpoint, and how often that was restored."""

    id: str
    generation: int


def check_identity(folder: Path, identity: Definition) -> FlowId:
    """Write the identity of a new checkpoint; refuse a pipeline whose identity is not the stored one."""
    file = folder / FILE
    if not file.exists():
        flow_id = FlowId(f"{identity['flow']}-{uuid.uuid4().hex[:12]}", 0)
        write_durably(file, json.dumps({**asdict(flow_id), **identity}, indent=2))
        return flow_id
    stored = json.loads(file.read_text())
    flow_id = FlowId(stored["id"], stored["generation"])
    for name in ("format", "pipeline", "flow", "key_groups"):
        if stored[name] != identity[name]:
            raise HeadraceError(
                "CHECKPOINT_OF_ANOTHER_PIPELINE",
                f"checkpoint {str(folder)!r} was made with {name} {stored[name]!r}, this is {identity[name]!r}. "
                "Give this pipeline a checkpoint of its own.",
            )
    _compare("SOURCE_CHANGED", "source", stored["sources"], identity["sources"], folder)
    _compare("STEP_CHANGED", "step", stored["steps"], identity["steps"], folder)
    now = {**asdict(flow_id), **identity}
    if stored != now:
        write_durably(file, json.dumps(now, indent=2))
    return flow_id


def _compare(error: str, what: str, stored: list[Definition], given: list[Definition], folder: Path) -> None:
    names_then, names_now = [each["name"] for each in stored], [each["name"] for each in given]
    if names_then != names_now:
        raise HeadraceError(
            error,
            f"checkpoint {str(folder)!r} holds the {what}s {', '.join(names_then) or 'none'}, the pipeline now has "
            f"{', '.join(names_now) or 'none'}; state would be loaded into another {what}. Stored: {_shown(stored)}. "
            f"Now: {_shown(given)}. Restore the order, or start with a new checkpoint.",
        )
    for then, now in zip(stored, given, strict=True):
        changed = [name for name in then.keys() | now.keys() if name not in ("definition", "retention")]
        differing = sorted(name for name in changed if then.get(name) != now.get(name))
        if differing == ["state"]:
            differing = [f"state ({_columns_changed(then['state'], now['state'])})"]
        elif "state" in differing:
            differing.remove("state")  # it follows from the others
        if now.get("retention", 0) < then.get("retention", 0):
            differing.append("late")
        if differing:
            raise HeadraceError(
                error,
                f"{what} {now['name']!r} has another {', '.join(differing)} than the checkpoint {str(folder)!r}, so "
                f"what it holds would be wrong. Stored: {_shown([then])}. Now: {_shown([now])}. Take the change back, "
                "or start with a new checkpoint.",
            )


def _columns_changed(then: dict[str, str], now: dict[str, str]) -> str:
    """What a state that holds whole rows shows when their columns change.

    >>> _columns_changed({"user": "String", "n": "Int64"}, {"user": "Int64", "shop": "String"})
    'now without n, with shop String, user Int64 instead of String'
    """
    parts = [f"without {name}" for name in then if name not in now]
    parts += [f"with {name} {dtype}" for name, dtype in now.items() if name not in then]
    both = ((name, then[name], dtype) for name, dtype in now.items() if name in then)
    parts += [f"{name} {dtype} instead of {before}" for name, before, dtype in both if before != dtype]
    return f"now {', '.join(parts)}"


def _shown(definitions: list[Definition]) -> str:
    return "; ".join(str(each.get("definition") or json.dumps(each)) for each in definitions)
