"""Files in Parquet."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from headrace.connectors.base.source import declared_columns
from headrace.connectors.files.source import ParquetFiles
from headrace.schemas import parse_ddl
from tests.fuzz.engine import Outcome, Target
from tests.fuzz.gate import Passed, in_file, passed

SCHEMA = parse_ddl(
    "id STRING NOT NULL, n BIGINT, small TINYINT, x DOUBLE, price DECIMAL(10,2), at TIMESTAMP, local TIMESTAMP_NTZ, "
    "day DATE, raw BINARY, ok BOOLEAN, tags ARRAY<STRING>, card STRUCT<kind: STRING, at: TIMESTAMP>, text STRING"
)
MOMENT = datetime(2026, 5, 1, 10, tzinfo=UTC)
_DECODER = ParquetFiles(declared_columns(SCHEMA), chunk_rows=2)


def check(data: bytes) -> Outcome:
    """Rows are handed on or dead up to where the file cannot be read any more."""
    found = in_file(data, lambda file: passed(_DECODER.decode(file), SCHEMA, time="at"))
    broken = [position for position, reason in found.dead if reason == "FILE_UNREADABLE"]
    rows = len(found.handed_on) + len(found.dead) - len(broken)
    # The letter of the file takes no row's position from it.
    Passed(found.handed_on, tuple(each for each in found.dead if each[1] != "FILE_UNREADABLE"), 0).check(range(rows))
    if not broken:
        assert rows == pq.ParquetFile(BytesIO(data)).metadata.num_rows
    return found.outcome


def written(table: pa.Table, **options: Any) -> bytes:
    """The file of a table."""
    stream = BytesIO()
    pq.write_table(table, stream, row_group_size=3, **options)
    return stream.getvalue()


def usual(rows: int, **columns: pa.Array) -> pa.Table:
    """A table with the declared columns, some of them of another type."""
    cards = [{"kind": f"k{row}", "at": MOMENT} for row in range(rows)]
    given: dict[str, Any] = {
        "id": [f"r{row}" for row in range(rows)],
        "n": pa.array(range(rows), pa.int64()),
        "small": pa.array([row % 100 for row in range(rows)], pa.int8()),
        "x": [row / 2 for row in range(rows)],
        "price": pa.array([Decimal("1.25")] * rows, pa.decimal128(10, 2)),
        "at": pa.array([MOMENT] * rows, pa.timestamp("us", "UTC")),
        "local": pa.array([MOMENT.replace(tzinfo=None)] * rows, pa.timestamp("us")),
        "day": pa.array([date(2026, 1, 1)] * rows),
        "raw": pa.array([b"\xff"] * rows),
        "ok": pa.array([True] * rows),
        "tags": pa.array([["a", None], None, []][:rows] + [["b"]] * max(0, rows - 3), pa.list_(pa.string())),
        "card": pa.array(cards, pa.struct([("kind", pa.string()), ("at", pa.timestamp("us", "UTC"))])),
        "text": pa.array([[row, None] for row in range(rows)], pa.list_(pa.int64())),
    }
    return pa.table({**given, **columns})


# Types of Arrow with values of theirs; a column of the file may have any of them.
_MICROS = st.integers(-(2**63), 2**63 - 1)
_TEXTS = st.text(st.characters(codec="utf-8"), max_size=4)
_PLAIN: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    *((kind, st.integers(-128, 127)) for kind in (pa.int8(), pa.int16(), pa.int32())),
    *((kind, st.integers(0, 255)) for kind in (pa.uint8(), pa.uint16(), pa.uint32())),
    (pa.int64(), _MICROS),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.float32(), st.floats(width=32)),
    (pa.float64(), st.floats()),
    (pa.bool_(), st.booleans()),
    (pa.string(), _TEXTS),
    (pa.large_string(), _TEXTS | st.sampled_from(["2026-01-01T00:00:00Z", "1.5", "7"])),
    (pa.binary(), st.binary(max_size=4)),
    (pa.binary(3), st.binary(min_size=3, max_size=3)),
    (pa.date32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.time64("us"), st.times()),
    (pa.time32("ms"), st.just(time(1, 2, 3))),
    (pa.duration("us"), st.timedeltas(timedelta(-9), timedelta(9))),
    *(
        (pa.timestamp(unit, zone), _MICROS)
        for unit in ("ms", "us", "ns")
        for zone in (None, "UTC", "Europe/Paris", "+05:30")
    ),
    (pa.timestamp("us", "Mars/Olympus"), _MICROS),
    (pa.decimal128(38, 9), st.decimals(-(10**20), 10**20, places=9)),
    (pa.decimal256(60, 2), st.decimals(-(10**20), 10**20, places=2)),
    (pa.dictionary(pa.int32(), pa.string()), _TEXTS),
    (pa.null(), st.none()),
]


def _nested(kind: pa.DataType, values: st.SearchStrategy[Any]) -> list[tuple[pa.DataType, st.SearchStrategy[Any]]]:
    maybe = st.none() | values
    return [
        (pa.list_(kind), st.lists(maybe, max_size=3)),
        (pa.large_list(kind), st.lists(maybe, max_size=3)),
        (pa.list_(kind, 2), st.lists(maybe, min_size=2, max_size=2)),
        (pa.struct([("kind", kind), ("b", pa.int64())]), st.builds(lambda kind: {"kind": kind, "b": 1}, maybe)),
        (pa.map_(pa.string(), kind), st.lists(st.tuples(_TEXTS, maybe), max_size=2)),
        (pa.struct([("at", pa.list_(kind))]), st.builds(lambda items: {"at": items}, st.lists(maybe, max_size=2))),
    ]


_KINDS = [*_PLAIN, *(nested for plain in _PLAIN for nested in _nested(*plain))]


@st.composite
def _files(draw: Callable[[st.SearchStrategy[Any]], Any]) -> bytes:
    rows = draw(st.integers(0, 5))
    columns = {}
    for name in draw(st.lists(st.sampled_from(SCHEMA.names), max_size=3, unique=True)):
        kind, values = draw(st.sampled_from(_KINDS))
        columns[name] = pa.array(draw(st.lists(st.none() | values, min_size=rows, max_size=rows)), kind)
    options = {"compression": draw(st.sampled_from(["none", "snappy", "zstd"])), "use_dictionary": draw(st.booleans())}
    try:
        return written(usual(rows, **columns), **options)
    except (pa.ArrowException, OverflowError):
        # Not everything that Arrow holds can be written.
        return written(usual(rows))


_STRANGE = usual(
    5,
    at=pa.array([MOMENT] * 5, pa.timestamp("ns", "Europe/Paris")),
    text=pa.array([[("k", b"v")]] * 5, pa.map_(pa.string(), pa.binary())),
    card=pa.array([{"kind": 1}] * 5),
    tags=pa.array([["a", "b"]] * 5, pa.list_(pa.string(), 2)),
    price=pa.array([1, 2, None, 4, 5], pa.int32()),
)
_SEEDS = [
    written(usual(7), compression="none"),
    written(usual(4), compression="snappy", data_page_version="2.0"),
    written(_STRANGE, compression="zstd"),
    written(usual(5, at=pa.array([MOMENT] * 5, pa.timestamp("us"))), use_deprecated_int96_timestamps=True),
    written(usual(2), use_dictionary=False, column_encoding={"n": "DELTA_BINARY_PACKED"}, compression="none"),
]
TARGETS = [Target("parquet", _SEEDS, check, _files(), [b"PAR1", b"\x15\x00", b"\x15\xfe\xff\xff\xff\x0f", b"UTC"])]
