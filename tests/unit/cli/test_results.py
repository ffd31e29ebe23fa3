"""``headrace show`` on a folder of results made by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner, Result

from headrace.cli import app
from headrace.connectors.files.batch_listing import BatchListing
from headrace.nodes import ResultVersions

TEN, ELEVEN = (datetime(2026, 1, 1, hour, tzinfo=UTC) for hour in (10, 11))
WINDOW = {"start": TEN, "end": ELEVEN}
LISTING = BatchListing("parquet", "", (), 0, 0, 0, "", ResultVersions((("account",), ("window",)), "revision"))


def _put(folder: Path, number: int, *rows: dict[str, Any]) -> None:
    """Leave a batch as the sink does."""
    name = f"headrace_batch=spend-1.main-0000-{number:010d}"
    (folder / name).mkdir(parents=True)
    pl.DataFrame(rows).write_parquet(folder / name / "part-0.parquet")
    listing = replace(LISTING, files=(f"{name}/part-0.parquet",), rows=len(rows))
    (folder / "_commits").mkdir(exist_ok=True)
    (folder / "_commits" / f"spend-1.main-0000-{number:010d}.json").write_bytes(listing.to_bytes())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two batches: results of two accounts, then a correction."""
    first = {"account": "a", "window": WINDOW, "spent": 5.0, "revision": 0}
    _put(tmp_path, 0, first, {**first, "account": "[bold]", "spent": None})
    _put(tmp_path, 1, {**first, "spent": 7.0, "revision": 1})
    return tmp_path


def show(folder: Path, *options: str) -> Result:
    return CliRunner().invoke(app, ["show", str(folder), *options], env={"COLUMNS": "120"})


def test_the_rows_are_a_table_and_windows_are_times_for_people(folder: Path) -> None:
    result = show(folder)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert [line.strip("│ ").split()[0] for line in lines[3:6]] == ["a", "[bold]", "a"]
    assert "2026-01-01 10:00 to 11:00" in lines[3]
    assert lines[-1] == "3 rows"


def test_the_latest_are_the_last_versions(folder: Path) -> None:
    rows = json.loads(show(folder, "--latest", "--json").stdout)
    assert [(row["account"], row["spent"], row["revision"]) for row in rows] == [("[bold]", None, 0), ("a", 7.0, 1)]
    assert rows[1]["window"]["start"].startswith("2026-01-01T10:00:00")
    assert show(folder, "--latest").stdout.splitlines()[-1] == "2 rows"


@pytest.mark.parametrize(("options", "last"), [((), "the last 1 of 3 rows"), (("--latest",), "the last 1 of 2 rows")])
def test_a_limit_leaves_the_newest_rows_and_says_how_many_there_are(
    folder: Path, options: tuple[str, ...], last: str
) -> None:
    result = show(folder, "--limit", "1", *options)
    assert "7.0" in result.stdout
    assert "5.0" not in result.stdout
    assert result.stdout.splitlines()[-1] == last


def test_a_folder_without_results_is_one_line_on_standard_error(tmp_path: Path) -> None:
    result = show(tmp_path)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith(f"headrace: [RESULTS_MISSING] folder '{tmp_path}' holds no results.")
    assert result.stderr.count("\n") == 1


def test_an_empty_limit_is_refused(folder: Path) -> None:
    assert show(folder, "--limit", "0").exit_code == 2
