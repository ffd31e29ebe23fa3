"""``headrace status``."""

from __future__ import annotations

import json
import time
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live

from headrace.cli.checkpoints import AsJson, Checkpoint, flows_of
from headrace.observe.status import status_view, statuses

LOOK_SECONDS = 1.0


def status(
    checkpoint: Checkpoint,
    watch: Annotated[bool, typer.Option("--watch", help="Keep the table up to date until Ctrl-C.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show how far each flow of a pipeline is: rows, watermark, lag and state.

    Example: headrace status checkpoints/spend --watch
    """
    flows_of(checkpoint)
    if as_json:
        print(json.dumps([flow.to_json() for flow in statuses(checkpoint)], indent=2))
        return
    console = Console()
    if not watch:
        console.print(status_view(statuses(checkpoint), width=console.width))
        return
    with Live(status_view(statuses(checkpoint), width=console.width), console=console, auto_refresh=False) as live:
        try:
            while True:
                time.sleep(LOOK_SECONDS)
                live.update(status_view(statuses(checkpoint), width=console.width), refresh=True)
        except KeyboardInterrupt:
            return
