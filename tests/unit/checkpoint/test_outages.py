"""Outage markers: written once, shown by ``headrace status``, removed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace.checkpoint.lease import take_lease
from headrace.checkpoint.outages import OutageMarker, clear_outages, outages
from headrace.checkpoint.storage import LocalStorage
from headrace.cli import app

ENTRY = {
    "flow": "spend",
    "batch": 0,
    "clock": 1_767_268_800_000_000,
    "watermarks": {},
    "partitions": {},
    "account": {"sources": {}, "steps": {}, "sinks": {}},
    "unread": {"payments": 7},
    "seconds": {"compute": 0.5, "batch": 1.25},
    "state": {"rows": 4, "bytes": 2048},
}


@pytest.fixture
def flow(tmp_path: Path) -> Path:
    """The folder of a running flow that has done a batch."""
    folder = tmp_path / "checkpoint" / "spend"
    folder.mkdir(parents=True)
    take_lease(LocalStorage(folder.parent))
    (folder / "history.jsonl").write_text(json.dumps(ENTRY) + "\n")
    return folder


def _marker(folder: Path, writer: int = 0) -> OutageMarker:
    return OutageMarker(LocalStorage(folder), f"headrace.spend.main.{writer}", "kafka topic 'spend' at broker:9092")


def test_a_marker_keeps_its_first_moment_until_it_is_removed(flow: Path) -> None:
    marker = _marker(flow)
    marker.begin("no answer in 6 seconds")
    [first] = outages(LocalStorage(flow))
    marker.begin("another reason")
    assert outages(LocalStorage(flow)) == [first]
    assert first.sink == "kafka topic 'spend' at broker:9092"
    assert first.reason == "no answer in 6 seconds"
    marker.end()
    assert outages(LocalStorage(flow)) == []
    marker.end()


def test_every_writer_has_a_marker_of_its_own_and_all_can_be_cleared(flow: Path) -> None:
    for writer in (0, 1):
        _marker(flow, writer).begin("gone")
    assert len(outages(LocalStorage(flow))) == 2
    clear_outages(LocalStorage(flow))
    assert outages(LocalStorage(flow)) == []
    clear_outages(LocalStorage(flow))


def test_a_flow_that_never_waited_has_no_outages(tmp_path: Path) -> None:
    assert outages(LocalStorage(tmp_path / "nowhere")) == []


def test_status_says_what_a_flow_waits_for_and_no_longer_once_it_goes_on(flow: Path) -> None:
    checkpoint = str(flow.parent)
    for writer in (0, 1):
        _marker(flow, writer).begin("no answer [in 6 seconds]")
    shown = CliRunner().invoke(app, ["status", checkpoint], env={"COLUMNS": "140"})
    assert shown.exit_code == 0
    waits = "spend is waiting: kafka topic 'spend' at broker:9092 (no answer [in 6 seconds])"
    assert shown.stdout.count(waits) == 1
    status = json.loads(CliRunner().invoke(app, ["status", checkpoint, "--json"]).stdout)
    assert status[0]["waiting"] == [waits.removeprefix("spend is waiting: ")]
    assert status[0]["unread"] == 7
    assert status[0]["state"] == "waiting"
    clear_outages(LocalStorage(flow))
    assert "waiting" not in CliRunner().invoke(app, ["status", checkpoint], env={"COLUMNS": "140"}).stdout


def test_a_source_that_does_not_answer_is_shown_with_every_flow(flow: Path) -> None:
    OutageMarker(LocalStorage(flow.parent), "source.payments", "kafka topic payments at broker:9092").begin(
        "no leaders"
    )
    shown = CliRunner().invoke(app, ["status", str(flow.parent)], env={"COLUMNS": "140"}).stdout
    assert "spend is waiting: kafka topic payments at broker:9092 (no leaders)" in shown
