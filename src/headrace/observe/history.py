"""History for people: one JSON line for each batch of a flow, under its checkpoint; the oldest batches leave it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from headrace.json_codec import from_text, to_text
from headrace.observe.account import Account

FILE, OLDER = "history.jsonl", "history.older.jsonl"
LARGEST = 32 << 20
"""How many bytes a file grows to before it becomes the older one; at ten batches a second the two hold some hours."""
TAIL = 1 << 20
"""The last lines are within this many bytes."""
FORMAT = 1


@dataclass(frozen=True, slots=True)
class BatchSeconds:
    """How long a batch took: to its last result, and to its end."""

    compute: float = 0.0
    batch: float = 0.0


@dataclass(frozen=True, slots=True)
class StateSize:
    """How much state a flow holds."""

    rows: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class HotKey:
    """A key with a large share of a batch's rows."""

    key: tuple[str | None, ...]
    share: float


@dataclass(frozen=True, slots=True)
class TableVersion:
    """The version of its small table that a step read, and why the last refresh failed, if it did."""

    version: int
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """What a batch did. Sources, steps and sinks are named; times are microseconds since the epoch."""

    flow: str
    batch: int
    clock: int
    watermarks: Mapping[str, int] = field(default_factory=dict)
    partitions: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """The highest event time of each partition of each source."""
    account: Account = field(default_factory=Account)
    total: Account = field(default_factory=Account)
    """The account of all batches up to this one."""
    unread: Mapping[str, int] = field(default_factory=dict)
    cap: int | None = None
    """The most rows of a source that a batch takes."""
    hot_keys: Mapping[str, tuple[HotKey, ...]] = field(default_factory=dict)
    counters: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    rules_versions: Mapping[str, int] = field(default_factory=dict)
    tables: Mapping[str, TableVersion] = field(default_factory=dict)
    lost: Mapping[str, int] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)
    seconds: BatchSeconds = field(default_factory=BatchSeconds)
    state: StateSize = field(default_factory=StateSize)


def append(flow_folder: Path, entry: HistoryEntry) -> None:
    """Add a batch; one that ran again after a crash is there twice, and the later line counts."""
    line, file = to_text(entry, format=FORMAT).encode() + b"\n", flow_folder / FILE
    if file.exists() and file.stat().st_size > LARGEST:
        file.replace(flow_folder / OLDER)
    with file.open("a+b") as stream:
        if stream.tell():
            stream.seek(-1, os.SEEK_END)
            # A line that a crash cut short ends here.
            line = line if stream.read(1) == b"\n" else b"\n" + line
        stream.write(line)


def read(flow_folder: Path) -> list[HistoryEntry]:
    """The last batches of a flow in order, each once; a line cut short by a crash is left out."""
    lines: list[bytes] = []
    # The newer file first, which may become the older one meanwhile; its lines count last.
    for file in (flow_folder / FILE, flow_folder / OLDER):
        with suppress(FileNotFoundError):
            lines = file.read_bytes().splitlines() + lines
    batches = {entry.batch: entry for entry in _entries(lines)}
    return [batches[batch] for batch in sorted(batches)]


def _entries(lines: Iterable[bytes]) -> Iterator[HistoryEntry]:
    for line in lines:
        with suppress(ValueError):
            yield parse(line)


def newest(flow_folder: Path) -> HistoryEntry | None:
    """The last batch of a flow."""
    for file in (flow_folder / FILE, flow_folder / OLDER):
        with suppress(FileNotFoundError), file.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - TAIL))
            for entry in _entries(reversed(stream.read().splitlines())):
                return entry
    return None


def parse(line: str | bytes) -> HistoryEntry:
    """The entry of one line."""
    return from_text(HistoryEntry, line, format=FORMAT)


def flows(checkpoint: Path) -> list[str]:
    """The flows of a checkpoint that have run at least one batch."""
    return sorted({file.parent.name for name in (FILE, OLDER) for file in checkpoint.glob(f"*/{name}")})
