"""Both systems on the same topic: their rates, and their matches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from benchmarks.flink.run import FlinkRun, Steady
from benchmarks.flink.run import run as run_flink
from benchmarks.patterns import jobs
from benchmarks.patterns.flink_jobs import read_results, sql_job
from benchmarks.patterns.jobs import COLUMNS, Order
from benchmarks.state.on_spark import run_on_spark
from benchmarks.windows.systems import FLINK, HEADRACE, Place, Source


def measure(system: str, kinds: Sequence[str], source: Source, warm: Source, place: Place) -> dict[str, Steady]:
    """What each kind took for the rows after the warm-up; Headrace in one process, Flink in one for each."""
    if system == FLINK:
        return {kind: _flink(kind, source, place).steady(source.warm_up) for kind in kinds}
    with place.work() as work:
        orders = [_order(kinds[0], warm, work / "warm")]
        orders += [_order(kind, source, work / kind) for kind in kinds]
        _, *runs = run_on_spark(jobs, HEADRACE, orders, work)
        return {kind: run.steady(source) for kind, run in zip(kinds, runs, strict=True)}


def results(system: str, kinds: Sequence[str], source: Source, place: Place) -> dict[str, pl.DataFrame]:
    """The matches that a system finds, in order."""
    with place.work() as work:
        folders = {kind: work / f"{kind}.results" for kind in kinds}
        if system == FLINK:
            for kind, folder in folders.items():
                _flink(kind, source, place, results=folder)
            found = {kind: read_results(folder) for kind, folder in folders.items()}
        else:
            orders = [_order(kind, source, work / kind, folder) for kind, folder in folders.items()]
            run_on_spark(jobs, HEADRACE, orders, work)
            found = {kind: pl.read_parquet(folder / "*.parquet") for kind, folder in folders.items()}
    return {kind: matches.select(COLUMNS).sort(COLUMNS) for kind, matches in found.items()}


def _order(kind: str, source: Source, checkpoint: Path, results: Path | None = None) -> Order:
    assert source.servers is not None
    kept = None if results is None else str(results)
    return Order(kind, source.servers, source.rows, source.batch, str(checkpoint), kept)


def _flink(kind: str, source: Source, place: Place, *, results: Path | None = None) -> FlinkRun:
    assert source.servers is not None
    with place.work() as work:
        return run_flink(sql_job(kind, source.servers, source.rows, results), work)
