"""Frames as bytes."""

from __future__ import annotations

import io
from datetime import UTC, date, datetime
from decimal import Decimal

import polars as pl

from headrace.wheel.codec import decode, encode

EVERY_TYPE = pl.DataFrame(
    {
        "text": ["a", None, "日本😀\x00", ""],
        "number": [1, None, -(2**63), 2**63 - 1],
        "float": [0.0, None, float("nan"), -0.0],
        "truth": [True, None, False, True],
        "day": [date(1, 1, 1), None, date(1969, 12, 31), date(9999, 12, 31)],
        "moment": [datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), None, datetime(2026, 1, 1, tzinfo=UTC), None],
        "money": [Decimal("1.50"), None, Decimal("-0.01"), Decimal("9" * 30)],
        "bytes": [b"", None, b"\xff\x00", b"x"],
        "list": [[1, None], None, [], [3]],
        "struct": [{"a": 1, "b": "x"}, None, {"a": None, "b": None}, {"a": 2, "b": ""}],
    },
    schema_overrides={"money": pl.Decimal(38, 2), "moment": pl.Datetime("us", "UTC")},
)


def test_every_type_survives_with_nulls_and_extremes() -> None:
    decoded = decode([encode(EVERY_TYPE)])
    assert decoded.schema == EVERY_TYPE.schema
    assert repr(decoded.rows()) == repr(EVERY_TYPE.rows())


def test_a_frame_without_rows_keeps_its_columns() -> None:
    assert decode([encode(EVERY_TYPE.clear())]).schema == EVERY_TYPE.schema


def test_several_streams_are_read_in_the_given_order() -> None:
    blobs = [encode(pl.DataFrame({"n": [number]})) for number in (3, 1, 2)]
    assert decode(blobs)["n"].to_list() == [3, 1, 2]


def test_a_slice_holds_only_its_own_rows() -> None:
    frame = pl.DataFrame({"n": range(100_000)})
    assert len(encode(frame[5:6])) < 2_000
    assert decode([encode(frame[5:6])]).rows() == [(5,)]


def test_streams_are_packed() -> None:
    frame = pl.DataFrame({"key": range(100_000), "state": [None] * 100_000}, {"key": pl.Int64(), "state": pl.Int64()})
    assert len(encode(frame)) < 100_000 * 6


def test_a_stream_that_is_not_packed_is_read_too() -> None:
    stream = io.BytesIO()
    EVERY_TYPE.write_ipc_stream(stream, compression="uncompressed", compat_level=pl.CompatLevel.oldest())
    assert repr(decode([stream.getvalue(), encode(EVERY_TYPE)]).rows()) == repr(EVERY_TYPE.rows() * 2)
