"""The Python examples of the documentation run, page by page, from top to bottom."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"
DOCS = README.parent / "docs"
WITHOUT_EXAMPLES = ("concepts.md", "delivery-guarantees.md")
HOW_TO = DOCS / "how-to"
ON_SPARK = (DOCS / "state.md", HOW_TO / "bounded-data.md", HOW_TO / "bring-your-own-stream.md")
"""Their examples run on Spark."""
RUN = {HOW_TO / page for page in ("spark-streams.md", "results.md", "testing.md")}
PAGES = {*DOCS.glob("*.md"), *(DOCS / "windows").glob("*.md"), *RUN} - {DOCS / page for page in WITHOUT_EXAMPLES}
EXAMPLE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def _run_examples(page: Path) -> None:
    examples = EXAMPLE.findall(page.read_text())
    assert examples
    names: dict[str, object] = {"__name__": "example"}
    for example in examples:
        exec(compile(example, str(page), "exec"), names)


@pytest.mark.parametrize("page", sorted(PAGES - {*ON_SPARK}), ids=lambda page: str(page.relative_to(DOCS)))
def test_the_examples_of_a_page_run(page: Path) -> None:
    _run_examples(page)


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("page", ON_SPARK, ids=lambda page: page.name)
def test_the_examples_of_a_page_run_on_spark(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _run_examples(page)


@pytest.mark.parametrize(
    "page", [README, *sorted(DOCS.rglob("*.md"))], ids=lambda page: str(page.relative_to(README.parent))
)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    missing = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert missing == []
