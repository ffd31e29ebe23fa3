"""Files of a checkpoint that are read back: segments of state, entries of the log, lists of files."""

from __future__ import annotations

import numpy as np
import polars as pl
from hypothesis import strategies as st

from headrace.checkpoint.log import Entry, Log
from headrace.checkpoint.storage import MemoryStorage
from headrace.connectors.files.batch_listing import BatchListing
from headrace.errors import HeadraceError
from headrace.nodes import ResultVersions
from headrace.state.group_range import KEY_GROUPS, GroupRange
from headrace.state.segment import DUE, HASH, OpenSegments, SegmentFiles, SegmentRange
from tests.fuzz.engine import Outcome, Target

_GROUPS = GroupRange(0, KEY_GROUPS, KEY_GROUPS)


def _segment(rows: int) -> tuple[SegmentRange, bytes, pl.DataFrame]:
    """A segment as a step writes it: what the manifest says of it, its file, and its rows."""
    hashes = pl.Series(HASH, np.linspace(0, 2**63, rows, dtype=np.uint64))
    values = {
        "key": [f"k{row}" for row in range(rows)],
        DUE: list(range(rows)),
        "sums": [[row, None] for row in range(rows)],
    }
    frame = pl.DataFrame({HASH: hashes, **values})
    storage = MemoryStorage()
    known = SegmentFiles(storage, OpenSegments(), lambda: "segment").write(frame, _GROUPS, level=0, run=0)
    return known, storage.open("segment").to_pybytes(), _opened(known, storage.open("segment").to_pybytes())


def _opened(known: SegmentRange, data: bytes) -> pl.DataFrame:
    storage = MemoryStorage()
    storage.write("segment", data)
    return SegmentFiles(storage, OpenSegments(), lambda: "").open(known).rows_within(_GROUPS)


_KNOWN, _FILE, _ROWS = _segment(20)


def check_segment(data: bytes) -> Outcome:
    """A segment has the rows that were written, or is refused."""
    try:
        rows = _opened(_KNOWN, data)
    except HeadraceError as error:
        return error.id
    assert rows.equals(_ROWS)
    return "rows"


def _entry(number: int, previous: str | None, *, is_base: bool) -> bytes:
    body = {"batch": number, "positions": {"in": [1]}}
    return Entry(number, "outcome", f"t{number}", previous, is_base, 0, "", body).to_bytes()


_ENTRIES = [_entry(1, None, is_base=False), _entry(2, "t1", is_base=True), _entry(3, "t2", is_base=False)]
_BETWEEN = b"\x1e"


def check_log(data: bytes) -> Outcome:
    """A log says what was written, or is refused."""
    storage = MemoryStorage()
    for number, content in enumerate(data.split(_BETWEEN), 1):
        storage.write(f"log/{number:012d}.json", content)
    log = Log(storage)
    try:
        entries = log.read()
    except HeadraceError as error:
        return error.id
    for entry in entries:
        # Whoever continues the log must be able to.
        assert storage.open(f"log/{entry.number:012d}.json").to_pybytes() == entry.to_bytes()
    assert (
        [entry.number for entry in entries] == list(range(entries[0].number, entries[-1].number + 1))
        if entries
        else True
    )
    return len(entries)


_LISTING = BatchListing("parquet", "größe INT", ("a/1", "a/2"), 12, 0, 7, "t", ResultVersions((("a", "b"),), "c"))


def check_listing(data: bytes) -> Outcome:
    """A list of files says what was written, or is refused."""
    try:
        found = BatchListing.from_bytes(data, file="list")
    except HeadraceError as error:
        return error.id
    assert found == _LISTING
    return "files"


_LOG = _BETWEEN.join(_ENTRIES)
_LOGS = st.lists(st.sampled_from([*_ENTRIES, b""]), max_size=4).map(_BETWEEN.join)
TARGETS = [
    Target("segment", [_FILE], check_segment, st.binary(max_size=64)),
    Target("log", [_LOG], check_log, _LOGS, _ENTRIES),
    Target("listing", [_LISTING.to_bytes()], check_listing, st.binary(max_size=64)),
]
