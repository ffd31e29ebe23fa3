"""Tumbling windows as a value."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

import headrace as hr
from headrace.errors import DefinitionError

SCHEMA = {"account": pl.String(), "amount": pl.Float64(), "at": pl.Datetime("us", "UTC")}


def test_every_method_returns_a_new_value() -> None:
    bare = hr.tumbling("hourly", size="1 hour", key="account")
    full = bare.agg(n="count(*)").late(hr.drop())
    assert bare.aggregates == ()
    assert bare.lateness is None
    assert full == hr.tumbling("hourly", size="60 minutes", key=["account"]).agg(n="count(*)").late(hr.drop())


def test_a_step_is_printed_as_it_is_written() -> None:
    step = hr.tumbling("days", size="1 day", key=["a", "b"], time_zone="Europe/Berlin").agg(n="count(*)")
    step = step.late(hr.update_for("1 hour"))
    assert eval(repr(step), {"hr": hr}) == step
    moved = hr.tumbling("hourly", size="1 hour", key="a", offset="-15 minutes").agg(n="count(*)").late(hr.drop())
    assert eval(repr(moved), {"hr": hr}) == moved


@pytest.mark.parametrize("offset", ["1 hour", "-1 hour", "2 hours"])
def test_an_offset_stays_within_one_window(offset: str) -> None:
    with pytest.raises(DefinitionError, match=r"\[WINDOW_OFFSET_TOO_LONG\] window 'hourly'"):
        hr.tumbling("hourly", size="1 hour", key="account", offset=offset)


@pytest.mark.parametrize("size", ["1 hour", "36 hours"])
def test_a_calendar_needs_whole_days(size: str) -> None:
    with pytest.raises(DefinitionError, match=r"\[CALENDAR_NEEDS_DAYS\] window 'days'"):
        hr.tumbling("days", size=size, key="account", time_zone="Europe/Berlin")


@pytest.mark.parametrize("size", ["300000 years", "1100 years", "13000 months", "4400 quarters", "400001 days"])
def test_a_window_is_no_longer_than_the_calendar(size: str) -> None:
    with pytest.raises(DefinitionError, match=rf"\[DURATION_TOO_LONG\] size='{size}'"):
        hr.tumbling("ages", size=size, key="account", time_zone="UTC")


@pytest.mark.parametrize(
    "zone",
    [
        "Middle/Earth",
        "",
        "../etc",
        "Europe",
        "localtime",
        "posix/Europe/Berlin",
        "right/Europe/Berlin",
        "Factory",
        "+02:00",
        2,
        b"UTC",
    ],
)
def test_a_time_zone_must_be_known(zone: Any) -> None:
    with pytest.raises(DefinitionError, match=r"\[TIME_ZONE_UNKNOWN\] window 'days'"):
        hr.tumbling("days", size="1 day", key="account", time_zone=zone)


def test_a_step_that_computes_nothing_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"\[AGGREGATES_MISSING\] window 'hourly'"):
        hr.tumbling("hourly", size="1 hour", key="account").late(hr.drop()).bind(SCHEMA, "at")


def test_the_fingerprint_holds_what_state_depends_on_and_nothing_else() -> None:
    step = hr.tumbling("hourly", size="1 hour", key="account").agg(n="count(*)")
    assert step.late(hr.drop()).fingerprint == step.late(hr.update_for("1 hour")).fingerprint
    for other in (
        hr.tumbling("hourly", size="2 hours", key="account").agg(n="count(*)"),
        hr.tumbling("hourly", size="1 hour", key=["account", "shop"]).agg(n="count(*)"),
        hr.tumbling("hourly", size="1 hour", key="account", offset="1 minute").agg(n="count(*)"),
        step.agg(n="count(amount)"),
        step.agg(m="count(*)"),
    ):
        assert other.fingerprint != step.fingerprint


def test_state_is_kept_as_long_as_corrections_are_taken() -> None:
    step = hr.tumbling("hourly", size="1 hour", key="account").agg(n="count(*)")
    assert [step.retention, step.late(hr.drop()).retention, step.late(hr.update_for("1 second")).retention] == [
        0,
        0,
        1_000_000,
    ]
