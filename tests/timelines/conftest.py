"""Timelines run inline; those marked ``spark`` run on Spark too, and all of them do with ``--engine=spark``."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

import pytest

from headrace.testing import use_engine
from tests.timelines.bounded import AlsoBounded


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    chosen = metafunc.config.getoption("engine")
    marked = metafunc.definition.get_closest_marker("spark") is not None
    engines: list[object] = [] if chosen == "spark" else ["inline"]
    if chosen == "spark" or (chosen == "both" and marked):
        engines.append(pytest.param("spark", marks=pytest.mark.spark))
    metafunc.parametrize("engine", engines, indirect=True)


def pytest_itemcollected(item: pytest.Item) -> None:
    """The inline run of a test that also runs on Spark needs no Spark."""
    if isinstance(item, pytest.Function) and item.callspec.params.get("engine") == "inline":
        item.own_markers = [mark for mark in item.own_markers if mark.name != "spark"]


@pytest.fixture(autouse=True)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The engine that the test's timelines are played on."""
    if request.param == "spark":
        request.getfixturevalue("spark")
    elif not any(request.node.get_closest_marker(mark) for mark in ("hypothesis", "streamed")):
        monkeypatch.setattr(import_module("headrace.testing.play"), "InlineEngine", AlsoBounded)
    with use_engine(request.param):
        yield request.param
