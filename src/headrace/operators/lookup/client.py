"""The client of a lookup in one process: its event loop, connection, circuit breaker and cached answers."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import polars as pl

from headrace.durations import Duration, positive_microseconds, spoken
from headrace.errors import DefinitionError
from headrace.operators.lookup.requests import BREAKER_OPEN, Breaker, Circuit, KeyRequests, Piece, RequestLimits
from headrace.operators.lookup.service import LookupConnection, LookupFailure, LookupService, Outcome, answer_reader
from headrace.stability import stable

_FETCHED, _USED = "__fetched", "__used"


@dataclass(frozen=True, slots=True)
class Cache:
    """How long an answer is valid, and how many are kept."""

    ttl: int
    size: int

    def __repr__(self) -> str:
        return f"hr.cache(ttl={spoken(self.ttl)!r}, size={self.size})"


@stable
def cache(*, ttl: Duration, size: int = 100_000) -> Cache:
    """Cache the answers of at most ``size`` keys in each worker, each for ``ttl`` of processing time.

    >>> cache(ttl="10 minutes", size=5_000)
    hr.cache(ttl='10 minutes', size=5000)
    """
    if size < 1:
        raise DefinitionError("CACHE_INVALID", f"hr.cache(size={size}): size must be at least 1.")
    return Cache(positive_microseconds(ttl, argument="ttl"), size)


class AnswerCache:
    """The cached answers in one process; the least recently used are evicted first."""

    def __init__(self, cache: Cache, on: tuple[str, ...], answers: Mapping[str, pl.DataType]) -> None:
        self._cache = cache
        self._on = list(on)
        self._kept = pl.DataFrame(schema={**answers, _FETCHED: pl.Int64(), _USED: pl.Int64()})
        self._turn = 0

    def get(self, keys: pl.DataFrame, clock: int) -> pl.DataFrame:
        self._turn += 1
        # After the clock was set back, answers from the future are not valid.
        age = clock - pl.col(_FETCHED)
        self._kept = self._kept.filter(age.is_between(0, self._cache.ttl, closed="left"))
        known = self._kept.join(keys, on=self._on, how="semi")
        if not known.is_empty():
            others = self._kept.join(keys, on=self._on, how="anti")
            self._kept = pl.concat([others, known.with_columns(pl.lit(self._turn, pl.Int64).alias(_USED))])
        return known.drop(_FETCHED, _USED)

    def put(self, answers: pl.DataFrame, clock: int) -> None:
        """Cache new answers; the keys must not be cached yet."""
        stamps = {_FETCHED: pl.lit(clock, pl.Int64), _USED: pl.lit(self._turn, pl.Int64)}
        kept = pl.concat([self._kept, answers.with_columns(**stamps)])
        if kept.height > self._cache.size:
            kept = kept.sort(_USED, descending=True, maintain_order=True).head(self._cache.size)
        self._kept = kept


CLOSING_SECONDS = 2.0
GRACE = 1.5
"""Seconds beyond the longest that calls may take, after which the event loop itself must be blocked."""
MAX_CLIENTS = 32
"""In one process; a pipeline that is defined again leaves its old clients behind."""
PIECES = 8
"""Answers come in about this many pieces: each costs a pass over all rows that need not keep their order."""


class EventLoop(threading.Thread):
    """An event loop in its own thread. All lookups of a process share one, between batches too."""

    def __init__(self) -> None:
        super().__init__(name="headrace-lookups", daemon=True)
        self.loop = asyncio.new_event_loop()
        self.start()

    def run(self) -> None:
        try:
            self.loop.run_forever()
        finally:
            self.loop.close()

    def stop(self) -> None:
        """Cancel what runs in the loop and stop it as soon as that ends."""
        self.loop.call_soon_threadsafe(self._cancel_all)

    def _cancel_all(self) -> None:
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        # The cancelled tasks get one round of the loop to end.
        self.loop.call_soon(self.loop.stop)


_running: EventLoop | None = None


def event_loop() -> EventLoop:
    """The loop of this process, started on first use."""
    global _running
    if _running is None:
        _running = EventLoop()
    return _running


@dataclass(slots=True)
class LookupClient:
    """Requests the keys of one lookup in one process."""

    service: LookupService
    limits: RequestLimits
    breaker: Breaker | None
    cached: AnswerCache | None
    circuit: Circuit = field(init=False)
    _loop: EventLoop | None = None
    _connection: LookupConnection | None = None

    def __post_init__(self) -> None:
        self.circuit = Circuit(self.breaker)

    def fetch(self, keys: pl.DataFrame, columns: Mapping[str, pl.DataType], counters: Counter[str]) -> Generator[Piece]:
        """The outcomes of keys as they arrive, within the limits; closing the generator cancels the calls."""
        requests = self.service.requests(keys)
        size = self.service.keys_per_call
        calls = [(first, requests[first : first + size]) for first in range(0, len(requests), size)]
        loop, connection = self._connected()
        read = answer_reader(columns, as_text=self.service.as_text)
        key_requests = KeyRequests(connection, self.limits, self.circuit, read, counters)
        arrivals = Arrivals(len(requests))
        deadline = time.monotonic() + self.limits.longest(len(calls)) + GRACE
        working = asyncio.run_coroutine_threadsafe(key_requests.send_all(calls, arrivals.put), loop.loop)
        working.add_done_callback(lambda _: arrivals.enough.set())
        unanswered = set(range(len(requests)))
        try:
            while unanswered:
                # The task may take longer over a piece than the calls: what has arrived by then counts.
                piece = arrivals.take(max(0.0, deadline - time.monotonic()))
                if not piece and working.done():
                    working.result()  # raises a defect in the requests' own code
                elif not piece and time.monotonic() >= deadline:
                    _abandon(loop)
                    blocked = LookupFailure("LOOKUP_BLOCKED", "the event loop was blocked: a call waits without await")
                    piece = [(place, blocked) for place in sorted(unanswered)]
                if piece:
                    failures = [outcome for _, outcome in piece if isinstance(outcome, LookupFailure)]
                    refused = sum(failure.reason == BREAKER_OPEN for failure in failures)
                    counters.update(failures=len(failures), refused=refused)
                    unanswered.difference_update(place for place, _ in piece)
                    yield piece
        finally:
            working.cancel()

    def _connected(self) -> tuple[EventLoop, LookupConnection]:
        loop = event_loop()
        if self._connection is None or self._loop is not loop:
            # A connection of another loop can be neither used nor closed in this one.
            self._loop, self._connection = loop, self.service.connect(self.limits.in_flight)
            self.circuit = Circuit(self.breaker)
        return loop, self._connection

    def close(self) -> None:
        if self._connection is not None and self._loop is event_loop():
            with suppress(Exception):
                asyncio.run_coroutine_threadsafe(self._connection.close(), self._loop.loop).result(CLOSING_SECONDS)
        self._connection = None


def _abandon(loop: EventLoop) -> None:
    """Give up a loop that a user's code blocks; the next call starts another."""
    global _running
    if _running is loop:
        _running = None
        loop.stop()


class Arrivals:
    """Outcomes on their way from the event loop to the task, many at a time: each hand-over stops both threads."""

    def __init__(self, expected: int) -> None:
        self.enough = threading.Event()
        self._expected = expected
        self._arrived = 0
        self._waiting: deque[tuple[int, Outcome]] = deque()

    def put(self, piece: Piece) -> None:
        self._waiting.extend(piece)
        self._arrived += len(piece)
        if len(self._waiting) * PIECES >= self._expected or self._arrived == self._expected:
            self.enough.set()

    def take(self, seconds: float) -> Piece:
        """In the task: what has arrived, once it is enough or the time is over."""
        self.enough.wait(seconds)
        # Whatever arrives after this sets the event again.
        self.enough.clear()
        return [self._waiting.popleft() for _ in range(len(self._waiting))]


_clients: dict[str, LookupClient] = {}


def lookup_client(id: str, create: Callable[[], LookupClient]) -> LookupClient:
    """This process's client of a lookup."""
    client = _clients.pop(id, None)
    _clients[id] = create() if client is None else client
    while len(_clients) > MAX_CLIENTS:
        _clients.pop(next(iter(_clients))).close()
    return _clients[id]


def close_client(id: str) -> None:
    """Close this process's client of a lookup, if there is one."""
    if (client := _clients.pop(id, None)) is not None:
        client.close()


@atexit.register
def _stop() -> None:
    if _running is not None:
        _running.stop()
        _running.join(CLOSING_SECONDS)


def _forget() -> None:
    global _running
    _running = None
    _clients.clear()


# A thread does not survive a fork, and the sockets of a forked process are its parent's.
os.register_at_fork(after_in_child=_forget)
