from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.state.group_range import GroupRange, groups_of

HASHES = st.lists(st.integers(0, 2**64 - 1), max_size=50).map(lambda given: np.array(sorted(given), dtype=np.uint64))


@given(HASHES, st.integers(1, 32_768), st.integers(1, 9))
def test_every_hash_is_in_the_slot_of_its_key_group_and_in_no_other(
    hashes: np.typing.NDArray[np.uint64], key_groups: int, slots: int
) -> None:
    ranges = [GroupRange.of_slot(slot, slots=slots, key_groups=key_groups) for slot in range(slots)]
    groups = groups_of(hashes, key_groups)
    assert ((groups >= 0) & (groups < key_groups)).all()
    for each in ranges:
        expected = (groups >= each.first) & (groups < each.end)
        assert (each.holds(hashes) == expected).all()
        assert (hashes[each.slice_of(hashes)] == hashes[expected]).all()


RANGES = st.tuples(st.integers(0, 8), st.integers(0, 8)).map(lambda pair: GroupRange(min(pair), max(pair), 8))


def numbers(each: GroupRange | None) -> set[int]:
    return set() if each is None else set(range(each.first, each.end))


@given(RANGES, RANGES)
def test_what_two_ranges_share_and_what_is_left_are_the_range(one: GroupRange, other: GroupRange) -> None:
    assert numbers(one.shared(other)) == numbers(one) & numbers(other)
    left = [numbers(each) for each in one.without(other)]
    assert set().union(*left) == numbers(one) - numbers(other)
    assert sum(map(len, left)) == len(set().union(*left))
