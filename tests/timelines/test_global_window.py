"""Global windows: when each trigger fires, what the panes say, and how a key is forgotten."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace.operators.windows.triggered_windows import GlobalWindow
from headrace.testing import at, batch, crash, expect, late_by, play, row, timeline, watermark

FIRST_DAY = "2026-01-01T00:00"


def basket(trigger: Any, panes: Any = None, **more: Any) -> GlobalWindow:
    given = {"key": "visitor", "ttl": "1 hour", **more}
    step = hr.global_window("basket", **given).agg(n="count(*)", paid="sum(price)")
    return step.emit(trigger).panes(panes or hr.accumulating()).late(hr.side_output())


after_two, hourly = hr.after_rows(2), hr.every("1 hour", time="event")
checkout = hr.when("kind = 'checkout'")


@pytest.mark.spark
def test_accumulating_panes_hold_everything_since_the_key_began() -> None:
    timeline(
        basket(after_two),
        at("10:03", visitor="a", price=3),
        at("10:01", visitor="a", price=1),
        at("10:05", visitor="a", price=5),
        at("10:02", visitor="a", price=2),
        at("10:04", visitor="a", price=4),
        watermark("10:10"),
        expect(
            row(visitor="a", window="10:01/10:02:00.000001", n=2, paid=3, pane="early", revision=0),
            row(visitor="a", window="10:01/10:04:00.000001", n=4, paid=10, pane="early", revision=1),
        ),
        watermark("11:05"),
        expect(visitor="a", window="10:01/11:05", n=5, paid=15, pane="on_time", revision=2),
        watermark("20:00"),
        expect(),
        expect(output="late"),
    )


@pytest.mark.spark
def test_discarding_panes_hold_what_is_new_and_a_key_without_anything_new_is_forgotten_in_silence() -> None:
    timeline(
        basket(after_two, hr.discarding()),
        *(at(f"10:0{minute}", visitor="odd", price=minute) for minute in range(1, 6)),
        *(at(f"10:0{minute}", visitor="even", price=minute) for minute in range(1, 5)),
        watermark("10:10"),
        expect(
            row(visitor="odd", window="10:01/10:02:00.000001", n=2, paid=3, pane="early", revision=0),
            row(visitor="odd", window="10:03/10:04:00.000001", n=2, paid=7, pane="early", revision=1),
            row(visitor="even", window="10:01/10:02:00.000001", n=2, paid=3, pane="early", revision=0),
            row(visitor="even", window="10:03/10:04:00.000001", n=2, paid=7, pane="early", revision=1),
        ),
        watermark("20:00"),
        expect(visitor="odd", window="10:05/11:05", n=1, paid=5, pane="on_time", revision=2),
    )


@pytest.mark.spark
def test_retracting_panes_take_the_result_before_back_within_a_batch_and_across_batches() -> None:
    timeline(
        basket(after_two, hr.retracting()),
        *(at(f"10:0{minute}", visitor="a", price=minute) for minute in range(1, 5)),
        watermark("10:10"),
        expect(
            row(visitor="a", window="10:01/10:02:00.000001", n=2, paid=3, revision=0, change="insert"),
            row(visitor="a", window="10:01/10:02:00.000001", n=2, paid=3, revision=0, change="update_before"),
            row(visitor="a", window="10:01/10:04:00.000001", n=4, paid=10, revision=1, change="update_after"),
        ),
        at("10:11", visitor="a", price=11),
        crash(),
        batch(),
        watermark("10:30"),
        expect(),
        at("10:31", visitor="a", price=31),
        watermark("10:32"),
        expect(
            row(visitor="a", window="10:01/10:04:00.000001", n=4, paid=10, revision=1, change="update_before"),
            row(visitor="a", window="10:01/10:31:00.000001", n=6, paid=52, revision=2, change="update_after"),
        ),
        watermark("20:00"),
        expect(
            row(
                visitor="a",
                window="10:01/10:31:00.000001",
                paid=52,
                revision=2,
                pane="early",
                change="update_before",
            ),
            row(visitor="a", window="10:01/11:31", paid=52, revision=3, pane="on_time", change="update_after"),
        ),
    )


def test_a_key_that_never_fired_is_inserted_when_it_is_forgotten() -> None:
    timeline(
        basket(after_two, hr.retracting()),
        at("10:01", visitor="a", price=1),
        watermark("20:00"),
        expect(visitor="a", window="10:01/11:01", n=1, paid=1, pane="on_time", revision=0, change="insert"),
    )


def test_rows_are_counted_from_the_last_firing_across_batches() -> None:
    timeline(
        basket(hr.after_rows(3), hr.discarding()),
        at("10:01", visitor="a", price=1),
        at("10:02", visitor="a", price=2),
        watermark("10:03"),
        at("10:03", visitor="a", price=3),
        at("10:04", visitor="a", price=4),
        watermark("10:05"),
        expect(visitor="a", window="10:01/10:03:00.000001", n=3, paid=6, revision=0),
        at("10:05", visitor="a", price=5),
        at("10:06", visitor="a", price=6),
        watermark("10:07"),
        expect(visitor="a", window="10:04/10:06:00.000001", n=3, paid=15, revision=1),
    )


def test_a_condition_fires_at_each_row_that_meets_it_and_that_row_is_in_the_result() -> None:
    timeline(
        basket(checkout),
        at("10:02", visitor="a", price=2, kind="item"),
        at("10:03", visitor="a", price=0, kind="checkout"),
        at("10:01", visitor="a", price=1, kind="item"),
        at("10:03", visitor="a", price=100, kind="item"),
        at("10:04", visitor="a", price=4, kind=None),
        at("10:05", visitor="a", price=0, kind="checkout"),
        at("10:05", visitor="a", price=0, kind="checkout"),
        at("10:01", visitor="b", price=7, kind="item"),
        watermark("10:10"),
        expect(
            row(visitor="a", window="10:01/10:03:00.000001", n=3, paid=3, pane="early", revision=0),
            row(visitor="a", window="10:01/10:05:00.000001", n=6, paid=107, pane="early", revision=1),
            row(visitor="a", window="10:01/10:05:00.000001", n=7, paid=107, pane="early", revision=2),
        ),
    )


def test_a_condition_may_read_the_key_and_columns_that_no_aggregate_reads() -> None:
    timeline(
        basket(hr.when("visitor = 'a' AND shop = 3"), hr.discarding()),
        at("10:01", visitor="a", shop=3, price=1),
        at("10:02", visitor="b", shop=3, price=2),
        at("10:03", visitor="a", shop=4, price=3),
        watermark("10:10"),
        expect(visitor="a", window="10:01/10:01:00.000001", n=1, paid=1),
    )


@pytest.mark.parametrize(("condition", "firings"), [("TRUE", 2), ("NULL", 0), ("FALSE", 0)])
def test_a_condition_may_be_the_same_for_all_rows(condition: str, firings: int) -> None:
    rows = (at("10:01", visitor="a", price=1), at("10:02", visitor="b", price=2))
    played = play(basket(hr.when(condition)), *rows, watermark("10:10"))
    assert len(played.main) == firings


@pytest.mark.spark
def test_a_duration_fires_at_its_multiples_for_keys_that_have_changed() -> None:
    timeline(
        basket(hourly, ttl="1 day"),
        at("10:59:59.999999", visitor="a", price=1),
        at("11:00", visitor="a", price=2),
        at("11:30", visitor="b", price=9),
        watermark("11:00"),
        expect(visitor="a", window="10:59:59.999999/11:00", n=1, paid=1, pane="early", revision=0),
        watermark("11:59:59.999999"),
        expect(),
        watermark("12:00"),
        expect(
            row(visitor="a", window="10:59:59.999999/12:00", n=2, paid=3, pane="early", revision=1),
            row(visitor="b", window="11:30/12:00", n=1, paid=9, pane="early", revision=0),
        ),
        watermark("15:00"),
        expect(),
        at("15:10", visitor="b", price=1),
        watermark("16:00"),
        expect(visitor="b", window="11:30/16:00", n=2, paid=10, pane="early", revision=1),
    )


def test_a_jump_of_event_time_over_many_multiples_fires_only_where_a_key_had_changed() -> None:
    timeline(
        basket(hourly, hr.discarding(), ttl="1 day"),
        at("10:30", visitor="a", price=1),
        at("13:30", visitor="a", price=2),
        at("13:00", visitor="a", price=3),
        watermark("20:00"),
        expect(
            row(visitor="a", window="10:30/11:00", n=1, paid=1, revision=0),
            row(visitor="a", window="13:00/14:00", n=2, paid=5, revision=1),
        ),
    )


@pytest.mark.parametrize(
    ("ttl", "ends"),
    [("29 minutes", "10:59"), ("30 minutes", "11:00")],
    ids=["before the multiple", "just at the multiple"],
)
def test_a_key_whose_time_to_live_is_over_at_the_multiple_leaves_once(ttl: str, ends: str) -> None:
    timeline(
        basket(hourly, ttl=ttl),
        at("10:30", visitor="a", price=1),
        watermark("20:00"),
        expect(visitor="a", window=f"10:30/{ends}", n=1, paid=1, pane="on_time", revision=0),
    )


def test_a_key_that_lives_past_the_multiple_fires_and_then_leaves_though_unchanged() -> None:
    timeline(
        basket(hourly, ttl="30 minutes 1 microsecond"),
        at("10:30", visitor="a", price=1),
        watermark("20:00"),
        expect(
            row(visitor="a", window="10:30/11:00", n=1, paid=1, pane="early", revision=0),
            row(visitor="a", window="10:30/11:00:00.000001", n=1, paid=1, pane="on_time", revision=1),
        ),
    )


def test_a_forgotten_key_begins_anew() -> None:
    timeline(
        basket(after_two),
        at("10:00", visitor="a", price=1),
        at("10:59:59.999999", visitor="a", price=2),
        at("11:59:59.999999", visitor="a", price=4),
        watermark("12:30"),
        expect(
            row(visitor="a", window="10:00/11:00", n=2, paid=3, pane="early", revision=0),
            row(visitor="a", window="10:00/11:59:59.999999", n=2, paid=3, pane="on_time", revision=1),
        ),
        at("12:30", visitor="a", price=8),
        watermark("13:30"),
        expect(
            row(visitor="a", window="11:59:59.999999/12:30:00.000001", n=2, paid=12, pane="early", revision=0),
            row(visitor="a", window="11:59:59.999999/13:30", n=2, paid=12, pane="on_time", revision=1),
        ),
    )


@pytest.mark.spark
def test_a_window_stays_open_over_batches_empty_ones_and_crashes() -> None:
    timeline(
        basket(checkout),
        at("10:01", visitor="a", price=1, kind="item"),
        crash(),
        batch(),
        batch(),
        watermark("10:02"),
        crash(),
        batch(),
        at("10:02", visitor="a", price=2, kind="checkout"),
        crash(),
        watermark("10:03"),
        expect(visitor="a", window="10:01/10:02:00.000001", n=2, paid=3, pane="early", revision=0),
        crash(),
        at("10:03", visitor="a", price=4, kind="checkout"),
        watermark("10:04"),
        expect(visitor="a", window="10:01/10:03:00.000001", n=3, paid=7, pane="early", revision=1),
        watermark("20:00"),
        expect(visitor="a", window="10:01/11:03", n=3, paid=7, pane="on_time", revision=2),
    )


def test_times_before_1970_are_times_like_any_other() -> None:
    timeline(
        basket(hourly, ttl="1 day"),
        at("1969-12-31T22:30", visitor="a", price=1),
        at("1969-12-31T23:59:59.999999", visitor="a", price=2),
        at("1970-01-01T00:00", visitor="a", price=4),
        watermark("1970-01-01T01:00"),
        expect(
            row(visitor="a", window="1969-12-31T22:30/1969-12-31T23:00", paid=1),
            row(visitor="a", window="1969-12-31T22:30/1970-01-01T00:00", paid=3),
            row(visitor="a", window="1969-12-31T22:30/1970-01-01T01:00", paid=7),
        ),
    )


def test_late_rows_leave_whole_and_never_fire_anything() -> None:
    timeline(
        basket(after_two),
        at("10:30", visitor="a", price=1),
        watermark("10:31"),
        at("10:29", visitor="a", price=2),
        at("10:30:59.999999", visitor="b", price=3),
        batch(),
        expect(
            row(visitor="a", price=2, late_by=late_by("2 minutes")),
            row(visitor="b", price=3, late_by=late_by("1 microsecond")),
            output="late",
        ),
        watermark("20:00"),
        expect(visitor="a", n=1, paid=1, pane="on_time", revision=0),
    )


def test_dropped_late_rows_leave_no_trace() -> None:
    played = play(
        basket(after_two).late(hr.drop()),
        at("10:30", visitor="a", price=1),
        watermark("10:31"),
        at("10:29", visitor="a", price=2),
        batch(),
        watermark("20:00"),
    )
    assert [(each["n"], each["pane"]) for each in played.main] == [(1, "on_time")]
    assert played.late == []


def test_without_a_key_there_is_one_window_for_all_rows() -> None:
    timeline(
        basket(after_two, key=None),
        at("10:03", visitor="a", price=3, partition=0),
        at("10:01", visitor="b", price=1, partition=1),
        at("10:02", visitor="c", price=2, partition=2),
        watermark("20:00"),
        expect(
            row(window="10:01/10:02:00.000001", n=2, paid=3, pane="early", revision=0),
            row(window="10:01/11:03", n=3, paid=6, pane="on_time", revision=1),
        ),
    )


def test_a_key_that_is_kept_for_ever_goes_on_after_years() -> None:
    timeline(
        basket(after_two, ttl=None, keep_forever=True),
        at("1999-01-01T00:00", visitor="a", price=1),
        watermark("2025-01-01T00:00"),
        expect(),
        at("2025-01-01T00:00", visitor="a", price=2),
        watermark(FIRST_DAY),
        expect(visitor="a", window="1999-01-01T00:00/2025-01-01T00:00:00.000001", n=2, paid=3, pane="early"),
    )


def test_a_thousand_firings_of_one_key_in_one_batch_each_hold_everything_before() -> None:
    played = play(
        basket(hr.after_rows(1)),
        *(at(f"10:{second // 60:02d}:{second % 60:02d}", visitor="a", price=second) for second in range(1000)),
        watermark("10:30"),
    )
    assert [each["paid"] for each in played.main] == [second * (second + 1) // 2 for second in range(1000)]
    assert [each["revision"] for each in played.main] == list(range(1000))


@pytest.mark.spark
def test_discarding_panes_are_on_time_for_a_following_step_and_nothing_is_counted_twice() -> None:
    daily = hr.tumbling("daily", size="1 day", key="visitor").agg(panes="count(*)", total="sum(paid)")
    timeline(
        (basket(hourly, hr.discarding(), ttl="30 minutes"), daily.late(hr.side_output())),
        at("10:45", visitor="a", price=1),
        at("11:10", visitor="a", price=2),
        at("23:50", visitor="a", price=4),
        watermark("10:50"),
        crash(),
        watermark("11:00"),
        watermark("11:40"),
        watermark("23:59"),
        batch(),
        watermark("2026-01-02T00:00"),
        expect(visitor="a", window="2026-01-01T00:00/2026-01-02T00:00", panes=3, total=7),
        expect(output="late"),
    )


@pytest.mark.parametrize("panes", [hr.accumulating(), hr.retracting()], ids=repr)
def test_panes_that_replace_each_other_are_refused_by_a_following_step(panes: Any) -> None:
    daily = hr.tumbling("daily", size="1 day", key="visitor").agg(total="sum(paid)").late(hr.drop())
    with pytest.raises(hr.DefinitionError, match=r"\[PREVIEWS_INTO_STEP\] step 'daily' reads step 'basket'"):
        play((basket(after_two, panes), daily), at("10:00", visitor="a", price=1))


class Total(hr.Accumulator):
    """A sum of the author's own."""

    state = "total DOUBLE"
    result_type = "DOUBLE"

    def start(self) -> dict[str, Any]:
        return {"total": 0.0}

    def add(self, kept: dict[str, Any], value: float) -> dict[str, Any]:
        return {"total": kept["total"] + value}

    def merge(self, one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
        return {"total": one["total"] + other["total"]}

    def result(self, kept: dict[str, Any]) -> float:
        return float(kept["total"])


EVERY_KIND = {
    "distinct": "count(DISTINCT price)",
    "about": "approx_count_distinct(price)",
    "mean": "avg(price)",
    "spread": "stddev(price)",
    "earliest": "first(price)",
    "latest": "last(price)",
    "middle": hr.percentile("price", 0.5),
    "largest": hr.top("price", n=2),
    "listed": hr.collect_list("price", at_most=3),
    "different": hr.collect_set("price", at_most=3),
    "fading": hr.ewm("price", half_life="1 minute"),
    "own": Total("price"),
    "some": "sum(price) FILTER (WHERE price > 3)",
}


@pytest.mark.parametrize("name", EVERY_KIND)
@pytest.mark.parametrize("panes", [hr.accumulating(), hr.discarding(), hr.retracting()], ids=repr)
def test_every_aggregate_gives_the_same_over_many_batches_as_in_one(name: str, panes: Any) -> None:
    step = hr.global_window("basket", key="visitor", ttl="1 hour").agg(**{name: EVERY_KIND[name]})
    rows = [at(f"10:{minute:02d}", visitor="ab"[minute % 2], price=float(minute * 7 % 5)) for minute in range(12)]
    cut = [element for place, each in enumerate(rows) for element in (each, watermark(f"10:{place:02d}"))]
    fired = step.emit(hr.after_rows(2)).panes(panes).late(hr.drop())
    at_once, step_by_step = (play(fired, *elements, watermark("20:00")) for elements in (rows, cut))
    assert [len([each for each in at_once.main if each["visitor"] == visitor]) for visitor in "ab"] == (
        [3, 3] if panes.kind == "discarding" else [4, 4] if panes.kind == "accumulating" else [7, 7]
    )
    assert results_of(step_by_step.main, name) == results_of(at_once.main, name)


def results_of(rows: list[dict[str, Any]], name: str) -> list[tuple[Any, ...]]:
    """Rows by visitor, those of one in the order in which they left; the last digits of a float depend on batches."""
    return [
        (
            each["visitor"],
            each["window"],
            each["revision"],
            round(each[name], 9) if isinstance(each[name], float) else each[name],
        )
        for each in sorted(rows, key=lambda each: str(each["visitor"]))
    ]
