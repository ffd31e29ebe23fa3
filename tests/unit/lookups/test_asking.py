"""Many calls at the same time: how many, how long, how often, whatever the author's function does."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import polars as pl
import pytest

from headrace.errors import HeadraceError
from headrace.lookups.asking import Asking, Terms
from headrace.lookups.breaker import breaker
from headrace.lookups.lookup import Lookup, lookup
from tests.unit.lookups.conftest import Batches

PATIENCE = "1 minute"
"""Where time is not what is tested, a busy machine may take long."""


def asking(function: Callable[[Any], Awaitable[Any]], **options: Any) -> Lookup:
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
    made = run(asking(slow, in_flight=100), *rows.iter_slices(2500))
    assert [row["name"] for row in made.rows] == [f"n{n % 1000}" for n in range(10_000)]
    assert (made.told["keys"], made.told["calls"], most) == (1000, 1000, 100)
    # Ten times 50 ms, and however long a busy machine makes of it: one after the other it would be 50 s.
    assert 0.5 <= made.seconds < 25


def test_with_one_call_in_flight_keys_are_asked_for_one_after_the_other_in_the_order_of_rows(run: Batches) -> None:
    asked: list[int] = []

    async def noting(key: int) -> dict[str, Any]:
        asked.append(key)
        await asyncio.sleep(0)
        return {"name": str(key)}

    run(asking(noting, in_flight=1), keys(5, 3, 5, 9, 3, 1))
    assert asked == [5, 3, 9, 1]


def test_a_failed_call_is_made_again_so_often_and_no_more(run: Batches) -> None:
    asked: Counter[int] = Counter()

    async def failing(key: int) -> dict[str, Any]:
        asked[key] += 1
        if key == 2 or asked[key] < 3:
            raise ValueError(f"not yet {asked[key]}")
        return {"name": "at last"}

    made = run(asking(failing, retries=2), keys(1, 2))
    assert asked == {1: 3, 2: 3}
    assert [row["name"] for row in made.rows] == ["at last"]
    assert [(letter["reason"], letter["detail"]) for letter in made.letters] == [
        ("LOOKUP_FAILED", "ValueError: not yet 3")
    ]
    assert (made.told["calls"], made.told["retries"], made.told["failures"]) == (6, 4, 1)


@pytest.mark.parametrize("stubborn", [False, True])
def test_a_call_that_hangs_ends_in_its_time_even_if_it_does_not_let_itself_be_cancelled(
    run: Batches, stubborn: bool
) -> None:
    async def hanging(key: int) -> dict[str, Any]:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            if not stubborn:
                raise
            await asyncio.sleep(30)
        return {"name": "too late"}

    made = run(asking(hanging, timeout="500 milliseconds", retries=1, breaker=None, in_flight=2), keys(1, 2, 3))
    assert [letter["reason"] for letter in made.letters] == ["LOOKUP_TIMEOUT"] * 3
    assert made.seconds <= 0.5 * 2 * 2 + 2


def test_a_function_that_blocks_the_event_loop_does_not_block_the_batch_or_the_next_one(run: Batches) -> None:
    async def blocking(key: int) -> dict[str, Any]:
        if key == 1:
            time.sleep(6)
        return {"name": str(key)}

    step = asking(blocking, timeout="1 second", retries=0, in_flight=1, breaker=None)
    made = run(step, keys(0, 1))
    assert [row["id"] for row in made.rows] == [0]
    assert [(letter["reason"], letter["raw"]) for letter in made.letters] == [("LOOKUP_BLOCKED", b'{"id":1}')]
    assert made.seconds <= 1 * 2 + 2
    assert [row["id"] for row in run(step, keys(2)).rows] == [2]


def test_the_pauses_between_calls_fit_into_the_time_of_a_key() -> None:
    for timeout, retries in ((0.01, 10), (2.0, 2), (60.0, 5)):
        asking = Asking(None, Terms(1, timeout, retries), None, None, Counter())  # type: ignore[arg-type]
        for _ in range(100):
            assert 0 < sum(asking._pause(attempt) for attempt in range(retries)) < timeout


@pytest.mark.parametrize("answer", [7, "text", ["a"], {"name": 5}, {"name": b"bytes"}])
def test_an_answer_that_does_not_fit_fails_its_key_at_once_and_leaves_the_breaker_closed(
    run: Batches, answer: Any
) -> None:
    async def nonsense(key: int) -> Any:
        return answer

    made = run(asking(nonsense, breaker=breaker(after=1)), keys(1, 2))
    assert [letter["reason"] for letter in made.letters] == ["ANSWER_WRONG_TYPE"] * 2
    assert (made.told["calls"], made.told["retries"], made.told["breaker_open"]) == (2, 0, 0)


def test_a_function_that_stops_the_flow_says_which_key_and_why(run: Batches) -> None:
    async def failing(key: int) -> Any:
        raise OSError("line one\nline two")

    with pytest.raises(HeadraceError, match=r"\[LOOKUP_FAILED\].*2 rows.*id=7: LOOKUP_FAILED: OSError: line one line"):
        run(asking(failing, on_failure="stop", retries=0), keys(7, 7))


def test_what_an_error_says_need_not_be_valid_text(run: Batches) -> None:
    async def failing(key: int) -> Any:
        raise OSError("bad \udcff text")

    (letter,) = run(asking(failing, retries=0), keys(7)).letters
    assert letter["detail"] == "OSError: bad ? text"


def test_a_batch_without_rows_asks_nothing_and_reports(run: Batches) -> None:
    async def never(key: int) -> Any:
        raise AssertionError

    made = run(asking(never), keys())
    assert (made.report["in"], made.report["accepted"], made.rows) == (0, 0, [])
