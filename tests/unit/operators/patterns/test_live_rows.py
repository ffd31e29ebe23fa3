"""Rows that cannot matter are left out, whatever the pattern and the rows: matches and time-outs stay the same."""

from __future__ import annotations

from itertools import chain as chained

import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from headrace.operators.patterns import live_rows, skip
from headrace.operators.patterns.chain import Group, group
from headrace.operators.patterns.live_rows import LiveRows
from headrace.operators.patterns.matcher import KeyMatches, MatchResults
from tests.unit.operators.patterns.letters import Letters, shown
from tests.unit.operators.patterns.test_any_pattern import open_ends, patterns, rows

LATER = 99


def played(letters: Letters, keys: list[str], earlier: int, *, pruned: bool) -> tuple[list[object], list[int]]:
    """What is found in the rows of keys of which some came earlier, and how many of the others each key has taken."""
    matcher, found = letters.matcher, MatchResults()
    given_rows = [letters.taken(each) for each in keys]
    matches = [KeyMatches(number=number) for number in range(len(keys))]
    for key, taken in zip(matches, given_rows, strict=True):
        matcher.take(key, taken[:earlier], found)
    new = [taken[earlier:] for taken in given_rows]
    of_all = list(chained.from_iterable(new))
    needed = np.ones(len(of_all), np.bool_)
    if pruned:
        finder = LiveRows(matcher.table, matcher.asked, letters.within, bool(matcher.limits))
        first = np.array([place == 0 for taken in new for place in range(len(taken))], np.bool_)
        living = np.array([bool(key.partials) for key, taken in zip(matches, new, strict=True) if taken], np.bool_)
        time, hits = (np.array([row[place] for row in of_all], np.int64) for place in (0, 1))
        needed = finder.needed(first, time, hits, living)
    counts, begin = [], 0
    for key, taken in zip(matches, new, strict=True):
        kept = [row for row, is_needed in zip(taken, needed[begin : begin + len(taken)], strict=True) if is_needed]
        counts.append(len(kept))
        begin += len(taken)
        matcher.take(key, kept, found)
        matcher.expire(key, LATER, found)
    told = [(number, shown(node), time) for number, node, time in found.matches]
    return [told, [(number, shown(node), *rest) for number, node, *rest in found.timed_out], found.overflow], counts


@pytest.mark.parametrize("least_together", [1, 3])
@settings(deadline=None, max_examples=400)
@given(
    chain=patterns() | open_ends(),
    keys=st.lists(rows(), min_size=1, max_size=4),
    earlier=st.integers(0, 3),
    within=st.sampled_from([None, 3, 6]),
    strategy=st.sampled_from([skip.none(), skip.to_next(), skip.past_last()]),
    most=st.sampled_from([2, 1_000]),
)
def test_what_is_left_out_changes_nothing(
    least_together: int,
    chain: Group,
    keys: list[str],
    earlier: int,
    within: int | None,
    strategy: skip.Skip,
    most: int,
) -> None:
    note(repr(chain))
    letters = Letters(chain, within, strategy, most)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live_rows, "LEAST_TOGETHER", least_together)
        assert played(letters, keys, earlier, pruned=True)[0] == played(letters, keys, earlier, pruned=False)[0]


STRICT = Letters(group().begin("a").next("b").times(1, 3).consecutive().greedy().next("c"), 60, skip.past_last())


@pytest.mark.parametrize(
    ("row", "left"),
    [
        pytest.param("b1 c2 a3 a4 b5 a6 x7 c8", 0, id="what begins is broken off"),
        pytest.param("c1 a2 b3 c4 b5 c6", 3, id="the rows of a match"),
        pytest.param("a1 x2 b3 a4 b5", 2, id="what is open at the end"),
        pytest.param("a1 a70 x71", 3, id="what runs out of time"),
    ],
)
def test_of_a_strict_pattern_only_rows_that_something_comes_of_are_stepped_through(row: str, left: int) -> None:
    assert played(STRICT, [row] * 20, 0, pruned=True)[1] == [left] * 20


def test_of_a_very_large_automaton_rows_count_from_the_first_that_may_begin() -> None:
    letters = Letters(group().begin("a").next("b").times(live_rows.MOST_STATES).consecutive())
    assert played(letters, ["b1 x2 a3 x4 b5"] * 20, 0, pruned=True)[1] == [3] * 20
