"""The command ``headrace``: all verbs, how an error is shown, and the verbs ``demo`` and ``detect``."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from typer.core import TyperGroup

from headrace import __version__
from headrace.cli.checkpoints import changes, dead_letters, log, status
from headrace.cli.pipelines import check, draw, explain, run
from headrace.cli.results import show
from headrace.cli.services import services
from headrace.errors import HeadraceError


class Verbs(TyperGroup):
    """The verbs of the command. An error of Headrace is one clear line on standard error and exit code 1."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except HeadraceError as error:
            print(f"headrace: {error}", file=sys.stderr)
            raise typer.Exit(1) from error


app = typer.Typer(
    cls=Verbs, name="headrace", no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False
)


@app.callback(invoke_without_command=True)
def headrace(
    version: Annotated[bool, typer.Option("--version", is_eager=True, help="Print the version and exit.")] = False,
) -> None:
    """Stream processing with the semantics of Apache Flink, on Spark."""
    if version:
        print(f"headrace {__version__}")
        raise typer.Exit


@app.command()
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


@app.command()
def detect(
    detector: Annotated[str, typer.Argument(help="Which detector to try; without a name all are listed.")] = "",
    keys: Annotated[int, typer.Option(help="How many keys have each story.", min=1)] = 50,
) -> None:
    """Try a ready-made detector on generated rows with planted cases and near misses, and say how good it is.

    Example: headrace detect impossible-travel --keys 200
    """
    from headrace.demo.detection import DETECTIONS, judge

    if not detector:
        for name in DETECTIONS:
            typer.echo(name)
        return
    if detector not in DETECTIONS:
        raise HeadraceError(
            "DETECTOR_UNKNOWN", f"there is no detector {detector!r}. The detectors are {', '.join(DETECTIONS)}."
        )
    folder = Path(tempfile.mkdtemp(prefix="headrace-detect-"))
    console = Console()
    with console.status("planting cases, starting Spark and running the detector"):
        judged = judge(DETECTIONS[detector], folder, keys=keys)
    table = Table("story", "keys", "to find", "alerts", title=detector)
    for story, planted, is_case, alerts in judged.stories.rows():
        right = alerts == (planted if is_case else 0)
        table.add_row(
            story, f"{planted:,}", "yes" if is_case else "no", f"[{'green' if right else 'red'}]{alerts:,}[/]"
        )
    console.print(table)
    console.print(
        f"{judged.rows:,} rows: recall {judged.recall:.1%}, precision {judged.precision:.1%}", highlight=False
    )
    if not judged.perfect:
        raise typer.Exit(1)


for verb in (run, show, check, explain, draw, status, log):
    app.command()(verb)
app.add_typer(changes, name="checkpoint")
app.add_typer(dead_letters, name="dead-letters")
app.add_typer(services, name="services")
