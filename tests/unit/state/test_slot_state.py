"""The state of a slot is what a dictionary would be, whatever was merged, cut up or dropped meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.checkpoint.storage import MemoryStorage
from headrace.checkpoint.sweep import FileName
from headrace.errors import HeadraceError
from headrace.key_hash import hashes_of as hashes_of_rows
from headrace.state import slot_state
from headrace.state.group_range import GroupRange, Hashes
from headrace.state.order_ranges import OrderRanges
from headrace.state.segment import DEAD_AT, DUE, DUE_CLOCK, HASH, ORDER, OpenSegments, SegmentFiles, SegmentRange
from headrace.state.slot_state import SlotState, StateRows

ROWS = StateRows({"key": pl.Int64(), "part": pl.Int64(), "value": pl.Int64()}, ("key", "part"))
KEY_GROUPS = 16


@pytest.fixture(autouse=True, scope="module")
def merges_of_a_few_rows() -> Iterator[None]:
    """A merge takes many batches, so that rows are looked for while it runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slot_state, "LEAST_MERGED", 2)
        patch.setattr(slot_state, "MERGED_FACTOR", 1)
        patch.setattr(slot_state, "MOST_MERGED_TOGETHER", 3)
        patch.setattr(slot_state, "SMALL_RUN", 2)
        yield


def hashes_of(keys: Sequence[int]) -> Hashes:
    return hashes_of_rows(pl.DataFrame({"key": keys}, schema={"key": pl.Int64()}), ["key"])


def hashed(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(pl.Series(HASH, hashes_of(rows["key"].to_list()), pl.UInt64))


def within(rows: pl.DataFrame, groups: GroupRange) -> pl.DataFrame:
    return rows.filter(pl.Series(groups.holds(rows[HASH].to_numpy())))


def changed(rows: Sequence[tuple[int, int | None, int]], **times: Sequence[int | None]) -> pl.DataFrame:
    frame = pl.DataFrame(rows, schema=ROWS.columns, orient="row")
    return hashed(frame.with_columns(pl.Series(name, values, pl.Int64) for name, values in times.items()))


def gone(rows: Sequence[tuple[int, int | None]] = ()) -> pl.DataFrame:
    return hashed(pl.DataFrame(rows, schema={"key": pl.Int64(), "part": pl.Int64()}, orient="row"))


@dataclass
class Slots:
    """All slots of a step, over files in memory that every batch opens anew."""

    storage: MemoryStorage = field(default_factory=MemoryStorage)
    segments: list[SegmentRange] = field(default_factory=list)
    slots: int = 1
    batch: int = 0
    rows: StateRows = ROWS

    def states(self, dead_until: int = -1) -> list[tuple[GroupRange, SlotState]]:
        ranges = [GroupRange.of_slot(slot, slots=self.slots, key_groups=KEY_GROUPS) for slot in range(self.slots)]
        new_file = partial(FileName, "state", epoch=1, batch=self.batch, slot=0)
        files = SegmentFiles(self.storage, OpenSegments(), lambda: str(new_file()))
        return [(groups, SlotState(files, self.rows, self.segments, groups, dead_until)) for groups in ranges]

    def run(
        self, upserts: pl.DataFrame, removed: pl.DataFrame | None = None, dead_until: int = -1, passed: int = 0
    ) -> None:
        """A batch that begins at a time, and in which some time passes."""
        self.batch += 1
        states, ended = self.states(dead_until), gone() if removed is None else removed
        for groups, state in states:
            state.write(within(upserts, groups), within(ended, groups), self.batch, dead_until + passed)
        self.segments = [each for _, state in states for each in state.segments]

    def find(
        self, keys: Sequence[int], dead_until: int = -1, ranges: OrderRanges | None = None
    ) -> set[tuple[int | None, ...]]:
        wanted = hashes_of(keys)
        found = [state.find(wanted[groups.holds(wanted)], ranges) for groups, state in self.states(dead_until)]
        rows = [row for frame in found for row in frame.rows()]
        assert len(rows) == len(set(rows))
        return set(rows)

    def due(self, column: str, after: int, until: int) -> set[int]:
        hashes = {each for _, state in self.states() for each in state.due(column, after, until).tolist()}
        return {key for key in range(100) if hashes_of([key])[0] in hashes}


# A segment leaves out a column that has only nulls, also one of the identity.
PLACES = st.tuples(st.integers(0, 12), st.none() | st.integers(0, 2))
BATCHES = st.lists(
    st.tuples(
        st.dictionaries(PLACES, st.integers(0, 99), max_size=6),
        st.sets(PLACES, max_size=3),
        st.sampled_from([1, 1, 1, 2, 3, 8]),
    ),
    max_size=30,
)


@given(BATCHES)
def test_rows_are_those_of_a_dictionary_whatever_is_merged_and_with_any_number_of_slots(
    batches: list[tuple[dict[tuple[int, int | None], int], set[tuple[int, int | None]], int]],
) -> None:
    slots, model = Slots(), dict[tuple[int, int | None], int]()
    for upserts, removed, count in batches:
        slots.slots = count
        slots.run(
            changed([(*place, value) for place, value in upserts.items()]),
            gone(sorted(removed - upserts.keys(), key=repr)),
        )
        model = {place: value for place, value in {**model, **upserts}.items() if place not in removed - upserts.keys()}
        assert slots.find(range(13)) == {(*place, value) for place, value in model.items()}
        assert slots.find([3]) == {(*place, value) for place, value in model.items() if place[0] == 3}


def test_rows_are_removed_from_a_segment_that_has_only_nulls_in_a_column_of_their_identity() -> None:
    slots = Slots()
    slots.run(changed([(key, None, 0) for key in range(8)]))
    for key in range(8):
        slots.run(changed([(9, key, key)]), gone([(key, None)]))
        assert slots.find(range(9)) == {(left, None, 0) for left in range(key + 1, 8)}


def ordered(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows that lie by their part, the highest first, so that this is not the order of writing."""
    return rows.with_columns((-pl.col("part")).alias(ORDER))


@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.tuples(st.integers(0, 2), st.integers(0, 20)), st.integers(0, 99), max_size=12),
            st.sets(st.tuples(st.integers(0, 2), st.integers(0, 20)), max_size=4),
            st.sampled_from([1, 1, 2]),
        ),
        max_size=12,
    ),
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=3),
)
def test_rows_in_ranges_of_a_key_are_those_of_a_dictionary_and_no_others(
    batches: list[tuple[dict[tuple[int, int], int], set[tuple[int, int]], int]], spans: list[tuple[int, int]]
) -> None:
    slots, model = Slots(), dict[tuple[int, int], int]()
    first, last = np.array(spans, dtype=np.int64).reshape(-1, 2).T
    ranges = OrderRanges.covering((-last, -first))
    for upserts, removed, count in batches:
        slots.slots = count
        removed -= upserts.keys()
        slots.run(ordered(changed([(*place, value) for place, value in upserts.items()])), ordered(gone(list(removed))))
        model = {place: value for place, value in {**model, **upserts}.items() if place not in removed}
        within = {
            (*place, value) for place, value in model.items() if any(first <= place[1] <= last for first, last in spans)
        }
        assert slots.find([0, 1, 2], ranges=ranges) == within
        assert slots.find([1], ranges=ranges) == {row for row in within if row[0] == 1}


@given(
    st.lists(st.tuples(st.dictionaries(PLACES, st.integers(1, 9), max_size=5), st.integers(0, 2)), max_size=25),
    st.booleans(),
)
def test_a_row_whose_time_is_over_never_comes_back(
    batches: list[tuple[dict[tuple[int, int], int], int]], once: bool
) -> None:
    slots, model, time = Slots(rows=replace(ROWS, written_once=once)), dict[tuple[int, int], int](), 0
    for upserts, passed in batches:
        changes = {place for place in upserts if not once or model.get(place, 0) <= time + passed}
        rows = [(*place, time + life) for place, life in upserts.items() if place in changes]
        slots.run(changed(rows, **{DEAD_AT: [dead_at for *_, dead_at in rows]}), dead_until=time, passed=passed)
        model |= {(key, part): dead_at for key, part, dead_at in rows}
        time += passed
        living = {(*place, dead_at) for place, dead_at in model.items() if dead_at > time}
        assert slots.find(range(13), dead_until=time) == living


def test_rows_that_are_written_once_die_in_files_of_their_own_whatever_stays() -> None:
    slots = Slots(rows=replace(ROWS, written_once=True))
    for batch in range(50):
        rows = changed([(1, 0, batch), (2, batch, batch)], **{DEAD_AT: [None, batch + 2]})
        slots.run(rows, dead_until=batch - 1, passed=1)
        assert [each.dead_at for each in slots.segments if each.dead_at is not None] == [batch + 1, batch + 2][
            -batch - 1 :
        ]
        assert slots.find([1, 2], dead_until=batch) == {
            (1, 0, batch),
            *((2, each, each) for each in range(max(batch - 1, 0), batch + 1)),
        }


def test_files_whose_rows_have_all_lived_out_leave_the_manifest() -> None:
    slots = Slots()
    for batch in range(50):
        slots.run(changed([(batch, 0, 0)], **{DEAD_AT: [batch + 3]}), dead_until=batch)
    assert sum(each.rows for each in slots.segments) < 12


def test_merging_keeps_the_number_of_files_and_rows_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slot_state, "MERGED_FACTOR", 10)
    slots = Slots()
    for batch in range(200):
        slots.run(changed([(batch % 5, 0, batch)]))
    assert len(slots.segments) < 16
    assert sum(each.rows for each in slots.segments) < 40
    assert slots.find(range(5)) == {(key, 0, 195 + key) for key in range(5)}


@pytest.mark.parametrize("lives_on", [False, True], ids=["ever-new keys", "ever-new rows of a key that lives on"])
def test_rows_that_are_removed_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch, lives_on: bool) -> None:
    monkeypatch.setattr(slot_state, "MERGED_FACTOR", 10)
    monkeypatch.setattr(slot_state, "MOST_MERGED_TOGETHER", 100)
    slots, most = Slots(), []
    for batch in range(400):
        place, gone_by_now = ((0, batch), (0, batch - 3)) if lives_on else ((batch, 0), (batch - 3, 0))
        slots.run(changed([(*place, 0), (-1, 0, batch)]), gone([gone_by_now]))
        most.append(sum(each.rows for each in slots.segments))
    assert max(most) == max(most[:100]) < 30
    assert slots.find([0 if lives_on else 399, -1]) >= {(*place, 0), (-1, 0, 399)}


def test_every_file_that_is_written_is_named_by_a_manifest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slot_state, "MERGED_FACTOR", 10)
    slots, named = Slots(), set[str]()
    for batch in range(100):
        slots.run(changed([(key, 0, batch) for key in range(batch, batch + 5)]))
        named |= {each.file for each in slots.segments}
    assert set(slots.storage.list("state")) == named


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 30)), max_size=4), max_size=12),
    st.integers(0, 30),
    st.integers(0, 30),
    st.sampled_from([1, 2, 3]),
)
def test_keys_that_are_due_between_two_times_are_found(
    batches: list[list[tuple[int, int]]], after: int, until: int, count: int
) -> None:
    slots, model = Slots(slots=count), dict[int, int]()
    for rows in batches:
        latest = dict(rows)
        slots.run(changed([(key, 0, 0) for key in latest], **{DUE: list(latest.values())}))
        model |= latest
    due = {key for key, time in model.items() if after < time <= until}
    ever = {key for rows in batches for key, time in rows if after < time <= until}
    # A version that was replaced may be found too, until it is merged away.
    assert due <= slots.due(DUE, after, until) <= ever
    following = [state.next_due(DUE, after) for _, state in slots.states()]
    if any(time > after for time in model.values()):
        earliest = min(time for time in following if time is not None)
        assert after < earliest <= min(time for time in model.values() if time > after)


def test_rows_are_found_that_are_due_at_any_time_however_early_a_step_asks() -> None:
    slots = Slots()
    slots.run(changed([(1, 0, 0), (2, 0, 0)], **{DUE: [-(2**63), 2**63 - 2]}))
    assert slots.due(DUE, -(2**63) - 10, 2**63 + 10) == {1, 2}


def test_rows_that_are_never_due_are_not_found_by_time() -> None:
    slots = Slots()
    slots.run(changed([(1, 0, 0), (2, 0, 0)], **{DUE: [None, 5], DUE_CLOCK: [7, None]}))
    assert (slots.due(DUE, 0, 100), slots.due(DUE_CLOCK, 0, 100)) == ({2}, {1})
    assert slots.due(DUE, 5, 100) == set()


@pytest.mark.parametrize("damage", ["flipped", "cut", "removed"])
def test_a_damaged_file_is_found_and_named(damage: str) -> None:
    slots = Slots()
    slots.run(changed([(1, 0, 0)]))
    name = slots.segments[0].file
    content = bytearray(slots.storage.open(name).to_pybytes())
    slots.storage.delete(name)
    content[len(content) // 2] ^= 1
    if damage != "removed":
        slots.storage.write(name, bytes(content if damage == "flipped" else content[:-1]))
    with pytest.raises(HeadraceError, match=rf"\[STATE_DAMAGED\].*{name}"):
        slots.find([1])


def test_a_file_of_another_batch_under_the_same_name_is_found() -> None:
    slots = Slots()
    slots.run(changed([(1, 0, 0)]))
    slots.run(changed([(1, 0, 1)]))
    first, second = slots.segments
    slots.segments = [replace(first, file=second.file)]
    with pytest.raises(HeadraceError, match=r"\[STATE_DAMAGED\]"):
        slots.find([1])
