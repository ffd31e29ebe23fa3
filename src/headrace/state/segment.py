"""A segment: rows of a step's state in one immutable Arrow file, sorted by the hash of their key.

Name, size and checksum of the file stand in the manifest, so one that is missing, truncated or changed is found
when it is first opened. It is mapped, not read: the workers of a machine share one copy, and a lookup touches the
pages it needs.
"""

from __future__ import annotations

import io
import zlib
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl
from pyarrow import ipc

from headrace.checkpoint.storage import Storage
from headrace.errors import HeadraceError
from headrace.state.group_range import GroupRange, Hashes
from headrace.state.order_ranges import OrderRanges

HASH = "__state_hash"
REMOVED = "__state_removed"
"""True in a row that has only its identity: it is gone from the state."""
DUE, DUE_CLOCK, DEAD_AT = "__state_due", "__state_due_clock", "__state_dead_at"
"""When a row must be looked at, by event time and by the clock; from when on it no longer counts."""
_BY_TIME = {DUE: "__state_by_due", DUE_CLOCK: "__state_by_due_clock"}
"""The positions of the rows in the order of a due time; the last ones are null, for rows that are never due."""
ORDER = "__state_order"
"""By what the rows of a key are sorted, where a step looks for ranges of them."""
Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SegmentRange:
    """An entry of a manifest: those rows of a segment whose key groups are in a range.

    A merge goes through its inputs range by range: each output has a range, and what counts of the inputs shrinks.
    """

    file: str
    groups: GroupRange
    rows: int
    size: int
    checksum: int
    level: int
    """How often its rows have been merged; a higher level is older."""
    run: int
    """The batch that wrote it, or began the merge that did: of one run, a key group is in one segment at most."""
    due: tuple[int, int] | None = None
    """The earliest and the latest time at which one of its rows is due."""
    due_clock: tuple[int, int] | None = None
    dead_at: int | None = None
    """From when on none of its rows counts; None if some always do."""
    merging: int | None = None
    """The run that it is being merged into."""
    dies_when_due: bool = False
    """Whether ``DEAD_AT`` equals ``DUE`` in all rows, so that it is not stored."""

    def within(self, groups: GroupRange) -> tuple[SegmentRange, ...]:
        """What counts of it in a slot with these key groups."""
        shared = self.groups.shared(groups)
        return () if shared is None else (replace(self, groups=shared),)

    def without(self, groups: GroupRange) -> tuple[SegmentRange, ...]:
        """What still counts once these groups are merged."""
        return tuple(replace(self, groups=left) for left in self.groups.without(groups))


class Segment:
    """An open segment; columns that have only nulls are left out of its rows."""

    def __init__(self, frame: pl.DataFrame, *, dies_when_due: bool) -> None:
        self._index = {name: frame[name] for name in _BY_TIME.values() if name in frame.columns}
        self._rows = frame.drop(self._index, pl.selectors.by_dtype(pl.Null))
        if dies_when_due:
            self._rows = self._rows.with_columns(pl.col(DUE).alias(DEAD_AT))

    @cached_property
    def _hashes(self) -> Hashes:
        return self._rows[HASH].to_numpy()

    @cached_property
    def _orders(self) -> tuple[int, int]:
        """The lowest and the highest order of its rows."""
        orders = self._rows[ORDER].to_numpy()
        return int(orders.min()), int(orders.max())

    def rows(self, hashes: Hashes, ranges: OrderRanges | None = None, living_after: int | None = None) -> pl.DataFrame:
        """The rows with one of these hashes, which are sorted and distinct, or those of them in the ranges.

        Without rows that are dead at ``living_after``: they are not even copied.
        """
        first = np.searchsorted(self._hashes, hashes)
        there = first < len(self._hashes)
        there[there] = self._hashes[first[there]] == hashes[there]
        first = first[there]
        # The next hash begins where this one ends: a search among the hashes that are there.
        counts = np.searchsorted(self._hashes, hashes[there], side="right") - first
        if ranges is not None and not ranges.cover(*self._orders):
            first, counts = self._within(ranges, first, first + counts)
        ends = np.cumsum(counts)
        places = np.repeat(first - (ends - counts), counts) + np.arange(counts.sum())
        if living_after is not None and DEAD_AT in self._rows.columns:
            places = places[_lives(self._rows[DEAD_AT][places], living_after).to_numpy()]
        return self._rows[places] if len(places) else self._rows.clear()

    def _within(self, ranges: OrderRanges, first: Places, end: Places) -> tuple[Places, Places]:
        """The parts of these stretches of rows that lie in the ranges, as their first rows and their lengths."""
        bounds = np.column_stack([ranges.first, ranges.last + 1]).reshape(-1)
        stretches = np.repeat(first, len(bounds)), np.repeat(end, len(bounds))
        found = self._first_at_least(np.tile(bounds, len(first)), *stretches).reshape(-1, 2)
        return found[:, 0], found[:, 1] - found[:, 0]

    def _first_at_least(self, wanted: Places, low: Places, high: Places) -> Places:
        """In each stretch of rows, which are in order, the place of the first that is not before what is wanted."""
        order = self._rows[ORDER].to_numpy()
        while (open_ := low < high).any():
            middle = (low + high) >> 1
            is_before = np.zeros(len(low), dtype=np.bool_)
            is_before[open_] = order[middle[open_]] < wanted[open_]
            low, high = np.where(is_before, middle + 1, low), np.where(open_ & ~is_before, middle, high)
        return low

    def rows_within(self, groups: GroupRange, living_after: int | None = None) -> pl.DataFrame:
        rows = self._rows[groups.slice_of(self._hashes)]
        if living_after is None or DEAD_AT not in rows.columns:
            return rows
        return rows.filter(_lives(rows[DEAD_AT], living_after))

    def count(self, groups: GroupRange) -> int:
        within = groups.slice_of(self._hashes)
        return int(within.stop) - int(within.start)

    def due_hashes(self, column: str, after: int, until: int) -> Hashes:
        """The hashes of the rows that are due after a time and not after another."""
        order = self._index[_BY_TIME[column]]
        first, end = self._first_after(column, after), self._first_after(column, until)
        places = order[first:end].to_numpy()
        if 4 * len(places) > len(order):
            # Where most rows are due, to bring their hashes in order would cost more than to look at all rows.
            times = self._rows[column]
            due = times.is_between(times[order[first]], times[order[end - 1]])
            places = due.fill_null(False).to_numpy()
        hashes = self._hashes[places]
        once: Hashes = hashes[np.r_[True, hashes[1:] != hashes[:-1]][: len(hashes)]]
        return once

    def next_due(self, column: str, after: int) -> int | None:
        """The earliest time after another at which a row is due."""
        order = self._index[_BY_TIME[column]]
        first = self._first_after(column, after)
        return int(self._rows[column][order[first]]) if first < len(order) - order.null_count() else None

    def _first_after(self, column: str, time: int) -> int:
        """The place in the order of due times of the first row that is due after a time."""
        times, order = self._rows[column], self._index[_BY_TIME[column]]
        return bisect_right(range(len(order) - order.null_count()), time, key=lambda place: times[order[place]])


class SegmentFiles:
    """Opens and writes the segments of a step. What is open stays open: segments never change."""

    def __init__(self, storage: Storage, cache: OpenSegments, new_name: Callable[[], str]) -> None:
        self._storage = storage
        self._cache = cache
        self._new_name = new_name

    def open(self, segment: SegmentRange) -> Segment:
        """A segment, checked against what the manifest says of it when this process opens it first."""
        return self._cache.get(self._storage, segment.file, lambda: self._read(segment))

    def write(self, rows: pl.DataFrame, groups: GroupRange, *, level: int, run: int) -> SegmentRange:
        """Write rows, which have their hashes, as a segment; it survives a crash of the machine once this returns."""
        empty = [column.name for column in rows if column.null_count() == column.len()]
        rows = rows.drop(empty)
        # Two sorts are faster than one by two columns, and mostly the rows are in their order.
        if ORDER in rows.columns and not rows[ORDER].is_sorted():
            rows = rows.sort(ORDER)
        frame = rows.sort(HASH, maintain_order=True)
        due: dict[str, tuple[int, int] | None] = {}
        for column, index in _BY_TIME.items():
            given = frame.height - frame[column].null_count() if column in frame.columns else 0
            due[column] = None
            if given:
                order = frame[column].arg_sort(nulls_last=True)
                due[column] = (int(frame[column][order[0]]), int(frame[column][order[given - 1]]))
                places = order.cast(pl.UInt32).head(given).extend_constant(None, frame.height - given)
                frame = frame.with_columns(places.alias(index))
        ends = frame[DEAD_AT] if DEAD_AT in frame.columns else None
        dies_when_due = ends is not None and due[DUE] is not None and ends.eq_missing(frame[DUE]).all()
        frame = frame.drop(DEAD_AT if dies_when_due else ()).with_columns(pl.lit(None).alias(name) for name in empty)
        buffer = io.BytesIO()
        frame.write_ipc(buffer, compression="uncompressed", record_batch_size=max(frame.height, 1))
        content = buffer.getbuffer()
        file = self._new_name()
        self._storage.write(file, content)
        return SegmentRange(
            file,
            groups,
            frame.height,
            len(content),
            zlib.crc32(content),
            level,
            run,
            due[DUE],
            due[DUE_CLOCK],
            None if ends is None or ends.null_count() else int(ends.max()),  # type: ignore[arg-type]
            dies_when_due=dies_when_due,
        )

    def _read(self, segment: SegmentRange) -> Segment:
        try:
            # Not over the mapped file: that would count all its pages as memory of this process.
            size, checksum = self._storage.checksum(segment.file)
            content = self._storage.open(segment.file)
        except FileNotFoundError as problem:
            raise _damaged(segment, "is missing") from problem
        except OSError as problem:
            raise _damaged(segment, f"cannot be read ({problem})") from problem
        if size != segment.size:
            raise _damaged(segment, f"has {size:,} bytes instead of {segment.size:,}")
        if checksum != segment.checksum:
            raise _damaged(segment, "was changed: its checksum does not match")
        # Zero copies: the columns are where the file is mapped.
        frame = pl.from_arrow(ipc.open_file(content).read_all(), rechunk=False)
        assert isinstance(frame, pl.DataFrame)
        return Segment(frame, dies_when_due=segment.dies_when_due)


def _lives(dead_at: pl.Series, time: int) -> pl.Series:
    return (dead_at > time).fill_null(True)


def _damaged(segment: SegmentRange, what: str) -> HeadraceError:
    return HeadraceError(
        "STATE_DAMAGED",
        f"state file {segment.file!r} {what}, so results would be wrong. Restore the checkpoint from a copy.",
    )


class OpenSegments:
    """The segments that a process has open; those used longest ago are closed when there are many.

    A file that is open takes room on the disk until it is closed, also when another process has removed it.
    """

    def __init__(self, most: int = 1_000) -> None:
        self._most = most
        self._open: OrderedDict[tuple[Storage, str], Segment] = OrderedDict()

    def get(self, storage: Storage, file: str, read: Callable[[], Segment]) -> Segment:
        """A segment that is open, or is read and stays open."""
        opened = self._open.pop((storage, file), None)
        if opened is None:
            opened = read()
        self._open[storage, file] = opened
        if len(self._open) > self._most:
            self._open.popitem(last=False)
        return opened

    def close_others(self, storage: Storage, named: Collection[str]) -> None:
        """Close the segments of a flow that its manifest no longer names."""
        for key in [key for key in self._open if key[0] == storage and key[1] not in named]:
            del self._open[key]


WORKER = OpenSegments()
"""The segments that this worker process has open; Spark keeps workers between batches."""
