"""Many calls at the same time: how many, how long, how often, whatever the author's function does."""

from __future__ import annotations

import asyncio
import struct
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import nan
from typing import Any

import polars as pl
import pytest

from headrace.errors import DefinitionError, HeadraceError
from headrace.operators.lookup import client
from headrace.operators.lookup.client import Cache, cache
from headrace.operators.lookup.lookup import Lookup, lookup
from headrace.operators.lookup.requests import Circuit, KeyRequests, RequestLimits, breaker
from headrace.operators.lookup.service import Answer, FunctionLookup, LookupFailure, answer_reader
from tests.unit.conftest import Batches

PATIENCE = "1 minute"
"""Where time is not what is tested, a busy machine may take long."""


def lookup_step(function: Callable[[Any], Awaitable[Any]], **options: Any) -> Lookup:
    given: dict[str, Any] = {
        "on": "id",
        "output": "name STRING",
        "on_failure": "dead_letter",
        "timeout": PATIENCE,
        **options,
    }
    return lookup("names", function, **given)


def keys(*ids: int) -> pl.DataFrame:
    return pl.DataFrame({"id": ids}, schema={"id": pl.Int64})


@dataclass(frozen=True)
class ManyAtOnce:
    """A service that is busy for 2 once and for 3 always, and refuses 4."""

    asked: list[list[int]] = field(default_factory=list)
    keys_per_call: int = 10
    max_calls: int = 1
    as_text: bool = False

    def check(self, keys: Mapping[str, pl.DataType], *, step: str) -> None: ...

    def requests(self, keys: pl.DataFrame) -> list[Any]:
        return keys.to_series().to_list()

    def connect(self, in_flight: int) -> ManyAtOnce:
        return self

    async def fetch(self, requests: Sequence[Any]) -> Sequence[Answer]:
        self.asked.append(list(requests))
        return [self._answer(key, len(self.asked)) for key in requests]

    def _answer(self, key: int, call: int) -> Answer:
        if key == 4:
            return LookupFailure("NO", "never", retryable=False)
        busy = key == 3 or (key == 2 and call == 1) or (key == 1 and call > 1)
        return LookupFailure("BUSY", f"busy in call {call}") if busy else {"name": f"call {call}"}

    async def close(self) -> None: ...


def test_ten_thousand_rows_of_a_thousand_keys_at_50_ms_take_half_a_second_not_500(run: Batches) -> None:
    now = most = 0

    async def slow(key: int) -> dict[str, Any]:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.05)
        now -= 1
        return {"name": f"n{key}"}

    rows = pl.DataFrame({"id": [n % 1000 for n in range(10_000)]})
    made = run(lookup_step(slow, in_flight=100), *rows.iter_slices(2500))
    assert [row["name"] for row in made.rows] == [f"n{n % 1000}" for n in range(10_000)]
    assert (made.counters["keys"], made.counters["calls"], most) == (1000, 1000, 100)
    # Ten times 50 ms, and however long a busy machine makes of it: one after the other it would be 50 s.
    assert 0.5 <= made.seconds < 25


def test_with_one_call_in_flight_keys_are_asked_for_one_after_the_other_in_the_order_of_rows(run: Batches) -> None:
    asked: list[int] = []

    async def noting(key: int) -> dict[str, Any]:
        asked.append(key)
        await asyncio.sleep(0)
        return {"name": str(key)}

    run(lookup_step(noting, in_flight=1), keys(5, 3, 5, 9, 3, 1))
    assert asked == [5, 3, 9, 1]


def test_a_failed_call_is_made_again_so_often_and_no_more(run: Batches) -> None:
    asked: Counter[int] = Counter()

    async def failing(key: int) -> dict[str, Any]:
        asked[key] += 1
        if key == 2 or asked[key] < 3:
            raise ValueError(f"not yet {asked[key]}")
        return {"name": "at last"}

    made = run(lookup_step(failing, retries=2), keys(1, 2))
    assert asked == {1: 3, 2: 3}
    assert [row["name"] for row in made.rows] == ["at last"]
    assert [(letter["reason"], letter["detail"]) for letter in made.letters] == [
        ("LOOKUP_FAILED", "ValueError: not yet 3")
    ]
    assert (made.counters["calls"], made.counters["retries"], made.counters["failures"]) == (6, 4, 1)


@pytest.mark.parametrize("stubborn", [False, True])
def test_a_call_that_hangs_ends_in_its_time_even_if_it_does_not_let_itself_be_cancelled(
    run: Batches, monkeypatch: pytest.MonkeyPatch, stubborn: bool
) -> None:
    monkeypatch.setattr(client, "GRACE", 60)

    async def hanging(key: int) -> dict[str, Any]:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            if not stubborn:
                raise
            await asyncio.sleep(30)
        return {"name": "too late"}

    made = run(lookup_step(hanging, timeout="500 milliseconds", retries=1, breaker=None, in_flight=2), keys(1, 2, 3))
    assert [letter["reason"] for letter in made.letters] == ["LOOKUP_TIMEOUT"] * 3
    assert made.seconds < 25


def test_a_function_that_blocks_the_event_loop_does_not_block_the_batch_or_the_next_one(run: Batches) -> None:
    released = threading.Event()

    async def blocking(key: int) -> dict[str, Any]:
        if key == 1:
            released.wait(120)
        return {"name": str(key)}

    step = lookup_step(blocking, timeout="5 seconds", retries=0, in_flight=1, breaker=None)
    made = run(step, keys(0, 1))
    assert [row["id"] for row in made.rows] == [0]
    assert [(letter["reason"], letter["raw"]) for letter in made.letters] == [("LOOKUP_BLOCKED", b'{"id":1}')]
    assert made.seconds < 60
    assert [row["id"] for row in run(step, keys(2)).rows] == [2]
    released.set()


@pytest.mark.parametrize("leaving", [SystemExit(3), KeyboardInterrupt()], ids=repr)
def test_a_function_that_wants_to_end_the_process_has_failed_for_its_key(run: Batches, leaving: BaseException) -> None:
    async def function(key: int) -> dict[str, Any]:
        if key == 2:
            raise leaving
        return {"name": "there"}

    made = run(lookup_step(function, retries=0), keys(1, 2, 3))
    assert [row["name"] for row in made.rows] == ["there", "there"]
    assert [letter["detail"].split(":")[0] for letter in made.letters] == [type(leaving).__name__]
    assert len(run(lookup_step(function, retries=0), keys(4)).rows) == 1


def test_a_call_that_is_cancelled_from_within_has_failed_and_is_made_again(run: Batches) -> None:
    shared: asyncio.Future[None] | None = None
    asked: Counter[int] = Counter()

    async def sharing(key: int) -> dict[str, Any]:
        nonlocal shared
        asked[key] += 1
        if asked[key] == 1:
            shared = shared or asyncio.ensure_future(asyncio.sleep(3600))
            if key == 3:
                shared.cancel()
            await shared
        if key == 2:
            raise asyncio.CancelledError
        return {"name": str(key)}

    made = run(lookup_step(sharing, retries=1), keys(1, 2, 3))
    assert [row["name"] for row in made.rows] == ["1", "3"]
    assert [(letter["reason"], letter["detail"]) for letter in made.letters] == [
        ("LOOKUP_FAILED", "the call was cancelled")
    ]
    assert made.counters["calls"] == 6


def test_of_a_call_for_many_keys_only_those_without_an_answer_are_asked_for_again(run: Batches) -> None:
    service = ManyAtOnce()
    step = lookup(
        "names", service, on="id", output="name STRING", on_failure="dead_letter", retries=2, timeout=PATIENCE,
        breaker=breaker(after=1),
    )  # fmt: skip
    made = run(step, keys(1, 2, 3, 4))
    assert service.asked == [[1, 2, 3, 4], [2, 3], [3]]
    assert [(row["id"], row["name"]) for row in made.rows] == [(1, "call 1"), (2, "call 2")]
    assert [letter["detail"] for letter in made.letters] == ["busy in call 3", "never"]
    assert made.counters["breaker_open"] == 0


@pytest.mark.parametrize("order", ["kept", "free"])
@pytest.mark.parametrize("remembering", [None, cache(ttl="1 day")])
def test_nan_is_a_key_like_any_other_and_minus_zero_is_zero_however_rows_are_split(
    run: Batches, order: str, remembering: Cache | None
) -> None:
    asked: list[str] = []

    async def noting(key: float) -> dict[str, Any]:
        asked.append(repr(key))
        return {"name": repr(key)}

    step = lookup_step(noting, order=order, cache=remembering)
    minus_nan = struct.unpack("d", struct.pack("Q", 0xFFF8000000000001))[0]
    for values in ((nan,), (minus_nan,), (-0.0,), (0.0, -0.0), (nan, -0.0, nan, 1.5), (nan, None)):
        made = run(step, pl.DataFrame({"id": values}, schema={"id": pl.Float64}))
        expected = [(repr(value), None if value is None else repr(value + 0.0)) for value in values]
        assert sorted(((repr(row["id"]), row["name"]) for row in made.rows), key=repr) == sorted(expected, key=repr)
        assert made.letters == []
    assert set(asked) == {"nan", "0.0", "1.5"}
    assert len(asked) == (8 if remembering is None else 3)


def test_without_order_rows_of_remembered_keys_do_not_wait_for_those_that_are_asked_for(run: Batches) -> None:
    released = threading.Event()

    async def holding(key: int) -> dict[str, Any]:
        while key and not released.is_set():
            await asyncio.sleep(0.001)
        return {"name": str(key)}

    step = lookup_step(holding, order="free", cache=cache(ttl="1 day"), retries=0)
    run(step, keys(0))
    pieces = run.pieces(step, keys(0, 1))
    assert next(pieces).rows() == [(0, "0")]
    released.set()
    assert [piece.rows() for piece in pieces] == [[(1, "1")]]


def test_when_a_failure_stops_the_flow_the_calls_still_on_their_way_end(run: Batches) -> None:
    ended = threading.Event()
    asked: list[int] = []

    async def failing(key: int) -> Any:
        asked.append(key)
        if 1 <= key <= 10:
            raise OSError
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()

    step = lookup_step(failing, on_failure="stop", order="free", retries=0, in_flight=2, breaker=None)
    with pytest.raises(HeadraceError, match=r"\[LOOKUP_FAILED\]") as stopped:
        run(step, keys(*range(80)))
    assert ended.wait(20)
    assert max(asked) <= 11
    assert "10 rows got no answer" in str(stopped.value)


def test_the_pauses_between_calls_fit_into_the_time_of_a_key() -> None:
    for timeout, retries in ((0.01, 10), (2.0, 2), (60.0, 5)):
        requests = KeyRequests(None, RequestLimits(1, timeout, retries), None, None, Counter())  # type: ignore[arg-type]
        for _ in range(100):
            assert 0 < sum(requests._pause(attempt) for attempt in range(retries)) < timeout


@pytest.mark.parametrize("answer", [7, "text", ["a"], {"name": 5}, {"name": b"bytes"}])
def test_an_answer_that_does_not_fit_fails_its_key_at_once_and_leaves_the_breaker_closed(
    run: Batches, answer: Any
) -> None:
    async def nonsense(key: int) -> Any:
        return answer

    made = run(lookup_step(nonsense, breaker=breaker(after=1)), keys(1, 2))
    assert [letter["reason"] for letter in made.letters] == ["ANSWER_WRONG_TYPE"] * 2
    assert (made.counters["calls"], made.counters["retries"], made.counters["breaker_open"]) == (2, 0, 0)


def test_a_function_that_stops_the_flow_says_which_key_and_why(run: Batches) -> None:
    async def failing(key: int) -> Any:
        raise OSError("line one\nline two")

    with pytest.raises(HeadraceError, match=r"\[LOOKUP_FAILED\].*2 rows.*id=7: LOOKUP_FAILED: OSError: line one line"):
        run(lookup_step(failing, on_failure="stop", retries=0), keys(7, 7))


def test_what_an_error_says_need_not_be_valid_text(run: Batches) -> None:
    async def failing(key: int) -> Any:
        raise OSError("bad \udcff text")

    (letter,) = run(lookup_step(failing, retries=0), keys(7)).letters
    assert letter["detail"] == "OSError: bad ? text"


def test_a_batch_without_rows_asks_nothing_and_reports(run: Batches) -> None:
    async def never(key: int) -> Any:
        raise AssertionError

    made = run(lookup_step(never), keys())
    assert (made.report.in_, made.report.accepted, made.rows) == (0, 0, [])


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
    monkeypatch.setattr("headrace.operators.lookup.requests.monotonic", lambda: now)

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
    now, down, seconds = 0.0, True, 1.05
    monkeypatch.setattr(client, "GRACE", 60)
    monkeypatch.setattr("headrace.operators.lookup.requests.monotonic", lambda: now)

    async def person(key: int) -> dict[str, Any]:
        if down:
            raise ConnectionError
        # The other calls wait for this one for half of the timeout: 1 second.
        await asyncio.sleep(seconds)
        return {"name": str(key)}

    guard = breaker(after=2, pause="10 seconds")
    given: dict[str, Any] = {"output": "name STRING", "on_failure": "null", "retries": 0, "timeout": "2 seconds"}
    step = lookup("names", person, on="id", breaker=guard, **given)
    rows = pl.DataFrame({"id": range(5)})
    assert run(step, rows).counters["failures"] == 5
    now, down = 10.0, False
    tried = run(step, rows)
    reasons = [(row["names_failure"] or "").split(":")[0] for row in tried.rows]
    assert sorted(reasons) == ["", *["BREAKER_OPEN"] * 4]
    assert tried.counters["breaker_open"] == 0
    seconds = 0.0
    assert run(step, rows).counters["failures"] == 0


def test_a_service_that_is_well_again_answers_all_keys_of_the_batch_that_finds_it_so(
    run: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, down = 0.0, True
    monkeypatch.setattr("headrace.operators.lookup.requests.monotonic", lambda: now)

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
        requests = KeyRequests(
            FunctionLookup(hanging), RequestLimits(1, 60, 0), circuit, answer_reader({}, as_text=False), Counter()
        )
        trying = asyncio.ensure_future(requests.send_all([(0, [1])], lambda outcomes: None))
        while not requests.counters["calls"]:
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
