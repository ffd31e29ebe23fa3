"""A circuit breaker: a service that only fails is left alone for a while, and then tried with one call."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from time import monotonic

from headrace.durations import Duration, positive_microseconds, spoken
from headrace.errors import DefinitionError
from headrace.operators.lookup.service import LookupFailure

BREAKER_OPEN = "BREAKER_OPEN"


@dataclass(frozen=True, slots=True)
class Breaker:
    """After how many failures in a row a service is left alone, and how long."""

    after: int
    pause: int

    def __repr__(self) -> str:
        return f"hr.breaker(after={self.after}, pause={spoken(self.pause)!r})"


def breaker(*, after: int = 20, pause: Duration = "10 seconds") -> Breaker:
    """Leave a service alone for ``pause`` when ``after`` calls in a row have failed.

    >>> breaker(after=5)
    hr.breaker(after=5, pause='10 seconds')
    """
    if after < 1:
        raise DefinitionError("BREAKER_INVALID", f"hr.breaker(after={after}) would never ask. Give at least 1.")
    return Breaker(after, positive_microseconds(pause, argument="pause"))


class Circuit:
    """The state of a breaker in one process; all its calls run in one event loop."""

    def __init__(self, breaker: Breaker | None) -> None:
        self._breaker = breaker
        self._failures = 0
        self._open_until: float | None = None
        self._trial: asyncio.Future[None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether the service is being left alone, or has not yet shown that it is well again."""
        return self._open_until is not None

    async def enter(self, until: float) -> None:
        """Let a call through, or refuse it at once; while one call tries the service, the others wait for it.

        They wait no longer than ``until``, by the clock of the event loop: a call needs time of its own.
        """
        while self._open_until is not None:
            left = self._open_until - monotonic()
            if left > 0:
                raise LookupFailure(
                    BREAKER_OPEN,
                    f"{self._failures} calls in a row have failed; the service is tried again in {left:.1f} s",
                    again=False,
                )
            if self._trial is None:
                self._trial = asyncio.get_running_loop().create_future()
                return
            clock = asyncio.get_running_loop()
            await asyncio.wait({self._trial}, timeout=until - clock.time())
            if clock.time() >= until:
                raise LookupFailure(
                    BREAKER_OPEN,
                    "another call was trying the service for as long as this one could wait",
                    again=False,
                )

    def succeeded(self) -> None:
        """The service has answered."""
        self._failures, self._open_until = 0, None
        self._end_trial()

    def failed(self) -> None:
        """A call has failed."""
        self._failures += 1
        if self._breaker is not None and (self._open_until is not None or self._failures >= self._breaker.after):
            self._open_until = monotonic() + self._breaker.pause / 1e6
        self._end_trial()

    def given_up(self) -> None:
        """A call has ended before it was known what becomes of it; another one may try the service."""
        self._end_trial()

    def _end_trial(self) -> None:
        if self._trial is not None and not self._trial.done():
            self._trial.set_result(None)
        self._trial = None
