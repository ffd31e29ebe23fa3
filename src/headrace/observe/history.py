"""History for people: one JSON line for each batch of a flow, under its checkpoint."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

FILE = "history.jsonl"


def append(flow_folder: Path, entry: dict[str, Any]) -> None:
    """Add a batch; one that ran again after a crash stands there twice, and the later line counts."""
    line = json.dumps(entry, separators=(",", ":")).encode() + b"\n"
    with (flow_folder / FILE).open("a+b") as stream:
        if stream.tell():
            stream.seek(-1, os.SEEK_END)
            # A line that a crash cut short ends here.
            line = line if stream.read(1) == b"\n" else b"\n" + line
        stream.write(line)


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
