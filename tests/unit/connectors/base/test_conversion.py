"""Values to declared types, nested ones included."""

from __future__ import annotations

from datetime import date

import polars as pl

from headrace.connectors.base.conversion import convert, settle
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
