"""What a process keeps for a lookup between batches: its connection, its breaker, and the answers it remembers."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress

import polars as pl

from headrace.operators.lookup.answers import Outcome, reading
from headrace.operators.lookup.breaker import Breaker, Circuit
from headrace.operators.lookup.cache import Remembered
from headrace.operators.lookup.event_loop import CLOSING_SECONDS, EventLoop, abandon, event_loop
from headrace.operators.lookup.requests import Asking, Terms, count_failures
from headrace.operators.lookup.service import Connection, LookupFailure, Service

GRACE = 1.5
"""Seconds beyond the longest that calls may take, after which the event loop itself must be blocked."""
MOST_DESKS = 32
"""In one process; a pipeline that was defined again leaves its old ones behind."""
PIECES = 8
"""In about so many pieces do answers come: each costs a pass over all rows that need not keep their order."""
Piece = list[tuple[int, Outcome]]


class Desk:
    """Where a process asks for the keys of one lookup."""

    def __init__(self, service: Service, terms: Terms, breaker: Breaker | None, remembered: Remembered | None) -> None:
        self._service = service
        self._terms = terms
        self._breaker = breaker
        self.remembered = remembered
        self._loop: EventLoop | None = None
        self._connection: Connection | None = None
        self.circuit = Circuit(breaker)

    def ask(self, keys: pl.DataFrame, columns: Mapping[str, pl.DataType], numbers: Counter[str]) -> Generator[Piece]:
        """What becomes of each key, by its place, in pieces as they come; it never takes longer than the terms say.

        Whoever wants no more pieces closes it, which ends the calls.
        """
        questions = self._service.questions(keys)
        size = self._service.at_once
        calls = [(first, questions[first : first + size]) for first in range(0, len(questions), size)]
        terms = Terms(min(self._terms.in_flight, self._service.together), self._terms.timeout, self._terms.retries)
        loop, connection = self._connected(terms.in_flight)
        read = reading(columns, in_text=self._service.in_text)
        asking = Asking(connection, terms, self.circuit, read, numbers)
        arrivals = Arrivals(len(questions))
        deadline = time.monotonic() + terms.longest(len(calls)) + GRACE
        working = loop.start(asking.ask_all(calls, arrivals.put))
        working.add_done_callback(lambda _: arrivals.enough.set())
        unanswered = set(range(len(questions)))
        try:
            while unanswered:
                # Whoever takes the pieces may take longer than the calls: what has come by then is answered.
                piece = arrivals.take(max(0.0, deadline - time.monotonic()))
                if piece:
                    count_failures(numbers, piece)
                    unanswered.difference_update(place for place, _ in piece)
                    yield piece
                elif working.done():
                    working.result()  # a defect of the asking itself is raised here
                elif time.monotonic() >= deadline:
                    break
        finally:
            working.cancel()
        if unanswered:
            abandon(loop)
            blocked = LookupFailure("LOOKUP_BLOCKED", "the event loop was blocked: a call waits without await")
            rest: Piece = [(place, blocked) for place in sorted(unanswered)]
            count_failures(numbers, rest)
            yield rest

    def _connected(self, in_flight: int) -> tuple[EventLoop, Connection]:
        loop = event_loop()
        if self._connection is None or self._loop is not loop:
            # What belonged to another loop cannot be used or closed in this one.
            self._loop, self._connection = loop, self._service.connect(in_flight)
            self.circuit = Circuit(self._breaker)
        return loop, self._connection

    def close(self) -> None:
        """Let go of the service."""
        if self._connection is not None and self._loop is event_loop():
            with suppress(Exception):
                self._loop.start(self._connection.close()).result(CLOSING_SECONDS)
        self._connection = None


class Arrivals:
    """Outcomes on their way from the event loop to the task, many at a time: every handing over stops both threads."""

    def __init__(self, expected: int) -> None:
        self.enough = threading.Event()
        self._expected = expected
        self._told = 0
        self._waiting: deque[tuple[int, Outcome]] = deque()

    def put(self, piece: Piece) -> None:
        """In the loop: what has come."""
        self._waiting.extend(piece)
        self._told += len(piece)
        if len(self._waiting) * PIECES >= self._expected or self._told == self._expected:
            self.enough.set()

    def take(self, seconds: float) -> Piece:
        """In the task: what has come, once it is enough or the time is over."""
        self.enough.wait(seconds)
        # Whatever comes after this rings again.
        self.enough.clear()
        return [self._waiting.popleft() for _ in range(len(self._waiting))]


_desks: dict[str, Desk] = {}


def desk_of(id: str, made: Callable[[], Desk]) -> Desk:
    """This process's desk of a lookup."""
    desk = _desks.pop(id, None)
    _desks[id] = desk if desk is not None else made()
    while len(_desks) > MOST_DESKS:
        _desks.pop(next(iter(_desks))).close()
    return _desks[id]


def leave(id: str) -> None:
    """Close this process's desk of a lookup, if there is one."""
    desk = _desks.pop(id, None)
    if desk is not None:
        desk.close()


# Sockets of a forked process are its parent's.
os.register_at_fork(after_in_child=_desks.clear)
