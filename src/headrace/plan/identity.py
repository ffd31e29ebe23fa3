"""The identity of a flow: whose state its checkpoint holds, said in every takeover and compared at every restart."""

from __future__ import annotations

import json
import uuid
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.checkpoint import outages
from headrace.checkpoint.lease import Renewal, take_lease
from headrace.checkpoint.log import FOLDER
from headrace.checkpoint.storage import LocalStorage, Storage, incomplete
from headrace.errors import HeadraceError, check_name
from headrace.event_time.record import BatchLog
from headrace.graph import FlowNode, Graph
from headrace.json_codec import decode, encode
from headrace.state.group_range import KEY_GROUPS
from headrace.storage import sync_folder

FORMAT = 1

Definition = Mapping[str, Any]
"""What identifies a source or a step, as JSON values: each kind has its own fields."""


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
        "state_identity": list(node.state_identity),
        "retention": node.step.retention,
        "definition": repr(node.step),
    }


@dataclass(frozen=True, slots=True)
class FlowId:
    """The identity of a flow in its sinks: an id made with its checkpoint, and how often that was restored."""

    id: str
    generation: int
    key_groups: int = KEY_GROUPS
    """Into how many key groups its state is divided, for ever."""


def identity_of(
    graph: Graph, flow: FlowNode, *, stored: Definition | None, storage: Storage, known: str | None = None
) -> Definition:
    """The identity of a flow as it is now; refuse one for which the stored state and positions would not be valid.

    ``known`` is the id that the checkpoint's lease knows it by.
    """
    if known is not None and (stored is None or stored["id"] != known):
        found = "is gone" if stored is None else f"is that of {stored['id']}"
        raise incomplete(storage, f"its lease knows the flow {known}, whose log {found}")
    if stored is None:
        _check_empty(storage)
        flow_id = FlowId(f"{flow.name}-{uuid.uuid4().hex[:12]}", 0, graph.key_groups or KEY_GROUPS)
    else:
        flow_id = decode(FlowId, stored)
    identity = {
        "format": FORMAT,
        "pipeline": graph.pipeline,
        "flow": flow.name,
        "key_groups": graph.key_groups or flow_id.key_groups,
        "sources": [_source(graph, name) for name in flow.sources],
        "steps": [_step(graph, name) for name in graph.stateful(flow.steps)],
    }
    now = encode(identity)
    if stored is not None:
        for name in ("format", "pipeline", "flow", "key_groups"):
            if stored[name] != now[name]:
                raise _of_another(storage, name, stored[name], now[name])
        _compare("SOURCE_CHANGED", "source", stored["sources"], now["sources"], storage)
        _compare("STEP_CHANGED", "step", stored["steps"], now["steps"], storage)
    return {**encode(flow_id), **now}


def check_flows(graph: Graph, known: Mapping[str, str]) -> dict[str, str]:
    """The flows that the checkpoint still holds; refuse a pipeline in which one of them has another name.

    A flow that is new begins with nothing, and one that is gone stays as it is; a warning says so.
    """
    new, gone = compare_flows(graph, known)
    place = str(graph.checkpoint)
    if known and new:
        _tell(f"flow {_names(new)} is new in checkpoint {place!r}: it begins without state.")
    if gone:
        _tell(
            f"flow {_names(gone)} is not in pipeline {graph.pipeline!r} any more and does not run. Its state, late "
            f"rows and dead letters stay in checkpoint {place!r}; move its folder away if nobody needs it."
        )
    return {name: flow_id for name, flow_id in known.items() if name in graph.flows or name in gone}


def compare_flows(graph: Graph, known: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """The flows that are new to the checkpoint, and those that it holds and the pipeline no longer has."""
    place, gone = str(graph.checkpoint), list[str]()
    for name in known.keys() - graph.flows:
        log = BatchLog(LocalStorage(graph.checkpoint / name))
        # What was never begun has nothing that could be read or written twice.
        if log.outcome is not None:
            if log.identity["pipeline"] != graph.pipeline:
                raise _of_another(place, "pipeline", log.identity["pipeline"], graph.pipeline)
            gone.append(name)
    new = [name for name in graph.flows if name not in known and not _has_begun(graph.checkpoint / name)]
    if gone and new:
        raise HeadraceError(
            "FLOW_RENAMED",
            f"checkpoint {place!r} holds flow {_names(gone)}, which pipeline {graph.pipeline!r} no longer has, and "
            f"does not know flow {_names(new)}, which would read and write everything again. If it is the same flow, "
            f"run: headrace checkpoint rename-flow {place} {min(gone)} {new[0]}. If not, move the folder "
            f"{str(graph.checkpoint / min(gone))!r} away, with the state and late rows in it, or use a new checkpoint.",
        )
    return new, gone


def rename_flow(checkpoint: Path, old: str, new: str) -> None:
    """Give a flow of a checkpoint that is not in use another name; it keeps its id, and so its marks in sinks."""
    check_name("flow", new)
    if not _has_begun(checkpoint / old):
        found = sorted(folder.name for folder in checkpoint.glob("*") if _has_begun(folder))
        raise HeadraceError(
            "FLOW_UNKNOWN",
            f"checkpoint {str(checkpoint)!r} has no flow {old!r}. Existing flows: {', '.join(found) or 'none'}.",
        )
    renewal = Renewal(take_lease(LocalStorage(checkpoint)))
    try:
        if (checkpoint / new).exists():
            raise HeadraceError(
                "FLOW_EXISTS",
                f"checkpoint {str(checkpoint)!r} already has a folder {new!r}. Choose another name, or move that "
                "folder away.",
            )
        BatchLog(LocalStorage(checkpoint / old)).take_over(lambda said: {**said, "flow": new})
        (checkpoint / old).rename(checkpoint / new)
        sync_folder(checkpoint)
        renewal.name_flows({new if name == old else name: flow_id for name, flow_id in renewal.lease.flows.items()})
    finally:
        renewal.release()


def _has_begun(folder: Path) -> bool:
    """Whether a flow has a log there."""
    return any(LocalStorage(folder).numbers(FOLDER))


def _names(flows: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in sorted(flows))


def _tell(what: str) -> None:
    warnings.warn(what, RuntimeWarning, stacklevel=2)


def _of_another(place: object, what: str, stored: object, given: object) -> HeadraceError:
    return HeadraceError(
        "CHECKPOINT_OF_ANOTHER_PIPELINE",
        f"checkpoint {str(place)!r} was made with {what} {stored!r}, this is {given!r}. Give this pipeline a "
        "checkpoint of its own.",
    )


def _check_empty(storage: Storage) -> None:
    """Refuse to begin a flow where parts of another one are left, whose log is gone."""
    left = {name.partition("/")[0] for name in storage.list("")} - {outages.FOLDER}
    if left:
        raise incomplete(storage, f"its log is gone, but {', '.join(sorted(left))} is still there")


def _compare(error: str, what: str, stored: list[Definition], given: list[Definition], storage: Storage) -> None:
    names_then, names_now = ([str(each["name"]) for each in side] for side in (stored, given))
    if names_then != names_now:
        raise HeadraceError(
            error,
            f"checkpoint {str(storage)!r} holds the {what}s {', '.join(names_then) or 'none'}, the pipeline now has "
            f"{', '.join(names_now) or 'none'}; state would be loaded into another {what}. Stored: {_shown(stored)}. "
            f"Now: {_shown(given)}. Restore the order, or start with a new checkpoint.",
        )
    for then, now in zip(stored, given, strict=True):
        differing = _differing(then, now)
        if differing:
            raise HeadraceError(
                error,
                f"{what} {now['name']!r} has another {', '.join(differing)} than the checkpoint {str(storage)!r}, so "
                f"what it holds would be wrong. Stored: {_shown([then])}. Now: {_shown([now])}. Revert the change, "
                "or start with a new checkpoint.",
            )


def _differing(then: Definition, now: Definition) -> list[str]:
    compared = (then.keys() | now.keys()) - {"definition", "retention", "state", "state_identity"}
    differing = sorted(name for name in compared if then.get(name) != now.get(name))
    # Where other fields differ, the state follows from them.
    if not differing and then.get("state", now.get("state")) != now.get("state"):
        differing = [f"state ({_columns_changed(then['state'], now['state'])})"]
    if now.get("retention", 0) < then.get("retention", 0):
        differing.append("late")
    return differing


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
