"""The Python examples of the documentation run, page by page, from top to bottom; every error is explained."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"
DOCS = README.parent / "docs"
WITHOUT_EXAMPLES = ("concepts.md", "delivery-guarantees.md", "errors.md", "promises.md")
HOW_TO = DOCS / "how-to"
ON_SPARK = (
    DOCS / "state.md",
    *(HOW_TO / f"{page}.md" for page in ("bounded-data", "bring-your-own-stream", "notebooks")),
)
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


PROMISES = (DOCS / "promises.md").read_text()
TESTS_NAMED = [line for line in PROMISES.splitlines() if re.search(r"`test_\w+`|\.py", line)]


def _runs_in_the_first_tier(file: Path, name: str) -> bool:
    code = file.read_text()
    [test] = [each for each in ast.parse(code).body if isinstance(each, ast.FunctionDef) and each.name == name]
    marks = [*map(ast.unparse, test.decorator_list), *re.findall(r"^pytestmark = .*", code, re.MULTILINE)]
    return not any(re.search(r"^pytest\.mark\.full$|^pytestmark.*mark\.full\b", mark) for mark in marks)


@pytest.mark.parametrize("line", TESTS_NAMED, ids=[line[2:40] for line in TESTS_NAMED])
def test_every_test_of_a_promise_exists_in_its_file_and_runs_in_the_tier_that_is_told(line: str) -> None:
    before, *linked = re.split(r"\[\w+\.py\]\((\S+)\)", line)
    assert not re.search(r"`test_\w+`|\.py", before)
    texts = dict(zip(linked[::2], linked[1::2], strict=True))
    for number, file in enumerate(texts):
        # Several files may share the names behind the last of them.
        behind = (re.findall(r"`(test_\w+)`( \*)?", text) for text in [*texts.values()][number:])
        for name, star in next(filter(None, behind)):
            assert _runs_in_the_first_tier(DOCS / file, name) == (not star), f"{file} {name}"


def test_every_promise_names_what_proves_it() -> None:
    rows = re.findall(r"^\| ([A-Z][^|]+[.;]) \| (.+) \|$", PROMISES.partition("## Figures")[0], re.MULTILINE)
    assert len(rows) > 25
    assert [promise for promise, proof in rows if "`test_" not in proof and "`make " not in proof] == []


@pytest.mark.parametrize(
    "page", [README, DOCS.parent / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))], ids=lambda page: page.name
)
def test_every_make_target_of_a_page_exists(page: Path) -> None:
    there = set(re.findall(r"^([a-z-]+):", (README.parent / "Makefile").read_text(), re.MULTILINE))
    named = re.findall(r"(?:`|\$ )make ([a-z]+(?:-[a-z]+)*)(?![-\w])", page.read_text())
    assert set(named) <= there


SOURCE = DOCS.parent / "src" / "headrace"
ID = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")
VARIABLES = {
    "HEADRACE_CACHE",
    "JAVA_HOME",
    "PYSPARK_DRIVER_PYTHON",
    "PYSPARK_GATEWAY_PORT",
    "PYSPARK_PYTHON",
    "SPARK_CONF_DIR",
    "SPARK_HOME",
}
OF_OTHERS = {
    "DELTA_CONCURRENT_TRANSACTION",
    "DELTA_SOURCE_IGNORE_DELETE",
    "DELTA_SOURCE_TABLE_IGNORE_CHANGES",
    "SPARK_JOB_CANCELLED",
}
"""Errors of Spark and Delta, which Headrace only recognizes."""


def _ids(code: str) -> Iterator[str]:
    """The ids of errors, findings and dead letters in a module: texts that are one, or that begin with one."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from (
                ID.findall(node.value) if ID.fullmatch(node.value) else re.findall(rf"^\[({ID.pattern})\]", node.value)
            )
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "check_choice":
            yield from (f"{each.arg}_UNKNOWN".upper() for each in node.keywords if each.arg not in (None, "step"))


def test_every_error_id_is_explained_on_a_page() -> None:
    pages = [page.read_text() for page in DOCS.rglob("*.md") if page.parent.name != "design"]
    explained = {id for page in pages for id in ID.findall(page)}
    raised = {id for module in SOURCE.rglob("*.py") for id in _ids(module.read_text())}
    assert {"GREEDY_COMBINATIONS", "OUTPUT_COLUMN_UNKNOWN", "VALUE_UNKNOWN", "NOT_JSON", "DELTA_SCHEMA"} <= raised
    assert sorted(raised - explained - VARIABLES - OF_OTHERS) == []


def test_every_id_on_the_page_of_errors_is_one_that_is_raised() -> None:
    raised = {id for module in SOURCE.rglob("*.py") for id in ID.findall(module.read_text())}
    made = {f"{name}_INVALID" for name in ("BATCH", "RETRIES", "IN_FLIGHT", "CACHE", "BREAKER")}
    made |= {f"{name}_UNKNOWN" for name in ("GUARANTEE", "VALUE", "ON_LOST", "WHEN_ALL_IDLE", "KEEP", "CHANGES")}
    named = {id for id in re.findall(r"`([A-Z_]+)`", (DOCS / "errors.md").read_text()) if ID.fullmatch(id)}
    assert sorted(named - raised - made - VARIABLES) == []
