"""The state of one step in one slot: found by key or by time in its segments, changed by one more segment a batch."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from headrace.state.group_range import GroupRange, Hashes, distinct
from headrace.state.order_ranges import OrderRanges
from headrace.state.segment import DEAD_AT, DUE, HASH, REMOVED, SegmentFiles, SegmentRange

FAN_OUT = 4
"""This many runs of a level are merged into one of the next."""
SMALL_RUN = 20_000
"""A batch that writes ``FAN_OUT`` times as many rows begins a level higher, and so on."""
LEAST_MERGED = 50_000
MERGED_FACTOR = 10
"""A batch merges at most this many rows for each row that it writes: enough to keep up with ten levels."""
MOST_MERGED_TOGETHER = 500_000
"""Rows of one file that a merge writes; they are in memory several times."""


@dataclass(frozen=True, slots=True)
class StateRows:
    """What the state of a step is: its columns, those that identify a row, and the hash of a row's key."""

    columns: Mapping[str, pl.DataType]
    identity: Sequence[str]
    written_once: bool = False
    """Whether a row that dies by itself is not changed or removed before."""

    def together(self, parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Rows of segments with all columns of the state: a segment leaves out those that have only nulls."""
        rows = pl.concat(parts, how="diagonal")
        missing = {name: dtype for name, dtype in self.columns.items() if name not in rows.columns}
        return rows.with_columns(pl.lit(None, dtype).alias(name) for name, dtype in missing.items())

    def apart(self, rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The rows of which there may be several versions, and those that are written once."""
        of_some = rows.height - rows[DEAD_AT].null_count() if self.written_once and DEAD_AT in rows.columns else 0
        if of_some in (0, rows.height):
            return (rows.clear(), rows) if of_some else (rows, rows.clear())
        return rows.filter(pl.col(DEAD_AT).is_null()), rows.filter(pl.col(DEAD_AT).is_not_null())

    def newest(self, parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """The newest version of every row, from parts that are given the oldest first."""
        divided = [self.apart(part) for part in parts]
        versions = self._newest_version([part for part, _ in divided if part.height])
        return self.together([versions, *(once for _, once in divided if once.height)])

    def _newest_version(self, filled: Sequence[pl.DataFrame]) -> pl.DataFrame:
        if not filled:
            return pl.DataFrame(schema={**self.columns, HASH: pl.UInt64()})
        rows = self.together(filled)
        if len(filled) == 1:
            return rows
        hashes = rows[HASH].to_numpy()
        # Stable, so that of rows with one hash the newest is the last; fast, because every part is sorted.
        order = np.argsort(hashes, kind="stable")
        rows, hashes = rows[order], hashes[order]
        repeated = hashes[1:] == hashes[:-1]
        if not repeated.any():
            return rows
        same = pl.all_horizontal(pl.col(name).eq_missing(pl.col(name).shift(-1)) for name in self.identity)
        replaced = rows.select(same).to_series().to_numpy() & np.r_[repeated, False]
        if (replaced[:-1] == repeated).all():
            return rows.filter(~pl.Series(replaced))
        return rows.unique(self.identity, keep="last", maintain_order=True)


class SlotState:
    """The segments of a slot, the oldest first."""

    def __init__(
        self,
        files: SegmentFiles,
        rows: StateRows,
        segments: Iterable[SegmentRange],
        groups: GroupRange,
        dead_until: int,
    ) -> None:
        self._files = files
        self._rows = rows
        within = (part for each in segments for part in each.within(groups))
        self.segments = tuple(sorted(within, key=lambda each: (-each.level, each.run)))
        self._groups = groups
        self._dead_until = dead_until

    @property
    def _living_after(self) -> int | None:
        """Up to when dead rows can be left out at once; None: they may hide an older version of themselves."""
        return self._dead_until if self._rows.written_once else None

    def find(self, hashes: Hashes, ranges: OrderRanges | None = None) -> pl.DataFrame:
        """The rows of the keys with these hashes, or those of them in the ranges."""
        wanted = distinct(hashes)
        within = [(each, wanted[each.groups.slice_of(wanted)]) for each in self.segments]
        parts = [self._files.open(each).rows(live, ranges, self._living_after) for each, live in within if len(live)]
        return self._there(parts)

    def all(self, groups: GroupRange | None = None) -> pl.DataFrame:
        """Every row, or those of some key groups."""
        ranges = [(each, each.groups if groups is None else each.groups.shared(groups)) for each in self.segments]
        return self._there([self._rows_of(each, shared) for each, shared in ranges if shared is not None])

    def _rows_of(self, segment: SegmentRange, groups: GroupRange) -> pl.DataFrame:
        return self._files.open(segment).rows_within(groups, self._living_after)

    def _there(self, parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
        found = self._rows.newest(parts)
        return found.filter(self._counts(found)).select(self._rows.columns.keys())

    def due(self, column: str, after: int, until: int) -> Hashes:
        """The hashes of keys with a row that is due after a time and not after another.

        A row that has been replaced since is found too: only the rows themselves say what is due now.
        """
        found = []
        for each in self.segments:
            bounds = each.due if column == DUE else each.due_clock
            if bounds is not None and bounds[0] <= until and bounds[1] > after:
                hashes = self._files.open(each).due_hashes(column, after, until)
                found.append(hashes[each.groups.holds(hashes)])
        return distinct(np.concatenate(found)) if found else np.empty(0, np.uint64)

    def next_due(self, column: str, after: int) -> int | None:
        """The earliest time after another at which a row, or an earlier version of one, is due."""
        times: list[int | None] = []
        for each in self.segments:
            bounds = each.due if column == DUE else each.due_clock
            if bounds is not None and bounds[1] > after:
                times.append(bounds[0] if bounds[0] > after else self._files.open(each).next_due(column, after))
        return min((time for time in times if time is not None), default=None)

    def write(self, upserts: pl.DataFrame, removed: pl.DataFrame, run: int, dead_until: int) -> None:
        """Merge a little, then add a segment with the rows that a batch changed, with their hashes and due times.

        The next batch reads what is written here, so rows that are dead by then are not written again.
        """
        self._dead_until = dead_until
        changed, once = self._rows.apart(upserts)
        if removed.height:
            removed = removed.with_columns(pl.lit(True).alias(REMOVED))
            changed = pl.concat([changed.with_columns(pl.lit(False).alias(REMOVED)), removed], how="diagonal")
        level = _level(changed.height)
        self._drop_dead()
        self._merge(max(LEAST_MERGED, MERGED_FACTOR * (changed.height + once.height)), run, from_level=level)
        if changed.height:
            self._add(changed, level, run)
        if once.height:
            # In a file of their own, which is dropped unread when they are dead.
            written = self._files.write(once, self._groups, level=_level(once.height), run=run)
            self.segments = (*self.segments, written)

    def rewrite(self, timed: Callable[[pl.DataFrame], pl.DataFrame], run: int) -> None:
        """Rewrite all rows; ``timed`` gives them their hashes and due times."""
        level = max((each.level for each in self.segments), default=0)
        written = []
        for groups in self._groups.divided(-(-sum(each.rows for each in self.segments) // MOST_MERGED_TOGETHER)):
            rows = self.all(groups)
            if rows.height:
                # Older than what the batch itself writes.
                written.append(self._files.write(timed(rows), groups, level=level, run=run - 1))
        self.segments = tuple(written)

    def _add(self, changed: pl.DataFrame, level: int, run: int) -> None:
        """Write what changed as the newest run of the level that its size belongs to, with all that lies below it."""
        below = [each for each in self.segments if each.level < level]
        older = [each for each in self.segments if each.level >= level]
        if below:
            parts = [self._rows_of(each, each.groups) for each in below]
            changed = self._needed(self._rows.newest([*parts, changed]), older)
        written = [self._files.write(changed, self._groups, level=level, run=run)] if changed.height else []
        self.segments = (*older, *written)

    def _counts(self, frame: pl.DataFrame) -> pl.Expr:
        """Which rows are there: they were not removed, and their time is not over."""
        there = ~pl.col(REMOVED).fill_null(value=False) if REMOVED in frame.columns else pl.lit(True)
        if DEAD_AT in frame.columns:
            there &= pl.col(DEAD_AT).is_null() | (pl.col(DEAD_AT) > self._dead_until)
        return there

    def _drop_dead(self) -> None:
        """Drop segments whose rows have all lived out, the oldest first: nothing that they hide can come back."""
        kept: list[SegmentRange] = []
        for each in self.segments:
            is_dead = each.dead_at is not None and each.dead_at <= self._dead_until
            hides = not self._rows.written_once and any(older.groups.shared(each.groups) for older in kept)
            if not is_dead or hides:
                kept.append(each)
        self.segments = tuple(kept)

    def _merge(self, most_rows: int, run: int, *, from_level: int) -> None:
        """Go on with the merge of the lowest level that has one; begin one where a level has enough runs.

        What this batch writes is left to later ones: a file that no manifest ever names would be written in vain.
        """
        earlier = self.segments
        for level in sorted({each.level for each in earlier if each.level >= from_level}):
            here = [each for each in earlier if each.level == level]
            if all(each.merging is None for each in here):
                if len({each.run for each in here}) < FAN_OUT:
                    continue
                here = [replace(each, merging=run) for each in here]
            inputs = [each for each in here if each.merging is not None]
            while inputs and most_rows > 0:
                most_rows -= self._merge_some(level, inputs, min(most_rows, MOST_MERGED_TOGETHER))
                inputs = [each for each in self.segments if each.level == level and each.merging is not None]
            if most_rows <= 0:
                return

    def _merge_some(self, level: int, inputs: Sequence[SegmentRange], most_rows: int) -> int:
        """Merge the first key groups of the inputs, about as many rows as are allowed; returns how many there were."""
        groups = self._next_groups(inputs, most_rows)
        older = [each for each in self.segments if each.level > level]
        taken = {(each.file, each.groups) for each in inputs}
        newer = [each for each in self.segments if each.level <= level and (each.file, each.groups) not in taken]
        taken_of = [(each, shared) for each in inputs if (shared := each.groups.shared(groups))]
        before = sum(self._files.open(each).count(shared) for each, shared in taken_of)
        below = [each for each in older if each.groups.shared(groups)]
        rows = self._needed(self._rows.newest([self._rows_of(each, shared) for each, shared in taken_of]), below)
        if not below and 2 * rows.height <= before:
            # What little is left stays here as the oldest run. A level higher it would grow stale before it is merged.
            output = level, min(each.run for each in inputs)
        else:
            output = level + 1, next(each.merging for each in inputs if each.merging is not None)
        written = [self._files.write(rows, groups, level=output[0], run=output[1])] if rows.height else []
        left = [part for each in inputs for part in each.without(groups)]
        self.segments = (*older, *written, *left, *newer)
        return before

    def _needed(self, rows: pl.DataFrame, below: Sequence[SegmentRange]) -> pl.DataFrame:
        """Merged rows without those that are gone, but for those that hide an older version below."""
        there, gone = rows.filter(self._counts(rows)), rows.filter(~self._counts(rows))
        hashes, identity = distinct(gone[HASH].to_numpy()), list(self._rows.identity)
        found = [self._files.open(each).rows(hashes[each.groups.slice_of(hashes)]) for each in below if len(hashes)]
        hidden = [part for part in found if part.height]
        if not hidden:
            return there.drop(REMOVED, strict=False)
        hiding = gone.join(self._rows.together(hidden), on=identity, how="semi", nulls_equal=True)
        return pl.concat([there, hiding])

    def _next_groups(self, inputs: Sequence[SegmentRange], most_rows: int) -> GroupRange:
        """The first key groups of the inputs that have no more rows than allowed together, but at least one group."""
        first = min(each.groups.first for each in inputs)
        end = max(each.groups.end for each in inputs)
        opened = [(each.groups, self._files.open(each)) for each in inputs]

        def rows_before(behind: int) -> int:
            groups = GroupRange(first, behind, self._groups.of)
            return sum(segment.count(shared) for own, segment in opened if (shared := own.shared(groups)) is not None)

        more = bisect_right(range(first + 2, end + 1), most_rows, key=rows_before)
        return GroupRange(first, first + 1 + more, self._groups.of)


def _level(rows: int) -> int:
    """The level at which a batch writes this many rows."""
    level = 0
    while rows >= SMALL_RUN * FAN_OUT ** (level + 1):
        level += 1
    return level
