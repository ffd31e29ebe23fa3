"""Starts runs on Spark in a process of their own and tells when each batch was committed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.windows.processors import Processors
from benchmarks.windows.systems import HEADRACE, SparkRun


def run_on_spark(
    jobs: ModuleType,
    system: str,
    orders: Sequence[Any],
    work: Path,
    *,
    settings: Mapping[str, str] | None = None,
    timeout: int = 900,
) -> list[SparkRun]:
    """Run one order after the other; ``jobs`` is a module with ``Order``, ``RUNS`` and the name of its ``FLOW``."""
    given = {
        "jobs": jobs.__name__,
        "system": system,
        "orders": [asdict(order) for order in orders],
        "settings": {"spark.local.dir": str(work / "spark"), **(settings or {})},
    }
    command = [sys.executable, "-m", "benchmarks.state.measured_run", json.dumps(given)]
    with (work / "output.txt").open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            with Processors(process.pid) as processors:
                status = process.wait(timeout)
        finally:
            process.kill()
    if status != 0:
        raise RuntimeError(f"{system} failed:\n{(work / 'output.txt').read_text()[-4000:]}")
    runs = []
    for order in orders:
        # Spark writes this file as the last thing of a batch.
        commits = Path(order.checkpoint) / (f"{jobs.FLOW}/spark/commits" if system == HEADRACE else "commits")
        files = sorted((file for file in commits.iterdir() if file.name.isdigit()), key=lambda file: int(file.name))
        moments = tuple(file.stat().st_mtime for file in files)
        runs.append(SparkRun(moments, tuple(processors.at(moment) for moment in moments)))
    return runs
