"""Hot keys: keys with so many rows that one task gets much more work than the others."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from headrace.graph import Graph
from headrace.nodes import StepDefinition
from headrace.observe import history
from headrace.observe.history import HotKey
from headrace.plan.check import Finding
from headrace.reports import BatchReports

HOT_SHARE = 0.1
RECENT_BATCHES = 20


def hot_keys(reports: BatchReports) -> dict[str, tuple[HotKey, ...]]:
    """The keys of each step that have more than a tenth of a batch's rows, with their share."""
    found: dict[str, tuple[HotKey, ...]] = {}
    for node, parts in reports.inputs.items():
        rows = sum(report.keys.rows for report in parts.values())
        counts: Counter[tuple[str | None, ...]] = Counter()
        for report in parts.values():
            counts.update(dict(report.keys.top))
        hot = [HotKey(key, round(count / rows, 2)) for key, count in counts.most_common() if count >= HOT_SHARE * rows]
        if hot:
            found[node.path] = tuple(hot)
    return found


def hot_key_findings(graph: Graph, checkpoint: Path) -> list[Finding]:
    """Findings about hot keys in the newest batches of a checkpoint."""
    found = []
    for flow in graph.flows:
        newest: dict[str, HotKey] = {}
        for entry in history.read(checkpoint / flow)[-RECENT_BATCHES:]:
            newest |= {step: keys[0] for step, keys in entry.hot_keys.items()}
        found += [_finding(graph.steps[step].step, hot) for step, hot in newest.items() if step in graph.steps]
    return found


def _finding(step: StepDefinition, hot: HotKey) -> Finding:
    divided = step.spread is not None and step.spread > 1
    if step.combines:
        advice = "Its rows are combined before the shuffle, so this costs little."
    elif divided:
        advice = "Its rows are divided over several tasks."
    else:
        way_out = "Use a finer key" if step.spread is None else "Use spread=... to divide them over several tasks"
        advice = f"Its rows cannot be combined before the shuffle, so one task has them all. {way_out}."
    key = ", ".join(map(repr, hot.key))
    message = f"step {step.name!r}: key {key} had about {hot.share:.0%} of a recent batch's rows. {advice}"
    return Finding("HOT_KEY", "note" if step.combines or divided else "warning", step.name, message)
