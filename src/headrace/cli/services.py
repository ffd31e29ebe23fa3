"""``headrace services``: real local servers for development and tests."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Column, Table

from headrace.cli.checkpoints import AsJson
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.services.service import Service

Folder = Annotated[Path, typer.Option("--folder", help="Where the servers keep their data.")]
DEFAULT_FOLDER = Path(".headrace/services")
STYLES = {"running": "green", "died": "red"}

services = typer.Typer(
    help="Real local servers for development and tests: kafka, postgres, redis, mosquitto, opensearch, connect.",
    no_args_is_help=True,
)


@services.command()
def up(
    names: Annotated[list[str], typer.Argument(help="Which: kafka, postgres, redis, mosquitto, opensearch, connect.")],
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """Start servers, each on a free port of this machine that it keeps, and wait until they are ready.

    Example: headrace services up kafka postgres redis
    """
    console = Console()
    for server in _servers(folder, names):
        began = time.monotonic()
        with console.status(f"starting {server.name} (the first time may fetch it) ..."):
            started = server.start()
        how = f"started in {time.monotonic() - began:.1f} s" if started else "is already running"
        print(f"{server.name} {how}: {server.url}")
        if server.secret_file is not None:
            print(f"  its password is in {server.secret_file}")


@services.command()
def down(
    names: Annotated[list[str] | None, typer.Argument(help="Which; all in the folder when none is named.")] = None,
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """Stop servers; their data stays, and `up` brings them back on the same ports.

    Example: headrace services down kafka
    """
    for server in _servers(folder, names):
        with Console().status(f"stopping {server.name} ..."):
            stopped = server.state != "absent" and server.stop()
        print(f"{server.name} {'stopped' if stopped else 'was not running'}")


@services.command()
def status(folder: Folder = DEFAULT_FOLDER, as_json: AsJson = False) -> None:
    """Show the servers of a folder: whether they run, and where they listen.

    Example: headrace services status --json
    """
    found = _servers(folder)
    if as_json:
        print(json.dumps([_as_json(server) for server in found], indent=2))
        return
    if not found:
        print(f"No servers in {folder}. Start some: headrace services up kafka")
        return
    narrow = [Column(name, no_wrap=True) for name in ("name", "state", "pid")]
    wide = [Column(name, overflow="fold") for name in ("address", "folder")]
    table = Table(*narrow, *wide, header_style="bold")
    here = Path.cwd()
    for server in found:
        state, pid = server.state, server.pid
        shown_folder = server.folder.relative_to(here) if server.folder.is_relative_to(here) else server.folder
        shown_state = f"[{STYLES.get(state, 'default')}]{state}[/]"
        table.add_row(server.name, shown_state, str(pid or ""), server.address, str(shown_folder))
    Console().print(table)


@services.command()
def topic(
    name: Annotated[str, typer.Argument(help="The topic's name.")],
    partitions: Annotated[int, typer.Option("--partitions", min=1, help="How many partitions a new topic has.")] = 1,
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """Create a topic in the folder's Kafka, unless it exists.

    Example: headrace services topic payments --partitions 4
    """
    from headrace.connectors.kafka.client import Cluster
    from headrace.connectors.kafka.sink import MAX_BYTES
    from headrace.connectors.kafka.topics import TopicSettings

    [kafka] = _servers(folder, ["kafka"])
    if not kafka.is_running():
        raise HeadraceError(
            "SERVICE_NEEDS_KAFKA", f"no Kafka broker runs in {kafka.folder}. Start it first: headrace services up kafka"
        )
    settings = TopicSettings(partitions, None, ())
    created, found = settings.create(Cluster(kafka.address, (), MAX_BYTES), name)
    print(f"topic {name} {'created' if created else 'exists'}, with {found} partition{'s' if found > 1 else ''}")


def _servers(folder: Path, names: list[str] | None = None) -> list[Service]:
    """The named servers; without names all that were ever started in the folder."""
    from headrace.connectors.servers import SERVERS, service

    found = [service(name, folder) for name in names or SERVERS]
    return found if names else [server for server in found if server.state != "absent"]


def _as_json(server: Service) -> dict[str, object]:
    return {
        "name": server.name,
        "state": server.state,
        "address": server.address,
        "url": server.url,
        "pid": server.pid,
        "folder": str(server.folder),
        "password_file": None if server.secret_file is None else str(server.secret_file),
    }
