"""The command ``headrace``: all verbs, and how an error is shown."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from headrace import __version__
from headrace.cli.checkpoints import dead_letters, status
from headrace.cli.demo import demo, detect
from headrace.cli.pipelines import check, draw, explain, run
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


for verb in (demo, detect, run, check, explain, draw, status):
    app.command()(verb)
app.add_typer(dead_letters, name="dead-letters")
app.add_typer(services, name="services")
