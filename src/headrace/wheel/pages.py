"""The state of one key group in a map state: a base in pages, a few deltas, and a directory with a stamp.

Format 1. Entry 0 is the directory (JSON). Entries from ``BASE`` on are the base, from ``DELTA`` on the deltas in
order; both are Arrow IPC streams, a delta with one more column that marks removed rows. Small changes are one small
write; now and then (staggered over the groups) the deltas are folded into the base. Decoded state is cached in the
worker between batches and trusted only under the stamp that the store holds.
"""

from __future__ import annotations

import json
import uuid
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Protocol

import polars as pl

from headrace.errors import HeadraceError
from headrace.wheel.codec import decode, encode
from headrace.wheel.operator import Applied, Keeper

Place = tuple[str, str, int]
"""(flow, step, key group)"""

MOST_BYTES = 512 << 20


class StateCache:
    """Frames by place, each under the stamp it was stored with; the least used leave when memory runs out.

    >>> cache = StateCache()
    >>> cache.put(("flow", "step", 1), "a", pl.DataFrame({"n": [1]}))
    >>> cache.get(("flow", "step", 1), "a").height
    1
    >>> cache.get(("flow", "step", 1), "b") is None
    True
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes
        self._held: OrderedDict[Place, tuple[str, pl.DataFrame, int]] = OrderedDict()
        self._bytes = 0

    def get(self, place: Place, stamp: str) -> pl.DataFrame | None:
        """The frame of a place, if it was kept under this very stamp."""
        held = self._held.get(place)
        if held is None or held[0] != stamp:
            return None
        self._held.move_to_end(place)
        return held[1]

    def put(self, place: Place, stamp: str, frame: pl.DataFrame) -> None:
        """Keep a frame under the stamp it has just been stored with."""
        self.drop(place)
        size = int(frame.estimated_size())
        self._held[place] = (stamp, frame, size)
        self._bytes += size
        while self._bytes > self._most:
            self.drop(next(iter(self._held)))

    def drop(self, place: Place) -> None:
        """Forget a place."""
        held = self._held.pop(place, None)
        if held is not None:
            self._bytes -= held[2]


WORKER = StateCache()
"""The cache of this worker process; Spark keeps workers between batches."""


FORMAT = 1
DIRECTORY, BASE, DELTA = 0, 1, 1_000_000
MOST_DELTAS = 24
PAGE_ROWS = 200_000
REMOVED = "__removed"


class SparkMapState(Protocol):
    """The part of Spark's map state that pages use; keys and values are tuples of one element."""

    def getValue(self, key: tuple[int]) -> tuple[bytes] | None:  # noqa: N802
        """The value of a key."""

    def updateValue(self, key: tuple[int], value: tuple[bytes]) -> None:  # noqa: N802
        """Set the value of a key."""

    def removeKey(self, key: tuple[int]) -> None:  # noqa: N802
        """Remove a key."""

    def iterator(self) -> Iterator[tuple[tuple[int], tuple[bytes]]]:
        """All keys with their values."""


@dataclass(frozen=True, slots=True)
class Directory:
    """What the other entries are, and the stamp under which they were written."""

    stamp: str
    base: int = 0
    deltas: int = 0
    size: int = 0
    earlier: tuple[str, ...] = ()
    """The stamps before each delta, oldest first: a worker that was away needs only the deltas it has missed."""
    format: int = FORMAT

    def to_bytes(self) -> bytes:
        """The directory as JSON."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, text: bytes) -> Directory:
        """The directory from its JSON; a format of another version is refused."""
        raw = json.loads(text)
        if raw["format"] != FORMAT:
            raise HeadraceError(
                "STATE_FORMAT_UNKNOWN",
                f"the checkpoint's state has format {raw['format']}, this version of Headrace reads format {FORMAT}. "
                "Use the version that wrote it.",
            )
        return cls(**{**raw, "earlier": tuple(raw["earlier"])})


class Pages:
    """Loads and stores the state frame of one key group."""

    def __init__(self, entries: SparkMapState, operator: Keeper, cache: StateCache, place: Place) -> None:
        self._entries = entries
        self._operator = operator
        self._cache = cache
        self._place = place
        self.directory: Directory | None = None

    def load(self) -> pl.DataFrame:
        """The state: what the worker remembers with the deltas it has missed, otherwise all of it from the store."""
        stored = self._entries.getValue((DIRECTORY,))
        if stored is None:
            self._cache.drop(self._place)
            return pl.DataFrame(schema=dict(self._operator.state_schema))
        self.directory = Directory.from_bytes(bytes(stored[0]))
        for missed, stamp in enumerate((self.directory.stamp, *reversed(self.directory.earlier))):
            kept = self._cache.get(self._place, stamp)
            if kept is not None:
                return self._catch_up(kept, self.directory.deltas - missed, self.directory.deltas)
        return self._read()

    def _catch_up(self, kept: pl.DataFrame, known: int, deltas: int) -> pl.DataFrame:
        missed: list[bytes] = []
        for number in range(known, deltas):
            stored = self._entries.getValue((DELTA + number,))
            if stored is None:
                raise HeadraceError(
                    "STATE_INCOMPLETE",
                    f"step {self._operator.name!r}, key group {self._place[2]}: the state lists {deltas} deltas, but "
                    f"number {number} is not there, so results would be wrong. Restore the checkpoint from a copy.",
                )
            missed.append(bytes(stored[0]))
        return self._patched(kept, missed)

    def _read(self) -> pl.DataFrame:
        entries = sorted((key[0], bytes(value[0])) for key, value in self._entries.iterator() if key[0] != DIRECTORY)
        base_blobs = [blob for number, blob in entries if number < DELTA]
        base = decode(base_blobs) if base_blobs else pl.DataFrame(schema=dict(self._operator.state_schema))
        delta_blobs = [blob for number, blob in entries if number >= DELTA]
        return self._patched(base, delta_blobs)

    def _patched(self, base: pl.DataFrame, delta_blobs: list[bytes]) -> pl.DataFrame:
        if not delta_blobs:
            return base
        identity = list(self._operator.identity)
        latest = decode(delta_blobs).unique(identity, keep="last", maintain_order=True)
        unchanged = base.join(latest, on=identity, how="anti", nulls_equal=True, maintain_order="left")
        return pl.concat([unchanged, latest.filter(~pl.col(REMOVED)).drop(REMOVED)])

    def store(self, applied: Applied) -> None:
        """Write what changed, under a fresh stamp, and keep the new state in the worker."""
        changed = applied.upserts.height + applied.removed.height
        if changed == 0:
            return
        old = self.directory or Directory("")
        stamp = uuid.uuid4().hex
        if applied.state.is_empty():
            self._clear(old)
            self._entries.removeKey((DIRECTORY,))
            self._cache.drop(self._place)
            self.directory = None
            return
        most_deltas = MOST_DELTAS + self._place[2] % 8
        if old.base == 0 or old.deltas >= most_deltas or 2 * changed >= applied.state.height:
            self.directory = self._write_base(applied.state, old, stamp)
        else:
            self.directory = self._write_delta(applied, old, stamp)
        self._entries.updateValue((DIRECTORY,), (self.directory.to_bytes(),))
        self._cache.put(self._place, stamp, applied.state)

    def _write_base(self, state: pl.DataFrame, old: Directory, stamp: str) -> Directory:
        blobs = [encode(page) for page in state.iter_slices(PAGE_ROWS)]
        self._clear(old, keep=len(blobs))
        for number, blob in enumerate(blobs):
            self._entries.updateValue((BASE + number,), (blob,))
        return Directory(stamp, base=len(blobs), size=sum(map(len, blobs)))

    def _write_delta(self, applied: Applied, old: Directory, stamp: str) -> Directory:
        upserts = applied.upserts.with_columns(pl.lit(False).alias(REMOVED))
        if not applied.removed.is_empty():
            removed = applied.removed.with_columns(pl.lit(True).alias(REMOVED))
            upserts = pl.concat([upserts, removed], how="diagonal")
        blob = encode(upserts)
        self._entries.updateValue((DELTA + old.deltas,), (blob,))
        return Directory(stamp, old.base, old.deltas + 1, old.size + len(blob), (*old.earlier, old.stamp))

    def _clear(self, old: Directory, keep: int = 0) -> None:
        for number in range(keep, old.base):
            self._entries.removeKey((BASE + number,))
        for number in range(old.deltas):
            self._entries.removeKey((DELTA + number,))
