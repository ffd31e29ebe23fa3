"""Both systems on the same files: their rates, what they tell, and the time of small batches."""

from __future__ import annotations

from itertools import pairwise

import polars as pl

from benchmarks.flink.run import Steady
from benchmarks.spark_runs import HEADRACE, Place, Source, SparkRun, run_on_spark
from benchmarks.state import jobs
from benchmarks.state.inputs import CLOSING_KEY
from benchmarks.state.jobs import Order
from benchmarks.wheel.cases import files
from benchmarks.wheel.inputs import Inputs

SILENCE = 15
NEVER = 24 * 60
"""Minutes: so long that no timer is due while small batches are timed."""


def measure(system: str, inputs: Inputs, warm: Inputs, place: Place, *, warm_up: int = 1) -> Steady:
    """What the batches after the warm-up took."""
    batch = inputs.batches[0]
    assert set(inputs.batches) == {batch}
    source = Source(str(files(inputs, place.root)), None, sum(inputs.batches), batch, warm_up * batch)
    return _run(system, source.rows, warm, SILENCE, place).steady(source)


def small_batches(inputs: Inputs, warm: Inputs, place: Place, *, skip: int) -> list[float]:
    """Seconds of each of Headrace's batches behind the first ``skip``."""
    committed = _run(HEADRACE, str(files(inputs, place.root)), warm, NEVER, place).committed
    moments = committed[skip - 1 : len(inputs.batches)]
    return [after - before for before, after in pairwise(moments)]


def results(system: str, inputs: Inputs, place: Place) -> pl.DataFrame:
    """What a system tells, in order."""
    with place.work() as work:
        folder = work / "results"
        order = Order(str(files(inputs, place.root)), str(work / "checkpoint"), SILENCE, str(folder))
        run_on_spark(jobs, system, [order], work)
        emitted = pl.read_parquet(folder / "*.parquet")
    return emitted.filter(pl.col("k") != CLOSING_KEY).sort("k", "n", "silent_at")


def _run(system: str, rows: str, warm: Inputs, silence: int, place: Place) -> SparkRun:
    """A run behind one of many small batches in the same process, by which the JVM compiles what every batch does."""
    with place.work() as work:
        orders = [
            Order(str(files(warm, place.root)), str(work / "warm"), silence),
            Order(rows, str(work / "checkpoint"), silence),
        ]
        return run_on_spark(jobs, system, orders, work)[1]
