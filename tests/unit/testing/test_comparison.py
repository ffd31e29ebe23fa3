"""Expected against actual rows, and what a failing expectation prints."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

import headrace as hr
from headrace.testing import at, crash, expect, late_by, row, timeline, watermark
from headrace.testing.comparison import equal, plain

hourly = hr.tumbling("hourly", size="1 hour", key="account").agg(spent="sum(amount)").late(hr.side_output())


def test_a_failing_expectation_prints_the_timeline_with_expected_and_actual_rows_side_by_side() -> None:
    with pytest.raises(AssertionError) as raised:
        timeline(
            hourly,
            at("10:05", account="a", amount=5.0),
            at("10:06", account="b", amount=1.0),
            crash(),
            watermark("10:30"),
            watermark("11:00"),
            expect(
                row(account="a", window="10:00/11:00", spent=6.0), row(account="b", window="10:00/11:00", spent=1.0)
            ),
            engine="inline",
        )
    lines = [line.rstrip() for line in str(raised.value).splitlines()]
    assert lines == [
        "output 'main' is not what the timeline expects:",
        "at 10:05  account='a', amount=5.0",
        "at 10:06  account='b', amount=1.0",
        "crash",
        "watermark 10:30",
        "watermark 11:00",
        "expect 2 rows of main",
        "┏━━━┳━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┓",
        "┃   ┃ expected                                 ┃ actual                                   ┃",
        "┡━━━╇━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┩",
        "│ ! │ account='a', window=10:00/11:00, spent=6 │ account='a', window=10:00/11:00, spent=5 │",
        "│   │ account='b', window=10:00/11:00, spent=1 │ account='b', window=10:00/11:00, spent=1 │",
        "└───┴──────────────────────────────────────────┴──────────────────────────────────────────┘",
    ]


def test_a_row_too_many_or_too_few_is_shown_against_nothing() -> None:
    with pytest.raises(AssertionError, match=r"│ ! │ -  +│ account='a', window=10:00/11:00, spent=5"):
        timeline(hourly, at("10:05", account="a", amount=5.0), watermark("11:00"), expect(), engine="inline")
    with pytest.raises(AssertionError, match=r"│ ! │ account='b' +│ - +│"):
        timeline(hourly, at("10:05", account="a", amount=5.0), expect(account="b"), engine="inline")


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        (1, 1.0),
        (1.5, 1.5),
        (float("nan"), float("nan")),
        (None, None),
        ("a", "a"),
        (late_by("5 minutes"), timedelta(minutes=5)),
        (date(2026, 1, 1), date(2026, 1, 1)),
        (datetime(2026, 1, 1, 10, tzinfo=UTC), datetime(2026, 1, 1, 10, tzinfo=UTC)),
        ("10:00/11:00", {"start": datetime(2026, 1, 1, 10, tzinfo=UTC), "end": datetime(2026, 1, 1, 11, tzinfo=UTC)}),
    ],
)
def test_values_that_mean_the_same_are_equal(expected: Any, actual: Any) -> None:
    assert plain(expected) == plain(actual)


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        (1, 2),
        (1, True),
        (0.0, -0.0),
        (None, float("nan")),
        (None, 0),
        ("1", 1),
        ("a", "A"),
        (Decimal("1.5"), 1.5),
        (late_by("5 minutes"), timedelta(minutes=5, microseconds=1)),
        ("10:00/11:00", {"start": datetime(2026, 1, 1, 10, tzinfo=UTC), "end": datetime(2026, 1, 1, 12, tzinfo=UTC)}),
    ],
)
def test_values_that_differ_are_not_equal(expected: Any, actual: Any) -> None:
    assert plain(expected) != plain(actual)


def test_only_the_columns_that_are_named_are_compared() -> None:
    assert equal([row(a=1)], [{"a": 1, "b": 2}], ["a"])
    assert not equal([row(a=1, b=3)], [{"a": 1, "b": 2}], ["a"])
    assert not equal([row(a=1, c=None)], [{"a": 1, "b": 2}], ["a"])


def test_order_matters_within_a_key_and_not_between_keys() -> None:
    actual = [{"key": "a", "n": 1}, {"key": "b", "n": 1}, {"key": "a", "n": 2}]
    assert equal([row(key="b", n=1), row(key="a", n=1), row(key="a", n=2)], actual, ["key"])
    assert not equal([row(key="b", n=1), row(key="a", n=2), row(key="a", n=1)], actual, ["key"])


def test_a_row_that_comes_twice_is_not_equal_to_one() -> None:
    assert not equal([row(key="a")], [{"key": "a"}, {"key": "a"}], ["key"])
    assert not equal([row(key="a"), row(key="a")], [{"key": "a"}], ["key"])
    assert not equal([], [{"key": "a"}], ["key"])
    assert equal([], [], ["key"])
