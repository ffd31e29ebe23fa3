"""Two drivers, copies of a checkpoint and zombies in any order: no row is lost, none is there twice.

``make forks`` runs two hundred rounds. The table says what the rounds came to, and the seed that repeats what they did.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis

from headrace.observe.committed import committed_rows
from tests.recovery.conftest import FOLDER, delta_rows, environment, kill_session
from tests.recovery.fork_job import EXPIRES_SECONDS
from tests.recovery.test_sink_kills import started
from tests.topics import create_topic, messages

pytestmark = [pytest.mark.spark, pytest.mark.full, pytest.mark.timeout(0)]

SINKS = ("kafka", "delta", "postgres", "redis", "files")
DRIVERS = 2
ACTIONS = 5
STARTS = 3
"""A round is stuck when so many starts of every copy are refused."""
ROWS_OF_A_FILE = 20


class Driver:
    """A process that runs the flow over a checkpoint when it is told to."""

    def __init__(self, output: Path) -> None:
        self._output = output
        self._begin()

    def _begin(self) -> None:
        with self._output.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, str(FOLDER / "fork_job.py")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                start_new_session=True,
                env=environment(),
            )
        self._is_ready = False

    def ask(self, checkpoint: Path, **how: Any) -> None:
        # Only now, so that several begin at once.
        self._is_ready = self._is_ready or self._line() == b"ready\n"
        assert self._is_ready, self.said()
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"checkpoint": str(checkpoint), **how}).encode() + b"\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        """What refused the run, or nothing."""
        line = self._line()
        assert line, f"a driver has ended without an id: {self.said()}"
        return str(json.loads(line))

    def _line(self) -> bytes:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def kill(self) -> None:
        """Kill it in the middle of whatever it does."""
        kill_session(self.process)
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()

    def replace(self) -> None:
        """Kill it; another one takes its place."""
        self.kill()
        self._begin()

    def said(self) -> str:
        return self._output.read_text(errors="replace")[-4000:]


@dataclass
class Outcome:
    """What the rounds of a sink came to."""

    rounds: int = 0
    starts: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    stuck: list[str] = field(default_factory=list)
    """What the copies said at the end of rounds after which none of them could go on."""
    lost: int = 0
    doubled: int = 0


@dataclass
class Round:
    """A place of its own: input, a sink, and the copies of one checkpoint."""

    root: Path
    sink: str
    address: str
    drivers: list[Driver]
    signal_session: Callable[..., None]
    chance: random.Random
    outcome: Outcome
    files: int = 0
    copies: list[Path] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    runs: dict[Path, int] = field(default_factory=dict)
    """The number of the last run that each copy knows of."""
    a_run_is_gone: bool = False
    """Whether a copy was replaced that alone knew of its last run: if that run wrote, no other copy may go on."""

    def play(self) -> None:
        """Do a few things, then go on with one copy, and compare what the sink holds."""
        (self.root / "in").mkdir(parents=True)
        if self.sink == "kafka":
            create_topic(self.address, self.root.name, 2)
        self.copies = [self.root / "checkpoint-0"]
        self.land()
        self.run(self.copies[0])
        actions = (self.copy, self.run_one, self.run_one, self.put_back, self.run_two, self.copy_alive, self.freeze)
        for action in self.chance.choices(actions, k=ACTIONS):
            self.land()
            action()
        if self.chance.random() < 0.1:
            self.kill()
        self.land()
        goes_on = self.one_goes_on()
        found = Counter(self.rows())
        self.outcome.rounds += 1
        is_forked = any("CHECKPOINT_FORKED" in refusal for refusal in self.refusals[-STARTS * len(self.copies) :])
        if not goes_on and not (self.a_run_is_gone and is_forked):
            self.outcome.stuck.append(f"{self.root.name}: {self.refusals[-STARTS * len(self.copies) :]}")
        self.outcome.doubled += sum(number - 1 for number in found.values())
        wanted = {str(number) for number in range(self.files * ROWS_OF_A_FILE)}
        self.outcome.lost += len(wanted - found.keys()) if goes_on else 0
        assert found.keys() <= wanted

    def land(self) -> None:
        """Two or three more files."""
        for _ in range(self.chance.randint(2, 3)):
            hidden = self.root / "in" / f".{self.files}"
            first = self.files * ROWS_OF_A_FILE
            rows = ({"id": str(first + number), "at": "2025-01-01T10:00:00Z"} for number in range(ROWS_OF_A_FILE))
            hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
            hidden.rename(self.root / "in" / f"{self.files:06d}.json")
            self.files += 1

    def begin(self, driver: Driver, checkpoint: Path) -> None:
        self.outcome.starts += 1
        self.runs[checkpoint] = self.outcome.starts
        how = {"files_per_batch": self.chance.randint(1, 4), "writers": self.chance.randint(1, 3)}
        driver.ask(checkpoint, root=str(self.root), sink=self.sink, address=self.address, **how)

    def end(self, driver: Driver) -> bool:
        """Whether the run went well; if not it says why, with an id."""
        said = driver.answer()
        if said:
            found = re.match(r"\[([A-Z_]+)\] ", said)
            assert found is not None, said
            self.outcome.refused[found[1]] += 1
            self.refusals.append(said)
        return not said

    def run(self, checkpoint: Path) -> bool:
        driver = self.chance.choice(self.drivers)
        self.begin(driver, checkpoint)
        return self.end(driver)

    def run_one(self) -> None:
        self.run(self.chance.choice(self.copies))

    def run_two(self) -> None:
        """Two copies beside each other, or one by two drivers."""
        for driver in self.drivers:
            self.begin(driver, self.chance.choice(self.copies))
            self.pause(0.5)
        for driver in self.drivers:
            self.end(driver)

    def copy(self) -> None:
        copied = self.root / f"checkpoint-{len(self.copies)}"
        original = self.chance.choice(self.copies)
        copy_of(original, copied)
        self.copies.append(copied)
        self.runs[copied] = self.runs[original]

    def copy_alive(self) -> None:
        """A copy of a checkpoint that is being written, so that its parts are of several moments."""
        driver = self.drivers[0]
        self.begin(driver, self.chance.choice(self.copies))
        self.pause(2.0)
        self.copy()
        self.runs[self.copies[-1]] = 0
        self.end(driver)

    def put_back(self) -> None:
        """One copy in the place of another."""
        kept, replaced = self.chance.choice(self.copies), self.chance.choice(self.copies)
        if kept != replaced:
            shutil.rmtree(replaced)
            copy_of(kept, replaced)
            known = self.runs[replaced]
            self.runs[replaced] = self.runs[kept]
            self.a_run_is_gone |= known not in self.runs.values()

    def freeze(self) -> None:
        """A driver sleeps until another one has taken over, and wakes while that one runs or afterwards."""
        zombie, successor = self.chance.sample(self.drivers, 2)
        checkpoint = self.chance.choice(self.copies)
        self.begin(zombie, checkpoint)
        self.pause(2.0)
        self.signal_session(zombie.process, signal.SIGSTOP)
        time.sleep(EXPIRES_SECONDS + 0.5)
        self.begin(successor, checkpoint)
        self.pause(3.0)
        self.signal_session(zombie.process, signal.SIGCONT)
        self.end(successor)
        self.end(zombie)

    def kill(self) -> None:
        driver = self.chance.choice(self.drivers)
        self.begin(driver, self.chance.choice(self.copies))
        self.pause(2.0)
        driver.replace()

    def pause(self, most: float) -> None:
        time.sleep(self.chance.uniform(0, most))

    def one_goes_on(self) -> bool:
        """Whether one of the copies runs to the end; what one start finds, a lease or a claim, the next may not."""
        for _ in range(STARTS):
            # A copy of a lease looks as if its holder was alive, until it has expired.
            time.sleep(EXPIRES_SECONDS)
            if any(self.run(copy) for copy in self.chance.sample(self.copies, len(self.copies))):
                return True
        return False

    def rows(self) -> list[str]:
        """The ids in the sink."""
        name = self.root.name
        match self.sink:
            case "kafka":
                return [json.loads(value or b"")["id"] for _, value in messages(self.address, name)]
            case "postgres":
                with psycopg.connect(self.address) as connection:
                    return [row[0] for row in connection.execute(f'select id from "{name}"').fetchall()]
            case "redis":
                with redis.Redis.from_url(self.address, decode_responses=True) as client:
                    return [key.removeprefix(f"{name}:") for key in client.scan_iter(f"{name}:*", count=1000)]
            case "delta":
                return list(delta_rows(self.root / "table")["id"])
            case _:
                return list(committed_rows(self.root / "out")["id"])


def copy_of(checkpoint: Path, copied: Path) -> None:
    """Copy what is there; what vanishes meanwhile is not in the copy."""
    for file in sorted(checkpoint.rglob("*")):
        target = copied / file.relative_to(checkpoint)
        if file.is_dir():
            target.mkdir(parents=True, exist_ok=True)
            continue
        try:
            content = file.read_bytes()
        except FileNotFoundError:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


@contextmanager
def running_drivers(folder: Path) -> Iterator[list[Driver]]:
    drivers: list[Driver] = []
    try:
        for number in range(DRIVERS):
            drivers.append(Driver(folder / f"driver-{number}.txt"))
        yield drivers
    finally:
        for driver in drivers:
            driver.kill()


def test_copies_and_zombies_lose_and_double_nothing(
    tmp_path: Path,
    signal_session: Callable[..., None],
    report: Callable[..., None],
    pytestconfig: pytest.Config,
) -> None:
    rounds, seed = pytestconfig.getoption("--rounds"), pytestconfig.getoption("--seed") or random.randrange(1, 10**6)
    chance, began = random.Random(seed), time.monotonic()
    outcomes = {sink: Outcome() for sink in SINKS}
    with ExitStack() as stack:
        addresses = {sink: stack.enter_context(started(sink)) for sink in SINKS}
        drivers = stack.enter_context(running_drivers(tmp_path))
        try:
            for number in range(rounds):
                sink = SINKS[number % len(SINKS)]
                root = tmp_path / f"{sink}_{number}"
                Round(root, sink, addresses[sink], drivers, signal_session, chance, outcomes[sink]).play()
                shutil.rmtree(root)
        finally:
            for sink, each in outcomes.items():
                refused = " ".join(f"{id}:{times}" for id, times in sorted(each.refused.items()))
                numbers = {"lost": each.lost, "doubled": each.doubled, "stuck": len(each.stuck)}
                about = {"sink": sink, "rounds": each.rounds, "starts": each.starts, "refused": refused}
                report(**about, **numbers, seed=seed, began=began)
    found = {sink: (each.lost, each.doubled, each.stuck) for sink, each in outcomes.items()}
    assert found == dict.fromkeys(SINKS, (0, 0, []))
