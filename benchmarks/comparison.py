"""The same jobs in several systems, in turns on the same rows: equal results first, then rates."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import polars as pl
from rich.table import Table

from benchmarks.flink.run import FLINK, FlinkRun, Steady
from benchmarks.flink.run import run as run_flink
from benchmarks.spark_runs import HEADRACE, SPARK, Place, Source, run_on_spark
from benchmarks.wheel.cases import Goal, say


@dataclass(frozen=True, slots=True)
class Jobs:
    """Jobs by kind, in the words of each system."""

    on_spark: ModuleType
    """Has ``RUNS`` by system, which take the ``Order`` of a source, the name of Headrace's ``FLOW``, and the
    ``COLUMNS`` of results."""
    in_flink: ModuleType
    """Has ``sql_job`` and ``read_results``."""

    def measure(
        self, system: str, kinds: Sequence[str], source: Source, warm: Source, place: Place
    ) -> dict[str, Steady]:
        """What each kind took for the rows after the warm-up.

        A process on Spark first runs many small batches of ``warm``: what a batch costs before its first row is
        compiled by the number of batches, not of rows. Then it runs the kinds one after the other. Flink has one
        process a kind.
        """
        if system == FLINK:
            return {kind: self._flink(kind, source, place).steady(source.warm_up) for kind in kinds}
        with place.work() as work:
            orders = [warm.order(kinds[0], work / "warm")]
            orders += [source.order(kind, work / kind) for kind in kinds]
            _, *runs = run_on_spark(self.on_spark, system, orders, work, connectors=_connectors(system))
            return {kind: run.steady(source) for kind, run in zip(kinds, runs, strict=True)}

    def results(self, system: str, kinds: Sequence[str], source: Source, place: Place) -> dict[str, pl.DataFrame]:
        """The rows that a system emits, in order."""
        with place.work() as work:
            folders = {kind: work / f"{kind}.results" for kind in kinds}
            if system == FLINK:
                for kind, folder in folders.items():
                    self._flink(kind, source, place, results=folder)
                found = {kind: self.in_flink.read_results(folder) for kind, folder in folders.items()}
            else:
                orders = [source.order(kind, work / kind, folder) for kind, folder in folders.items()]
                run_on_spark(self.on_spark, system, orders, work, connectors=_connectors(system))
                found = {kind: pl.read_parquet(folder / "*.parquet") for kind, folder in folders.items()}
        columns = self.on_spark.COLUMNS
        return {kind: rows.select(columns).sort(columns) for kind, rows in found.items()}

    def _flink(self, kind: str, source: Source, place: Place, *, results: Path | None = None) -> FlinkRun:
        with place.work() as work:
            return run_flink(self.in_flink.sql_job(kind, source.servers, source.rows, results), work)


def _connectors(system: str) -> tuple[str, ...]:
    return ("kafka",) if system == SPARK else ()


@dataclass(frozen=True, slots=True)
class Compared:
    """All runs of one kind, by system."""

    runs: Mapping[str, Sequence[Steady]]

    def median(self, system: str) -> float:
        """The middle rate."""
        return statistics.median(self._rates(system))

    def said(self, system: str) -> str:
        """The middle rate with the lowest and the highest."""
        rates = self._rates(system)
        return f"{system} {self.median(system):,.0f} ({min(rates):,.0f} to {max(rates):,.0f})"

    def processor(self, system: str) -> float:
        """Processor seconds for a million rows, the median."""
        return statistics.median(run.processor_seconds / run.rows * 1_000_000 for run in self.runs[system])

    def ratio(self, peer: str) -> float:
        """Our rate as a multiple of a peer's."""
        return self.median(HEADRACE) / self.median(peer)

    def _rates(self, system: str) -> list[float]:
        return [run.rows / run.seconds for run in self.runs[system]]


def compare(
    jobs: Jobs, kinds: Sequence[str], sources: Mapping[str, Source], warm: Source, place: Place, *, runs: int
) -> dict[str, Compared]:
    """Run the systems in turns, each with its source."""
    found: dict[str, dict[str, list[Steady]]] = {kind: {system: [] for system in sources} for kind in kinds}
    for turn in range(runs):
        for system, source in sources.items():
            for kind, steady in jobs.measure(system, kinds, source, warm, place).items():
                found[kind][system].append(steady)
                say(f"{kind}, run {turn + 1} of {runs}: {system} {steady.rows / steady.seconds:,.0f} rows/s")
    return {kind: Compared(by_system) for kind, by_system in found.items()}


def check_equal(
    jobs: Jobs, kinds: Sequence[str], systems: Sequence[str], source: Source, complete: pl.Expr, place: Place
) -> dict[str, pl.DataFrame]:
    """The results of each kind that are ``complete``; all systems must have the same, and some."""
    found = {system: jobs.results(system, kinds, source, place) for system in systems}
    equal = {}
    for kind in kinds:
        kept = {system: results[kind].filter(complete) for system, results in found.items()}
        ours = kept[HEADRACE]
        if ours.is_empty() or not all(results.equals(ours) for results in kept.values()):
            raise SystemExit(f"{kind}: the systems disagree, so no rate means anything: {kept}")
        equal[kind] = ours
    return equal


def rates_table(title: str) -> Table:
    """A table for what was compared."""
    columns = ("", "rows/s, median (lowest to highest)", "processor s a million", "ratio", "goal", "")
    return Table(*columns, title=title)


def add_rates(table: Table, label: str, compared: Compared, goals: Mapping[str, Goal]) -> dict[str, float]:
    """A row for each system, with the goal against it where there is one; the ratios of the goals by their names."""
    ratios = {}
    for system in compared.runs:
        row = [label, compared.said(system), f"{compared.processor(system):.2f}"]
        if system != HEADRACE:
            ratio = compared.ratio(system)
            row.append(f"{ratio:.2f}")
            if system in goals:
                goal = goals[system]
                ratios[goal.ratio] = ratio
                row += [str(goal), goal.verdict(ratio)]
        table.add_row(*row)
    return ratios
