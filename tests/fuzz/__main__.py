"""``make fuzz``: every decoder, and every file of a checkpoint that is read back, on bytes that nobody would send."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from tests.fuzz.engine import Failure, Fuzzer
from tests.fuzz.targets import TARGETS

SHOWN_EVERY_SECONDS = 20.0
SHOWN_BYTES = 400
MEMORY = 6 << 30
"""The most memory of a target: what a few bytes can make it ask for must not take the machine."""


def main() -> int:
    arguments = _arguments()
    if arguments.report is not None:
        _fuzz(arguments.only[0], arguments.minutes * 60, arguments.seed, Path(arguments.report))
        return 0
    names = arguments.only or list(TARGETS)
    seconds = arguments.minutes * 60 / len(names)
    print(f"{len(names)} targets, {seconds:.0f} s each, seed {arguments.seed}", flush=True)
    results = {name: _in_own_process(name, seconds, arguments.seed) for name in names}
    print(f"\n{'target':<16}{'cases':>12}{'a second':>10}{'failures':>10}")
    for name, result in results.items():
        print(f"{name:<16}{result['cases']:>12,}{result['cases'] / seconds:>10,.0f}{len(result['failures']):>10}")
    return 1 if any(result["failures"] for result in results.values()) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60, help="for all targets together")
    parser.add_argument("--only", nargs="*", choices=list(TARGETS), help="these targets")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000, help="repeats the mutations of a run")
    parser.add_argument("--report", help=argparse.SUPPRESS)
    return parser.parse_args()


def _in_own_process(name: str, seconds: float, seed: int) -> dict[str, Any]:
    """A target may end its process, in code that is not Python; then the case it ran is the failure."""
    with TemporaryDirectory() as folder:
        report, said = Path(folder, "report"), Path(folder, "stderr")
        command = [sys.executable, "-m", "tests.fuzz", "--only", name, "--minutes", str(seconds / 60)]
        with said.open("wb") as errors:
            ended = subprocess.run([*command, "--seed", str(seed), "--report", str(report)], stderr=errors, check=False)
        result: dict[str, Any] = json.loads(report.read_text()) if report.exists() else {"cases": 0, "failures": []}
        case, text = Path(f"{report}.case"), said.read_text(errors="replace")[-2_000:]
        if ended.returncode and not case.exists():
            sys.exit(f"{name} did not begin: {text}")
        if ended.returncode:
            result["failures"].append(name)
            _show(name, Failure("Died", f"exit code {ended.returncode}", text, case.read_bytes()))
    return result


def _fuzz(name: str, seconds: float, seed: int, report: Path) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    fuzzer = Fuzzer(TARGETS[name], Random(f"{name} {seed}"), Path(f"{report}.case"))
    began = shown = time.monotonic()
    known: set[tuple[str, str]] = set()

    def progress() -> None:
        nonlocal shown
        for failure in fuzzer.failures.values():
            if failure.key not in known:
                known.add(failure.key)
                _show(name, failure)
        report.write_text(json.dumps({"cases": fuzzer.cases, "failures": [list(key) for key in known]}))
        now = time.monotonic()
        if now - shown > SHOWN_EVERY_SECONDS:
            shown = now
            print(f"  {name}: {fuzzer.cases:,} cases in {now - began:.0f} s, {len(known)} failures", flush=True)

    fuzzer.run(seconds, progress)
    progress()


def _show(name: str, failure: Failure) -> None:
    """What failed, its shortest case, and where this is kept."""
    file = failure.keep(name)
    case = failure.case if len(failure.case) <= SHOWN_BYTES else failure.case[:SHOWN_BYTES] + b"..."
    print(f"\n{name}: {failure.kind} at {failure.place}: {failure.said}\n  {case!r}\n  kept as {file}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
