"""Many calls at the same time, each within its time: asked, tried again, given up."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from headrace.operators.lookup.answers import Outcome
from headrace.operators.lookup.breaker import BREAKER_OPEN, Circuit
from headrace.operators.lookup.service import Answer, Connection, LookupFailure

FIRST_PAUSE = 0.05
Told = Callable[[list[tuple[int, Outcome]]], None]
"""Takes the places of keys with what became of them."""


@dataclass(frozen=True, slots=True)
class Terms:
    """How many calls run at the same time, and how long and how often a key is asked for."""

    in_flight: int
    timeout: float
    """Seconds of one call."""
    retries: int

    @property
    def budget(self) -> float:
        """Seconds that a key may take, all its calls and the pauses between them included."""
        return self.timeout * (self.retries + 1)

    def longest(self, calls: int) -> float:
        """Seconds that so many calls may take, whatever the service does."""
        return self.budget * ceil(calls / self.in_flight)


@dataclass(frozen=True, slots=True)
class Asking:
    """Asks for the keys of one task."""

    connection: Connection
    terms: Terms
    circuit: Circuit
    read: Callable[[Answer], Outcome]
    numbers: Counter[str]

    async def ask_all(self, calls: Sequence[tuple[int, Sequence[Any]]], tell: Told) -> None:
        """Make all calls (the place of the first question, and the questions); tell what comes as soon as it comes."""
        remaining = iter(calls)
        await asyncio.gather(*(self._work(remaining, tell) for _ in range(min(self.terms.in_flight, len(calls)))))

    async def _work(self, remaining: Iterator[tuple[int, Sequence[Any]]], tell: Told) -> None:
        for first, questions in remaining:
            tell(list(enumerate(await self._outcomes(questions), first)))

    async def _outcomes(self, questions: Sequence[Any]) -> list[Outcome]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.terms.budget
        outcomes: dict[int, Outcome] = {}
        asked = list(range(len(questions)))
        for attempt in range(self.terms.retries + 1):
            partly = len(asked) < len(questions)
            told = await self._attempt([questions[place] for place in asked], deadline, partly=partly)
            outcomes.update(zip(asked, told, strict=True))
            asked = [place for place, outcome in outcomes.items() if _to_ask_again(outcome)]
            if not asked:
                break
            pause = self._pause(attempt)
            if attempt == self.terms.retries or loop.time() + pause >= deadline:
                break
            await asyncio.sleep(pause)
            self.numbers["retries"] += 1
        return [outcomes[place] for place in range(len(questions))]

    def _pause(self, attempt: int) -> float:
        """Longer each time, never the same, and all of them together shorter than one call may take."""
        first: float = min(FIRST_PAUSE, self.terms.timeout / 2 ** (self.terms.retries + 1))
        return first * float(2**attempt) * random.uniform(0.5, 1.5)

    async def _attempt(self, questions: Sequence[Any], deadline: float, *, partly: bool) -> list[Outcome]:
        """One call; a failure of the whole call is one of each of its keys.

        ``partly`` says that the service has answered other keys of the call: then it is there.
        """
        try:
            await self.circuit.enter(deadline - self.terms.timeout / 2)
        except LookupFailure as refused:
            return [refused] * len(questions)
        seconds = min(self.terms.timeout, deadline - asyncio.get_running_loop().time())
        self.numbers["calls"] += 1
        try:
            outcomes = [self.read(answer) for answer in await self._within(questions, seconds)]
            if len(outcomes) != len(questions):
                detail = f"{len(questions)} keys were asked for and {len(outcomes)} answers came"
                raise LookupFailure("ANSWER_WRONG_TYPE", detail)
        except TimeoutError:
            self.numbers["timeouts"] += 1
            failure = LookupFailure("LOOKUP_TIMEOUT", f"no answer within {self.terms.timeout:g} s")
        except LookupFailure as problem:
            failure = problem
        except Exception as problem:
            failure = LookupFailure("LOOKUP_FAILED", f"{type(problem).__name__}: {problem}")
        except BaseException:
            self.circuit.given_up()
            raise
        else:
            well = partly or not all(map(_to_ask_again, outcomes))
            (self.circuit.succeeded if well else self.circuit.failed)()
            return outcomes
        # A service that refuses a key is there.
        (self.circuit.failed if failure.again else self.circuit.succeeded)()
        return [failure] * len(questions)

    async def _within(self, questions: Sequence[Any], seconds: float) -> Sequence[Answer]:
        """The answers in time; a call that does not end when it is told to is left behind, not waited for."""
        call = asyncio.ensure_future(self.connection.ask(questions))
        try:
            done, _ = await asyncio.wait({call}, timeout=max(0.0, seconds))
        finally:
            if not call.done():
                call.cancel()
                call.add_done_callback(_end)
        if not done:
            raise TimeoutError
        if call.cancelled():
            raise LookupFailure("LOOKUP_FAILED", "the call was cancelled")
        return call.result()


def _to_ask_again(outcome: Outcome) -> bool:
    return isinstance(outcome, LookupFailure) and outcome.again


def _end(call: asyncio.Future[Any]) -> None:
    """Take what an abandoned call has to say, so that nobody complains that it was not heard."""
    if not call.cancelled():
        call.exception()


def count_failures(numbers: Counter[str], outcomes: Sequence[tuple[int, Outcome]]) -> None:
    """Count the keys that got no answer, and those of them that were not even asked for."""
    failures = [outcome for _, outcome in outcomes if isinstance(outcome, LookupFailure)]
    numbers["failures"] += len(failures)
    numbers["refused"] += sum(failure.reason == BREAKER_OPEN for failure in failures)
