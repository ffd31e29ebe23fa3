"""Counting and global windows as values: printed as written, and every mistake refused before any data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

import headrace as hr
from headrace.errors import DefinitionError

SCHEMA = {"account": pl.String(), "amount": pl.Float64(), "at": pl.Datetime("us", "UTC")}
tens = hr.counting("tens", rows=10, key="account", ttl="1 day").agg(n="count(*)")
basket = hr.global_window("basket", key="account", ttl="1 day").agg(n="count(*)")
hourly = hr.every("1 hour", time="event")


@pytest.mark.parametrize(
    "step",
    [
        tens,
        tens.late(hr.side_output()),
        hr.counting("tens", rows=10, key=["account", "shop"], keep_forever=True).agg(n="count(*)").late(hr.drop()),
        basket,
        basket.emit(hr.after_rows(5)).late(hr.drop()),
        basket.emit(hourly).panes(hr.discarding()).late(hr.drop()),
        basket.emit(hr.when("amount > 5 AND account IS NOT NULL")).panes(hr.retracting()).late(hr.drop()),
    ],
    ids=repr,
)
def test_a_step_is_printed_as_it_is_written(step: Any) -> None:
    assert eval(repr(step), {"hr": hr}) == step


def test_every_method_returns_a_new_value() -> None:
    full = basket.emit(hr.after_rows(5)).late(hr.drop())
    assert (basket.trigger, basket.lateness) == (None, None)
    assert full.trigger == hr.after_rows(5)


@pytest.mark.parametrize(
    ("define", "error"),
    [
        (lambda: hr.counting("w", rows=3, key="account"), "TTL_MISSING"),
        (lambda: hr.global_window("w", key="account"), "TTL_MISSING"),
        (lambda: hr.counting("w", rows=3, key="account", ttl="1 day", keep_forever=True), "TTL_TWICE"),
        (lambda: hr.global_window("w", key="account", ttl="9999999 days"), "DURATION_TOO_LONG"),
        (lambda: hr.counting("w", rows=3, key="account", ttl="0 seconds"), "DURATION_NOT_POSITIVE"),
        (lambda: hr.counting("w", rows=3, key="account", ttl="soon"), "DURATION_UNREADABLE"),
        (lambda: hr.counting("w", rows=0, key="account", ttl="1 day"), "WINDOW_WITHOUT_ROWS"),
        (lambda: hr.counting("3", rows=3, key="account", ttl="1 day"), "NAME_INVALID"),
        (lambda: hr.global_window("3", key="account", ttl="1 day"), "NAME_INVALID"),
        (lambda: tens.late(hr.update_for("1 hour")), "CORRECTIONS_IMPOSSIBLE"),
        (lambda: basket.late(hr.update_for("1 hour")), "CORRECTIONS_IMPOSSIBLE"),
        (lambda: tens.emit(hr.on_close()), "EMISSION_UNKNOWN"),
        (lambda: tens.panes(hr.discarding()), "PANES_UNKNOWN"),
        (lambda: basket.emit(hr.on_close(early=hr.after_rows(2))), "EMISSION_UNKNOWN"),
        (lambda: basket.emit(hr.on_update()), "EMISSION_UNKNOWN"),
        (lambda: basket.emit(hr.every("1 hour")), "TRIGGER_BY_CLOCK"),
        (lambda: basket.late(hr.drop()).bind(SCHEMA, "at"), "EMISSION_MISSING"),
        (lambda: basket.emit(hourly).bind(SCHEMA, "at"), "LATE_NOT_CHOSEN"),
        (lambda: tens.bind(SCHEMA, "at"), "LATE_NOT_CHOSEN"),
        (lambda: basket.emit(hr.when("amount")).late(hr.drop()).bind(SCHEMA, "at"), "CONDITION_TYPE"),
        (lambda: basket.emit(hr.when("price > 5")).late(hr.drop()).bind(SCHEMA, "at"), "COLUMN_UNKNOWN"),
        (lambda: tens.agg(window="count(*)"), "RESULT_NAME_TAKEN"),
    ],
)
def test_a_mistake_is_refused_before_any_data(define: Callable[[], Any], error: str) -> None:
    with pytest.raises(DefinitionError, match=rf"\[{error}\]"):
        define()


def test_the_fingerprint_holds_what_state_depends_on() -> None:
    assert tens.late(hr.drop()).fingerprint == tens.late(hr.side_output()).fingerprint
    others = (
        hr.counting("tens", rows=11, key="account", ttl="1 day").agg(n="count(*)"),
        hr.counting("tens", rows=10, key="account", ttl="2 days").agg(n="count(*)"),
        hr.counting("tens", rows=10, key="shop", ttl="1 day").agg(n="count(*)"),
        tens.agg(n="count(amount)"),
        basket,
    )
    assert all(other.fingerprint != tens.fingerprint for other in others)
    assert basket.emit(hr.after_rows(5)).fingerprint != basket.emit(hr.after_rows(6)).fingerprint
    assert basket.panes(hr.discarding()).fingerprint != basket.fingerprint


def test_only_panes_that_stand_for_themselves_may_go_into_another_step() -> None:
    assert not tens.previews
    assert not basket.panes(hr.discarding()).previews
    assert basket.previews
    assert not basket.emit(hr.on_close()).previews
    assert basket.panes(hr.retracting()).previews


def test_a_step_says_in_words_how_long_a_key_is_kept() -> None:
    assert tens.state_description == (
        "rows until event time has passed them, and a row for each key until it has had no row for 1 day"
    )
    forever = hr.global_window("w", key="account", keep_forever=True)
    assert forever.state_description == "rows until event time has passed them, and a row for each key for ever"
