"""Times as timelines write them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import DefinitionError
from headrace.testing.comparison import plain
from headrace.testing.elements import moment, shown

TEN = 1_767_261_600_000_000


@pytest.mark.parametrize(
    "given_time",
    ["10:00", "10:00:00", "10:00:00Z", "12:00+02:00", "2026-01-01T10:00", datetime(2026, 1, 1, 10, tzinfo=UTC)],
)
def test_a_bare_time_is_on_the_first_of_january_2026_in_utc(given_time: str | datetime) -> None:
    assert moment(given_time) == TEN


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (TEN, "10:00"),
        (TEN + 5_000_000, "10:00:05"),
        (TEN + 1, "10:00:00.000001"),
        (TEN + 500_000, "10:00:00.5"),
        (TEN + 86_400_000_000, "2026-01-02T10:00"),
        (-1, "1969-12-31T23:59:59.999999"),
    ],
)
def test_a_time_is_shown_as_it_would_be_written(time: int, text: str) -> None:
    assert shown(time) == text
    assert moment(text) == time


@given(st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)))
def test_every_time_is_shown_so_that_it_can_be_read_again(time: datetime) -> None:
    assert moment(shown(moment(time))) == moment(time)


def test_a_window_is_shown_by_its_two_ends() -> None:
    window = {"start": datetime(2026, 1, 1, 23, tzinfo=UTC), "end": datetime(2026, 1, 2, tzinfo=UTC)}
    assert plain(window) == "23:00/2026-01-02T00:00"


def test_what_is_no_time_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"\[MOMENT_UNREADABLE\]"):
        moment("half past ten")
