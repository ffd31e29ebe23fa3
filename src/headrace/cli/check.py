"""``headrace check``."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from headrace.cli.checkpoints import AsJson
from headrace.cli.looking import looking_session
from headrace.cli.targets import Parameters, Target, find_pipeline, read_parameters

STYLES = {"error": "bold red", "warning": "yellow", "note": "cyan"}


RanIn = Annotated[
    Path | None, typer.Option("--checkpoint", help="A checkpoint of the pipeline: also say what its runs have shown.")
]


def check(target: Target, parameter: Parameters = None, checkpoint: RanIn = None, as_json: AsJson = False) -> None:
    """Say what is wrong or worth knowing about a pipeline; no data is read, exit code 1 when something is wrong.

    Example: headrace check jobs/spend.py:spend -p folder=in
    """
    pipeline, parameters = find_pipeline(target), read_parameters(parameter)
    with looking_session(pipeline.name) as spark:
        findings = pipeline.check(checkpoint=checkpoint, spark=spark, **parameters)
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        console = Console()
        for finding in findings:
            marked = Text(f"{finding.severity}: ", style=STYLES[finding.severity])
            console.print(marked.append(finding.message, style="default"), soft_wrap=True)
        if not findings:
            console.print("[green]Nothing to say.[/]")
    if any(finding.severity == "error" for finding in findings):
        raise typer.Exit(1)
