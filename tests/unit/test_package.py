"""The package itself: names are loaded when they are first used, and workers get it by its name."""

from __future__ import annotations

import doctest
import importlib
import importlib.metadata
import inspect
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest
from pyspark import cloudpickle

import headrace as hr
from headrace.stability import stability_of

AUTHORS_SCRIPT = """
import sys
from pyspark import cloudpickle
import headrace as hr

def told(row):
    return hr.output("other", {"row": row})

sys.stdout.buffer.write(cloudpickle.dumps(told))
"""


def test_importing_a_package_of_the_same_name_leaves_a_name_as_it_is() -> None:
    strategy = importlib.import_module("headrace.event_time.strategy")
    assert hr.event_time is strategy.event_time


def test_the_package_goes_to_workers_by_its_name() -> None:
    assert cloudpickle.loads(cloudpickle.dumps(hr)) is hr


def test_a_function_of_an_authors_script_may_use_the_package_in_a_worker() -> None:
    sent = subprocess.run([sys.executable, "-c", AUTHORS_SCRIPT], capture_output=True, check=True).stdout
    function: Any = cloudpickle.loads(sent)
    assert function(7) == hr.output("other", {"row": 7})


def test_a_module_among_the_names_is_there_though_nothing_was_used_before() -> None:
    said = [sys.executable, "-c", "import headrace as hr; print(hr.skip.past_last())"]
    assert subprocess.run(said, capture_output=True, check=True).stdout == b"hr.skip.past_last()\n"


def test_spark_s_python_workers_load_neither_pandas_nor_the_screen() -> None:
    loads = "import sys, headrace.runtime.worker_daemon, pyspark.worker; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", loads], capture_output=True, text=True, check=True).stdout.split()
    assert {"polars", "headrace.wheel.turn"} <= set(loaded)
    assert {"pandas", "rich", "typer", "psycopg"}.isdisjoint(loaded)


@pytest.mark.parametrize("name", hr.__all__)
def test_a_public_name_says_how_stable_it_is_and_shows_an_example(name: str) -> None:
    public = getattr(hr, name)
    assert stability_of(public) in ("stable", "experimental")
    for documented in _functions(public) if isinstance(public, ModuleType) else [public]:
        assert any(found.examples for found in doctest.DocTestFinder().find(documented, name)), documented


def _functions(module: ModuleType) -> list[Any]:
    functions = [function for _, function in inspect.getmembers(module, inspect.isfunction)]
    return [each for each in functions if each.__module__ == module.__name__ and not each.__name__.startswith("_")]


def test_a_mark_on_a_base_class_is_not_that_of_a_users_class() -> None:
    class Counting(hr.KeyedProcess): ...

    assert stability_of(Counting) is None


def test_the_version_is_that_of_the_installed_package() -> None:
    assert hr.__version__ == importlib.metadata.version("headrace")
