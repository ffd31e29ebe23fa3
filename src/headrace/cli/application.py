"""All verbs in one command."""

from __future__ import annotations

import typer

from headrace.cli.check import check
from headrace.cli.dead_letters import dead_letters
from headrace.cli.demo import demo
from headrace.cli.detect import detect
from headrace.cli.draw import draw
from headrace.cli.errors import Verbs
from headrace.cli.explain import explain
from headrace.cli.run import run
from headrace.cli.services import services
from headrace.cli.status import status

app = typer.Typer(
    cls=Verbs,
    name="headrace",
    help="Stream processing with the semantics of Apache Flink, on Spark.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
for verb in (demo, detect, run, check, explain, draw, status):
    app.command()(verb)
app.add_typer(dead_letters, name="dead-letters")
app.add_typer(services, name="services")
