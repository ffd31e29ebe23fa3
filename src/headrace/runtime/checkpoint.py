"""The checkpoint folder of a pipeline: whether it can be written."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from headrace.errors import HeadraceError


def open_checkpoint(path: str | os.PathLike[str]) -> Path:
    """Create the folder and check that it is writable, before anything runs."""
    folder = Path(path).absolute()
    probe = folder / f".writable-{uuid.uuid4().hex}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as problem:
        raise HeadraceError(
            "CHECKPOINT_NOT_WRITABLE",
            f"checkpoint {str(folder)!r} cannot be written ({problem.strerror}), so nothing would survive a restart. "
            "Choose a folder this user may write to.",
        ) from problem
    return folder
