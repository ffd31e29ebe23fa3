"""The values that rows carry for pattern rules: as text, and back."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import polars as pl

from headrace.operators.patterns.partial_match_codec import ROW_TIME, values_as_text, values_from_text

NESTED = pl.Struct({"x": pl.List(pl.Struct({"f": pl.Float64(), "n": pl.Datetime("us", "UTC")}))})
CARRIED: list[tuple[pl.DataType, list[object]]] = [
    (pl.Int64(), [2**63 - 1, None, -(2**63)]),
    (pl.Float64(), [0.1, float("inf"), 5e-324]),
    (pl.Float32(), [0.1, None, -0.0]),
    (pl.String(), ["", None, "a,b\n"]),
    (pl.Boolean(), [True, None, False]),
    (pl.Binary(), [b"", b"\x00\xff", None]),
    (pl.Date(), [date(1, 1, 1), None, date(9999, 12, 31)]),
    (pl.Datetime("us", "UTC"), [datetime(2026, 1, 1, 0, 0, 0, 1, UTC), None, datetime(1969, 12, 31, tzinfo=UTC)]),
    (pl.Duration("us"), [timedelta(microseconds=-1), None, timedelta(days=400_000)]),
    (pl.Decimal(38, 10), [Decimal("1234567890123456789012345678.0000000001"), None, Decimal("-0.5")]),
    (pl.List(pl.Binary()), [[b"\xff", None], None, []]),
    (NESTED, [{"x": [{"f": 0.1, "n": None}, None]}, None, {"x": None}]),
]


def test_values_kept_as_text_are_the_very_same_values() -> None:
    types = [dtype for dtype, _ in CARRIED]
    lists = {f"__row_value_{place}": [values, [], values[:1]] for place, (_, values) in enumerate(CARRIED)}
    rows = pl.DataFrame(lists, schema={f"__row_value_{place}": pl.List(dtype) for place, dtype in enumerate(types)})
    rows = rows.with_columns(pl.Series(ROW_TIME, [[1, 2, 3], [], [1]]))
    stored = rows.select(ROW_TIME, values_as_text(types))
    assert stored.select(values_from_text(types)).equals(rows.drop(ROW_TIME))


def test_not_a_number_stays_what_it_is_as_text() -> None:
    rows = pl.DataFrame({ROW_TIME: [[1]], "__row_value_0": [[float("nan")]]})
    stored = rows.select(ROW_TIME, values_as_text([pl.Float64()]))
    assert stored.select(values_from_text([pl.Float64()])).item().is_nan().all()
