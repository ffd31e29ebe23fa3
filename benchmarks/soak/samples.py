"""What is seen of a running flow from outside, every few seconds."""

from __future__ import annotations

import csv
import os
import statistics
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import psutil

from headrace.observe import history
from headrace.observe.history import HistoryEntry


@dataclass(frozen=True, slots=True)
class Sample:
    """One look."""

    seconds: float
    """Since the first look."""
    batch: int
    rows: int
    """Read so far."""
    state_rows: int
    state_bytes: int
    files: int
    """In the checkpoint."""
    memory_bytes: int
    """What all processes of the flow hold, without the pages of files, which other programs may share."""
    batch_seconds: float
    """The median of the batches since the look before."""


class Sampler:
    """Looks at a flow that runs in a process."""

    def __init__(self, checkpoint: Path, flow: str, pid: int) -> None:
        self._checkpoint = checkpoint
        self._history = checkpoint / flow / history.FILE
        self._root = psutil.Process(pid)
        self._read = 0
        """Bytes of the history that were read."""
        self._rows = 0

    def look(self, seconds: float) -> Sample | None:
        """What is to be seen now; None when no batch was done since the look before."""
        entries = list(self._new_entries())
        if not entries:
            return None
        self._rows += sum(entry.account.read for entry in entries)
        newest = entries[-1]
        return Sample(
            round(seconds, 1),
            newest.batch,
            self._rows,
            newest.state.rows,
            newest.state.bytes,
            sum(len(files) for _, _, files in os.walk(self._checkpoint)),
            _memory_of(self._root),
            round(statistics.median(entry.seconds.batch for entry in entries), 3),
        )

    def _new_entries(self) -> Iterator[HistoryEntry]:
        """Only what was added: reading all of it would take longer with every look."""
        if not self._history.exists():
            return
        with self._history.open("rb") as lines:
            lines.seek(self._read)
            for line in lines:
                if line.endswith(b"\n"):
                    self._read += len(line)
                    yield history.parse(line)


def _memory_of(root: psutil.Process) -> int:
    """The anonymous memory of a process and its descendants in bytes; what a fork shares counts once."""
    held = 0
    # A process may end while it is looked at.
    with suppress(psutil.NoSuchProcess):
        for process in (root, *root.children(recursive=True)):
            with suppress(FileNotFoundError, ProcessLookupError):
                lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
                held += sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss_Anon:"))
    return held


def write_csv(samples: Sequence[Sample], file: Path) -> None:
    """A line for each look."""
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, [field.name for field in fields(Sample)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(sample) for sample in samples)
