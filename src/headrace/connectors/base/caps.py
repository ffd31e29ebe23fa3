"""How many rows a batch may take of a source: small files that a flow rewrites while it runs, and the source reads."""

from __future__ import annotations

from pathlib import Path

from headrace.storage import write_durably

FOLDER = "caps"


def set_cap(folder: Path, flow: str, rows: int) -> None:
    """Let a flow's next batches take at most so many rows of a source."""
    write_durably(folder / flow, str(rows))


def cap_of(folder: Path, flow: str = "[!.]*") -> int | None:
    """The cap that a flow has set, or the smallest of all flows; None while none has.

    >>> cap_of(Path("nowhere")) is None
    True
    """
    return min((int(file.read_text()) for file in folder.glob(flow)), default=None)


def remove_cap(folder: Path, flow: str) -> None:
    """Take back what an earlier run of a flow set."""
    (folder / flow).unlink(missing_ok=True)
