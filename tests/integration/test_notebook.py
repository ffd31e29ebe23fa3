"""The notebook of the docs, run in a real kernel from top to bottom, and what a reader sees in it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = pytest.mark.full

NOTEBOOK = Path(__file__).parents[2] / "docs" / "how-to" / "notebook.ipynb"


def _notebook() -> Any:
    return nbformat.reads(NOTEBOOK.read_text(encoding="utf-8"), as_version=4)  # type: ignore[no-untyped-call]


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The code cells after a run in an empty folder."""
    notebook = _notebook()
    folder = tmp_path_factory.mktemp("notebook")
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def _shown(cells: list[Any], source: str, kind: str) -> str:
    """What the cell that contains some code shows as its value."""
    [cell] = [cell for cell in cells if source in cell.source]
    [value] = [output for output in cell.outputs if output.output_type == "execute_result"]
    return str(value.data[kind])


def _texts(html: str) -> list[str]:
    return re.findall(r"<t[dh][^>]*>([^<]*)</t[dh]>", html)


def test_the_preview_shows_every_step_as_a_table(cells: list[Any]) -> None:
    html = _shown(cells, "hr.preview", "text/html")
    assert html.count("<table>") == 3
    assert "source, 4 rows" in html
    assert {"NOT_JSON", "not a payment", "2026-01-05 10:00 to 11:00", "25.0"} <= set(_texts(html))
    assert "step to folder &#x27;tables/spend&#x27;, 3 rows" in html
    assert "ann" in _shown(cells, "hr.preview", "text/plain")


def test_a_running_pipeline_shows_itself_and_its_times_are_times(cells: list[Any]) -> None:
    shown = _texts(_shown(cells, "spend.start", "text/html"))
    assert shown[shown.index("spend") + 1] == "running"
    assert "2026-01-05 11:10:00" in shown
    assert "datetime.datetime(2026, 1, 5, 11, 10, tzinfo=" in _shown(cells, "now.watermark", "text/plain")
    assert "datetime.timedelta(" in _shown(cells, "now.watermark", "text/plain")
    stopped = _texts(_shown(cells, "running.stop()", "text/html"))
    assert stopped[stopped.index("spend") + 1] == "stopped"


def test_the_results_are_read_back(cells: list[Any]) -> None:
    results = _texts(_shown(cells, "hr.read_results", "text/html"))
    assert [results.count(account) for account in ("ann", "bob")] == [1, 1]


def test_the_notebook_is_kept_without_the_outputs_of_a_run() -> None:
    code = [cell for cell in _notebook().cells if cell.cell_type == "code"]
    assert [cell.outputs for cell in code] == [[] for _ in code]
