"""Concurrent requests for keys: each with a timeout, retries and a circuit breaker."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from time import monotonic
from typing import Any

from headrace.durations import Duration, positive_microseconds, spoken
from headrace.errors import DefinitionError
from headrace.operators.lookup.service import Answer, LookupConnection, LookupFailure, Outcome
from headrace.stability import stable

BREAKER_OPEN = "BREAKER_OPEN"


@dataclass(frozen=True, slots=True)
class Breaker:
    """After how many failures in a row calls are refused, and for how long."""

    after: int
    pause: int

    def __repr__(self) -> str:
        return f"hr.breaker(after={self.after}, pause={spoken(self.pause)!r})"


@stable
def breaker(*, after: int = 20, pause: Duration = "10 seconds") -> Breaker:
    """Refuse calls for ``pause`` when ``after`` calls in a row have failed, then try the service with one call.

    >>> breaker(after=5)
    hr.breaker(after=5, pause='10 seconds')
    """
    if after < 1:
        raise DefinitionError("BREAKER_INVALID", f"hr.breaker(after={after}): after must be at least 1.")
    return Breaker(after, positive_microseconds(pause, argument="pause"))


class Circuit:
    """The state of a breaker in one process; all calls run in one event loop."""

    def __init__(self, breaker: Breaker | None) -> None:
        self._breaker = breaker
        self._failures = 0
        self._open_until: float | None = None
        self._trial: asyncio.Future[None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether calls are refused, or the trial call has not succeeded yet."""
        return self._open_until is not None

    async def enter(self, until: float) -> None:
        """Admit a call, or refuse it at once; during the trial call the others wait for it until a time of the loop."""
        while self._open_until is not None:
            left = self._open_until - monotonic()
            if left > 0:
                why = f"{self._failures} calls in a row have failed; the service is tried again in {left:.1f} s"
                raise LookupFailure(BREAKER_OPEN, why, retryable=False)
            loop = asyncio.get_running_loop()
            if self._trial is None:
                self._trial = loop.create_future()
                return
            await asyncio.wait({self._trial}, timeout=until - loop.time())
            if loop.time() >= until:
                why = "another call was still testing the service when the time for this one ran out"
                raise LookupFailure(BREAKER_OPEN, why, retryable=False)

    def succeeded(self) -> None:
        self._failures, self._open_until = 0, None
        self.end_trial()

    def failed(self) -> None:
        self._failures += 1
        if self._breaker is not None and (self._open_until is not None or self._failures >= self._breaker.after):
            self._open_until = monotonic() + self._breaker.pause / 1e6
        self.end_trial()

    def end_trial(self) -> None:
        """A call has ended, perhaps cancelled without an outcome; another one may try the service."""
        if self._trial is not None and not self._trial.done():
            self._trial.set_result(None)
        self._trial = None


FIRST_PAUSE = 0.05
Piece = list[tuple[int, Outcome]]
"""The positions of keys with their outcomes."""


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """How many calls run concurrently, and how long and how often a key is requested."""

    in_flight: int
    timeout: float
    """Seconds of one call."""
    retries: int

    @property
    def budget(self) -> float:
        """Seconds that a key may take, with all its calls and the pauses between them."""
        return self.timeout * (self.retries + 1)

    def longest(self, calls: int) -> float:
        """Seconds that this many calls may take, whatever the service does."""
        return self.budget * ceil(calls / self.in_flight)


@dataclass(frozen=True, slots=True)
class KeyRequests:
    """Requests for the keys of one task."""

    connection: LookupConnection
    limits: RequestLimits
    circuit: Circuit
    read: Callable[[Answer], Outcome]
    counters: Counter[str]

    async def send_all(self, calls: Sequence[tuple[int, Sequence[Any]]], on_outcomes: Callable[[Piece], None]) -> None:
        """Make all calls (the position of the first key, and the requests), passing on outcomes as they arrive."""
        remaining = iter(calls)

        async def work() -> None:
            for first, requests in remaining:
                on_outcomes(list(enumerate(await self._outcomes(requests), first)))

        await asyncio.gather(*(work() for _ in range(min(self.limits.in_flight, len(calls)))))

    async def _outcomes(self, requests: Sequence[Any]) -> list[Outcome]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.limits.budget
        outcomes: dict[int, Outcome] = {}
        pending = list(range(len(requests)))
        for attempt in range(self.limits.retries + 1):
            partly = len(pending) < len(requests)
            answered = await self._attempt([requests[place] for place in pending], deadline, partly=partly)
            outcomes.update(zip(pending, answered, strict=True))
            pending = [place for place, outcome in outcomes.items() if _retryable(outcome)]
            if not pending:
                break
            pause = self._pause(attempt)
            if attempt == self.limits.retries or loop.time() + pause >= deadline:
                break
            await asyncio.sleep(pause)
            self.counters["retries"] += 1
        return [outcomes[place] for place in range(len(requests))]

    def _pause(self, attempt: int) -> float:
        """Exponential with jitter; all pauses together are shorter than the timeout of one call."""
        first: float = min(FIRST_PAUSE, self.limits.timeout / 2 ** (self.limits.retries + 1))
        return first * float(2**attempt) * random.uniform(0.5, 1.5)

    async def _attempt(self, requests: Sequence[Any], deadline: float, *, partly: bool) -> list[Outcome]:
        """One call, whose failure is that of each of its keys; ``partly`` if other keys of it were answered before."""
        try:
            await self.circuit.enter(deadline - self.limits.timeout / 2)
        except LookupFailure as refused:
            return [refused] * len(requests)
        seconds = min(self.limits.timeout, deadline - asyncio.get_running_loop().time())
        self.counters["calls"] += 1
        try:
            outcomes = [self.read(answer) for answer in await self._within(requests, seconds)]
            if len(outcomes) != len(requests):
                detail = f"{len(requests)} keys were requested and {len(outcomes)} answers came back"
                raise LookupFailure("ANSWER_WRONG_TYPE", detail)
        except TimeoutError:
            self.counters["timeouts"] += 1
            failure = LookupFailure("LOOKUP_TIMEOUT", f"no answer within {self.limits.timeout:g} s")
        except LookupFailure as problem:
            failure = problem
        except Exception as problem:
            failure = LookupFailure("LOOKUP_FAILED", f"{type(problem).__name__}: {problem}")
        except BaseException:
            self.circuit.end_trial()
            raise
        else:
            well = partly or not all(map(_retryable, outcomes))
            (self.circuit.succeeded if well else self.circuit.failed)()
            return outcomes
        # A service that refuses a key is up.
        (self.circuit.failed if failure.retryable else self.circuit.succeeded)()
        return [failure] * len(requests)

    async def _within(self, requests: Sequence[Any], seconds: float) -> Sequence[Answer]:
        """The answers in time; a call that ignores its cancellation is abandoned."""
        call = asyncio.ensure_future(self.connection.fetch(requests))
        try:
            done, _ = await asyncio.wait({call}, timeout=max(0.0, seconds))
        finally:
            if not call.done():
                call.cancel()
                call.add_done_callback(_retrieve)
        if not done:
            raise TimeoutError
        if call.cancelled():
            raise LookupFailure("LOOKUP_FAILED", "the call was cancelled")
        return call.result()


def _retryable(outcome: Outcome) -> bool:
    return isinstance(outcome, LookupFailure) and outcome.retryable


def _retrieve(call: asyncio.Future[Any]) -> None:
    """Retrieve the exception of an abandoned call, so that asyncio does not log it."""
    if not call.cancelled():
        call.exception()
