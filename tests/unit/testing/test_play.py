"""How timelines are played, inline."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import polars as pl
import pytest

import headrace as hr
from headrace.connectors.base.source import Gate
from headrace.testing import at, batch, clock, crash, expect, play, row, table, timeline, use_engine, watermark

hourly = hr.tumbling("hourly", size="1 hour", key="account").agg(n="count(*)").late(hr.side_output())


def test_a_timeline_without_rows_and_without_a_schema_is_refused() -> None:
    with pytest.raises(hr.DefinitionError, match=r"\[TIMELINE_EMPTY\].* declare the columns as in schema='"):
        play(hourly, watermark("11:00"))


def test_a_value_that_does_not_fit_the_declared_type_is_refused() -> None:
    schema = "account STRING, amount INT"
    for wrong in ({"account": 7}, {"amount": 1.5}, {"amount": "7"}, {"amount": 2**31}):
        (column,) = wrong
        with pytest.raises(hr.DefinitionError, match=rf"\[TIMELINE_VALUE\] column '{column}' .* Correct the row"):
            play(hourly, at("10:05", **wrong), schema=schema)


def test_a_column_that_the_schema_does_not_declare_is_refused() -> None:
    with pytest.raises(hr.DefinitionError, match=r"\[COLUMN_UNKNOWN\] .* column 'acount', .* declares account\."):
        play(hourly, at("10:05", acount="a"), schema="account STRING")


def test_a_side_without_rows_and_without_a_schema_is_refused() -> None:
    join = hr.interval_join("joined", on="k", between=("0 seconds", "1 hour")).late(hr.drop())
    with pytest.raises(hr.DefinitionError, match=r"\[TIMELINE_SIDE_EMPTY\] step 'joined' .* right_schema="):
        play(join, at("10:05", k=1))
    with pytest.raises(hr.DefinitionError, match=r"\[TIMELINE_SIDE_EMPTY\] step 'joined' .* as in schema="):
        play(join, at("10:05", k=1, side="right"))


def test_a_schema_may_be_the_one_of_the_source_with_its_time() -> None:
    schema = "account STRING, at TIMESTAMP NOT NULL, amount DECIMAL(10, 2), paid TIMESTAMP"
    amounts = hr.tumbling("amounts", size="1 hour", key="account").agg(most="max(amount)", paid="max(paid)")
    paid = datetime(2026, 1, 1, 9, tzinfo=UTC)
    played = play(
        amounts.late(hr.drop()),
        at("10:05", account="a", amount=Decimal("1.5"), paid=paid),
        at("10:06", account="a"),
        watermark("11:00"),
        schema=schema,
    )
    assert [(each["most"], each["paid"]) for each in played.main] == [(Decimal("1.50"), paid)]


def test_rows_before_a_clock_are_run_before_it_moves() -> None:
    timeline(
        hourly,
        clock("12:00"),
        at("12:06", account="a"),
        clock("12:30"),
        expect(reason="EVENT_TIME_IN_FUTURE", output="dead_letters"),
        at("12:06", account="a"),
        batch(),
        expect(output="dead_letters"),
        event_time=hr.event_time("at"),
    )


def test_a_clock_runs_no_batch_of_its_own() -> None:
    """What is due by then and rows that come then can be in one batch; a batch that died waits for its restart."""
    timeline(hourly, watermark("11:00"), at("10:05", account="a"), crash(), clock("12:00"), expect(output="late"))


class Unreadable:
    """A table that is nowhere."""

    def columns(self) -> dict[str, pl.DataType]:
        raise AssertionError("the table's own columns are not read")

    def read(self) -> pl.DataFrame:
        raise AssertionError("the table's own rows are not read")


rated = hr.broadcast_join("rates", Unreadable(), on="currency", refresh="1 minute", how="left")


def test_a_table_that_has_no_rows_before_the_first_batch_is_refused() -> None:
    with pytest.raises(hr.DefinitionError, match=r"\[TIMELINE_TABLE_LATE\] .* table\('rates', \.\.\.\) before"):
        play(rated, at("10:00", currency="EUR"), table("rates", row(currency="EUR", rate=1.1)))


def test_a_table_of_a_step_that_is_no_broadcast_join_is_refused() -> None:
    with pytest.raises(hr.DefinitionError, match=r"\[TABLE_UNKNOWN\] table\('hourly', .* the timeline has rates"):
        play((rated, hourly), at("10:00", currency="EUR", account="a"), table("hourly"))
    with pytest.raises(hr.DefinitionError, match=r"\[TABLE_UNKNOWN\] .* the timeline has none"):
        play(hourly, at("10:00", account="a"), table("rates"))


def test_an_expectation_sees_only_rows_since_the_last_one_of_its_output() -> None:
    timeline(
        hourly,
        at("10:05", account="a"),
        watermark("11:00"),
        expect(account="a"),
        expect(),
        at("10:06", account="a"),
        batch(),
        expect(),
        expect(account="a", output="late"),
        expect(output="late"),
    )


def test_an_expectation_that_does_not_hold_fails() -> None:
    for wrong in (expect(), expect(account="b"), expect(account="a", n=2), expect(row(account="a"), row(account="a"))):
        with pytest.raises(AssertionError, match="output 'main' is not what the timeline expects"):
            timeline(hourly, at("10:05", account="a"), watermark("11:00"), wrong)


def test_rows_left_at_the_end_are_run() -> None:
    played = play(hourly, at("10:05", account="a"), watermark("11:00"), at("10:06", account="a"))
    assert [late["account"] for late in played.late] == ["a"]


def test_the_watermark_of_a_timeline_never_goes_back() -> None:
    timeline(
        hourly,
        at("10:05", account="a"),
        watermark("11:00"),
        expect(account="a"),
        watermark("09:00"),
        at("10:06", account="a"),
        batch(),
        expect(account="a", output="late"),
    )


def test_rows_do_not_move_a_watermark_that_the_timeline_sets() -> None:
    timeline(hourly, at("10:05", account="a"), at("23:00", account="a"), batch(), batch(), expect())


def test_a_crash_gives_no_rows_and_the_next_batch_gives_them_once() -> None:
    timeline(
        hourly,
        watermark("11:00"),
        at("10:05", account="a"),
        crash(),
        expect(output="late"),
        batch(),
        expect(account="a", output="late"),
        batch(),
        expect(output="late"),
    )


def test_a_timeline_may_move_the_clock_before_its_first_row() -> None:
    timeline(
        hourly,
        clock("12:00"),
        at("12:06", account="a"),
        batch(),
        expect(reason="EVENT_TIME_IN_FUTURE", output="dead_letters"),
        event_time=hr.event_time("at"),
    )


def test_use_engine_holds_inside_and_ends_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[str] = []

    class Recorded(Exception):
        pass

    def engine(name: str) -> Any:
        def make(setting: object) -> object:
            chosen.append(name)
            raise Recorded

        return make

    module = sys.modules[play.__module__]
    monkeypatch.setattr(module, "InlineEngine", engine("inline"))
    monkeypatch.setattr(module, "SparkEngine", engine("spark"))
    row_of_a = at("10:05", account="a")
    for _ in range(2):
        with pytest.raises(Recorded):
            play(hourly, row_of_a)
        with use_engine("spark"), pytest.raises(Recorded):
            play(hourly, row_of_a)
    with use_engine("spark"), pytest.raises(Recorded):
        play(hourly, row_of_a, engine="inline")
    assert chosen == ["inline", "spark", "inline", "spark", "inline"]


def test_a_row_that_is_lost_on_the_way_breaks_the_account_of_its_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = Gate._judge

    def losing(self: Gate, *given: Any) -> Any:
        rows, refused = judge(self, *given)
        return rows.head(1), refused

    monkeypatch.setattr(Gate, "_judge", losing)
    with pytest.raises(hr.HeadraceError, match=r"\[ACCOUNT_BROKEN\].*source rows: read 2 != handed on 1 \+ dead 0"):
        play(hourly, at("10:05", account="a"), at("10:06", account="a"), batch())
