"""``headrace check``, ``explain`` and ``draw``: verbs that look at a pipeline's definition and read no data."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from headrace.cli.status import AsJson
from headrace.cli.targets import Parameters, Target, find_pipeline, read_parameters
from headrace.demo.quiet import standard_error_in
from headrace.errors import HeadraceError
from headrace.runtime.pipeline import Pipeline
from headrace.runtime.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def plan_session(target: str, parameter: list[str] | None) -> Iterator[tuple[Pipeline, SparkSession, dict[str, Any]]]:
    """The pipeline, a session that defines plans and runs nothing, and the arguments of the pipeline's function.

    What Spark said is shown after an unexpected failure.
    """
    pipeline, parameters = find_pipeline(target), read_parameters(parameter)
    if sys.stderr.isatty():
        print("Starting Spark ...", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="headrace-") as folder:
        log = Path(folder) / "spark.log"
        try:
            with standard_error_in(log):
                session = spark_session(pipeline.name, master="local[1]", quick_start=True)
                yield pipeline, session, parameters
                session.stop()
        except HeadraceError:
            raise
        except BaseException:
            sys.stderr.write(log.read_text(encoding="utf-8", errors="replace"))
            raise


STYLES = {"error": "bold red", "warning": "yellow", "note": "cyan"}
RanIn = Annotated[
    Path | None, typer.Option("--checkpoint", help="A checkpoint of the pipeline: also say what its runs have shown.")
]


def check(target: Target, parameter: Parameters = None, checkpoint: RanIn = None, as_json: AsJson = False) -> None:
    """Say what is wrong or worth knowing about a pipeline; no data is read, exit code 1 when something is wrong.

    Example: headrace check jobs/spend.py:spend -p folder=in
    """
    with plan_session(target, parameter) as (pipeline, spark, parameters):
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


def explain(target: Target, parameter: Parameters = None) -> None:
    """Say where time comes from, what state is kept and how long, and what each sink promises; no data is read.

    Example: headrace explain jobs/spend.py:spend -p folder=in
    """
    with plan_session(target, parameter) as (pipeline, spark, parameters):
        text = pipeline.explain(spark=spark, **parameters)
    print(text)


def draw(target: Target, parameter: Parameters = None) -> None:
    """Print a pipeline's graph as Mermaid text; no data is read.

    Example: headrace draw jobs/spend.py:spend -p folder=in > spend.mmd
    """
    with plan_session(target, parameter) as (pipeline, spark, parameters):
        text = pipeline.draw(spark=spark, **parameters)
    print(text)
