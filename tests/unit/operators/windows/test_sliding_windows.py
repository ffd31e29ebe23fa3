"""Sliding windows as a value."""

from __future__ import annotations

import polars as pl
import pytest

import headrace as hr
from headrace.errors import DefinitionError
from headrace.operators.windows.triggers import AfterRows, Every

SCHEMA = {"account": pl.String(), "amount": pl.Int64(), "at": pl.Datetime("us", "UTC")}
recent = hr.sliding("recent", size="1 hour", key="account")


def test_a_step_is_printed_as_it_is_written() -> None:
    step = recent.agg(spent="sum(amount)").emit(hr.on_update()).late(hr.update_for("1 hour")).panes(hr.retracting())
    assert eval(repr(step), {"hr": hr}) == step
    spread = hr.sliding("recent", size="90 seconds", key=["a", "b"], spread=4).agg(n="count(*)").late(hr.drop())
    assert repr(spread) == (
        "hr.sliding('recent', size='1 minute 30 seconds', key=['a', 'b'], spread=4).agg(n='count(*)')"
        ".emit(hr.on_close()).late(hr.drop())"
    )
    assert eval(repr(spread), {"hr": hr}) == spread


def test_the_fingerprint_holds_what_state_depends_on_and_nothing_else() -> None:
    step = recent.agg(n="count(*)")
    assert step.late(hr.drop()).fingerprint == step.emit(hr.on_update()).late(hr.update_for("1 hour")).fingerprint
    others = [
        hr.sliding("recent", size="2 hours", key="account").agg(n="count(*)"),
        hr.sliding("recent", size="1 hour", key=["account", "shop"]).agg(n="count(*)"),
        hr.sliding("recent", size="1 hour", key="account", spread=2).agg(n="count(*)"),
        step.agg(n="count(amount)"),
        step.panes(hr.retracting()),
    ]
    assert all(other.fingerprint != step.fingerprint for other in others)


def test_the_output_is_the_row_and_beside_it_window_results_pane_and_revision() -> None:
    operator = recent.agg(spent="sum(amount)").late(hr.drop()).bind(SCHEMA, "at")
    assert list(operator.output_schema) == ["account", "amount", "at", "window", "spent", "pane", "revision"]
    retracting = recent.agg(spent="sum(amount)").late(hr.drop()).panes(hr.retracting()).bind(SCHEMA, "at")
    assert list(retracting.output_schema)[-2:] == ["revision", "change"]


def test_a_result_with_the_name_of_a_column_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"\[RESULT_NAME_TAKEN\] window 'recent': .* 'amount' would be both"):
        recent.agg(amount="sum(amount)").late(hr.drop()).bind(SCHEMA, "at")


@pytest.mark.parametrize("name", ["window", "pane", "revision", "change"])
def test_a_column_with_a_name_that_every_window_has_is_refused(name: str) -> None:
    with pytest.raises(DefinitionError, match=rf"\[RESULT_NAME_TAKEN\] window 'recent': .* '{name}' would be both"):
        recent.agg(n="count(*)").late(hr.drop()).bind({**SCHEMA, name: pl.String()}, "at")


def test_behind_windows_those_names_are_replaced() -> None:
    hourly = hr.tumbling("hourly", size="1 hour", key="account").agg(spent="sum(amount)").late(hr.drop())
    earlier = hourly.bind(SCHEMA, "at")
    operator = recent.agg(n="count(*)").late(hr.drop()).bind(earlier.output_schema, earlier.output_time)
    assert list(operator.output_schema) == ["account", "spent", "window", "n", "pane", "revision"]


@pytest.mark.parametrize("early", [hr.every("10 seconds"), hr.after_rows(3)], ids=repr)
def test_previews_by_clock_or_rows_are_refused(early: Every | AfterRows) -> None:
    with pytest.raises(DefinitionError, match=r"\[EMISSION_UNKNOWN\] window 'recent': \.emit\(hr\.on_close\(early="):
        recent.emit(hr.on_close(early=early))
    with pytest.raises(DefinitionError, match=r"\[EMISSION_UNKNOWN\] window 'recent'"):
        recent.emit(early)  # type: ignore[arg-type]


def test_discarding_panes_are_refused() -> None:
    with pytest.raises(DefinitionError, match=r"\[PANES_UNKNOWN\] window 'recent': \.panes\(hr\.discarding\(\)\)"):
        recent.panes(hr.discarding())


@pytest.mark.parametrize("spread", [0, -1, 17])
def test_a_key_is_spread_over_1_to_16_shares(spread: int) -> None:
    with pytest.raises(DefinitionError, match=r"\[SPREAD_OUT_OF_RANGE\] window 'recent'"):
        hr.sliding("recent", size="1 hour", key="account", spread=spread)


@pytest.mark.parametrize("size", ["0 seconds", "-1 hour"])
def test_a_window_is_longer_than_nothing(size: str) -> None:
    with pytest.raises(DefinitionError, match=r"\[DURATION_NOT_POSITIVE\] size="):
        hr.sliding("recent", size=size, key="account")


def test_lateness_and_aggregates_must_be_chosen() -> None:
    with pytest.raises(DefinitionError, match=r"\[LATE_NOT_CHOSEN\] window 'recent'"):
        recent.agg(n="count(*)").bind(SCHEMA, "at")
    with pytest.raises(DefinitionError, match=r"\[AGGREGATES_MISSING\] window 'recent'"):
        recent.late(hr.drop()).bind(SCHEMA, "at")


def test_early_results_and_those_that_are_taken_back_may_not_feed_a_step() -> None:
    step = recent.agg(n="count(*)").late(hr.update_for("1 hour"))
    assert [step.previews, step.emit(hr.on_update()).previews, step.panes(hr.retracting()).previews] == [
        False,
        True,
        True,
    ]
