"""``headrace status`` on a checkpoint made by hand."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from headrace.cli import app

RUNNER = CliRunner()


def test_a_batch_that_ran_again_is_counted_once(checkpoint: Path) -> None:
    result = RUNNER.invoke(app, ["status", str(checkpoint), "--json"])
    assert result.exit_code == 0
    assert json.loads(result.stdout) == [
        {
            "flow": "spend",
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
        }
    ]


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
