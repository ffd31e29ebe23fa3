"""Interval joins whose left rows have intervals of their own, the best match by a column, null keys and none."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

import headrace as hr
from headrace.testing import at, batch, crash, expect, row, timeline, watermark


def time(clock: str) -> datetime:
    hours, minutes = map(int, clock.split(":"))
    return datetime(2026, 1, 1, hours, minutes, tzinfo=UTC)


def auction(start: str, expires: str | None, id: str | None = "a") -> Any:
    return at(start, auction=id, expires=None if expires is None else time(expires))


def bid(moment: str, price: int | None, id: str | None = "a", **more: Any) -> Any:
    return at(moment, side="right", auction=id, price=price, **more)


def won(late: Any = None, **more: Any) -> Any:
    given = {"on": "auction", "between": ("0 seconds", "expires"), "bounds": "[)", "match": "highest", "by": "price"}
    return hr.interval_join("won", **{**given, "how": "left", **more}).late(late or hr.side_output())


@pytest.mark.spark
def test_an_auction_is_won_by_the_highest_bid_before_its_own_expiry() -> None:
    timeline(
        won(),
        bid("09:59", 90),  # before it began
        auction("10:00", "10:30"),
        auction("10:00", "11:00", id="b"),
        bid("10:10", 20),
        bid("10:20", 50),
        batch(),
        expect(),
        crash(),
        bid("10:25", 50),  # no higher than the one before
        bid("10:26", None),
        bid("10:30", 80),  # too late for the auction
        bid("10:30", 8, id="b"),
        watermark("10:29:59.999999"),
        expect(),
        watermark("10:30"),
        expect(auction="a", price=50, at="10:00", at_right="10:20", event_time="10:29:59.999999"),
        crash(),
        bid("10:59", 7, id="b"),
        watermark("11:00"),
        batch(),
        expect(auction="b", price=8, at_right="10:30", event_time="10:59:59.999999"),
    )


@pytest.mark.spark
def test_every_row_up_to_the_end_of_its_own_matches_at_once_and_one_without_a_match_leaves_at_its_end() -> None:
    timeline(
        won(match="all", by=None),
        auction("10:00", "10:30"),
        auction("10:00", "12:00", id="b"),
        auction("10:00", None, id="c"),  # without an end nothing matches
        auction("10:00", "09:00", id="d"),
        watermark("10:00"),
        expect(
            row(auction="c", price=None, event_time="10:00"),
            row(auction="d", price=None, event_time="10:00"),
        ),
        bid("10:29", 5),
        batch(),
        expect(auction="a", price=5, event_time="10:29"),
        watermark("12:30"),
        expect(auction="b", price=None, event_time="11:59:59.999999"),
    )


def test_an_interval_may_begin_at_a_column_too_but_never_before_its_row() -> None:
    booked = hr.interval_join("booked", on="room", between=("opens", "closes")).late(hr.side_output())
    timeline(
        booked,
        at("10:00", room=1, opens=time("10:30"), closes=time("11:00")),
        at("10:00", room=2, opens=time("09:00"), closes=time("11:00")),
        *(at(moment, side="right", room=room, n=n) for n, (moment, room) in enumerate(
            [("10:29", 1), ("10:30", 1), ("11:00", 1), ("11:01", 1), ("09:30", 2), ("10:00", 2)]
        )),
        batch(),
        expect(row(room=2, n=5), row(room=1, n=1), row(room=1, n=2)),
    )  # fmt: skip


def test_a_late_bid_corrects_the_winner_and_takes_back_the_same_row() -> None:
    timeline(
        won(late=hr.update_for("1 hour")),
        auction("10:00", "10:30"),
        bid("10:20", 50),
        watermark("11:00"),
        expect(auction="a", price=50, event_time="10:29:59.999999", change="insert"),
        bid("10:21", 70),
        batch(),
        expect(
            row(auction="a", price=50, at_right="10:20", event_time="10:29:59.999999", change="delete"),
            row(auction="a", price=70, at_right="10:21", event_time="10:29:59.999999", change="insert"),
        ),
    )


@pytest.mark.parametrize(("match", "price"), [("highest", 3), ("lowest", 1)])
def test_the_best_of_a_fixed_interval(match: Any, price: int) -> None:
    timeline(
        won(between=("0 seconds", "10 minutes"), match=match),
        auction("10:00", None),
        *(bid(f"10:0{minute}", price) for minute, price in enumerate((2, 1, 3, None, 1, 3))),
        bid("10:10", 9),
        watermark("10:10:00.000001"),
        expect(auction="a", price=price),
    )


@pytest.mark.spark
def test_null_meets_null_where_it_is_said() -> None:
    timeline(
        hr.interval_join("met", on=["a", "b"], between=("0 seconds", "1 hour"), nulls_equal=True).late(hr.drop()),
        at("10:00", a=None, b=1, n=1),
        at("10:00", a="x", b=None, n=2),
        batch(),
        at("10:10", side="right", a=None, b=1, m=3),
        at("10:10", side="right", a=None, b=None, m=4),
        at("10:10", side="right", a="x", b=None, m=5),
        batch(),
        expect(row(a=None, b=1, n=1, m=3), row(a="x", b=None, n=2, m=5)),
    )


@pytest.mark.spark
def test_without_a_key_all_rows_that_are_near_meet() -> None:
    timeline(
        hr.interval_join("met", on=None, between=("0 seconds", "1 minute"), how="full").late(hr.drop()),
        at("10:00", alarm="fire"),
        at("10:20", alarm="flood"),
        batch(),
        crash(),
        at("10:00:30", side="right", door=1),
        at("10:01", side="right", door=2),
        at("10:02", side="right", door=3),
        batch(),
        expect(
            row(alarm="fire", at="10:00", door=1, at_right="10:00:30", event_time="10:00:30"),
            row(alarm="fire", at="10:00", door=2, at_right="10:01", event_time="10:01"),
        ),
        watermark("11:00"),
        expect(row(alarm=None, door=3, event_time="10:02"), row(alarm="flood", door=None, event_time="10:20")),
    )


def test_the_result_of_an_own_interval_is_on_time_for_the_next_step() -> None:
    hourly = hr.tumbling("hourly", size="1 hour", key="auction").agg(paid="sum(price)").late(hr.side_output())
    timeline(
        (won(), hourly),
        auction("10:00", "15:30"),
        bid("10:01", 5),
        watermark("14:00"),
        expect(),
        watermark("16:00"),
        batch(),
        expect(auction="a", window="15:00/16:00", paid=5),
        expect(output="late"),
    )
