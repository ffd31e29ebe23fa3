"""Signs of waiting: set once, seen by ``headrace status``, taken down."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace.cli import app
from headrace.waiting import Sign, clear, signs

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
    """The folder of a flow that has run a batch."""
    folder = tmp_path / "checkpoint" / "spend"
    folder.mkdir(parents=True)
    (folder / "history.jsonl").write_text(json.dumps(ENTRY) + "\n")
    return folder


def _sign(folder: Path, writer: int = 0) -> Sign:
    return Sign(str(folder), f"headrace.spend.main.{writer}", "kafka topic 'spend' at broker:9092")


def test_a_sign_keeps_its_first_moment_until_it_is_taken_down(flow: Path) -> None:
    sign = _sign(flow)
    sign.set_up("no answer in 6 seconds")
    [first] = signs(flow)
    sign.set_up("another reason")
    assert signs(flow) == [first]
    assert first["sink"] == "kafka topic 'spend' at broker:9092"
    assert first["reason"] == "no answer in 6 seconds"
    sign.take_down()
    assert signs(flow) == []
    sign.take_down()


def test_every_writer_has_a_sign_of_its_own_and_all_can_be_cleared(flow: Path) -> None:
    for writer in (0, 1):
        _sign(flow, writer).set_up("gone")
    assert len(signs(flow)) == 2
    clear(flow)
    assert signs(flow) == []
    clear(flow)


def test_a_flow_that_never_waited_has_no_signs(tmp_path: Path) -> None:
    assert signs(tmp_path / "nowhere") == []


def test_status_says_what_a_flow_waits_for_and_no_longer_once_it_goes_on(flow: Path) -> None:
    checkpoint = str(flow.parent)
    for writer in (0, 1):
        _sign(flow, writer).set_up("no answer [in 6 seconds]")
    shown = CliRunner().invoke(app, ["status", checkpoint], env={"COLUMNS": "140"})
    assert shown.exit_code == 0
    waits = "spend is waiting: kafka topic 'spend' at broker:9092 (no answer [in 6 seconds])"
    assert shown.stdout.count(waits) == 1
    told = json.loads(CliRunner().invoke(app, ["status", checkpoint, "--json"]).stdout)
    assert told[0]["waiting"] == [waits.removeprefix("spend is waiting: ")]
    assert told[0]["unread"] == 7
    clear(flow)
    assert "waiting" not in CliRunner().invoke(app, ["status", checkpoint], env={"COLUMNS": "140"}).stdout


def test_a_source_that_does_not_answer_is_shown_with_every_flow(flow: Path) -> None:
    Sign(str(flow.parent), "source.payments", "kafka topic payments at broker:9092").set_up("no leaders")
    shown = CliRunner().invoke(app, ["status", str(flow.parent)], env={"COLUMNS": "140"}).stdout
    assert "spend is waiting: kafka topic payments at broker:9092 (no leaders)" in shown
