"""The elements of a timeline as they are shown when it fails."""

from __future__ import annotations

from headrace.testing import at, batch, clock, crash, expect, row, table, watermark


def test_every_element_is_shown_as_one_line() -> None:
    elements = [
        at("10:05", account="a", amount=5.0),
        at(None, account=None),
        watermark("2026-01-02T00:00"),
        clock("11:00:30"),
        table("rates", row(currency="EUR", rate=1.1), row(currency="GBP", rate=1.3)),
        batch(),
        crash(),
        expect(),
        expect(row(account="a"), row(account="b"), output="late"),
    ]
    assert [str(element) for element in elements] == [
        "at 10:05  account='a', amount=5.0",
        "at no time  account=None",
        "watermark 2026-01-02T00:00",
        "clock 11:00:30",
        "table rates  2 rows",
        "batch",
        "crash",
        "expect 0 rows of main",
        "expect 2 rows of late",
    ]


def test_columns_of_an_expectation_are_one_row_more() -> None:
    assert expect(account="a").rows == (row(account="a"),)
    assert expect(row(account="a"), account="b").rows == (row(account="a"), row(account="b"))
    assert expect().rows == ()
