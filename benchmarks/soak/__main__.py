"""Runs a flow whose keys are ever new and judges whether it could run for ever: ``python -m benchmarks.soak``.

State, files, memory and batch time must be flat over the last two thirds of the run: see ``trends.trend``. A run of
less than ten minutes is not judged, because Java's heap still grows and its code still compiles.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.soak.job import FLOW, GENERATION, RATE
from benchmarks.soak.plot import plot
from benchmarks.soak.samples import Sample, Sampler, write_csv
from benchmarks.soak.trends import MEASURES, MOST_RISE, judged, trend
from benchmarks.wheel.cases import say

JUDGED_FROM = 10
"""Minutes."""
SAMPLE_SECONDS = 5
SAID_EVERY = 6
"""Samples."""


def main() -> None:
    """Run, draw, and fail when something is not flat."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30, help="how long the flow runs behind its first batch")
    parser.add_argument("--into", type=Path, default=Path("docs/images"), help="where soak.csv and soak.svg go")
    chosen = parser.parse_args()
    # So that a stopped soak stops its flow and removes its files.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    samples = measure(chosen.minutes * 60)
    chosen.into.mkdir(parents=True, exist_ok=True)
    write_csv(samples, chosen.into / "soak.csv")
    generations = samples[-1].rows // GENERATION
    plot(samples, f"{RATE:,} rows a second, {generations} generations of keys", chosen.into / "soak.svg")
    flat = judge(samples)
    if chosen.minutes < JUDGED_FROM:
        say(f"not judged: less than {JUDGED_FROM} minutes")
    elif not flat:
        raise SystemExit("the flow does not stay flat")


def measure(seconds: float) -> list[Sample]:
    """What is seen of the flow from its first batch on."""
    samples: list[Sample] = []
    with tempfile.TemporaryDirectory(prefix="headrace-soak-") as folder, _running(Path(folder)) as process:
        sampler = Sampler(Path(folder, "checkpoint"), FLOW, process.pid)
        began: float | None = None
        while began is None or time.monotonic() < began + seconds:
            try:
                process.wait(SAMPLE_SECONDS)
            except subprocess.TimeoutExpired:
                pass
            else:
                raise SystemExit(f"the flow ended:\n{Path(folder, 'output.txt').read_text()[-3000:]}")
            sample = sampler.look(0.0 if began is None else time.monotonic() - began)
            if sample is None:
                continue
            if began is None:
                began = time.monotonic()
            samples.append(sample)
            if len(samples) % SAID_EVERY == 1:
                say(_said(sample, seconds))
    return samples


@contextmanager
def _running(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "benchmarks.soak.job", str(folder / "checkpoint"), str(folder / "spark")]
    with (folder / "output.txt").open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            yield process
        finally:
            process.terminate()
            process.wait()


def _said(sample: Sample, seconds: float) -> str:
    state = f"{sample.state_rows:,} rows of state in {sample.state_bytes / 1e6:.1f} MB, {sample.files} files"
    costs = f"memory {sample.memory_bytes / 1e6:,.0f} MB, batch {sample.batch_seconds * 1000:,.0f} ms"
    generation = sample.rows // GENERATION
    return f"{sample.seconds / 60:.1f} of {seconds / 60:g} minutes, generation {generation}: {state}, {costs}"


def judge(samples: list[Sample]) -> bool:
    """Print the trend of each measure; whether all are flat."""
    table = Table("", "median", "rise", f"flat: rise <= {MOST_RISE:.0%}", title="The last two thirds of the soak")
    kept = judged(samples)
    trends = {name: trend(kept, name) for name in MEASURES}
    for name, found in trends.items():
        measure = MEASURES[name]
        verdict = "flat" if found.is_flat else "not flat"
        table.add_row(measure.title, f"{found.level / measure.unit:,.1f}", f"{found.rise:+.1%}", verdict)
    Console(width=100).print(table)
    return all(found.is_flat for found in trends.values())


if __name__ == "__main__":
    main()
