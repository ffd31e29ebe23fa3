"""History for people: one JSON line for each batch of a flow, under its checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FILE = "history.jsonl"


def append(flow_folder: Path, entry: dict[str, Any]) -> None:
    """Add a batch; one that ran again after a crash stands there twice, and the later line counts."""
    with (flow_folder / FILE).open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(entry, separators=(",", ":")) + "\n")


def read(flow_folder: Path) -> list[dict[str, Any]]:
    """The batches of a flow in order, each once; a line cut short by a crash is left out."""
    file = flow_folder / FILE
    if not file.exists():
        return []
    batches: dict[int, dict[str, Any]] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        batches[entry["batch"]] = entry
    return [batches[batch] for batch in sorted(batches)]


def flows(checkpoint: Path) -> list[str]:
    """The flows of a checkpoint that have run at least one batch."""
    return sorted(file.parent.name for file in checkpoint.glob(f"*/{FILE}"))
