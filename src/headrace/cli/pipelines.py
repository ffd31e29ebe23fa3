"""The verbs that take a pipeline: ``headrace run``, and ``check``, ``explain`` and ``draw``, which read no data."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer
from pyspark.sql import SparkSession
from rich.console import Console
from rich.text import Text

from headrace.cli.checkpoints import AsJson
from headrace.errors import HeadraceError
from headrace.observe.status import status_table, statuses
from headrace.runtime.modes import Mode, available_now, micro_batch
from headrace.runtime.pipeline import Pipeline
from headrace.runtime.session import spark_session

STYLES = {"error": "bold red", "warning": "yellow", "note": "cyan"}
Target = Annotated[str, typer.Argument(help="module:pipeline or file.py:pipeline.")]
Parameters = Annotated[
    list[str] | None,
    typer.Option("--parameter", "-p", metavar="KEY=VALUE", help="An argument of the pipeline's function."),
]
RanIn = Annotated[
    Path | None,
    typer.Option("--checkpoint", help="Its checkpoint: also say what does not fit it, and what its runs have shown."),
]
Once = Annotated[bool, typer.Option("--available-now", help="Read what is there, then stop.")]
Drain = Annotated[bool, typer.Option("--drain", help="With --available-now: the end of the data is the end of time.")]
MaxRows = Annotated[int | None, typer.Option(help="The most rows of a source that a batch takes.")]
KeepUp = Annotated[
    bool, typer.Option("--keep-up", help="Let batches take as many rows as they can within the interval.")
]


def run(
    target: Target,
    checkpoint: Annotated[Path, typer.Option(help="Where the pipeline keeps its state; created if missing.")],
    parameter: Parameters = None,
    once: Once = False,
    drain: Drain = False,
    interval: Annotated[str, typer.Option(help="How often to look for new rows.")] = "1 second",
    max_rows: MaxRows = None,
    keep_up: KeepUp = False,
    progress: Annotated[bool, typer.Option(help="Show how far the flows are, on standard error.")] = True,
) -> None:
    """Run a pipeline until Ctrl-C or SIGTERM, or over what is there now.

    Example: headrace run jobs/spend.py:spend --checkpoint checkpoints/spend -p folder=in --available-now
    """
    pipeline, parameters = find_pipeline(target), read_parameters(parameter)
    mode = _mode(once=once, drain=drain, interval=interval, max_rows=max_rows, keep_up=keep_up)
    pipeline.run(checkpoint=checkpoint, mode=mode, progress=progress, **parameters)
    console = Console()
    console.print(status_table(statuses(checkpoint), width=console.width))


def _mode(*, once: bool, drain: bool, interval: str, max_rows: int | None, keep_up: bool) -> Mode:
    if drain and not once:
        raise HeadraceError(
            "DRAIN_NEEDS_AVAILABLE_NOW", "--drain closes every window at the end of the data. Add --available-now."
        )
    if keep_up and once:
        raise HeadraceError(
            "KEEP_UP_WITHOUT_INTERVAL",
            "--keep-up fits batches to the interval, and --available-now has none. Use --max-rows.",
        )
    if once:
        return available_now(drain=drain, max_rows=max_rows)
    return micro_batch(interval, max_rows=max_rows, keep_up=keep_up)


@contextmanager
def plan_session(target: str, parameter: list[str] | None) -> Iterator[tuple[Pipeline, SparkSession, dict[str, Any]]]:
    """The pipeline, a session that runs nothing, and the parameters."""
    pipeline, parameters = find_pipeline(target), read_parameters(parameter)
    if sys.stderr.isatty():
        print("Starting Spark ...", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="headrace-") as folder:
        session = spark_session(pipeline.name, master="local[1]", quick_start=True, log=Path(folder, "spark.log"))
        yield pipeline, session, parameters
        session.stop()


def check(
    target: Target,
    parameter: Parameters = None,
    checkpoint: RanIn = None,
    connect: Annotated[
        bool, typer.Option("--connect", help="Ask the servers too, for a missing topic or table; nothing is changed.")
    ] = False,
    once: Once = False,
    drain: Drain = False,
    max_rows: MaxRows = None,
    keep_up: KeepUp = False,
    as_json: AsJson = False,
) -> None:
    """Say what run would refuse and what is worth knowing; no data is read, exit code 1 when something is wrong.

    Example: headrace check jobs/spend.py:spend -p folder=in --connect
    """
    mode = _mode(once=once, drain=drain, interval="1 second", max_rows=max_rows, keep_up=keep_up)
    with plan_session(target, parameter) as (pipeline, spark, parameters):
        findings = pipeline.check(checkpoint=checkpoint, mode=mode, connect=connect, spark=spark, **parameters)
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
        print(pipeline.explain(spark=spark, **parameters))


def draw(target: Target, parameter: Parameters = None) -> None:
    """Print a pipeline's graph as Mermaid text; no data is read.

    Example: headrace draw jobs/spend.py:spend -p folder=in > spend.mmd
    """
    with plan_session(target, parameter) as (pipeline, spark, parameters):
        print(pipeline.draw(spark=spark, **parameters))


def find_pipeline(target: str) -> Pipeline:
    """The pipeline that a target names; the name may be left out when there is only one."""
    place, _, name = target.rpartition(":") if ":" in target else (target, "", "")
    module = _from_file(Path(place)) if place.endswith(".py") else _from_module(place)
    pipelines = {each: value for each, value in vars(module).items() if isinstance(value, Pipeline)}
    if name in pipelines:
        return pipelines[name]
    if not name and len(pipelines) == 1:
        return next(iter(pipelines.values()))
    found = ", ".join(pipelines) or "none; decorate a function with @hr.pipeline"
    what = f"no pipeline named {name!r}" if name else f"{len(pipelines)} pipelines"
    raise HeadraceError("PIPELINE_UNKNOWN", f"{place!r} has {what}. Existing pipelines: {found}.")


def read_parameters(given: Sequence[str] | None) -> dict[str, Any]:
    """Arguments for the pipeline's function: JSON where a value is JSON, else text.

    >>> read_parameters(["folder=in", "rate=100", 'account="7"'])
    {'folder': 'in', 'rate': 100, 'account': '7'}
    """
    parameters: dict[str, Any] = {}
    for each in given or ():
        name, separator, value = each.partition("=")
        if not separator or not name.isidentifier():
            raise HeadraceError(
                "PARAMETER_UNREADABLE", f"-p {each!r} is not a name and a value. Write it as in -p folder=in."
            )
        try:
            parameters[name] = json.loads(value)
        except ValueError:
            parameters[name] = value
    return parameters


def _from_file(file: Path) -> ModuleType:
    if not file.is_file():
        raise HeadraceError("TARGET_MISSING", f"file {str(file)!r} does not exist. Give a path as in jobs/spend.py.")
    if file.stem in sys.modules:
        raise HeadraceError(
            "TARGET_NAME_TAKEN",
            f"file {str(file)!r} has the name of the module {file.stem!r}, which is in use. Rename the file.",
        )
    _make_importable(file.absolute().parent)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module


def _from_module(name: str) -> ModuleType:
    _make_importable(Path.cwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and not f"{name}.".startswith(f"{error.name}."):
            raise
        raise HeadraceError(
            "TARGET_MISSING", f"there is no module {name!r}. Give module:pipeline, or a file as in jobs/spend.py:spend."
        ) from error


def _make_importable(folder: Path) -> None:
    """As ``python file.py`` does it; Spark's workers, which start later, find the same modules."""
    sys.path.insert(0, str(folder))
    inherited = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(folder) if not inherited else f"{folder}{os.pathsep}{inherited}"
