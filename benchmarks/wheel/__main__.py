"""Measures the wheel against Spark's own ways: ``python -m benchmarks.wheel [--quick] [--only NAME ...]``."""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.spark_streams import SPARKS_STATE
from benchmarks.wheel.cases import Compared, Comparison, Entry, Goal, check_equal, compare, files, say
from benchmarks.wheel.inputs import Inputs
from benchmarks.wheel.systems import System, Watch, run

HEADRACE, CHAIN, NATIVE, PYTHON_STATE = "headrace", "chain", "native", "python_state"
START = "start_s"
MOST_MEMORY = Goal("10m_memory_gib", 3, at_least=False)
WARM_UP = 4
"""The first batches after a state is filled still grow buffers and compile."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured."""

    runs: int
    rows: int
    steady: int
    share: int
    """Spark's Python state gets one key of this many, with all its rows."""
    small_batches: int
    """Of 20,000 rows."""
    thousands: int
    """Batches of 1,000 rows."""
    tiny_batches: int
    """Of 100 rows."""

    def batches(self, keys: int, name: str, *, hot: bool = False) -> Inputs:
        """Big batches over so many keys."""
        return Inputs(name, keys, (self.rows,) * (1 + self.steady), hot=hot)


FULL = Scale(runs=3, rows=2_000_000, steady=5, share=20, small_batches=20, thousands=60, tiny_batches=150)
QUICK = Scale(runs=1, rows=1_000_000, steady=3, share=20, small_batches=8, thousands=20, tiny_batches=40)


def comparisons(scale: Scale) -> list[Comparison]:
    """The comparisons with the goals of each."""
    few, many = scale.batches(10_000, "10k"), scale.batches(1_000_000, "1m")
    # A slow system gets fewer batches of the same files; no window closes in them, which is in its favour.
    few_short, many_short = (
        replace(few, name="10k_short", batches=few.batches[:3]),
        replace(many, name="1m_short", batches=many.batches[:3]),
    )
    hot = scale.batches(10_000, "10k_hot", hot=True)
    # The first batch fills the state; Spark's Python state would need minutes for it and does without.
    small_rows = (20_000,) * scale.small_batches
    small = Inputs("1m_small", 1_000_000, (2_000_000, *small_rows), minutes=1, covering=True)
    unfilled = Inputs("1m_small_unfilled", 1_000_000, (20_000,) * 4, minutes=1, covering=True)
    ours, native, python = System(HEADRACE), System(NATIVE), System(PYTHON_STATE, share=scale.share)
    # With many keys nearly every row is a callback of its own, and half as many are enough.
    python_many = System(PYTHON_STATE, share=2 * scale.share)
    grown = Inputs("10m_small", 10_000_000, (*(2_000_000,) * 5, *(20_000,) * WARM_UP, *small_rows), 1, covering=True)
    not_grown = Inputs("10k_small", 10_000, (*(20_000,) * WARM_UP, *small_rows), 1, covering=True)
    thousands = Inputs("10k_thousands", 10_000, (1_000,) * (2 * WARM_UP + scale.thousands), 1)
    # RocksDB writes what a batch changed before the next one begins, as we do.
    native_in_files = System(NATIVE, settings=SPARKS_STATE)
    return [
        Comparison(
            "10k",
            (Entry(HEADRACE, ours, few), Entry(NATIVE, native, few), Entry(PYTHON_STATE, python, few_short)),
            {PYTHON_STATE: Goal("10k_vs_python_state", 20), NATIVE: Goal("10k_vs_native", 1)},
        ),
        Comparison(
            "1m",
            (Entry(HEADRACE, ours, many), Entry(NATIVE, native, many), Entry(PYTHON_STATE, python_many, many_short)),
            {PYTHON_STATE: Goal("1m_vs_python_state", 10), NATIVE: Goal("1m_vs_native", 3)},
        ),
        Comparison(
            "small_batches",
            (Entry(HEADRACE, ours, small, WARM_UP), Entry(PYTHON_STATE, System(PYTHON_STATE), unfilled)),
            {PYTHON_STATE: Goal("small_batches_vs_python_state", 20)},
        ),
        Comparison(
            "state_growth",
            (
                Entry("10,000,000 keys", ours, grown, 5 + WARM_UP, by_median=True),
                Entry("10,000 keys", ours, not_grown, WARM_UP, by_median=True),
            ),
            {"10,000 keys": Goal("state_growth", 1.5, at_least=False)},
        ),
        Comparison(
            "small_1k",
            tuple(
                Entry(system.name, system, thousands, 2 * WARM_UP, by_median=True) for system in (ours, native_in_files)
            ),
            {NATIVE: Goal("small_1k_vs_native", 2)},
        ),
        Comparison(
            "chain_1k",
            tuple(
                Entry(system, System(system), thousands, 2 * WARM_UP, by_median=True) for system in (CHAIN, HEADRACE)
            ),
            {HEADRACE: Goal("chain_1k", 1.4, at_least=False)},
        ),
        Comparison(
            "hot_key",
            (Entry("hot key", ours, hot), Entry("uniform keys", ours, few)),
            {"uniform keys": Goal("hot_key_slowdown", 1.2, at_least=False)},
        ),
    ]


def main() -> None:
    """Measure, print the table, and end with one line of JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.wheel", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short run of each, for a first impression")
    parser.add_argument("--only", nargs="*", help="names of the measurements to make")
    chosen = parser.parse_args()
    scale = QUICK if chosen.quick else FULL
    # So that a stopped benchmark removes its files and ends the run it has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    table = Table("case", "rows/s, median (lowest to highest)", "ratio", "goal", "", title="The wheel beside Spark")
    ratios: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="headrace-benchmark-") as folder:
        root = Path(folder)

        def wanted(name: str) -> bool:
            return chosen.only is None or name in chosen.only

        if wanted("equal"):
            check = Inputs("equal", 5_000, (20_000,) * 7)
            windows = check_equal(check, tuple(map(System, (HEADRACE, CHAIN, NATIVE, PYTHON_STATE))), root)[0]
            table.add_row("results", f"{windows} windows, equal in all", "", "", "")
        for comparison in comparisons(scale):
            if wanted(comparison.name):
                compared = compare(comparison, root, scale.runs)
                ratios |= compared.ratios()
                _add(table, compared)
        if wanted("10m"):
            ratios |= _ten_million(table, scale, root)
        if wanted("tiny_batches"):
            _tiny_batches(table, scale, root)
        if wanted("start"):
            ratios |= _start(table, scale, root)
    Console(width=150).print(table)
    print(json.dumps({"benchmark": "wheel", "ratios": {name: round(value, 3) for name, value in ratios.items()}}))


def _add(table: Table, compared: Compared) -> None:
    comparison = compared.comparison
    ratios = compared.ratios()
    for entry in comparison.entries:
        low, high = compared.spread[entry.label]
        rates = f"{entry.label} {compared.rates[entry.label]:,.0f} ({low:,.0f} to {high:,.0f})"
        goal = comparison.goals.get(entry.label)
        if goal is None:
            table.add_row(comparison.name, rates, "", "", "")
            continue
        value = ratios[goal.ratio]
        table.add_row(comparison.name, rates, f"{value:.2f}", str(goal), goal.verdict(value))
    table.add_section()


def _ten_million(table: Table, scale: Scale, root: Path) -> dict[str, float]:
    # Five batches bring every key once; the sixth and seventh touch many; the hour closes in the sixth.
    inputs = Inputs("10m", 10_000_000, (2_000_000,) * (8 if scale is FULL else 6), covering=True)
    measured = run(System(HEADRACE), files(inputs, root), len(inputs.batches), Watch(memory=True))
    rate = Entry(HEADRACE, System(HEADRACE), inputs).rate(measured)
    memory = measured.memory / (1 << 30)
    say(f"10m: {rate:,.0f} rows/s, {memory:.2f} GiB")
    table.add_row(
        "10m", f"headrace {rate:,.0f}", f"{memory:.2f} GiB", f"{MOST_MEMORY} GiB", MOST_MEMORY.verdict(memory)
    )
    return {MOST_MEMORY.ratio: memory}


def _tiny_batches(table: Table, scale: Scale, root: Path) -> None:
    inputs = Inputs("tiny", 10_000, (100,) * scale.tiny_batches, minutes=1)
    measured = run(System(HEADRACE), files(inputs, root), len(inputs.batches))
    # Sorted times of the steady batches; the first tenth compiles.
    steady = sorted(measured.seconds[scale.tiny_batches // 10 :])
    middle, slow = steady[len(steady) // 2], steady[int(len(steady) * 0.99)]
    say(f"batches of 100 rows: p50 {middle:.3f} s, p99 {slow:.3f} s")
    table.add_row("batches of 100 rows", f"p50 {middle * 1000:.0f} ms, p99 {slow * 1000:.0f} ms", "", "", "")


def _start(table: Table, scale: Scale, root: Path) -> dict[str, float]:
    """From the start of a process to its first result; the first run only brings programs into the page cache."""
    inputs = Inputs("start", 10_000, (1_000,))
    _, *warm = (run(System(HEADRACE), files(inputs, root), 1).start for _ in range(1 + scale.runs))
    seconds = statistics.median(warm)
    say(f"first result after {seconds:.1f} s")
    spread = f"{min(warm):.1f} to {max(warm):.1f}"
    table.add_row("first result", f"{seconds:.1f} s after the start of the process ({spread})", "", "", "")
    return {START: seconds}


if __name__ == "__main__":
    main()
