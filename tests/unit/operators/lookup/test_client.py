"""Answers on their way to a task that takes them slowly, or takes no more."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from headrace.operators.lookup.client import Arrivals, Desk, Piece
from headrace.operators.lookup.function import FunctionLookup
from headrace.operators.lookup.requests import Terms

KEYS = pl.DataFrame({"id": range(16)})
COLUMNS = {"name": pl.String()}


def test_answers_that_came_while_the_task_was_busy_are_answers_however_long_that_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    released, all_told = threading.Event(), threading.Event()

    class Noting(Arrivals):
        def put(self, piece: Piece) -> None:
            super().put(piece)
            if self._told == self._expected:
                all_told.set()

    async def holding(key: int) -> dict[str, Any]:
        while key >= 2 and not released.is_set():
            await asyncio.sleep(0.001)
        return {"name": str(key)}

    monkeypatch.setattr("headrace.operators.lookup.client.Arrivals", Noting)
    monkeypatch.setattr("headrace.operators.lookup.client.time", SimpleNamespace(monotonic=lambda: now))
    desk = Desk(FunctionLookup(holding), Terms(16, 60, 0), None, None)
    numbers: Counter[str] = Counter()
    pieces = desk.ask(KEYS, COLUMNS, numbers)
    assert sorted(next(pieces)) == [(0, ("0",)), (1, ("1",))]
    released.set()
    assert all_told.wait(20)
    now = 3600.0
    rest = [told for piece in pieces for told in piece]
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

    desk = Desk(FunctionLookup(hanging), Terms(4, 60, 0), None, None)
    pieces = desk.ask(KEYS, COLUMNS, Counter())
    next(pieces)
    assert all(begun.acquire(timeout=20) for _ in range(4))
    pieces.close()
    assert all(ended.acquire(timeout=20) for _ in range(4))
    assert asked == list(range(6))
