"""The programs that servers are made of, found on this machine."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from headrace.errors import HeadraceError

SYSTEM_FOLDERS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def program(name: str, *, package: str, folders: str = "") -> str:
    """The path of a program, from ``folders``, PATH or the system's folders (which a user's PATH may leave out)."""
    for path in (folders, os.environ.get("PATH", ""), SYSTEM_FOLDERS):
        found = shutil.which(name, path=path)
        if found is not None:
            return found
    raise HeadraceError(
        "SERVICE_MISSING", f"the program {name!r} is not installed. Install it: apt-get install {package}"
    )


def java() -> str:
    """The Java that JAVA_HOME names, or the first on PATH."""
    home = os.environ.get("JAVA_HOME")
    inside = "" if home is None else str(Path(home) / "bin")
    return program("java", package="openjdk-17-jre-headless", folders=inside)
