"""The package itself: names are loaded when they are first used, and workers get it by its name."""

from __future__ import annotations

import importlib
import subprocess
import sys
from typing import Any

from pyspark import cloudpickle

import headrace as hr

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
    told: Any = cloudpickle.loads(sent)
    assert told(7) == hr.output("other", {"row": 7})


def test_a_module_among_the_names_is_there_though_nothing_was_used_before() -> None:
    said = [sys.executable, "-c", "import headrace as hr; print(hr.skip.past_last())"]
    assert subprocess.run(said, capture_output=True, check=True).stdout == b"hr.skip.past_last()\n"
