"""``headrace services`` on a folder of its own; Redis stands for all servers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from headrace.cli import app
from headrace.connectors.servers import service

RUNNER = CliRunner()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder whose server does not outlive the test."""
    yield tmp_path
    service("redis", tmp_path).stop()


def headrace(*arguments: str, folder: Path) -> Result:
    return RUNNER.invoke(app, ["services", *arguments, "--folder", str(folder)], env={"COLUMNS": "200"})


def test_starting_twice_says_that_it_runs_already(folder: Path) -> None:
    first = headrace("up", "redis", folder=folder)
    assert first.exit_code == 0
    assert first.stdout.startswith("redis started in")
    second = headrace("up", "redis", folder=folder)
    assert second.exit_code == 0
    assert second.stdout == f"redis is already running: {service('redis', folder).url}\n"


def test_the_table_shows_what_runs_and_what_died(folder: Path) -> None:
    headrace("up", "redis", folder=folder)
    server = service("redis", folder)
    assert all(
        word in headrace("status", folder=folder).stdout for word in ("running", str(server.pid), server.address)
    )
    server.kill()
    assert "died" in headrace("status", folder=folder).stdout
    shown = json.loads(headrace("status", "--json", folder=folder).stdout)
    assert [(found["name"], found["state"], found["pid"]) for found in shown] == [("redis", "died", None)]


def test_down_without_names_stops_all_of_the_folder(folder: Path) -> None:
    headrace("up", "redis", folder=folder)
    assert headrace("down", folder=folder).stdout == "redis stopped\n"
    assert headrace("down", "redis", "kafka", folder=folder).stdout == "redis was not running\nkafka was not running\n"
    assert service("kafka", folder).state == "absent"


def test_an_unknown_server_is_one_clear_line(folder: Path) -> None:
    outcome = headrace("up", "redis", "reddis", folder=folder)
    assert outcome.exit_code == 1
    assert outcome.stderr.startswith("headrace: [SERVICE_UNKNOWN] there is no service 'reddis'")
    assert headrace("status", folder=folder).stdout.startswith("No servers in")
