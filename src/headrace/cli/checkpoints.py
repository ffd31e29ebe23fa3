"""Opening the checkpoint that a verb was given."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headrace.errors import HeadraceError
from headrace.observe import history

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
