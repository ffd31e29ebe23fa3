"""CONTRIBUTING's table of layers is what the folders are and what the import linter checks."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "headrace"


def _documented() -> list[list[str]]:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    table = text.partition("## The layers")[2].partition("\n## ")[0]
    return [re.findall(r"`(\w+)`", line.split("|")[1]) for line in table.splitlines() if line.startswith("| `")]


def _checked() -> list[list[str]]:
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    return [re.findall(r"\w+", layer) for layer in contract["layers"]]


def test_every_folder_and_module_is_in_the_table_of_layers() -> None:
    folders = {each.name for each in PACKAGE.iterdir() if (each / "__init__.py").exists()}
    modules = {each.stem for each in PACKAGE.glob("*.py")} - {"__init__"}
    assert sorted(name for layer in _documented() for name in layer) == sorted(folders | modules)


def test_the_import_linter_checks_the_layers_of_the_table() -> None:
    assert _documented() == _checked()
