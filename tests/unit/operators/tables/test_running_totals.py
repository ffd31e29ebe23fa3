"""Sums of doubles in double-double arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.operators.tables.running_totals import group_sums

values = st.lists(st.floats(-1e15, 1e15, allow_subnormal=False), min_size=1, max_size=30)


@given(values)
def test_what_comes_and_goes_leaves_exactly_nothing(numbers: list[float]) -> None:
    both = np.array([*numbers, *(-number for number in reversed(numbers))])
    groups, high, low = group_sums(np.zeros(len(both), dtype=np.int64), both, np.zeros(len(both)))
    largest = max(map(abs, numbers))
    assert groups.tolist() == [0]
    assert abs(high[0] + low[0]) <= largest * 2.0**-98


@given(st.lists(values, min_size=1, max_size=5))
def test_every_group_has_its_own_sum_to_thirty_digits(given_groups: list[list[float]]) -> None:
    numbers = np.array([number for group in given_groups for number in group])
    places = np.array([place for place, group in enumerate(given_groups) for _ in group], dtype=np.int64)
    groups, high, low = group_sums(places, numbers, np.zeros(len(numbers)))
    assert groups.tolist() == list(range(len(given_groups)))
    for place, group in enumerate(given_groups):
        truth = sum(map(Fraction, group))
        room = Fraction(max(map(abs, group))) * len(group) / 2**98
        assert abs(Fraction(high[place]) + Fraction(low[place]) - truth) <= room


def test_a_sum_beyond_doubles_is_infinite_and_nothing_has_no_groups() -> None:
    _, high, low = group_sums(np.zeros(2, dtype=np.int64), np.array([1.7e308, 1.7e308]), np.zeros(2))
    assert (high.tolist(), low.tolist()) == ([np.inf], [0.0])
    assert group_sums(np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0))[0].tolist() == []
