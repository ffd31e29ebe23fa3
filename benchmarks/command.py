"""What the commands of the benchmarks have in common: what they are asked, and what they print in the end."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Asked:
    """What a benchmark is asked to measure."""

    quick: bool
    names: Sequence[str]


def asked(benchmark: str, description: str | None, measurements: Sequence[str]) -> Asked:
    """Read the command line; from then on the process can be stopped in good order."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{benchmark}", description=description)
    parser.add_argument("--quick", action="store_true", help="one short run of each, for a first impression")
    parser.add_argument("--only", nargs="*", choices=measurements, help="the measurements to make")
    chosen = parser.parse_args()
    # So that a stopped benchmark stops its servers and runs and removes its files.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    return Asked(chosen.quick, chosen.only or measurements)


def tell(benchmark: str, tables: Sequence[Table], ratios: Mapping[str, float]) -> None:
    """Print the tables, and end with one line of JSON."""
    for table in tables:
        Console(width=150).print(table)
    rounded = {name: round(value, 3) for name, value in ratios.items()}
    print(json.dumps({"benchmark": benchmark, "ratios": rounded}))
