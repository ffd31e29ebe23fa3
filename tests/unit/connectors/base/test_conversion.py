"""Values to declared types, nested ones included."""

from __future__ import annotations

from datetime import UTC, date, datetime

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connectors.base.conversion import convert, parse_dates, parse_timestamps, settle
from headrace.connectors.base.decoding import POSITION, Columns


def test_a_list_is_converted_item_by_item_and_keeps_null_and_empty_lists() -> None:
    values = pl.Series("days", [["2026-01-01", None], None, [], ["x", "y"], [None]])
    converted, (failure,) = convert(values, pl.List(pl.Date()), "days")
    assert converted.to_list() == [[date(2026, 1, 1), None], None, [], [None, None], [None]]
    assert (failure.path, failure.found.to_list()) == ("days[]", [None, None, None, "x", None])


def test_a_list_of_structs_names_the_field_that_does_not_fit() -> None:
    values = pl.Series("cards", [[{"until": "2026-01-01"}, {"until": "soon"}], None, [None]])
    converted, (failure,) = convert(values, pl.List(pl.Struct({"until": pl.Date()})), "cards")
    assert converted.to_list() == [[{"until": date(2026, 1, 1)}, {"until": None}], None, [None]]
    assert (failure.path, failure.found.to_list()) == ("cards[].until", ["soon", None, None])


def test_a_null_struct_stays_null() -> None:
    values = pl.Series("card", [None, {"until": None}, {"until": "2026-01-01"}])
    converted, failures = convert(values, pl.Struct({"until": pl.Date(), "kind": pl.String()}), "card")
    assert converted.to_list() == [None, {"until": None, "kind": None}, {"until": date(2026, 1, 1), "kind": None}]
    assert failures == []


def test_a_row_with_several_problems_is_dead_once_for_the_first_column() -> None:
    read = pl.DataFrame({"a": ["x", "1"], "b": ["y", "2"], POSITION: [1, 2]})
    rows, problems = settle(read, Columns({"a": pl.Int64(), "b": pl.Int64()}))
    assert rows.rows() == [(1, 2, 2)]
    assert problems.rows() == [(1, "WRONG_TYPE", 'column a is BIGINT, found "x"')]


def test_a_long_value_is_shortened_in_the_detail() -> None:
    read = pl.DataFrame({"a": ["x" * 5_000], POSITION: [1]})
    _, problems = settle(read, Columns({"a": pl.Int64()}))
    assert len(problems["detail"].item()) < 300


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-02T03:04:05Z", datetime(2026, 1, 2, 3, 4, 5)),
        ("2026-01-02 03:04:05", datetime(2026, 1, 2, 3, 4, 5)),
        ("2026-01-02T03:04:05.1", datetime(2026, 1, 2, 3, 4, 5, 100_000)),
        ("2026-01-02T03:04:05.123456789Z", datetime(2026, 1, 2, 3, 4, 5, 123_456)),
        ("2026-01-02T03:04:05+02:00", datetime(2026, 1, 2, 1, 4, 5)),
        ("2026-01-02 03:04:05.5-0130", datetime(2026, 1, 2, 4, 34, 5, 500_000)),
        ("2026-01-02T03:04:05-02", datetime(2026, 1, 2, 5, 4, 5)),
        ("2026-01-02T03:04", datetime(2026, 1, 2, 3, 4)),
        ("2024-02-29", datetime(2024, 2, 29)),
        ("0001-01-01T00:00:00Z", datetime(1, 1, 1)),
        ("9999-12-31T23:59:59.999999Z", datetime(9999, 12, 31, 23, 59, 59, 999_999)),
    ],
)
def test_text_that_is_a_time_is_read_exactly(text: str, expected: datetime) -> None:
    assert parse_timestamps(pl.Series([text]), zoned=True).to_list() == [expected.replace(tzinfo=UTC)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "yesterday",
        "1700000000",
        "26-01-02T03:04:05",
        "2026-1-2T3:4:5",
        "2026-01- 2T03:04:05",
        " 2026-01-02T03:04:05",
        "2026-01-02T03:04:60",
        "2026-01-02T24:00:00",
        "2026-02-30T03:04:05",
        "2025-02-29",
        "2026-13-01T00:00:00Z",
        "2026-00-10T00:00:00Z",
        "2026-01-00T00:00:00Z",
        "2026-01-02T03:04:05.",
        "2026-01-02T03:04:05.1234567890",
        "2026-01-02T03:04:05+25:00",
        "12026-01-02T03:04:05",
        "2026-01-02T03:04:0x",
        "2026-01-02T03:04:05.12x456Z",
    ],
)
def test_text_that_is_no_time_gives_null(text: str) -> None:
    beside = "2026-01-02T03:04:05.123456Z"
    assert parse_timestamps(pl.Series([beside, text, None]), zoned=True).is_null().to_list() == [False, True, True]


def test_a_column_without_zone_refuses_text_that_names_one() -> None:
    texts = pl.Series(["2026-01-02T03:04:05", "2026-01-02T03:04:05Z", "2026-01-02T03:04:05+01:00"])
    assert parse_timestamps(texts, zoned=False).to_list() == [datetime(2026, 1, 2, 3, 4, 5), None, None]


def test_a_date_is_four_digits_of_year_and_nothing_after_the_day() -> None:
    texts = pl.Series(["2026-05-01", "2026-05-01T00:00:00", "26-05-01", "2026-02-30", None])
    assert parse_dates(texts).to_list() == [date(2026, 5, 1), None, None, None, None]


@given(st.lists(st.datetimes(min_value=datetime(1, 1, 1)), min_size=1, max_size=30))
def test_every_time_that_python_writes_is_read_back(times: list[datetime]) -> None:
    assert parse_timestamps(pl.Series([time.isoformat() for time in times]), zoned=False).to_list() == times


def test_texts_of_a_slice_are_read_from_the_slice() -> None:
    texts = pl.Series([f"2026-01-{day:02}T00:00:00Z" for day in range(1, 29)])
    assert parse_timestamps(texts[10:12], zoned=True).dt.day().to_list() == [11, 12]
