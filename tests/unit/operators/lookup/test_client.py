"""Answers on their way to a task that takes them slowly, or takes no more."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from headrace.errors import DefinitionError
from headrace.operators.lookup.client import AnswerCache, Arrivals, LookupClient, cache
from headrace.operators.lookup.requests import Piece, RequestLimits
from headrace.operators.lookup.service import FunctionLookup

KEYS = pl.DataFrame({"id": range(16)})
COLUMNS = {"name": pl.String()}


def test_answers_that_came_while_the_task_was_busy_are_answers_however_long_that_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    released, all_answered = threading.Event(), threading.Event()

    class Noting(Arrivals):
        def put(self, piece: Piece) -> None:
            super().put(piece)
            if self._arrived == self._expected:
                all_answered.set()

    async def holding(key: int) -> dict[str, Any]:
        while key >= 2 and not released.is_set():
            await asyncio.sleep(0.001)
        return {"name": str(key)}

    monkeypatch.setattr("headrace.operators.lookup.client.Arrivals", Noting)
    monkeypatch.setattr("headrace.operators.lookup.client.time", SimpleNamespace(monotonic=lambda: now))
    client = LookupClient(FunctionLookup(holding), RequestLimits(16, 60, 0), None, None)
    numbers: Counter[str] = Counter()
    pieces = client.fetch(KEYS, COLUMNS, numbers)
    assert sorted(next(pieces)) == [(0, ("0",)), (1, ("1",))]
    released.set()
    assert all_answered.wait(20)
    now = 3600.0
    rest = [answer for piece in pieces for answer in piece]
    assert sorted(rest) == [(key, (str(key),)) for key in range(2, 16)]
    assert numbers["failures"] == 0


def test_when_the_task_takes_no_more_calls_on_their_way_end_and_no_others_begin() -> None:
    asked: list[int] = []
    begun, ended = threading.Semaphore(0), threading.Semaphore(0)

    async def hanging(key: int) -> dict[str, Any]:
        asked.append(key)
        if key >= 2:
            begun.release()
            try:
                await asyncio.sleep(3600)
            finally:
                ended.release()
        return {"name": str(key)}

    client = LookupClient(FunctionLookup(hanging), RequestLimits(4, 60, 0), None, None)
    pieces = client.fetch(KEYS, COLUMNS, Counter())
    next(pieces)
    assert all(begun.acquire(timeout=20) for _ in range(4))
    pieces.close()
    assert all(ended.acquire(timeout=20) for _ in range(4))
    assert asked == list(range(6))


SCHEMA = {"id": pl.Int64(), "name": pl.String()}
MINUTE = 60_000_000


def keys(*ids: int) -> pl.DataFrame:
    return pl.DataFrame({"id": ids}, schema={"id": pl.Int64})


def answers(**names: str | None) -> pl.DataFrame:
    return pl.DataFrame([(int(id[1:]), name) for id, name in names.items()], schema=SCHEMA, orient="row")


def known(cached: AnswerCache, *ids: int, clock: int = 0) -> dict[int, str | None]:
    return dict(cached.get(keys(*ids), clock).rows())


def test_an_answer_is_believed_until_exactly_its_time_and_so_is_that_there_is_none() -> None:
    cached = AnswerCache(cache(ttl="1 minute"), ("id",), SCHEMA)
    cached.put(answers(_1="Ann", _2=None), clock=0)
    assert known(cached, 1, 2, 3, clock=MINUTE - 1) == {1: "Ann", 2: None}
    assert known(cached, 1, 2, 3, clock=MINUTE) == {}
    assert cached._kept.height == 0


def test_a_read_does_not_make_an_answer_live_longer() -> None:
    cached = AnswerCache(cache(ttl="1 minute"), ("id",), SCHEMA)
    cached.put(answers(_1="Ann"), clock=0)
    assert known(cached, 1, clock=MINUTE // 2) == {1: "Ann"}
    assert known(cached, 1, clock=MINUTE) == {}


def test_an_answer_of_the_future_is_not_believed() -> None:
    cached = AnswerCache(cache(ttl="1 minute"), ("id",), SCHEMA)
    cached.put(answers(_1="Ann"), clock=MINUTE)
    assert known(cached, 1, clock=0) == {}


def test_answers_that_were_used_longest_ago_leave_first() -> None:
    cached = AnswerCache(cache(ttl="1 hour", size=3), ("id",), SCHEMA)
    known(cached, 1, 2, 3)
    cached.put(answers(_1="Ann", _2="Bob", _3="Cem"), clock=0)
    known(cached, 1)
    known(cached, 4, 3)
    cached.put(answers(_4="Dan"), clock=0)
    assert cached._kept.height == 3
    assert known(cached, 1, 2, 3, 4) == {1: "Ann", 3: "Cem", 4: "Dan"}


def test_no_more_than_its_size_is_kept_even_of_one_batch() -> None:
    cached = AnswerCache(cache(ttl="1 hour", size=10), ("id",), SCHEMA)
    many = pl.DataFrame({"id": range(1000), "name": ["x"] * 1000}, schema=SCHEMA)
    cached.put(many, clock=0)
    assert cached._kept.height == 10


def test_a_cache_that_remembers_nothing_is_refused() -> None:
    with pytest.raises(DefinitionError, match="CACHE_INVALID"):
        cache(ttl="1 minute", size=0)
    with pytest.raises(DefinitionError, match="DURATION_NOT_POSITIVE"):
        cache(ttl="0 minutes")
