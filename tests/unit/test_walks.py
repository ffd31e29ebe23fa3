"""The walks of "How a row travels" name modules and functions that exist, and stay short."""

from __future__ import annotations

import ast
import re
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTE = ROOT / "docs" / "design" / "2026-11-18-how-a-row-travels.md"
MOST_MODULES = 25
MOST_FOLDER_CHANGES = 12

Walk = list[tuple[str, str]]


def _walks() -> dict[str, Walk]:
    """The steps of each walk: module and name."""
    sections = NOTE.read_text().split("\n## ")[1:]
    return {
        section.partition("\n")[0]: re.findall(r"^\|[^|]*\| `([\w/]+\.py)` \| `(\w+)` \|", section, re.MULTILINE)
        for section in sections
    }


WALKS = _walks()


def test_there_are_four_walks() -> None:
    assert len(WALKS) == 4
    assert all(len(walk) >= 8 for walk in WALKS.values())


@pytest.mark.parametrize("walk", WALKS.values(), ids=WALKS.keys())
def test_every_step_of_a_walk_exists(walk: Walk) -> None:
    for module, name in walk:
        tree = ast.parse((ROOT / "src" / "headrace" / module).read_text())
        defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        assert name in defined, f"{module} has no {name}"


@pytest.mark.parametrize("walk", WALKS.values(), ids=WALKS.keys())
def test_a_walk_is_short(walk: Walk) -> None:
    folders = [module.rpartition("/")[0] for module, _ in walk]
    assert len({module for module, _ in walk}) <= MOST_MODULES
    assert sum(one != other for one, other in pairwise(folders)) <= MOST_FOLDER_CHANGES
