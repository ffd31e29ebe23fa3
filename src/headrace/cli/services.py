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
