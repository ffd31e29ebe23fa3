"""From ``headrace run`` of README's example to its first result on screen: ``python -m benchmarks.start [--quick]``."""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from rich.table import Table

from benchmarks.command import asked, tell
from benchmarks.processors import Processors
from benchmarks.wheel.cases import Goal, say

GOAL = Goal("start_to_first_result_s", 10.0, at_least=False)
RUNS = 5
README = Path(__file__).parents[2] / "README.md"
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
RUN = ("from headrace.cli import app; app()", "run", "spend.py", "--checkpoint", "checkpoints/spend", "--available-now")
SHOWN = "the first result is on screen"
RESULT = re.compile(r"[1-9]\d* out\b|\bout +│ +[1-9]")
"""A line of progress, or one of the table at the end, that tells of results."""
FILES = {
    "Spark is up, the pipeline is defined": "lease/*.json",
    "the first batch begins": "spend/log/*3.json",
    "the first batch is done": "spend/history.jsonl",
}
"""What is there at each moment on the way, in the checkpoint."""
LOOK_SECONDS = 0.02


@dataclass(slots=True)
class Start:
    """What happened when, in seconds since the command was given, and what it cost."""

    moments: dict[str, float] = field(default_factory=dict)
    processors: dict[str, float] = field(default_factory=dict)
    pythons: set[int] = field(default_factory=set)


def main() -> None:
    """Measure, print the table, and end with one line of JSON."""
    wanted = asked("start", __doc__, ["start"])
    starts: list[Start] = []
    # The first run brings everything from the disk into memory.
    for run in range(1 + (1 if wanted.quick else RUNS)):
        with tempfile.TemporaryDirectory(prefix="headrace-benchmark-") as folder:
            start = measured(Path(folder))
        said = ", ".join(f"{what} {seconds:.1f} s" for what, seconds in start.moments.items())
        say(f"run {run}{'' if run else ' (not counted)'}: {said}")
        starts += [start] if run else []
    table = Table("", "median (lowest to highest)", "goal", "", title="README's example, from the command on")
    for moment in (*FILES, SHOWN):
        seconds = [start.moments[moment] for start in starts]
        judged = (str(GOAL), GOAL.verdict(statistics.median(seconds))) if moment == SHOWN else ()
        table.add_row(moment, f"{_spread(seconds)} s", *judged)
    table.add_section()
    for language in starts[0].processors:
        table.add_row(
            f"{language}, to the end", f"{_spread([each.processors[language] for each in starts])} processor s"
        )
    table.add_row("Python processes", str(max(len(start.pythons) for start in starts)))
    tell("start", [table], {GOAL.ratio: statistics.median(start.moments[SHOWN] for start in starts)})


def measured(folder: Path) -> Start:
    """Follow README in an empty folder, and look at what happens when."""
    arrive, define = (found[2] for found in list(BLOCK.finditer(README.read_text(encoding="utf-8")))[:2])
    subprocess.run(["bash", "-e", "-c", arrive], cwd=folder, check=True)
    (folder / "spend.py").write_text(define, encoding="utf-8")
    start, began = Start(), time.time()
    process = subprocess.Popen(
        [sys.executable, "-c", *RUN], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    looking = threading.Thread(target=_look, args=(process, folder / "checkpoints" / "spend", start, began))
    lines = []
    with Processors(process.pid) as processors:
        looking.start()
        for line in process.stdout:
            lines.append(line)
            if RESULT.search(line):
                start.moments.setdefault(SHOWN, time.time() - began)
        process.wait()
        looking.join()
    if process.returncode != 0 or SHOWN not in start.moments:
        raise RuntimeError(f"README's example has failed:\n{''.join(lines)}")
    start.processors = processors.at(time.time())
    return start


def _look(process: subprocess.Popen[str], checkpoint: Path, start: Start, began: float) -> None:
    """Note when files appear, and which Python processes there are."""
    while process.poll() is None:
        for moment, pattern in FILES.items():
            if moment not in start.moments and any(checkpoint.glob(pattern)):
                start.moments[moment] = time.time() - began
        try:
            there = psutil.Process(process.pid).children(recursive=True)
            start.pythons |= {process.pid, *(each.pid for each in there if "python" in each.name())}
        except psutil.Error:
            continue  # one has ended in this moment
        time.sleep(LOOK_SECONDS)


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


if __name__ == "__main__":
    main()
