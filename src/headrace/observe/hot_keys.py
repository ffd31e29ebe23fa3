"""Keys that so many rows have that one task gets much more work than the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.graph import Graph, StepDefinition
from headrace.observe import history
from headrace.plan.check import Finding

Reports = Mapping[str, Mapping[int, Mapping[str, Any]]]
HOT_SHARE = 0.1
RECENT_BATCHES = 20


def hot_keys(reports: Reports) -> dict[str, list[dict[str, Any]]]:
    """The keys of each step that have more than a tenth of a batch's rows, with their share.

    >>> sample = {"rows": 100, "top": [[["a"], 60], [["b"], 3]]}
    >>> hot_keys({"step.hourly": {0: {"keys": sample}}})
    {'hourly': [{'key': ['a'], 'share': 0.6}]}
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for node, parts in reports.items():
        samples = [part["keys"] for part in parts.values() if "keys" in part]
        rows = sum(sample["rows"] for sample in samples)
        counts: Counter[tuple[str | None, ...]] = Counter()
        for sample in samples:
            for key, count in sample["top"]:
                counts[tuple(key)] += count
        hot = [(key, count / rows) for key, count in counts.most_common() if count >= HOT_SHARE * rows]
        if hot:
            found[node.split(".", 1)[1]] = [{"key": list(key), "share": round(share, 2)} for key, share in hot]
    return found


def hot_key_findings(graph: Graph, checkpoint: Path) -> list[Finding]:
    """What the newest batches of a checkpoint say about hot keys."""
    found = []
    for flow in graph.flows.values():
        newest: dict[str, dict[str, Any]] = {}
        for entry in history.read(checkpoint / flow.name)[-RECENT_BATCHES:]:
            newest |= {step: keys[0] for step, keys in entry.get("hot_keys", {}).items()}
        for step, hot in newest.items():
            if step in graph.steps:
                found.append(_finding(graph.steps[step].step, hot))
    return found


def _finding(step: StepDefinition, hot: Mapping[str, Any]) -> Finding:
    is_costly = False
    if step.combines:
        advice = "Its rows are combined before the shuffle, so this costs little."
    elif step.spread is not None and step.spread > 1:
        advice = "Its rows are divided over several tasks."
    else:
        is_costly = True
        way_out = "Use a finer key" if step.spread is None else "Use spread=... to divide them over several tasks"
        advice = f"Its rows cannot be combined before the shuffle, so one task has them all. {way_out}."
    key = ", ".join(map(repr, hot["key"]))
    message = f"step {step.name!r}: key {key} had about {hot['share']:.0%} of a recent batch's rows. {advice}"
    return Finding("HOT_KEY", "warning" if is_costly else "note", step.name, message)
