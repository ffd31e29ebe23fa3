"""``headrace status``, and how verbs open a checkpoint."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live

from headrace.errors import HeadraceError
from headrace.observe import history
from headrace.observe.status import status_view, statuses

Checkpoint = Annotated[Path, typer.Argument(help="The folder given as checkpoint=... when the pipeline was started.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


def flows_of(checkpoint: Path) -> list[str]:
    """The flows of a checkpoint that have run; a folder without any is a mistake."""
    flows = history.flows(checkpoint)
    if flows:
        return flows
    if not checkpoint.is_dir():
        problem, advice = "does not exist", "Give the folder that the pipeline was started with."
    else:
        problem = "holds no flow that has run a batch"
        advice = "Give the pipeline's checkpoint folder, not one inside it, and wait for its first batch."
    raise HeadraceError("CHECKPOINT_EMPTY", f"checkpoint {str(checkpoint)!r} {problem}. {advice}")


def chosen_flows(checkpoint: Path, flow: str | None) -> list[str]:
    """All flows of a checkpoint, or the one that was asked for."""
    flows = flows_of(checkpoint)
    if flow is None:
        return flows
    if flow not in flows:
        raise HeadraceError(
            "FLOW_UNKNOWN",
            f"checkpoint {str(checkpoint)!r} has no flow {flow!r}. Existing flows: {', '.join(flows)}.",
        )
    return [flow]


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
