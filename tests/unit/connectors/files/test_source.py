"""What a landing folder is to Spark and to the checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast
from unittest.mock import MagicMock, call

import pytest

import headrace as hr
from headrace.graph import Graph, defining
from headrace.plan.identity import check_identity
from headrace.storage import COMMITS


def _defined(folder: Path, session: MagicMock | None = None) -> dict[str, Any]:
    """The identity of a flow that reads a folder."""
    graph = Graph("test", folder.parent / "checkpoint", cast(Any, None))
    with defining(graph):
        hr.read_files(cast(Any, session or MagicMock()), folder, format="json", schema="id STRING")
    return {
        "format": 1,
        "pipeline": "test",
        "flow": "copied",
        "key_groups": 1,
        "sources": [{"name": "in", **graph.sources["in"].fingerprint}],
        "steps": [],
    }


def test_a_folder_that_has_got_a_commit_list_is_another_source(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    plain = _defined(folder)
    check_identity(tmp_path, plain)
    check_identity(tmp_path, _defined(folder))
    (folder / COMMITS).mkdir()
    with pytest.raises(hr.HeadraceError, match=r"^\[SOURCE_CHANGED\] source 'in' has another listed "):
        check_identity(tmp_path, _defined(folder))
    assert list(plain["sources"][0]) == ["name", "kind", "path", "format", "schema"]


def test_files_that_are_decades_older_than_the_newest_are_read(tmp_path: Path) -> None:
    session = MagicMock()
    folder = tmp_path / "in"
    folder.mkdir()
    _defined(folder, session)
    options = session.readStream.format().schema().option
    assert call("recursiveFileLookup", "true") in options.call_args_list
    assert call("maxFileAge", "36500d") in options().option.call_args_list
