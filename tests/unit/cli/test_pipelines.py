"""The verbs that take a pipeline, and how it is found."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace.cli import app
from headrace.cli.pipelines import find_pipeline, read_parameters
from headrace.errors import HeadraceError

RUNNER = CliRunner()
TWO_PIPELINES = """
import headrace as hr

@hr.pipeline
def spend(spark): ...

@hr.pipeline(name="other")
def second(spark): ...
"""


@pytest.fixture(autouse=True)
def _modules_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def written(folder: Path, text: str) -> Path:
    file = folder / "jobs_for_targets.py"
    file.write_text(text)
    return file


def test_a_file_and_a_name_give_the_pipeline(tmp_path: Path) -> None:
    file = written(tmp_path, TWO_PIPELINES)
    assert find_pipeline(f"{file}:second").name == "other"


def test_spark_workers_can_import_the_file_too(tmp_path: Path) -> None:
    find_pipeline(f"{written(tmp_path, TWO_PIPELINES)}:spend")
    assert os.environ["PYTHONPATH"].split(os.pathsep)[0] == str(tmp_path)


def test_a_module_in_the_working_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, TWO_PIPELINES)
    monkeypatch.chdir(tmp_path)
    assert find_pipeline("jobs_for_targets:spend").name == "spend"


def test_the_name_may_be_left_out_when_there_is_one_pipeline(tmp_path: Path) -> None:
    one = TWO_PIPELINES.split("@hr.pipeline(name", maxsplit=1)[0]
    assert find_pipeline(str(written(tmp_path, one))).name == "spend"


@pytest.mark.parametrize("name", ["", ":sales"])
def test_a_name_that_fits_none_is_answered_with_those_that_exist(tmp_path: Path, name: str) -> None:
    file = written(tmp_path, TWO_PIPELINES)
    with pytest.raises(HeadraceError, match=r"Existing pipelines: spend, second\."):
        find_pipeline(f"{file}{name}")


def test_a_file_named_like_a_module_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text(TWO_PIPELINES)
    with pytest.raises(HeadraceError, match="TARGET_NAME_TAKEN"):
        find_pipeline(f"{tmp_path / 'json.py'}:spend")


@pytest.mark.parametrize("verb", ["check", "explain", "draw"])
def test_a_missing_file_is_one_line_and_exit_code_1(tmp_path: Path, verb: str) -> None:
    result = RUNNER.invoke(app, [verb, str(tmp_path / "gone.py:spend")])
    assert result.exit_code == 1
    assert result.stderr.startswith("headrace: [TARGET_MISSING] ")


def test_a_missing_import_inside_the_module_is_not_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, "import no_such_module_anywhere")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_module_anywhere"):
        find_pipeline("jobs_for_targets:spend")


def test_a_parameter_without_a_value_is_refused() -> None:
    with pytest.raises(HeadraceError, match="PARAMETER_UNREADABLE"):
        read_parameters(["folder"])


def test_drain_needs_an_end_of_the_data(tmp_path: Path) -> None:
    file = written(tmp_path, TWO_PIPELINES)
    arguments = ["run", f"{file}:spend", "--checkpoint", str(tmp_path / "checkpoint"), "--drain"]
    result = RUNNER.invoke(app, arguments)
    assert result.exit_code == 1
    assert "DRAIN_NEEDS_AVAILABLE_NOW" in result.stderr


@pytest.mark.parametrize("verb", ["demo", "run", "check", "explain", "draw", "status"])
def test_every_verb_has_help_with_an_example(verb: str) -> None:
    result = RUNNER.invoke(app, [verb, "--help"])
    assert result.exit_code == 0
    assert f"Example: headrace {verb} " in result.stdout


@pytest.mark.parametrize("verb", ["list", "show"])
def test_every_verb_about_dead_letters_has_help_with_an_example(verb: str) -> None:
    result = RUNNER.invoke(app, ["dead-letters", verb, "--help"])
    assert result.exit_code == 0
    assert f"Example: headrace dead-letters {verb} " in result.stdout


def test_batches_that_keep_up_need_an_interval(tmp_path: Path) -> None:
    file = written(tmp_path, TWO_PIPELINES)
    arguments = ["run", f"{file}:spend", "--checkpoint", str(tmp_path / "checkpoint"), "--available-now", "--keep-up"]
    result = RUNNER.invoke(app, arguments)
    assert result.exit_code == 1
    assert "KEEP_UP_WITHOUT_INTERVAL" in result.stderr
