"""Steps behind steps: what is on time for the next one, what is late, and when it fires."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace.testing import at, batch, clock, crash, expect, late_by, row, timeline, watermark

hourly = hr.tumbling("hourly", size="1 hour", key="account").agg(spent="sum(amount)")
daily = hr.tumbling("daily", size="1 day", key="account").agg(total="sum(spent)", hours="count(*)")
weekly = hr.tumbling("weekly", size="7 days", key="account", offset="4 days").agg(total="sum(total)", days="count(*)")
DAY = "2026-01-01T00:00/2026-01-02T00:00"


@pytest.mark.spark
def test_results_of_one_step_are_rows_of_the_next_which_fires_in_the_same_batch() -> None:
    timeline(
        (hourly.late(hr.side_output()), daily.late(hr.side_output())),
        at("10:05", account="a", amount=5.0),
        at("10:55", account="a", amount=1.0),
        at("11:05", account="a", amount=2.0),
        at("12:00", account="b", amount=9.0),
        watermark("11:00"),
        watermark("23:59"),
        expect(),
        # The last hours and the day close together: their results are on time for the day.
        at("23:59", account="b", amount=1.0),
        watermark("2026-01-02T00:00"),
        expect(
            row(account="a", window=DAY, total=8.0, hours=2, pane="on_time", revision=0),
            row(account="b", window=DAY, total=10.0, hours=2, pane="on_time", revision=0),
        ),
        expect(output="late"),
    )


def test_a_watermark_that_jumps_over_days_makes_no_result_late() -> None:
    timeline(
        (hourly.late(hr.side_output()), daily.late(hr.side_output())),
        at("10:05", account="a", amount=5.0),
        at("2026-01-02T10:05", account="a", amount=2.0),
        watermark("2026-01-20T00:00"),
        expect(
            row(account="a", window=DAY, total=5.0, hours=1),
            row(account="a", window="2026-01-02T00:00/2026-01-03T00:00", total=2.0, hours=1),
        ),
        expect(output="late"),
    )


def test_the_time_of_a_window_result_is_one_microsecond_before_its_end() -> None:
    timeline(
        (
            hourly.late(hr.side_output()),
            hr.tumbling("moved", size="1 hour", key="account", offset="59 minutes 59 seconds 999999 microseconds")
            .agg(n="count(*)")
            .late(hr.side_output()),
        ),
        at("10:05", account="a", amount=5.0),
        watermark("11:00"),
        expect(),
        watermark("12:00"),
        expect(account="a", window="10:59:59.999999/11:59:59.999999", n=1),
    )


def test_the_last_hour_of_a_day_belongs_to_that_day() -> None:
    timeline(
        (hourly.late(hr.side_output()), daily.late(hr.side_output())),
        at("23:30", account="a", amount=5.0),
        at("2026-01-02T00:00", account="a", amount=1.0),
        watermark("2026-01-02T00:00"),
        expect(account="a", window=DAY, total=5.0),
    )


def test_a_result_for_a_closed_window_of_the_next_step_leaves_by_its_late_output() -> None:
    timeline(
        (hourly.late(hr.update_for("2 days")), daily.late(hr.side_output())),
        at("10:05", account="a", amount=5.0),
        watermark("2026-01-02T00:00"),
        expect(account="a", window=DAY, total=5.0, hours=1),
        at("10:30", account="a", amount=2.0),
        batch(),
        expect(),
        expect(
            account="a",
            window="10:00/11:00",
            spent=7.0,
            pane="late",
            revision=1,
            late_by=late_by("13 hours 1 microsecond"),
            output="late",
        ),
    )


def test_a_correction_is_late_for_the_next_step_though_its_window_there_is_open() -> None:
    """The day has counted the hour's first result already, and would count the hour twice."""
    timeline(
        (hourly.late(hr.update_for("2 days")), daily.late(hr.side_output())),
        at("10:05", account="a", amount=5.0),
        watermark("11:00"),
        at("10:30", account="a", amount=2.0),
        at("10:30", account="new", amount=1.0),
        batch(),
        expect(
            row(
                account="a", window="10:00/11:00", spent=7.0, pane="late", revision=1, late_by=late_by("1 microsecond")
            ),
            row(
                account="new",
                window="10:00/11:00",
                spent=1.0,
                pane="late",
                revision=0,
                late_by=late_by("1 microsecond"),
            ),
            output="late",
        ),
        watermark("2026-01-02T00:00"),
        expect(account="a", window=DAY, total=5.0, hours=1),
    )


def test_a_correction_that_the_next_step_drops_leaves_no_trace() -> None:
    timeline(
        (hourly.late(hr.update_for("2 days")), daily.late(hr.drop())),
        at("10:05", account="a", amount=5.0),
        watermark("11:00"),
        at("10:30", account="a", amount=2.0),
        crash(),
        batch(),
        watermark("2026-01-02T00:00"),
        expect(account="a", window=DAY, total=5.0, hours=1),
        expect(output="late"),
    )


@pytest.mark.parametrize(
    ("following", "result"),
    [
        (hr.tumbling("next", size="1 day", key="account"), {"window": DAY}),
        (hr.hopping("next", size="1 day", every="1 day", key="account"), {"window": DAY}),
        (hr.session("next", gap="1 day", key="account"), {}),
        (hr.sliding("next", size="1 day", key="account"), {}),
    ],
)
def test_a_correction_is_late_for_a_next_step_that_corrects_as_well_and_never_counted_twice(
    following: Any, result: dict[str, Any]
) -> None:
    counted = following.agg(results="count(*)", total="sum(spent)").late(hr.update_for("2 days"))
    timeline(
        (hourly.late(hr.update_for("2 days")), counted),
        at("10:05", account="a", amount=5.0),
        watermark("11:00"),
        at("10:30", account="a", amount=2.0),
        batch(),
        expect(account="a", spent=7.0, pane="late", revision=1, output="late"),
        watermark("2026-01-04T00:00"),
        expect(account="a", **result, results=1, total=5.0),
    )


def test_a_late_row_of_the_first_step_never_reaches_the_second() -> None:
    timeline(
        (hourly.late(hr.side_output()), daily.late(hr.side_output())),
        at("10:05", account="a", amount=5.0),
        watermark("11:00"),
        at("10:30", account="a", amount=2.0),
        batch(),
        expect(account="a", amount=2.0, late_by=late_by("30 minutes"), output="late"),
        watermark("2026-01-02T00:00"),
        expect(account="a", total=5.0, hours=1),
    )


@pytest.mark.spark
def test_three_steps_in_a_chain_survive_crashes() -> None:
    timeline(
        (hourly.late(hr.side_output()), daily.late(hr.side_output()), weekly.late(hr.side_output())),
        at("2026-01-05T10:05", account="a", amount=5.0),
        crash(),
        batch(),
        watermark("2026-01-05T11:00"),
        crash(),
        at("2026-01-05T23:05", account="a", amount=1.0),
        at("2026-01-07T00:00", account="a", amount=2.0),
        crash(),
        batch(),
        watermark("2026-01-06T00:00"),
        expect(),
        at("2026-01-11T23:59:59.999999", account="a", amount=4.0),
        crash(),
        batch(),
        watermark("2026-01-12T00:00"),
        expect(account="a", window="2026-01-05T00:00/2026-01-12T00:00", total=12.0, days=3, pane="on_time"),
        expect(output="late"),
    )


def test_the_second_step_may_have_another_key() -> None:
    by_hour = hr.tumbling("by_hour", size="1 hour", key="region").agg(accounts="count(*)", spent="sum(spent)")
    per_account = hr.tumbling("per_account", size="1 hour", key=["region", "account"]).agg(spent="sum(amount)")
    timeline(
        (per_account.late(hr.drop()), by_hour.late(hr.drop())),
        at("10:05", region="north", account="a", amount=5.0),
        at("10:06", region="north", account="b", amount=1.0),
        at("10:07", region="south", account="c", amount=2.0),
        at("10:08", region="north", account="a", amount=1.0),
        watermark("11:00"),
        expect(
            row(region="north", window="10:00/11:00", accounts=2, spent=7.0),
            row(region="south", window="10:00/11:00", accounts=1, spent=2.0),
        ),
    )


def test_a_chain_computes_its_watermark_from_the_source_alone() -> None:
    timeline(
        (hourly.late(hr.side_output()), daily.late(hr.side_output())),
        at("10:05", account="a", amount=5.0),
        at("2026-01-01T23:00", account="a", amount=5.0),
        batch(),
        at("2026-01-02T00:10", account="a", amount=1.0),
        batch(),
        expect(),
        batch(),
        expect(account="a", window=DAY, total=10.0, hours=2),
        event_time=hr.event_time("at", out_of_order="10 minutes", accept=hr.valid_times(max_future=None)),
    )


def test_a_correction_in_the_very_batch_that_emits_its_window_is_late_for_the_next_step() -> None:
    """The first batch with a watermark closes the hour and corrects it; the day takes the first result only."""
    timeline(
        (hourly.late(hr.update_for("2 days")), daily.late(hr.side_output())),
        at("10:05", account="a", amount=5.0),
        at("11:30", account="a", amount=0.0),
        batch(),
        at("10:06", account="a", amount=1.0),
        batch(),
        expect(
            account="a", spent=6.0, pane="late", revision=1, late_by=late_by("30 minutes 1 microsecond"), output="late"
        ),
        clock("2026-01-04T00:00"),
        at("2026-01-03T00:00", account="a", amount=0.0),
        batch(),
        batch(),
        expect(account="a", window="2026-01-01T00:00/2026-01-02T00:00", total=5.0, hours=2),
        event_time=hr.event_time("at"),
    )
