"""``headrace status``, ``headrace log`` and ``headrace dead-letters`` on a checkpoint made by hand."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headrace.checkpoint.lease import LeaseHolder, take_lease
from headrace.checkpoint.storage import LocalStorage
from headrace.cli import app
from headrace.event_time.record import BatchLog, BatchOutcome, BatchRecord, SourceRead
from headrace.event_time.strategy import BEGINNING
from tests.unit.cli.conftest import CLOCK, entry

RUNNER = CliRunner()


def test_a_batch_that_ran_again_is_counted_once(checkpoint: Path) -> None:
    result = RUNNER.invoke(app, ["status", str(checkpoint), "--json"])
    assert result.exit_code == 0
    assert json.loads(result.stdout) == [
        {
            "flow": "spend",
            "state": "stopped",
            "stopped": "2026-01-01 12:02:00",
            "batch": 2,
            "read": 210,
            "dead": 3,
            "late": 4,
            "out": 12,
            "watermark": "2026-01-01 11:56:00",
            "drained": False,
            "lag": 360.0,
            "seconds": 1.25,
            "state_rows": 4,
            "state_bytes": 2048,
            "unread": 0,
            "waiting": [],
            "read_once": {},
        }
    ]


def status_of(checkpoint: Path) -> dict[str, Any]:
    [flow] = json.loads(RUNNER.invoke(app, ["status", str(checkpoint), "--json"]).stdout)
    assert isinstance(flow, dict)
    return flow


def test_a_flow_runs_while_its_driver_holds_the_lease_and_has_stopped_since_it_released_it(checkpoint: Path) -> None:
    lease = take_lease(LocalStorage(checkpoint))
    assert (status_of(checkpoint)["state"], status_of(checkpoint)["stopped"]) == ("running", None)
    lease.renew(released=True)
    seen = datetime(2026, 1, 1, 18, tzinfo=UTC).timestamp()
    os.utime(checkpoint / lease.file, (seen, seen))
    assert (status_of(checkpoint)["state"], status_of(checkpoint)["stopped"]) == ("stopped", "2026-01-01 18:00:00")
    shown = RUNNER.invoke(app, ["status", str(checkpoint)], env={"COLUMNS": "140"}).stdout
    assert "spend has been stopped since 2026-01-01 18:00:00 (UTC)" in shown


def test_a_driver_that_was_killed_has_stopped_and_one_elsewhere_once_it_is_silent(checkpoint: Path) -> None:
    def is_said_of(holder: LeaseHolder) -> str:
        (checkpoint / lease.file).write_bytes(holder.to_bytes())
        return str(status_of(checkpoint)["state"])

    lease = take_lease(LocalStorage(checkpoint))
    here = lease.holder
    killed = subprocess.Popen(["true"])
    killed.wait()
    assert is_said_of(replace(here, pid=killed.pid)) == "stopped"
    assert is_said_of(replace(here, host="elsewhere")) == "running"
    assert is_said_of(replace(here, host="elsewhere", expires=-1.0)) == "stopped"


def test_a_flow_is_there_before_its_first_batch(tmp_path: Path) -> None:
    (tmp_path / "spend").mkdir()
    replace(take_lease(LocalStorage(tmp_path)), flows={"spend": "spend-1f0c"}).renew()
    found = status_of(tmp_path)
    assert (found["flow"], found["state"], found["batch"], found["watermark"]) == ("spend", "running", None, None)
    assert "no row yet" in RUNNER.invoke(app, ["status", str(tmp_path)], env={"COLUMNS": "140"}).stdout


@pytest.mark.parametrize(("read", "watermark"), [(0, "no row yet"), (7, "none yet")])
def test_that_no_row_has_come_is_said_only_when_that_is_so(tmp_path: Path, read: int, watermark: str) -> None:
    (tmp_path / "spend").mkdir()
    first = entry(0, watermark=BEGINNING, read=read, dead=0, late=0, out=0, total=(read, 0, 0, 0))
    (tmp_path / "spend" / "history.jsonl").write_text(json.dumps(first) + "\n")
    shown = RUNNER.invoke(app, ["status", str(tmp_path)], env={"COLUMNS": "140"}).stdout
    assert f" {watermark} " in shown


def test_the_table_shows_watermark_and_lag_for_people(checkpoint: Path) -> None:
    result = RUNNER.invoke(app, ["status", str(checkpoint)], env={"COLUMNS": "140"})
    assert result.exit_code == 0
    for shown in ("spend", "2026-01-01 11:56:00", "6 min 0 s", "2.0 KiB", "210"):
        assert shown in result.stdout


def test_a_folder_without_flows_is_one_line_on_standard_error(tmp_path: Path) -> None:
    result = RUNNER.invoke(app, ["status", str(tmp_path)])
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith("headrace: [CHECKPOINT_EMPTY] ")
    assert result.stderr.count("\n") == 1


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    result = RUNNER.invoke(app, ["status", str(tmp_path / "nowhere")])
    assert result.exit_code == 1
    assert "nowhere' does not exist" in result.stderr


def test_a_narrow_terminal_loses_no_number(checkpoint: Path) -> None:
    result = RUNNER.invoke(app, ["status", str(checkpoint)], env={"COLUMNS": "60"})
    assert result.exit_code == 0
    for shown in ("spend", "2026-01-01 11:56:00", "6 min 0 s", "2.0 KiB", "210"):
        assert shown in result.stdout


def said(*arguments: str) -> list[dict[str, Any]]:
    result = RUNNER.invoke(app, ["dead-letters", *arguments, "--json"])
    assert result.exit_code == 0, result.output
    rows: list[dict[str, Any]] = json.loads(result.stdout)
    return rows


def test_letters_are_counted_by_source_and_reason_without_unfinished_batches(checkpoint: Path) -> None:
    assert [(row["source"], row["reason"], row["rows"], row["example"]) for row in said("list", str(checkpoint))] == [
        ("in", "NOT_JSON", 2, "broken"),
        ("in", "NOT_UTF8", 1, '{"shop": "Caf\\xe9"}'),
    ]


def test_show_gives_the_newest_letters_with_their_place(checkpoint: Path) -> None:
    rows = said("show", str(checkpoint), "--limit", "2")
    assert [(row["position"], row["batch"]) for row in rows] == [(9, 0), (4, 1)]
    assert rows[0]["origin"] == "file:/in/monday.json"
    assert rows[0]["read_at"] == "2026-01-01T12:00:00+00:00"


def test_show_names_flow_and_place_of_a_letter(checkpoint: Path) -> None:
    result = RUNNER.invoke(app, ["dead-letters", "show", str(checkpoint), "--limit", "1"], env={"COLUMNS": "160"})
    assert result.stdout.splitlines()[0] == "spend  file:/in/monday.json:4  NOT_JSON  why it is dead"


def test_show_can_be_asked_for_one_reason(checkpoint: Path) -> None:
    assert {row["reason"] for row in said("show", str(checkpoint), "--reason", "NOT_JSON")} == {"NOT_JSON"}


def test_raw_text_is_not_taken_for_markup(checkpoint: Path) -> None:
    result = RUNNER.invoke(app, ["dead-letters", "show", str(checkpoint)], env={"COLUMNS": "160"})
    assert result.exit_code == 0
    assert '{"id": [bold]' in result.stdout


def test_a_checkpoint_without_dead_letters_says_so(checkpoint: Path) -> None:
    for commit in (checkpoint / "spend" / "dead_letters" / "_commits").iterdir():
        commit.unlink()
    result = RUNNER.invoke(app, ["dead-letters", "list", str(checkpoint)])
    assert (result.exit_code, result.stdout) == (0, "No dead letters.\n")


def test_an_unknown_flow_is_answered_with_those_that_exist(checkpoint: Path) -> None:
    result = RUNNER.invoke(app, ["dead-letters", "list", str(checkpoint), "--flow", "sales"])
    assert result.exit_code == 1
    assert "Existing flows: spend." in result.stderr


def _logged(checkpoint: Path) -> None:
    log = BatchLog(LocalStorage(checkpoint / "spend"))
    log.take_over()
    log.write_outcome(BatchOutcome(-1, positions={"in": {"t/0": 3}}))
    log.write_record(
        BatchRecord(0, CLOCK, {"in": CLOCK}, {}, {}, False, reads={"in": SourceRead({"t/0": 3}, {"t/0": 9})})
    )


def test_the_log_says_what_batches_were_to_do_and_what_they_have_done(checkpoint: Path) -> None:
    _logged(checkpoint)
    result = RUNNER.invoke(app, ["log", str(checkpoint)], env={"COLUMNS": "140"})
    assert result.exit_code == 0, result.output
    for shown in ("takeover", "outcome", "record", '{"t/0": 3} to {"t/0": 9}', "in at 2026-01-01 12:00:00", "0 rows"):
        assert shown in result.stdout


def test_the_log_for_machines_is_every_entry_as_it_stands(checkpoint: Path) -> None:
    _logged(checkpoint)
    result = RUNNER.invoke(app, ["log", str(checkpoint), "--flow", "spend", "--json"])
    entries = json.loads(result.stdout)
    assert [(entry["flow"], entry["number"], entry["kind"]) for entry in entries] == [
        ("spend", 1, "takeover"),
        ("spend", 2, "outcome"),
        ("spend", 3, "record"),
    ]
    assert entries[2]["body"]["reads"]["in"]["until"] == {"t/0": 9}
