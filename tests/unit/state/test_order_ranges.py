"""Ranges cover what they are made of, and little else."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.state.order_ranges import MOST_RANGES, OrderRanges

SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=20)


def covered(ranges: OrderRanges) -> list[int]:
    return [order for first, last in zip(ranges.first, ranges.last, strict=True) for order in range(first, last + 1)]


@given(SPANS)
def test_ranges_cover_their_spans_are_disjoint_and_join_only_where_there_are_too_many(
    spans: list[tuple[int, int]],
) -> None:
    first, last = np.array(spans, dtype=np.int64).reshape(-1, 2).T
    ranges = OrderRanges.covering((first, last))
    wanted = {order for first, last in spans for order in range(first, last + 1)}
    assert len(set(covered(ranges))) == len(covered(ranges))
    assert set(covered(ranges)) >= wanted
    assert len(ranges.first) <= MOST_RANGES
    assert set(covered(ranges)) == wanted or len(ranges.first) == MOST_RANGES
    assert all(ranges.first[1:] > ranges.last[:-1] + 1)


def test_of_too_many_spans_the_nearest_share_a_range() -> None:
    starts = [number**2 * 10 for number in range(MOST_RANGES + 2)]
    ranges = OrderRanges.covering(*((start, start) for start in starts))
    assert ranges.first.tolist() == [0, *starts[3:]]
    assert ranges.last.tolist() == starts[2:]


def test_a_span_from_the_beginning_of_time_is_cut() -> None:
    ranges = OrderRanges.covering((-(2**63) - 10, 5), (7, 2**63 + 10))
    assert (ranges.last[0], ranges.first[1]) == (5, 7)
