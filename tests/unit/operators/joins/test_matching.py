"""Which rows of two inputs match."""

from __future__ import annotations

import random

import numpy as np
import pytest

from headrace.operators.joins import matching
from headrace.operators.joins.matching import KeyedSpans, KeyedTimes, MatchRanges, match_ranges


def side(*rows: tuple[int, int]) -> KeyedTimes:
    """Rows by key and time."""
    given = np.array(rows, dtype=np.int64).reshape(-1, 2)
    return KeyedTimes(given[:, 0].copy(), given[:, 1].copy())


def near(left: KeyedTimes, right: KeyedTimes, low: int, high: int) -> MatchRanges:
    """Right rows ``low`` to ``high`` after a left one."""
    return match_ranges(KeyedSpans(left.keys, left.times + low, left.times + high), right)


@pytest.mark.parametrize("far", [1, 10**6, 10**15, 10**17])
def test_every_pair_within_the_bounds_is_found_however_far_times_are_apart(far: int) -> None:
    chance = random.Random(far)
    for _ in range(50):
        left, right = (
            [(chance.randrange(200), chance.randrange(-5, 6) * far) for _ in range(chance.randrange(30))] for _ in "lr"
        )
        low = chance.randrange(-3, 3) * far
        high = low + chance.randrange(4) * far
        found = near(side(*left), side(*right), low, high)
        wanted = {
            (i, j)
            for i, (key, time) in enumerate(left)
            for j, (other, moment) in enumerate(right)
            if key == other and low <= moment - time <= high
        }
        of_left, of_right = found.pairs()
        assert len(of_left) == len(wanted)
        assert set(zip(of_left.tolist(), of_right.tolist(), strict=True)) == wanted


def test_the_first_and_the_last_are_told_by_time_and_then_by_place() -> None:
    found = near(side((0, 10), (1, 10)), side((0, 12), (0, 11), (0, 12), (0, 11), (0, 99)), 0, 5)
    assert found.one("first").tolist() == [1, -1]
    assert found.one("last").tolist() == [2, -1]


def test_nothing_belongs_to_a_side_without_rows() -> None:
    assert near(side((0, 1)), side(), 0, 5).one("first").tolist() == [-1]
    assert [places.tolist() for places in near(side(), side((0, 1)), 0, 5).pairs()] == [[], []]


def test_one_key_with_very_many_rows_costs_no_more_than_its_pairs() -> None:
    times = np.arange(200_000, dtype=np.int64)
    many = KeyedTimes(np.zeros_like(times), times)
    of_left, of_right = near(many, many, 1, 1).pairs()
    assert (len(of_left), bool((of_right == of_left + 1).all())) == (199_999, True)


def test_where_ranks_take_the_place_of_times_the_last_time_of_a_key_is_not_the_first_of_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(matching, "_LARGEST", 0)
    found = near(side((0, 30), (1, 30)), side((0, 10), (0, 30), (1, 10), (1, 30)), 0, 0)
    assert [places.tolist() for places in found.pairs()] == [[0, 1], [1, 3]]
    beyond = near(side((0, 40), (1, 40)), side((0, 10), (1, 10), (1, 30)), 0, 0)
    assert [places.tolist() for places in beyond.pairs()] == [[], []]
