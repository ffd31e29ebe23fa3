"""How timelines are played, inline."""

from __future__ import annotations

import sys
from typing import Any

import pytest

import headrace as hr
from headrace.connectors.base.source import Gate
from headrace.testing import at, batch, clock, crash, expect, play, row, timeline, use_engine, watermark

hourly = hr.tumbling("hourly", size="1 hour", key="account").agg(n="count(*)").late(hr.side_output())


def test_a_timeline_without_rows_is_refused() -> None:
    with pytest.raises(hr.DefinitionError, match=r"\[TIMELINE_EMPTY\]"):
        play(hourly, watermark("11:00"))


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
