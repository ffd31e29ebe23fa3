"""Texts of PostgreSQL as values of declared columns, and which column can_hold which type."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import polars as pl
import pytest

from headrace.connectors.postgres.changes.catalogue import SourceColumn, can_hold, ddl_type
from headrace.connectors.postgres.changes.text_values import parse_values


@pytest.mark.parametrize(
    ("kind", "texts", "values"),
    [
        (pl.Boolean(), ["t", "f", None], [True, False, None]),
        (pl.Int16(), ["-32768"], [-32768]),
        (pl.Float64(), ["NaN", "Infinity", "-Infinity", "1e300"], [float("nan"), float("inf"), float("-inf"), 1e300]),
        (
            pl.Decimal(5, 2),
            ["1.5", "-0.10", "7.000", "NaN"],
            [Decimal("1.50"), Decimal("-0.10"), Decimal("7.00"), None],
        ),
        (pl.Binary(), ["\\x", "\\x00ff"], [b"", b"\x00\xff"]),
        (pl.Date(), ["2024-02-29", "infinity", "0044-03-15 BC"], [date(2024, 2, 29), date.max, date.min]),
        (pl.Date(), ["10000-01-01"], [date.max]),
        (pl.Datetime("us"), ["2024-02-29 01:02:03.000004"], [datetime(2024, 2, 29, 1, 2, 3, 4)]),
        (
            pl.Datetime("us", "UTC"),
            ["2024-02-29 01:02:03+00"],
            [datetime(2024, 2, 29, 1, 2, 3, tzinfo=ZoneInfo("UTC"))],
        ),
        (pl.Datetime("us"), ["-infinity", "infinity"], [datetime.min, datetime.max]),  # noqa: DTZ901 - without a zone
        (pl.List(pl.Int32()), ["{}", "{1,NULL}", None], [[], [1, None], None]),
        (pl.List(pl.String()), ['{"a,b",c,"NULL",NULL,"\\"\\\\",""}'], [["a,b", "c", "NULL", None, '"\\', ""]]),
        (pl.List(pl.Date()), ["{2024-01-01,infinity}"], [[date(2024, 1, 1), date.max]]),
    ],
)
def test_a_text_is_the_value_it_says(kind: pl.DataType, texts: list[str | None], values: list[Any]) -> None:
    given = pl.Series(texts, dtype=pl.String)
    found = parse_values(given, kind)
    assert found.dtype == kind
    assert list(map(repr, found.to_list())) == list(map(repr, values))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pl.Int32(), "3000000000"),
        (pl.Int32(), "1.5"),
        (pl.Decimal(5, 2), "1.555"),
        (pl.Decimal(5, 2), "1000"),
        (pl.Boolean(), "yes"),
        (pl.List(pl.Int32()), "{1,x}"),
        (pl.List(pl.Int32()), "{{1},{2}}"),
        (pl.List(pl.String()), '{{"a"},{"b"}}'),
        (pl.Datetime("us"), "soon"),
    ],
)
def test_a_text_that_is_no_such_value_is_told(kind: pl.DataType, text: str) -> None:
    given = pl.Series([text])
    found = parse_values(given, kind)
    assert found.to_list() == [None]


@pytest.mark.parametrize(
    ("shown", "ddl"),
    [
        ("integer", "INT"),
        ("bigint", "BIGINT"),
        ("numeric(10,2)", "DECIMAL(10,2)"),
        ("numeric(40,2)", "STRING"),
        ("numeric(3,5)", "STRING"),
        ("numeric", "STRING"),
        ("timestamp(3) without time zone", "TIMESTAMP_NTZ"),
        ("timestamp with time zone", "TIMESTAMP"),
        ("character varying(20)", "STRING"),
        ("shop.mood", "STRING"),
        ("numeric(5,2)[]", "ARRAY<DECIMAL(5,2)>"),
        ("uuid[]", "ARRAY<STRING>"),
        ("text[]", "ARRAY<STRING>"),
        ("timestamp(3) with time zone", "TIMESTAMP"),
        ("box[]", "STRING"),
    ],
)
def test_every_type_has_a_column(shown: str, ddl: str) -> None:
    assert ddl_type(shown) == ddl


@pytest.mark.parametrize(
    ("kind", "shown", "fits"),
    [
        (pl.Int64(), "integer", True),
        (pl.Int32(), "oid", False),
        (pl.Int32(), "bigint", False),
        (pl.String(), "jsonb", True),
        (pl.Int64(), "numeric", False),
        (pl.Decimal(12, 2), "numeric(10,2)", True),
        (pl.Decimal(12, 1), "numeric(10,2)", False),
        (pl.Decimal(38, 10), "numeric", True),
        (pl.Decimal(10, 0), "integer", True),
        (pl.Decimal(9, 0), "integer", False),
        (pl.Float64(), "numeric", True),
        (pl.Float64(), "bigint", False),
        (pl.Datetime("us", "UTC"), "timestamp without time zone", True),
        (pl.Date(), "timestamp without time zone", False),
        (pl.List(pl.Int64()), "integer[]", True),
        (pl.Int64(), "integer[]", False),
        (pl.String(), "integer[]", True),
    ],
)
def test_a_declared_column_takes_what_it_can_hold(kind: pl.DataType, shown: str, fits: bool) -> None:
    assert can_hold(kind, shown) == fits


def test_a_type_has_changed_when_a_declared_column_may_no_longer_hold_it() -> None:
    then = SourceColumn("n", 1700, 655_366, "numeric(10,2)")
    assert SourceColumn("n", 1700, 786_438, "").is_other(then, pl.Decimal(10, 2))
    assert not SourceColumn("n", 1700, 786_438, "").is_other(then, pl.Float64())
    assert SourceColumn("n", 25, -1, "").is_other(then, pl.Float64())
    assert not SourceColumn("n", 25, -1, "").is_other(then, pl.String())
