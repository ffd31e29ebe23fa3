"""Values are read as the schema part says, else as the author says."""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connectors.debezium.changes import debezium_changes
from headrace.connectors.debezium.values import base64_decimals
from headrace.connectors.postgres.changes.text_values import FIRST_MOMENT, LAST_MOMENT
from tests.models.examples import examples
from tests.unit.connectors.debezium.recorded import COMMITTED, change, dead, decoded, rows, with_schema

MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678_000)
ZONED, FINER = MOMENT.replace(tzinfo=UTC), MOMENT.replace(microsecond=678_009)
DECIMAL = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "3"}}
SCALED = {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal"}


def _encoded(number: int) -> str:
    return b64encode(number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)).decode()


def _read(declared: str, value: object, field: dict[str, Any] | None, **options: Any) -> object:
    """The one value of a message, which has a schema part if ``field`` is given."""
    changes = debezium_changes(f"id BIGINT, v {declared}", key="id", **options)
    message = change("c", after={"id": 1, "v": value})
    fields = [{"type": "int64", "field": "id"}, {**(field or {}), "field": "v"}]
    ((found,),) = rows(decoded(message if field is None else with_schema(message, fields), changes=changes), "v")
    return found


@pytest.mark.parametrize(
    ("declared", "value", "field", "expected"),
    [
        ("TIMESTAMP_NTZ", COMMITTED, {"name": "io.debezium.time.Timestamp"}, MOMENT),
        ("TIMESTAMP_NTZ", COMMITTED, {"name": "org.apache.kafka.connect.data.Timestamp"}, MOMENT),
        ("TIMESTAMP_NTZ", COMMITTED * 1000 + 9, {"name": "io.debezium.time.MicroTimestamp"}, FINER),
        ("TIMESTAMP_NTZ", COMMITTED * 1_000_000 + 9, {"name": "io.debezium.time.NanoTimestamp"}, MOMENT),
        ("TIMESTAMP", "2026-01-02T04:04:05.678+01:00", {"name": "io.debezium.time.ZonedTimestamp"}, ZONED),
        ("TIMESTAMP", COMMITTED * 1000, {"name": "io.debezium.time.MicroTimestamp"}, MOMENT.replace(tzinfo=UTC)),
        ("DATE", 20455, {"name": "io.debezium.time.Date"}, date(2026, 1, 2)),
        ("DATE", -1, {"name": "org.apache.kafka.connect.data.Date"}, date(1969, 12, 31)),
        ("DATE", "2026-01-02", {"name": "io.debezium.time.IsoDate"}, date(2026, 1, 2)),
        ("BIGINT", 11045500000, {"name": "io.debezium.time.MicroTime"}, 11045500000),
        ("DECIMAL(10, 3)", _encoded(-12340), DECIMAL, Decimal("-12.340")),
        ("DECIMAL(38, 3)", _encoded(10**37), DECIMAL, Decimal(10**34)),
        ("STRING", _encoded(12345), DECIMAL, "12.345"),
        ("DOUBLE", _encoded(12500), DECIMAL, 12.5),
        ("BIGINT", _encoded(2**63 - 1), {**DECIMAL, "parameters": {"scale": "0"}}, 2**63 - 1),
        ("DECIMAL(10, 3)", {"scale": 1, "value": _encoded(125)}, SCALED, Decimal("12.500")),
        ("DOUBLE", {"scale": 1, "value": _encoded(125)}, SCALED, 12.5),
        ("DECIMAL(10, 3)", "12.34", {"type": "string"}, Decimal("12.340")),
        ("DECIMAL(10, 3)", "1234", {"type": "string"}, Decimal(1234)),
        ("DECIMAL(10, 3)", 1234.0, {"type": "double"}, Decimal(1234)),
        ("DECIMAL(10, 3)", 1234, {"type": "int64"}, Decimal(1234)),
        ("DECIMAL(10, 3)", _encoded(1234), {"type": "bytes"}, Decimal("1.234")),
        ("STRING", '{"a": [1]}', {"name": "io.debezium.data.Json"}, '{"a": [1]}'),
        ("BINARY", "AQL/", {"type": "bytes"}, b"\x01\x02\xff"),
        ("BOOLEAN", True, {"type": "boolean"}, True),
        ("DOUBLE", 1.5e-7, {"type": "double"}, 1.5e-7),
        ("DOUBLE", "NaN", {"type": "double"}, pytest.approx(float("nan"), nan_ok=True)),
        ("ARRAY<DECIMAL(10, 3)>", [_encoded(1), None], {"type": "array", "items": DECIMAL}, [Decimal("0.001"), None]),
        ("ARRAY<DATE>", [20455], {"type": "array", "items": {"name": "io.debezium.time.Date"}}, [date(2026, 1, 2)]),
        (
            "STRUCT<wkb: BINARY, srid: INT>",
            {"wkb": "AQI=", "srid": 4326},
            {"type": "struct", "fields": [{"field": "wkb", "type": "bytes"}, {"field": "srid", "type": "int32"}]},
            {"wkb": b"\x01\x02", "srid": 4326},
        ),
    ],
)
def test_a_schema_part_says_how_a_value_is_written(
    declared: str, value: object, field: dict[str, Any], expected: object
) -> None:
    assert _read(declared, value, field) == expected


@pytest.mark.parametrize(
    ("declared", "value", "options", "expected"),
    [
        ("TIMESTAMP_NTZ", COMMITTED * 1000, {}, MOMENT),
        ("TIMESTAMP_NTZ", COMMITTED, {"times": "milliseconds"}, MOMENT),
        ("TIMESTAMP_NTZ", COMMITTED * 1_000_000, {"times": "nanoseconds"}, MOMENT),
        ("TIMESTAMP", "2026-01-02T03:04:05.678Z", {}, MOMENT.replace(tzinfo=UTC)),
        ("DATE", 20455, {}, date(2026, 1, 2)),
        ("DECIMAL(10, 2)", _encoded(1234), {}, Decimal("12.34")),
        ("DECIMAL(10, 2)", {"scale": 1, "value": _encoded(125)}, {}, Decimal("12.50")),
        ("DECIMAL(10, 2)", 12.5, {}, Decimal("12.50")),
        # In base 64 these letters would be other numbers.
        ("DECIMAL(10, 2)", 1234.0, {}, Decimal(1234)),
        ("DECIMAL(10, 2)", 1234, {}, Decimal(1234)),
        ("DECIMAL(10, 2)", 1.25e7, {}, Decimal(12_500_000)),
        ("STRUCT<amount: DECIMAL(10, 2)>", {"amount": 2000}, {}, {"amount": Decimal(2000)}),
        ("DECIMAL(10, 2)", "-12.50", {}, Decimal("-12.50")),
        ("DECIMAL(10, 2)", "1234", {"decimals": "text"}, Decimal("1234.00")),
        ("BOOLEAN", 0, {}, False),
        ("STRING", 5, {}, "5"),
        ("INT", None, {}, None),
    ],
)
def test_without_a_schema_part_declared_types_and_options_say_it(
    declared: str, value: object, options: dict[str, Any], expected: object
) -> None:
    assert _read(declared, value, None, **options) == expected


FIRST, LAST = (datetime.fromisoformat(each) for each in (FIRST_MOMENT, LAST_MOMENT))


@pytest.mark.parametrize(
    ("value", "field", "options", "expected"),
    [
        (9_223_371_331_200_000_000, None, {}, LAST),
        (9_223_372_036_825_200_000, {"name": "io.debezium.time.MicroTimestamp"}, {}, LAST),
        (-9_223_372_036_832_400_000, {"name": "io.debezium.time.MicroTimestamp"}, {}, FIRST),
        (9_223_372_036_825_200_000, {"name": "io.debezium.time.Timestamp"}, {}, LAST),
        (-(2**63), None, {"times": "milliseconds"}, FIRST),
        (253_402_300_800_000, None, {"times": "milliseconds"}, LAST),
        (253_402_300_799_999, None, {"times": "milliseconds"}, LAST.replace(microsecond=999_000)),
        (253_402_300_799_999_999, None, {}, LAST),
        (-62_135_596_800_000_001, None, {}, FIRST),
        (2**63 - 1, None, {"times": "nanoseconds"}, datetime(2262, 4, 11, 23, 47, 16, 854_775)),
        ("infinity", None, {}, LAST),
        ("-infinity", None, {}, FIRST),
        ("+294247-01-10T04:00:25.200Z", {"name": "io.debezium.time.ZonedTimestamp"}, {}, LAST),
        ("-0043-03-15T00:00:00Z", {"name": "io.debezium.time.ZonedTimestamp"}, {}, FIRST),
        ("0000-12-31T00:00:00", None, {}, FIRST),
    ],
)
def test_times_that_no_calendar_has_are_the_first_or_last_moment_of_the_years_1_and_9999(
    value: object, field: dict[str, Any] | None, options: dict[str, Any], expected: datetime
) -> None:
    assert _read("TIMESTAMP", value, field, **options) == expected.replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (2**31 - 1, LAST),
        (-(2**31), FIRST),
        (106_751_991_167, LAST),
        (2_932_897, LAST),
        ("infinity", LAST),
        ("+10000-01-01", LAST),
        ("-0001-01-01", FIRST),
        ("0000-01-01", FIRST),
    ],
)
def test_so_are_dates(value: object, expected: datetime) -> None:
    assert _read("DATE", value, None) == expected.date()


def test_a_column_may_be_named_as_a_part_of_a_decimal() -> None:
    changes = debezium_changes("id BIGINT, scale DECIMAL(5, 1), v DECIMAL(10, 2)", key="id")
    row = {"id": 1, "scale": 2.5, "v": {"scale": 1, "value": _encoded(125)}}
    assert rows(decoded(change("c", after=row), changes=changes), "scale", "v") == [(Decimal("2.5"), Decimal("12.50"))]


@pytest.mark.parametrize(
    ("declared", "value", "field", "reason"),
    [
        ("INT", 2**31, None, "OUT_OF_RANGE"),
        ("INT", "many", None, "WRONG_TYPE"),
        ("TIMESTAMP", "soon", None, "BAD_TIMESTAMP"),
        ("DATE", "soon", None, "BAD_TIMESTAMP"),
        ("DECIMAL(10, 3)", "!!", DECIMAL, "WRONG_TYPE"),
        ("DECIMAL(4, 1)", _encoded(12345), DECIMAL, "WRONG_TYPE"),
        ("DECIMAL(10, 2)", 1.25e-7, None, "WRONG_TYPE"),
        ("DECIMAL(10, 2)", 0.001, None, "WRONG_TYPE"),
        ("DECIMAL(10, 3)", {"scale": 50, "value": "AQ=="}, SCALED, "WRONG_TYPE"),
        ("BINARY", "%", None, "WRONG_TYPE"),
        ("ARRAY<INT>", "x", None, "WRONG_TYPE"),
    ],
)
def test_a_value_that_does_not_fit_makes_the_whole_message_a_dead_letter(
    declared: str, value: object, field: dict[str, Any] | None, reason: str
) -> None:
    changes = debezium_changes(f"id BIGINT, v {declared}", key="id")
    message = change("u", before={"id": 1, "v": value}, after={"id": 1, "v": None})
    fields = [{"type": "int64", "field": "id"}, {**(field or {}), "field": "v"}]
    found = decoded(message if field is None else with_schema(message, fields), changes=changes)
    assert found.rows.height == 0
    assert [(position, why) for position, why, _ in dead(found)] == [(0, reason)]


@examples(50)
@given(st.lists(st.integers(-(10**38) + 1, 10**38 - 1) | st.none()), st.integers(0, 38))
def test_base64_decimals_are_exact(numbers: list[int | None], scale: int) -> None:
    text = pl.Series([None if number is None else _encoded(number) for number in numbers], dtype=pl.String)
    expected = [None if number is None else Decimal(f"{number}E-{scale}") for number in numbers]
    assert base64_decimals(text, scale).to_list() == expected
