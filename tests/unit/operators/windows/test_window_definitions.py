"""What is said to a window step and cannot be meant is refused with an id, before any data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import headrace as hr
from headrace.errors import DefinitionError

hourly = hr.tumbling("hourly", size="1 hour", key="account")
sliding = hr.sliding("recent", size="1 hour", key="account")
basket = hr.global_window("basket", key="account", ttl="1 day")


@pytest.mark.parametrize("step", [hourly, sliding, basket], ids=lambda step: step.name)
@pytest.mark.parametrize("panes", [hr.retracting, "retracting", None])
def test_panes_are_a_value_and_no_function_or_text(step: Any, panes: Any) -> None:
    with pytest.raises(DefinitionError, match=rf"\[PANES_UNKNOWN\] window '{step.name}': .*Use hr.accumulating\(\)"):
        step.panes(panes)


@pytest.mark.parametrize("size", [60, 1.5, None, b"1 hour", True])
def test_a_size_is_text_or_a_timedelta(size: Any) -> None:
    for define in (
        lambda: hr.tumbling("w", size=size, key="account"),
        lambda: hr.sliding("w", size=size, key="account"),
        lambda: hr.hopping("w", size=size, every="1 hour", key="account"),
    ):
        with pytest.raises(DefinitionError, match=r"\[DURATION_UNREADABLE\] size=.*Write a number and a unit"):
            define()


@pytest.mark.parametrize("spread", ["4", 1.5, None, True])
def test_a_spread_is_a_whole_number(spread: Any) -> None:
    with pytest.raises(DefinitionError, match=r"\[SPREAD_OUT_OF_RANGE\] window 'w': spread=.*whole number"):
        hr.sliding("w", size="1 hour", key="account", spread=spread)


def test_an_aggregate_needs_a_name() -> None:
    with pytest.raises(DefinitionError, match=r"\[AGGREGATE_UNNAMED\] window 'hourly': 'count\(\*\)' .*\.agg\(rows="):
        hourly.agg("count(*)")


@pytest.mark.parametrize("size", ["0 months", "1.5 months", "-1 month", "1 month 1 day", "2 years 3 quarters"])
def test_the_size_of_a_calendar_window_is_whole_months_quarters_or_years(size: str) -> None:
    with pytest.raises(DefinitionError, match=rf"\[DURATION_UNREADABLE\] size='{size}'.*whole months, quarters or yea"):
        hr.tumbling("w", size=size, key="account", time_zone="Europe/Berlin")


@pytest.mark.parametrize(
    "define",
    [
        lambda: hr.hopping("w", size="1 month", every="1 day", key="account"),
        lambda: hr.cumulating("w", step="1 day", size="1 month", key="account"),
        lambda: hr.sliding("w", size="1 quarter", key="account"),
        lambda: hr.session("w", gap="1 Year", key="account"),
        lambda: hr.deduplicate("w", within="2 months", key="account"),
        lambda: hr.update_for("1 month"),
    ],
)
def test_months_are_for_tumbling_windows_with_a_time_zone_alone(define: Callable[[], Any]) -> None:
    with pytest.raises(DefinitionError, match=r"\[DURATION_UNREADABLE\].*only hr.tumbling\(.*time_zone=.*'30 days'"):
        define()
