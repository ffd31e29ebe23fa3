"""Durations as authors write them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.durations import LONGEST, microseconds, positive_microseconds, spoken
from headrace.errors import DefinitionError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 microsecond", 1),
        ("2 milliseconds", 2_000),
        ("10 seconds", 10_000_000),
        ("10seconds", 10_000_000),
        ("1 Minute", 60_000_000),
        ("1.5 hours", 5_400_000_000),
        ("1 minute 30 seconds", 90_000_000),
        ("1 hour 30 minutes", 5_400_000_000),
        ("1 hour, 30 minutes", 5_400_000_000),
        ("  2 days  ", 172_800_000_000),
        ("1 week", 604_800_000_000),
        ("0 seconds", 0),
        ("-5 minutes", -300_000_000),
        ("5m", 300_000_000),
        ("90s", 90_000_000),
        ("1h30m", 5_400_000_000),
        ("1h 30m", 5_400_000_000),
        ("1 h, 30 min", 5_400_000_000),
        ("250ms", 250_000),
        ("7us", 7),
        ("2d", 172_800_000_000),
        ("1w2d", 777_600_000_000),
        ("1.5h", 5_400_000_000),
        ("10 secs", 10_000_000),
        ("2 mins", 120_000_000),
        ("3hrs", 10_800_000_000),
        ("-5m", -300_000_000),
        ("1 hour 30m", 5_400_000_000),
        ("PT5M", 300_000_000),
        ("P1DT2H", 93_600_000_000),
        ("P2W", 1_209_600_000_000),
        ("PT0.25S", 250_000),
        ("pt1h30m", 5_400_000_000),
        ("-PT5M", -300_000_000),
        ("P0D", 0),
        (timedelta(days=1, microseconds=1), 86_400_000_001),
        (timedelta(microseconds=-1), -1),
    ],
)
def test_a_duration_is_whole_microseconds(text: str | timedelta, expected: int) -> None:
    assert microseconds(text, argument="size") == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "10",
        "minutes",
        "10 parsecs",
        "10 seconds or so",
        "1 hour -",
        "1:30",
        "1h30",
        "5ns",
        "5 ss",
        "5ms s",
        "m",
        "1 ds",
        "P",
        "PT",
        "P1DT",
        "P1H",
        "PT5",
        "P-1D",
        "5min.",
        "5e3s",
        "1,5h",
    ],
)
def test_what_is_not_a_duration_is_refused_with_the_units_that_are(text: str) -> None:
    with pytest.raises(DefinitionError, match=r"\[DURATION_UNREADABLE\] gap=.*units are microsecond, millisecond"):
        microseconds(text, argument="gap")


@pytest.mark.parametrize("text", ["1 month", "2 years", "1mo", "1y", "P1M", "P1Y2M3DT4H", "P1M1D", "1 quarter 5 days"])
def test_months_are_refused_because_they_differ_in_length(text: str) -> None:
    with pytest.raises(DefinitionError, match=r"\[DURATION_UNREADABLE\] .*Months, quarters and years differ in length"):
        microseconds(text, argument="gap")


@pytest.mark.parametrize("text", ["5M", "1h5M", "5 M", "2D", "10S", "250MS"])
def test_a_capital_unit_is_refused_because_it_could_be_months(text: str) -> None:
    with pytest.raises(DefinitionError, match=r"Short units are lower-case, because M could be months: write '5m'"):
        microseconds(text, argument="gap")


@pytest.mark.parametrize("text", ["0 seconds", "-1 second", "0s", "PT0S", timedelta(0)])
def test_nothing_and_less_is_refused_where_a_length_is_needed(text: str | timedelta) -> None:
    with pytest.raises(DefinitionError, match=r"\[DURATION_NOT_POSITIVE\] size=.*as in size='1 minute'"):
        positive_microseconds(text, argument="size")


def test_a_positive_duration_is_let_through() -> None:
    assert positive_microseconds("1 microsecond", argument="size") == 1
    assert positive_microseconds("400000 days", argument="size") == LONGEST


@pytest.mark.parametrize("text", ["400000 days 1 microsecond", "106751990 days", "9" * 400 + " days", timedelta.max])
def test_what_would_lead_out_of_the_calendar_is_refused(text: str | timedelta) -> None:
    with pytest.raises(DefinitionError, match=r"\[DURATION_TOO_LONG\] within=.*400,000 days"):
        positive_microseconds(text, argument="within")


def test_microseconds_behind_many_days_are_not_lost() -> None:
    assert microseconds("399999 days 1 microsecond", argument="size") == 399_999 * 86_400_000_000 + 1


@pytest.mark.parametrize(
    ("length", "words"),
    [
        (0, "0 seconds"),
        (1, "1 microsecond"),
        (90_000_000, "1 minute 30 seconds"),
        (86_400_000_000, "1 day"),
        (30 * 86_400_000_000, "30 days"),
        (-300_000_000, "-5 minutes"),
        (694_861_001_001, "8 days 1 hour 1 minute 1 second 1 millisecond 1 microsecond"),
    ],
)
def test_a_length_is_said_in_the_authors_words(length: int, words: str) -> None:
    assert spoken(length) == words


@given(st.integers(0, 9), st.integers(0, 99), st.integers(0, 99), st.integers(0, 99), st.integers(0, 999_999))
def test_short_units_iso_and_words_are_the_same_lengths(
    days: int, hours: int, minutes: int, seconds: int, us: int
) -> None:
    expected = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds, microseconds=us)
    for text in (
        f"{days}d{hours}h{minutes}m{seconds}s{us}us",
        f"{days} days {hours} hours {minutes} minutes {seconds} seconds {us} microseconds",
        f"P{days}DT{hours}H{minutes}M{seconds}.{us:06d}S",
    ):
        assert microseconds(text, argument="size") == expected // timedelta(microseconds=1)


@given(st.integers(0, 2**52))
def test_what_is_said_is_read_as_the_same_length(length: int) -> None:
    assert microseconds(spoken(length), argument="size") == length
