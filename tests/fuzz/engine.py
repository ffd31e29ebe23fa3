"""Tries a target with one case after the other, and makes what fails as small as it can."""

from __future__ import annotations

import faulthandler
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from random import Random

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis import strategies as st

from tests.fuzz.mutation import MOST_BYTES, mutated

FOUND = Path(__file__).parent / "found"
"""A folder for each target, with the cases that it has failed on."""
CASE_SECONDS = 5.0
"""The most processor time of a case: one that takes longer hangs."""
STUCK_SECONDS = 120.0
"""Code outside of Python cannot be interrupted: after so long the process ends."""
MUTATING_SECONDS = 2.0
EXAMPLES = 50
SHRINKING_CASES = 2_000
MOST_SEEDS = 2_000
Outcome = object


@dataclass(frozen=True, slots=True)
class Target:
    """What is tried: ``check`` returns what has become of the bytes, and fails where nothing like that may happen."""

    name: str
    seeds: Sequence[bytes]
    """Bytes that it was made for."""
    check: Callable[[bytes], Outcome]
    inputs: st.SearchStrategy[bytes]
    """Bytes that are nearly what it was made for."""
    tokens: Sequence[bytes] = ()
    """Parts that mean something to it."""
    between: bytes | None = None
    """What is between two rows, if bytes with it are two rows."""

    @property
    def kept(self) -> dict[str, bytes]:
        """The cases that it has failed on, by the names of their files."""
        return {file.name: file.read_bytes() for file in sorted((FOUND / self.name).glob("*"))}


@dataclass(frozen=True, slots=True)
class Failure:
    """A case that fails; failures of one kind and place are one."""

    kind: str
    place: str
    said: str
    case: bytes

    @property
    def key(self) -> tuple[str, str]:
        return self.kind, self.place

    def keep(self, target: str) -> Path:
        """Keep the case among those that every run of the tests tries."""
        folder = FOUND / target
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / sha256(self.case).hexdigest()[:12]
        file.write_bytes(self.case)
        return file


class TooSlow(BaseException):
    """A case has used up its processor time; nothing that fails on bytes may take it for one of them."""


@contextmanager
def limited() -> Iterator[None]:
    """Processor time for one case, so that a busy machine finds nothing."""

    def stop(*_: object) -> None:
        raise TooSlow(f"more than {CASE_SECONDS:.0f} s")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, CASE_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@dataclass(slots=True)
class Fuzzer:
    """Tries one target; a case is in the file ``current`` while it runs, for those that end the process."""

    target: Target
    random: Random
    current: Path
    cases: int = 0
    failures: dict[tuple[str, str], Failure] = field(default_factory=dict)
    _seeds: list[bytes] = field(default_factory=list)
    _outcomes: set[Outcome] = field(default_factory=set)

    def run(self, seconds: float, progress: Callable[[], None]) -> None:
        until = time.monotonic() + seconds
        self._seeds = [*self.target.seeds, *self.target.kept.values()]
        for case in list(self._seeds):
            self._note(self._tried(case))
        while time.monotonic() < until:
            self._mutate(min(until, time.monotonic() + MUTATING_SECONDS))
            progress()
            self._explore()
            progress()

    def _mutate(self, until: float) -> None:
        while time.monotonic() < until:
            failure = self._tried(self._mutation())
            if failure is not None and failure.key not in self.failures:
                self._note(self._shrunk(failure))

    def _mutation(self) -> bytes:
        """A changed seed, or several: a case of many rows costs little more than one of few."""
        between = self.target.between
        count = 1 if between is None else self.random.choice((1, 4, 16))
        chosen = self.random.choices(self._seeds, k=count)
        cases = [mutated(case, self._seeds, self.target.tokens, self.random) for case in chosen]
        return cases[0] if between is None else between.join(cases)[:MOST_BYTES]

    def _explore(self) -> None:
        """Cases that Hypothesis makes up, and shrinks where they fail."""
        last: list[Failure] = []

        @seed(self.random.getrandbits(64))
        @settings(
            max_examples=EXAMPLES,
            database=None,
            deadline=None,
            derandomize=False,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
            verbosity=Verbosity.quiet,
        )
        @given(self.target.inputs)
        def one(case: bytes) -> None:
            failure = self._tried(case)
            is_new = failure is not None and failure.key not in self.failures
            if failure is not None and is_new and failure.key in {each.key for each in (last or [failure])}:
                last.append(failure)
                raise _Failed

        try:
            one()
        except _Failed:
            self._note(min(last, key=lambda failure: len(failure.case)))

    def _note(self, failure: Failure | None) -> None:
        if failure is not None:
            self.failures.setdefault(failure.key, failure)

    def _tried(self, case: bytes) -> Failure | None:
        self.cases += 1
        self.current.write_bytes(case)
        faulthandler.dump_traceback_later(STUCK_SECONDS, exit=True)
        try:
            with limited():
                outcome = self.target.check(case)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return failure_of(error, case)
        finally:
            faulthandler.cancel_dump_traceback_later()
        if outcome not in self._outcomes and len(self._seeds) < MOST_SEEDS:
            # What led to something new leads to more of it.
            self._outcomes.add(outcome)
            self._seeds.append(case)
        return None

    def _shrunk(self, failure: Failure) -> Failure:
        """The same failure of a shorter case: parts are removed as long as it stays."""
        tried, length = 0, max(1, len(failure.case) // 2)
        while length and tried < SHRINKING_CASES:
            at = 0
            while at < len(failure.case) and tried < SHRINKING_CASES:
                shorter = self._tried(failure.case[:at] + failure.case[at + length :])
                tried += 1
                if shorter is not None and shorter.key == failure.key:
                    failure = shorter
                else:
                    at += length
            length //= 2
        return failure


class _Failed(Exception):
    """Tells Hypothesis that a case fails."""


def failure_of(error: BaseException, case: bytes) -> Failure:
    """What failed, and the innermost line of ours that it came through."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/headrace/" in frame.filename or "/tests/fuzz/targets/" in frame.filename]
    where = (ours or frames)[-1]
    return Failure(type(error).__name__, f"{Path(where.filename).name}:{where.lineno}", str(error)[:500], case)
