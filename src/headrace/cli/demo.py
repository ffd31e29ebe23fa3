"""``headrace demo``."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def demo(
    keep_running: Annotated[bool, typer.Option("--keep-running", help="Go on until Ctrl-C.")] = False,
    seconds: Annotated[float, typer.Option(help="How long to run after the first windows.", min=0)] = 25.0,
    folder: Annotated[
        Path | None, typer.Option(help="Where to keep results and checkpoint; the same folder again goes on.")
    ] = None,
) -> None:
    """Watch payments go through windows: late, broken and doubled rows included, and an account that adds up.

    Example: headrace demo --seconds 60 --folder /tmp/demo
    """
    from headrace.demo.play import play

    chosen = Path(tempfile.mkdtemp(prefix="headrace-demo-")) if folder is None else folder.absolute()
    if not play(chosen, seconds=None if keep_running else seconds, console=Console()):
        raise typer.Exit(1)
