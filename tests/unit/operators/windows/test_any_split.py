"""For rows within the bound, or with corrections long enough, any split of the input gives the same final answer."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import at, batch, crash, play
from headrace.testing.elements import At
from tests.models.examples import examples

ROWS = 500
START = datetime(2026, 1, 1, tzinfo=UTC)
tens = hr.tumbling("tens", size="10 minutes", key="account").agg(
    n="count(*)", known="count(amount)", spent="sum(amount)", least="min(amount)", most="max(amount)"
)
Truth = dict[tuple[str, datetime], tuple[Any, ...]]


@dataclass(frozen=True)
class Input:
    """Rows in the order of their arrival, none more than ``disorder`` seconds behind an earlier one."""

    rows: list[At]
    truth: Truth


def make_input(seed: int, disorder: int, partitions: int) -> Input:
    chance = random.Random(seed)
    rows: list[At] = []
    grouped: defaultdict[tuple[str, datetime], list[int | None]] = defaultdict(list)
    for place in range(ROWS):
        time = START + timedelta(seconds=place * 11 - chance.randrange(disorder + 1))
        account = chance.choice("abcdefghij")
        amount = None if chance.random() < 0.05 else chance.randrange(-100, 100)
        rows.append(at(time, account=account, amount=amount, partition=chance.randrange(partitions)))
        window = time - (time - START) % timedelta(minutes=10)
        grouped[account, window].append(amount)
    return Input(rows, {window: answer(amounts) for window, amounts in grouped.items()})


def answer(amounts: list[int | None]) -> tuple[Any, ...]:
    known = [amount for amount in amounts if amount is not None]
    if not known:
        return (len(amounts), 0, None, None, None)
    return (len(amounts), len(known), sum(known), min(known), max(known))


def split(rows: list[At], places: set[int], cut: Any = batch) -> list[Any]:
    """The rows with something between them at each of the places."""
    return [element for place, row in enumerate(rows) for element in ((cut(), row) if place in places else (row,))]


def close_all() -> tuple[Any, ...]:
    """A row in every partition, a day later, closes every window."""
    later = START + timedelta(days=1)
    return (batch(), *(at(later, account="end", amount=0, partition=number) for number in range(4)), batch(), batch())


def last_of_each_window(main: list[dict[str, Any]]) -> Truth:
    return {
        (row["account"], row["window"]["start"]): tuple(row[name] for name in ("n", "known", "spent", "least", "most"))
        for row in main
    }


# Five hundred rows shrink for minutes and to nothing that tells more.
places = st.sets(st.integers(1, ROWS - 1), max_size=12)
seeds = st.integers(0, 2**32)


@examples(12)
@given(seed=seeds, places=places, partitions=st.integers(1, 4), by_partition=st.booleans())
def test_rows_within_the_bound_give_each_window_once_whatever_the_batches_and_partitions(
    seed: int, places: set[int], partitions: int, by_partition: bool
) -> None:
    given_rows = make_input(seed, disorder=900, partitions=partitions)
    time = hr.event_time("at", out_of_order="15 minutes", partition="partition" if by_partition else None)
    played = play(tens.late(hr.side_output()), *split(given_rows.rows, places), *close_all(), event_time=time)
    assert last_of_each_window(played.main) == given_rows.truth
    assert len(played.main) == len(given_rows.truth)
    assert played.late == []


@examples(10)
@given(seed=seeds, places=places, partitions=st.integers(1, 4))
def test_with_corrections_long_enough_the_last_one_is_the_answer_whatever_the_batches(
    seed: int, places: set[int], partitions: int
) -> None:
    given_rows = make_input(seed, disorder=3600, partitions=partitions)
    step = tens.late(hr.update_for("2 days"))
    played = play(step, *split(given_rows.rows, places), *close_all(), event_time=hr.event_time("at"))
    found = last_of_each_window(played.main)
    assert {window: values for window, values in found.items() if window[0] != "end"} == given_rows.truth
    assert played.late == []
    revisions: defaultdict[tuple[str, datetime], list[int]] = defaultdict(list)
    for row in played.main:
        revisions[row["account"], row["window"]["start"]].append(row["revision"])
        assert row["pane"] == "late" or row["revision"] == 0
    assert all(numbers == list(range(len(numbers))) for numbers in revisions.values())


@examples(6)
@given(
    seed=seeds,
    places=places,
    crashes=places.filter(len),
    late=st.sampled_from([hr.side_output(), hr.update_for("20 minutes")]),
)
def test_a_crash_anywhere_changes_nothing(seed: int, places: set[int], crashes: set[int], late: Any) -> None:
    rows = make_input(seed, disorder=3600, partitions=2).rows
    # A crash ends a batch too, so the uninterrupted run has a batch at the same places.
    crashed = [
        element
        for place, row in enumerate(rows)
        for element in ((crash(), batch(), row) if place in crashes else (batch(), row) if place in places else (row,))
    ]
    time = hr.event_time("at", out_of_order="10 minutes")
    step = tens.late(late)
    whole = play(step, *split(rows, places | crashes), *close_all(), event_time=time)
    interrupted = play(step, *crashed, *close_all(), event_time=time)
    assert in_order_of_keys(interrupted.main) == in_order_of_keys(whole.main)
    assert in_order_of_keys(interrupted.late) == in_order_of_keys(whole.late)


def in_order_of_keys(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows by key; rows of one key stay in the order in which they were emitted."""
    return sorted(rows, key=lambda row: str(row["account"]))
