"""Lookups: every row gets the answer to its key, time goes on behind it, and no row is lost when there is none."""

from __future__ import annotations

import ast
import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import headrace as hr
from headrace.operators.lookup.client import cache
from headrace.operators.lookup.lookup import Lookup, lookup
from headrace.testing import at, batch, clock, crash, expect, play, row, timeline, watermark

MOST_TASKS = 2
"""Among which the session of the tests divides rows; the inline engine has one."""
NAMES = {"a": "Ann", "b": "Bob", "c": "Cem"}


def answering(names: dict[str, str], asked: Path | None = None) -> Callable[[Any], Awaitable[dict[str, Any]]]:
    """A service of the test's own; made in here, it travels to workers with all it needs, and takes calls down."""

    async def person(key: Any) -> dict[str, Any] | None:
        if asked is not None:
            Path(asked, uuid4().hex).write_text(repr(key))
        await asyncio.sleep(0)
        if key == "bad":
            raise ConnectionError("no way there")
        return {"name": names[key], "letters": len(names[key])} if key in names else None

    return person  # type: ignore[return-value]


def calls(asked: Path) -> Counter[Any]:
    """How often each key was asked for, in whatever process."""
    return Counter(ast.literal_eval(call.read_text()) for call in asked.iterdir())


def named(on_failure: Any = "dead_letter", asked: Path | None = None, **options: Any) -> Lookup:
    given: dict[str, Any] = {
        "on": "id",
        "output": "name STRING, letters INT",
        "timeout": "1 minute",
        "retries": 0,
        **options,
    }
    return lookup("named", answering(NAMES, asked), on_failure=on_failure, **given)


@pytest.mark.spark
def test_every_row_gets_the_answer_to_its_key_and_an_unknown_key_gives_nulls() -> None:
    timeline(
        named(),
        at("10:00", id="a", n=1),
        at("10:01", id="b", n=2, partition=1),
        at("10:02", id="x", n=3, partition=1),
        at("10:03", id="a", n=4),
        batch(),
        expect(
            row(id="a", n=1, at="10:00", name="Ann", letters=3),
            row(id="a", n=4, at="10:03", name="Ann", letters=3),
            row(id="b", n=2, at="10:01", name="Bob", letters=3),
            row(id="x", n=3, at="10:02", name=None, letters=None),
        ),
        expect(output="dead_letters"),
    )


@pytest.mark.spark
def test_a_step_behind_takes_time_from_the_source_before_and_late_rows_are_late_there() -> None:
    hourly = hr.tumbling("hourly", size="1 hour", key="name").agg(n="count(*)").late(hr.side_output())
    timeline(
        (named(), hourly),
        at("10:05", id="a"),
        at("10:10", id="a", partition=1),
        at("10:20", id="b"),
        watermark("11:00"),
        expect(row(name="Ann", window="10:00/11:00", n=2), row(name="Bob", window="10:00/11:00", n=1)),
        at("10:59", id="c"),
        at("11:00", id="c"),
        watermark("12:00"),
        expect(row(name="Cem", window="11:00/12:00", n=1)),
        expect(row(name="Cem", letters=3, at="10:59"), output="late"),
    )


@pytest.mark.spark
def test_between_two_steps_the_time_bounds_of_the_first_go_through_to_the_second() -> None:
    hourly = hr.tumbling("hourly", size="1 hour", key="id").agg(n="count(*)").late(hr.drop())
    daily = hr.tumbling("daily", size="1 day", key="name").agg(all="sum(n)").late(hr.drop())
    timeline(
        (hourly, named(), daily),
        at("10:05", id="a"),
        at("12:05", id="a"),
        watermark("2026-01-01T13:00:00"),
        expect(),
        watermark("2026-01-02T00:00:00"),
        expect(name="Ann", all=2),
    )


@pytest.mark.spark
def test_a_row_without_an_answer_is_a_dead_letter_with_the_reason_and_the_row() -> None:
    played = play(named(), at("10:00", id="bad", n=7), at("10:01", id="a", n=8), batch())
    assert [(row["id"], row["name"]) for row in played.main] == [("a", "Ann")]
    (letter,) = played.dead_letters
    assert (letter["source"], letter["reason"]) == ("named", "LOOKUP_FAILED")
    assert letter["detail"] == "ConnectionError: no way there"
    assert bytes(letter["raw"]) == b'{"id":"bad","n":7,"at":"2026-01-01T10:00:00+00:00"}'


@pytest.mark.spark
def test_a_row_without_an_answer_has_nulls_and_the_reason_beside_them() -> None:
    timeline(
        named("null"),
        at("10:00", id="bad"),
        at("10:01", id="x"),
        at("10:02", id="a"),
        batch(),
        expect(
            row(id="bad", name=None, letters=None, named_failure="LOOKUP_FAILED: ConnectionError: no way there"),
            row(id="x", name=None, letters=None, named_failure=None),
            row(id="a", name="Ann", letters=3, named_failure=None),
        ),
        expect(output="dead_letters"),
    )


@pytest.mark.spark
def test_a_flow_that_shall_stop_stops_with_the_key_and_the_reason() -> None:
    with pytest.raises(hr.HeadraceError, match=r"step 'named': 2 rows got no answer, .* id='bad': LOOKUP_FAILED"):
        play(named("stop"), at("10:00", id="bad"), at("10:01", id="bad"), at("10:02", id="a"), batch())


@pytest.mark.spark
def test_a_batch_that_runs_again_after_a_crash_gives_every_row_once() -> None:
    hourly = hr.tumbling("hourly", size="1 hour", key="name").agg(n="count(*)").late(hr.drop())
    timeline(
        (named(), hourly),
        at("10:00", id="a"),
        batch(),
        at("10:01", id="a"),
        at("10:02", id="bad"),
        crash(),
        at("10:03", id="a"),
        watermark("11:00"),
        expect(name="Ann", n=3),
    )


@pytest.mark.spark
@pytest.mark.streamed
@pytest.mark.parametrize("order", ["kept", "free"])
def test_a_batch_that_runs_again_has_the_answers_of_its_first_run(order: Any, tmp_path: Path) -> None:
    async def turn(key: str) -> dict[str, Any]:
        Path(tmp_path, uuid4().hex).write_text(repr(key))
        if key == "bad":
            raise ConnectionError(f"call {len(list(tmp_path.iterdir()))}")
        return {"turn": len(list(tmp_path.iterdir()))}

    turns = lookup("turns", turn, on="id", output="turn INT", on_failure="null", retries=0, in_flight=1, order=order)
    rows = [at("10:00", id="a", n=1), at("10:00", id="bad", n=2), at("10:00", id="a", n=3)]
    played = play(turns, *rows, crash(), batch(), at("10:00", id="a", n=4), batch())
    assert calls(tmp_path) == {"a": 2, "bad": 1}
    found = {row["n"]: row["turn"] for row in played.main}
    assert found[2] is None
    assert found[1] == found[3]
    assert found[4] > found[1]


def test_a_row_that_ran_twice_because_of_a_crash_is_one_dead_letter() -> None:
    played = play(named(), at("10:00", id="bad"), crash(), batch())
    assert len(played.dead_letters) == 1


@pytest.mark.spark
def test_rows_of_one_key_keep_their_order_from_every_partition() -> None:
    rows = [at("10:00", id="abc"[n % 3], n=n, partition=n % 2) for n in range(60)]
    played = play(named(), *rows, batch())
    for id in "abc":
        for partition in (0, 1):
            ours = [row["n"] for row in played.main if row["id"] == id and row["n"] % 2 == partition]
            assert ours == [n for n in range(60) if "abc"[n % 3] == id and n % 2 == partition]


def test_rows_of_all_keys_keep_their_order_within_a_task() -> None:
    rows = [at("10:00", id="abcx"[n % 4], n=n) for n in range(40)]
    numbers = [row["n"] for row in play(named(), *rows, batch()).main]
    assert sorted(numbers) == list(range(40))
    tasks = 1 + sum(before > behind for before, behind in pairwise(numbers))
    assert tasks <= MOST_TASKS


def test_rows_without_order_are_the_same_rows() -> None:
    rows = [at("10:00", id="abcx"[n % 4] if n % 5 else None, n=n) for n in range(40)]
    kept, free = play(named(), *rows, batch()).main, play(named(order="free"), *rows, batch()).main
    assert sorted(free, key=lambda row: row["n"]) == sorted(kept, key=lambda row: row["n"])
    assert len(kept) == 40


@pytest.mark.streamed
def test_a_distinct_key_is_asked_for_once_in_a_batch_whatever_the_partitions(tmp_path: Path) -> None:
    rows = [at("10:00", id="abx"[n % 3], partition=n % 4) for n in range(120)]
    play(named(asked=tmp_path), *rows, batch(), *rows[:3], batch())
    assert calls(tmp_path) == {"a": 2, "b": 2, "x": 2}


@pytest.mark.streamed
def test_a_row_without_a_key_is_not_asked_for(tmp_path: Path) -> None:
    timeline(
        named("null", tmp_path),
        at("10:00", id=None, n=1),
        at("10:01", id="a", n=2),
        batch(),
        expect(row(id=None, n=1, name=None, named_failure=None), row(id="a", n=2, name="Ann", named_failure=None)),
    )
    assert calls(tmp_path) == {"a": 1}


@pytest.mark.streamed
def test_a_key_of_several_columns_is_asked_for_as_a_tuple(tmp_path: Path) -> None:
    async def place(key: tuple[str, int]) -> dict[str, Any]:
        Path(tmp_path, uuid4().hex).write_text(repr(key))
        return {"spot": f"{key[0]}{key[1]}"}

    step = lookup("spots", place, on=["row", "seat"], output="spot STRING", on_failure="stop", timeout="1 minute")
    timeline(
        step,
        at("10:00", row="A", seat=1),
        at("10:00", row="A", seat=2),
        at("10:00", row="A", seat=1),
        at("10:00", row="B", seat=None),
        batch(),
        expect(
            row(row="A", seat=1, spot="A1"),
            row(row="A", seat=2, spot="A2"),
            row(row="A", seat=1, spot="A1"),
            row(row="B", seat=None, spot=None),
        ),
    )
    assert calls(tmp_path) == {("A", 1): 1, ("A", 2): 1}


@pytest.mark.streamed
def test_remembered_answers_are_believed_until_the_batches_clock_says_they_are_old(tmp_path: Path) -> None:
    step = named(asked=tmp_path, cache=cache(ttl="10 minutes"))
    play(
        step,
        clock("10:00"),
        at("09:00", id="a"),
        at("09:00", id="x"),
        at("09:00", id="bad"),
        batch(),
        clock("10:09:59.999999"),
        at("09:00", id="a"),
        at("09:00", id="x"),
        at("09:00", id="bad"),
        batch(),
        clock("10:10"),
        at("09:00", id="a"),
        batch(),
        engine="inline",  # on Spark each worker remembers what it has asked for itself
    )
    assert calls(tmp_path) == {"a": 2, "x": 1, "bad": 2}  # an unknown key is an answer too, a failure is none


def test_steps_do_not_read_results_that_are_replaced_later_through_a_lookup_either() -> None:
    early = hr.tumbling("early", size="1 hour", key="id").agg(n="count(*)").emit(hr.on_update()).late(hr.drop())
    daily = hr.tumbling("daily", size="1 day", key="name").agg(all="sum(n)").late(hr.drop())
    with pytest.raises(hr.DefinitionError, match="PREVIEWS_INTO_STEP"):
        play((early, named(), daily), at("10:00", id="a"), batch())
