"""Where time comes from, as an author says it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

import headrace as hr
from headrace.errors import DefinitionError
from headrace.event_time.strategy import ValidTimes, instant, valid_times


@pytest.mark.parametrize(
    "moment",
    [
        "2026-01-01T10:00:00Z",
        "2026-01-01T10:00:00",
        "2026-01-01T12:00:00+02:00",
        datetime(2026, 1, 1, 10),
        datetime(2026, 1, 1, 10, tzinfo=UTC),
        datetime(2026, 1, 1, 5, tzinfo=timezone(timedelta(hours=-5))),
    ],
)
def test_a_moment_is_microseconds_since_the_epoch_and_without_a_zone_it_is_utc(moment: datetime | str) -> None:
    assert instant(moment, argument="not_before") == 1_767_261_600_000_000


def test_a_moment_before_1970_and_between_seconds_is_exact() -> None:
    assert instant("1969-12-31T23:59:59.999999", argument="not_before") == -1
    assert instant("0001-01-01", argument="not_before") == -62_135_596_800_000_000


def test_text_that_is_no_moment_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"\[MOMENT_UNREADABLE\] not_before='last week'"):
        valid_times(not_before="last week")


def test_by_default_five_minutes_ahead_are_believed_and_nothing_is_too_old() -> None:
    assert valid_times() == ValidTimes(None, 300_000_000)
    assert hr.event_time("at").accept == valid_times()


def test_the_watermark_cannot_run_ahead_of_the_rows() -> None:
    with pytest.raises(DefinitionError, match=r"\[OUT_OF_ORDER_NEGATIVE\]"):
        hr.event_time("at", out_of_order="-1 second")


def test_idle_is_longer_than_nothing_or_never() -> None:
    assert hr.event_time("at", idle=None).idle is None
    with pytest.raises(DefinitionError, match=r"\[DURATION_NOT_POSITIVE\] idle="):
        hr.event_time("at", idle="0 seconds")


def test_what_to_do_when_all_are_idle_is_hold_or_advance() -> None:
    with pytest.raises(DefinitionError, match=r"\[WHEN_ALL_IDLE_UNKNOWN\] when_all_idle='wait'"):
        hr.event_time("at", when_all_idle="wait")  # type: ignore[arg-type]


def test_a_strategy_is_printed_as_it_is_written() -> None:
    written = hr.event_time("at", out_of_order="10 seconds", partition="gateway")
    assert repr(written) == "hr.event_time('at', out_of_order='10 seconds', partition='gateway')"
    assert eval(repr(written), {"hr": hr}) == written
    for partitions in (["north", "south"], 2):
        expecting = hr.event_time("at", partition="gateway", partitions=partitions)
        assert repr(expecting).endswith(f", partition='gateway', partitions={partitions!r})")
        assert eval(repr(expecting), {"hr": hr}) == expecting
    assert repr(hr.processing_time()) == "hr.processing_time('processed_at')"


def test_delays_that_leave_the_calendar_are_refused() -> None:
    with pytest.raises(DefinitionError, match=r"\[DURATION_TOO_LONG\] out_of_order="):
        hr.event_time("at", out_of_order="400001 days")
    with pytest.raises(DefinitionError, match=r"\[DURATION_TOO_LONG\] max_future="):
        valid_times(max_future="400001 days")


def test_expected_values_are_compared_as_text_and_each_counts_once() -> None:
    assert hr.event_time("at", partition="gateway", partitions=[7, "north", "7"]).expected == ("7", "north")
    assert hr.event_time("at", partition="gateway", partitions=10_000).expected == 10_000


@pytest.mark.parametrize("wrong", ["north", [], 0, -1, 10_001, range(10_001), True, [True], [2.0], [None], 2.0])
def test_what_is_expected_is_some_values_or_their_number(wrong: Any) -> None:
    with pytest.raises(DefinitionError, match=r"\[PARTITIONS_INVALID\].*expected values of column 'gateway'"):
        hr.event_time("at", partition="gateway", partitions=wrong)


def test_partitions_are_values_of_a_column() -> None:
    with pytest.raises(DefinitionError, match=r"\[PARTITIONS_WITHOUT_COLUMN\] partitions=2 .* Add partition='gateway'"):
        hr.event_time("at", partitions=2)
