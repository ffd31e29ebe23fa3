"""The circuit breaker: it opens after failures in a row, refuses at once, and tries again with one call."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import polars as pl
import pytest

from headrace.errors import DefinitionError
from headrace.operators.lookup import client as desk
from headrace.operators.lookup.answers import reading
from headrace.operators.lookup.breaker import Circuit, breaker
from headrace.operators.lookup.function import FunctionCalls
from headrace.operators.lookup.lookup import lookup
from headrace.operators.lookup.requests import Asking, Terms
from headrace.operators.lookup.service import LookupFailure
from tests.unit.conftest import Batches


async def let_in(circuit: Circuit, seconds: float = 60) -> bool:
    try:
        await circuit.enter(asyncio.get_running_loop().time() + seconds)
    except LookupFailure as refused:
        return refused.reason != "BREAKER_OPEN"
    return True


def test_it_opens_after_failures_in_a_row_and_a_success_between_them_begins_the_count_anew() -> None:
    circuit = Circuit(breaker(after=3))
    for outcome in ("failed", "failed", "succeeded", "failed", "failed"):
        getattr(circuit, outcome)()
    assert not circuit.is_open
    circuit.failed()
    assert circuit.is_open
    assert asyncio.run(let_in(circuit)) is False


def test_without_a_breaker_it_never_opens() -> None:
    circuit = Circuit(None)
    for _ in range(1000):
        circuit.failed()
    assert not circuit.is_open


@pytest.mark.parametrize(("well", "others"), [(True, [True, True]), (False, [False, False])])
def test_after_the_pause_one_call_tries_and_the_others_wait_for_what_becomes_of_it(
    well: bool, others: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("headrace.operators.lookup.breaker.monotonic", lambda: now)

    async def story() -> list[bool]:
        nonlocal now
        circuit = Circuit(breaker(after=1, pause="10 seconds"))
        circuit.failed()
        now = 9.9
        assert not await let_in(circuit)
        now = 10.0
        assert await let_in(circuit)
        waiting = [asyncio.ensure_future(let_in(circuit)) for _ in range(2)]
        await asyncio.sleep(0.01)
        assert not any(task.done() for task in waiting)
        (circuit.succeeded if well else circuit.failed)()
        return [await task for task in waiting]

    assert asyncio.run(story()) == others


def test_a_call_waits_for_one_that_tries_no_longer_than_it_may() -> None:
    async def story() -> tuple[bool, bool]:
        circuit = Circuit(breaker(after=1, pause="1 microsecond"))
        circuit.failed()
        await asyncio.sleep(0.001)
        trying = await let_in(circuit)
        waited = await let_in(circuit, seconds=0.02)
        circuit.succeeded()
        return trying, waited

    assert asyncio.run(story()) == (True, False)


def test_a_slow_service_that_is_well_again_is_asked_for_what_can_still_be_answered_and_then_for_all(
    run: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    down = True
    monkeypatch.setattr(desk, "GRACE", 60)

    async def person(key: int) -> dict[str, Any]:
        if down:
            raise ConnectionError
        await asyncio.sleep(0.7)
        return {"name": str(key)}

    guard = breaker(after=2, pause="1 millisecond")
    given: dict[str, Any] = {"output": "name STRING", "on_failure": "null", "retries": 0, "timeout": "1 second"}
    step = lookup("names", person, on="id", breaker=guard, **given)
    rows = pl.DataFrame({"id": range(5)})
    assert run(step, rows).counters["failures"] == 5
    down = False
    tried = run(step, rows)
    reasons = [(row["names_failure"] or "").split(":")[0] for row in tried.rows]
    assert sorted(reasons) == ["", *["BREAKER_OPEN"] * 4]
    assert tried.counters["breaker_open"] == 0
    assert run(step, rows).counters["failures"] == 0


def test_a_service_that_is_well_again_answers_all_keys_of_the_batch_that_finds_it_so(
    run: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, down = 0.0, True
    monkeypatch.setattr("headrace.operators.lookup.breaker.monotonic", lambda: now)

    async def person(key: int) -> dict[str, Any]:
        await asyncio.sleep(0.01)
        if down:
            raise ConnectionError
        return {"name": str(key)}

    guard = breaker(after=5, pause="10 seconds")
    given: dict[str, Any] = {"output": "name STRING", "on_failure": "null", "retries": 0, "timeout": "1 minute"}
    step = lookup("names", person, on="id", breaker=guard, **given)
    rows = pl.DataFrame({"id": range(50)})
    first = run(step, rows)
    assert (first.counters["breaker_open"], len(first.rows)) == (1, 50)
    assert all(row["name"] is None and row["names_failure"] for row in first.rows)
    refused = run(step, rows)
    assert (refused.counters["calls"], refused.counters["refused"], refused.counters["breaker_open"]) == (0, 50, 1)
    assert refused.rows[0]["names_failure"].startswith("BREAKER_OPEN: ")
    now = 10.0
    still = run(step, rows)
    assert (still.counters["calls"], still.counters["breaker_open"]) == (1, 1)
    now, down = 20.0, False
    well = run(step, rows)
    assert (well.counters["calls"], well.counters["failures"], well.counters["breaker_open"]) == (50, 0, 0)
    assert [row["name"] for row in well.rows] == [str(n) for n in range(50)]


def test_a_call_that_is_cancelled_while_it_tries_the_service_lets_another_one_try() -> None:
    async def hanging(key: int) -> dict[str, Any]:
        await asyncio.sleep(3600)
        return {}

    async def story() -> bool:
        circuit = Circuit(breaker(after=1, pause="1 microsecond"))
        circuit.failed()
        await asyncio.sleep(0.001)
        asking = Asking(FunctionCalls(hanging), Terms(1, 60, 0), circuit, reading({}, in_text=False), Counter())
        trying = asyncio.ensure_future(asking.ask_all([(0, [1])], lambda told: None))
        while not asking.numbers["calls"]:
            await asyncio.sleep(0.001)
        trying.cancel()
        await asyncio.wait({trying})
        return await let_in(circuit, seconds=5)

    assert asyncio.run(story())


def test_a_call_that_ends_cancelled_while_it_tries_the_service_has_failed_and_the_next_one_tries(run: Batches) -> None:
    problem: BaseException | None = ConnectionError()

    async def person(key: int) -> dict[str, Any]:
        if problem is not None:
            raise problem
        return {"name": str(key)}

    guard = breaker(after=1, pause="1 microsecond")
    given: dict[str, Any] = {"output": "name STRING", "on_failure": "null", "retries": 0, "timeout": "1 minute"}
    step = lookup("names", person, on="id", breaker=guard, **given)
    row = pl.DataFrame({"id": [1]})
    assert run(step, row).counters["breaker_open"] == 1
    problem = asyncio.CancelledError()
    tried = run(step, row)
    assert tried.rows[0]["names_failure"] == "LOOKUP_FAILED: the call was cancelled"
    assert tried.counters["breaker_open"] == 1
    problem = None
    assert run(step, row).rows == [{"id": 1, "name": "1", "names_failure": None}]


def test_a_breaker_that_is_always_open_is_refused() -> None:
    with pytest.raises(DefinitionError, match="BREAKER_INVALID"):
        breaker(after=0)
    with pytest.raises(DefinitionError, match="DURATION_NOT_POSITIVE"):
        breaker(pause="0 seconds")
