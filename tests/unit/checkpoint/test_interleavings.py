"""Log, segments and sweep as they are: a driver dies or sleeps at each of its steps, and others go on meanwhile.

The model of the protocol (tests/models/protocol.py) has every interleaving of its steps; here the code itself runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
import pytest

from headrace.checkpoint.log import Entry, Log
from headrace.checkpoint.storage import Buffer, MemoryStorage, Storage
from headrace.checkpoint.sweep import FileName, sweep
from headrace.errors import HeadraceError

BATCHES = 3
FOREVER = 2**60


class Died(Exception):
    """The process of a driver has ended."""


class Steps(Storage):
    """A driver's access to the storage; something happens before one of its calls."""

    def __init__(self, storage: Storage, at: int = -1, happens: Callable[[], None] = lambda: None) -> None:
        self._storage = storage
        self._at = at
        self._happens = happens
        self.count = 0

    def _step(self) -> Storage:
        if self.count == self._at:
            self._happens()
        self.count += 1
        return self._storage

    def open(self, name: str) -> pa.Buffer:
        return self._step().open(name)

    def size(self, name: str) -> int:
        return self._step().size(name)

    def read_range(self, name: str, start: int, length: int) -> bytes:
        return self._step().read_range(name, start, length)

    def write(self, name: str, content: Buffer) -> None:
        self._step().write(name, content)

    def create(self, name: str, content: bytes) -> bool:
        return self._step().create(name, content)

    def replace(self, name: str, content: bytes) -> None:
        self._step().replace(name, content)

    def list(self, folder: str) -> Iterator[str]:
        return self._step().list(folder)

    def delete(self, name: str) -> None:
        self._step().delete(name)


@dataclass
class Sink:
    """Rows with the mark of the batch that wrote them last."""

    rows: list[int] = field(default_factory=list)
    mark: str | None = None

    def deliver(self, row: int, token: str, expected: str | None) -> None:
        if self.mark == token:
            return
        if self.mark != expected:
            raise HeadraceError("CHECKPOINT_FORKED", "another checkpoint writes here")
        self.rows.append(row)
        self.mark = token


def drive(storage: Storage, sink: Sink) -> None:
    """Run all batches: each adds its number as a file of the state and as a row of the sink."""
    log = Log(storage)
    while True:
        entries = log.read()
        try:
            epoch = log.append("takeover", None).number
            break
        except HeadraceError:
            continue
    outcome = next((entry for entry in reversed(entries) if entry.kind == "outcome"), None)
    done, files, mark = (0, [], None) if outcome is None else (outcome.body[0], outcome.body[1], outcome.body[2])
    last = next((entry for entry in reversed(entries) if entry.kind == "record"), None)
    record = None if last is None or last.body <= done else last
    sweep(storage, "state", kept=files, epoch=epoch, done=done, now=0)
    while done < BATCHES:
        record = log.append("record", done + 1) if record is None else record
        assert sum(int(storage.open(file).to_pybytes()) for file in files) == sum(range(done + 1))
        name = str(FileName("state", epoch=epoch, batch=done + 1, slot=0))
        storage.write(name, str(done + 1).encode())
        sink.deliver(done + 1, record.token, mark)
        done, files, mark = done + 1, [*files, name], record.token
        if done == 2:
            merged = str(FileName("state", epoch=epoch, batch=done, slot=1))
            storage.write(merged, b"3")
            files = [merged]
        base = log.append("outcome", [done, files, mark], is_base=True)
        sweep(storage, "state", kept=files, epoch=epoch, done=done, now=0)
        log.trim(base.number)
        record = None


def newest_outcome(storage: Storage) -> Entry:
    return next(entry for entry in reversed(Log(storage).read()) if entry.kind == "outcome")


def check_the_end(storage: Storage, sink: Sink) -> None:
    """A last driver runs what is left; then everything is there once, and no file that nothing names."""
    drive(storage, sink)
    assert sink.rows == list(range(1, BATCHES + 1))
    done, files, _ = newest_outcome(storage).body
    assert (done, sorted(storage.list("state"))) == (BATCHES, sorted(files))


def steps_of_a_run() -> int:
    steps = Steps(MemoryStorage())
    drive(steps, Sink())
    return steps.count


STEPS = steps_of_a_run()


def attempt(storage: Storage, sink: Sink) -> None:
    """Drive until the driver dies or is replaced."""
    try:
        drive(storage, sink)
    except (Died, FileNotFoundError):
        pass  # a file may have been swept under a driver that was replaced
    except HeadraceError as problem:
        if problem.id not in ("LEASE_LOST", "CHECKPOINT_FORKED"):
            raise


def die() -> None:
    raise Died


@pytest.mark.parametrize("at", range(STEPS))
def test_a_driver_that_dies_at_any_step_loses_and_doubles_nothing(at: int) -> None:
    storage, sink = MemoryStorage(), Sink()
    attempt(Steps(storage, at, die), sink)
    check_the_end(storage, sink)


@pytest.mark.parametrize("at", range(STEPS))
def test_a_driver_that_sleeps_at_any_step_while_another_runs_to_any_step_writes_nothing_wrong(at: int) -> None:
    for until in range(STEPS + 4):
        storage, sink = MemoryStorage(), Sink()
        other = partial(attempt, Steps(storage, until, die), sink)
        attempt(Steps(storage, at, other), sink)
        check_the_end(storage, sink)


@pytest.mark.parametrize("at", range(STEPS))
def test_of_three_drivers_that_wake_in_turn_one_goes_on(at: int) -> None:
    for second in range(0, STEPS, 2):
        storage, sink = MemoryStorage(), Sink()
        third = partial(attempt, Steps(storage), sink)
        other = partial(attempt, Steps(storage, second, third), sink)
        attempt(Steps(storage, at, other), sink)
        check_the_end(storage, sink)
