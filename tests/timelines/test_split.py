"""One source as both sides of a join: every row is read once, and is on the sides whose conditions it meets."""

from __future__ import annotations

import json
import random
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.durations import MICROSECONDS
from headrace.errors import DefinitionError
from headrace.testing import at, batch, crash, expect, late_by, play, row, timeline, watermark
from tests.models import interval_join as model
from tests.models.examples import examples
from tests.models.rows import START, micros, split

KINDS = ("kind = 'order'", "kind = 'payment'")
ROWS = 80
MINUTE = MICROSECONDS["minute"]
places = st.sets(st.integers(1, ROWS - 1), max_size=6)


def paid(how: Any = "inner") -> Any:
    return hr.interval_join("paid", on="id", between=("0 minutes", "10 minutes"), how=how).late(hr.side_output())


def order(time: str, id: str = "a", n: int = 1) -> Any:
    return at(time, kind="order", id=id, n=n)


def payment(time: str, id: str = "a", n: int = 1) -> Any:
    return at(time, kind="payment", id=id, n=n)


@pytest.mark.spark
def test_orders_meet_payments_that_came_by_the_same_source_and_nothing_else_meets() -> None:
    timeline(
        paid("full"),
        order("10:00", n=1),
        payment("10:05", n=2),
        order("10:06", n=3),
        at("10:06", kind="refund", id="a", n=4),
        at("10:06", kind=None, id="a", n=5),
        payment("10:30", id="b", n=6),
        batch(),
        expect(id="a", kind="order", n=1, at="10:00", kind_right="payment", n_right=2, at_right="10:05"),
        watermark("11:00"),
        expect(row(id="a", n=3, n_right=None), row(id="b", n=None, n_right=6)),
        split=KINDS,
    )


@pytest.mark.spark
def test_a_row_that_is_on_both_sides_meets_others_and_itself() -> None:
    timeline(
        hr.interval_join("higher", on="id", between=("0 minutes", "10 minutes")).late(hr.drop()),
        at("10:00", id="a", n=5),
        at("10:04", id="a", n=9),
        at("10:05", id="a", n=1),
        batch(),
        expect(row(n=5, n_right=5), row(n=5, n_right=9)),
        split=("n > 2 AND n < 9", "n > 2"),
    )


@pytest.mark.spark
def test_late_rows_leave_by_the_output_of_their_side() -> None:
    timeline(
        paid(),
        order("10:30", id="z"),
        watermark("10:20"),
        order("10:00", n=1),
        payment("10:10", n=2),
        payment("10:20", n=3),
        batch(),
        expect(row(kind="order", id="a", n=1, at="10:00", late_by=late_by("20 minutes")), output="late"),
        expect(row(kind="payment", id="a", n=2, at="10:10", late_by=late_by("10 minutes")), output="late_right"),
        expect(),
        split=KINDS,
    )


@pytest.mark.spark
def test_a_crash_neither_loses_nor_doubles_a_couple() -> None:
    timeline(
        paid(),
        order("10:00", n=1),
        crash(),
        batch(),
        payment("10:01", n=2),
        order("10:01", id="b", n=3),
        crash(),
        payment("10:02", n=4),
        payment("10:02", id="b", n=5),
        batch(),
        expect(row(id="a", n=1, n_right=2), row(id="a", n=1, n_right=4), row(id="b", n=3, n_right=5)),
        split=KINDS,
    )


@pytest.mark.spark
def test_rows_of_a_window_meet() -> None:
    timeline(
        hr.window_join("paid", on="id", window=hr.tumbling_window("1 hour")).late(hr.side_output()),
        order("10:00", n=1),
        payment("10:59", n=2),
        payment("11:00", n=3),
        watermark("11:00"),
        expect(id="a", window="10:00/11:00", n=1, n_right=2),
        split=KINDS,
    )


@pytest.mark.spark
def test_versions_come_by_the_source_of_the_rows() -> None:
    timeline(
        hr.temporal_join("priced", on="id", ttl="30 days", versions_late=hr.drop()).late(hr.drop()),
        at("10:00", kind="price", id="tea", n=5),
        at("10:05", kind="sale", id="tea", n=1),
        at("10:06", kind="price", id="tea", n=7),
        at("10:07", kind="sale", id="tea", n=2),
        watermark("10:30"),
        expect(row(n=1, n_right=5), row(n=2, n_right=7)),
        split=("kind = 'sale'", "kind = 'price'"),
    )


def test_rows_that_are_on_no_side_move_time() -> None:
    timeline(
        paid("left"),
        order("10:00"),
        batch(),
        expect(),
        at("11:00", kind="refund", id="a", n=2),
        batch(),
        batch(),
        expect(row(id="a", n=1, n_right=None)),
        split=KINDS,
        event_time=hr.event_time("at"),
    )


def test_a_condition_that_is_none_is_refused() -> None:
    with pytest.raises(DefinitionError, match="CONDITION_TYPE"):
        timeline(paid(), order("10:00"), split=("n", "n > 1"), engine="inline")


def test_a_condition_that_is_null_is_met_by_none() -> None:
    played = play(paid("left"), order("10:00"), payment("10:00"), watermark("11:00"), split=(KINDS[0], "NULL"))
    assert [(each["n"], each["n_right"]) for each in played.main] == [(1, None)]


def test_a_condition_may_ask_for_the_time_of_arrival() -> None:
    arrived = "arrived >= TIMESTAMP '2000-01-01T00:00:00Z'"
    played = play(paid(), order("10:00"), split=(arrived, arrived), event_time=hr.ingestion_time("arrived"))
    assert [(each["n"], each["n_right"]) for each in played.main] == [(1, 1)]


def test_rows_with_a_side_of_their_own_are_refused() -> None:
    with pytest.raises(DefinitionError, match="SPLIT_AND_SIDES"):
        timeline(paid(), order("10:00"), at("10:00", side="right", id="a"), split=KINDS)


@pytest.mark.spark
def test_dead_letters_of_both_sides_are_kept_whatever_the_step_is_called() -> None:
    step = hr.table_join("right", on="id", left_key="id", right_key="id")
    played = play(
        step,
        at("10:00", kind="order", id="a", n=1, change="insert", position="1"),
        at("10:00", kind="payment", id="a", n=2, change="insert", position="1"),
        at("10:00", kind="order", id="b", n=3, change="upsert", position="2"),
        at("10:00", kind="payment", id="b", n=4, change="upsert", position="2"),
        batch(),
        split=KINDS,
    )
    assert [(each["id"], each["n"], each["n_right"]) for each in played.main] == [("a", 1, 2)]
    assert sorted(json.loads(each["raw"])["n"] for each in played.dead_letters) == [3, 4]


@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
@examples(4)
@given(seed=st.integers(0, 2**32), batches=places, crashes=places, parts=st.integers(1, 4))
def test_any_split_into_batches_gives_the_models_answer(
    how: str, seed: int, batches: set[int], crashes: set[int], parts: int
) -> None:
    step = hr.interval_join("j", on="user", between=("-3 minutes", "7 minutes"), how=how)  # type: ignore[arg-type]
    rows = model.make_sides(seed, rows=ROWS, pace=10, disorder=600, users="abc")
    chance = random.Random(seed)

    def arriving(row: model.Row, partition: int) -> Any:
        time = START + timedelta(microseconds=row.time - micros(START))
        return at(time, side_of=row.side, user=row.user, number=row.number, partition=partition)

    later = micros(START + timedelta(days=1))
    ending = [arriving(model.Row("neither", "end", later, -1), partition) for partition in range(4)]
    played = play(
        step.late(hr.side_output()),
        *split([arriving(each, chance.randrange(parts)) for each in rows], batches, crashes),
        *(batch(), *ending, batch(), batch()),
        event_time=hr.event_time("at", out_of_order="10 minutes", partition="partition"),
        split=("side_of = 'left'", "side_of = 'right'"),
    )
    only_left = how in ("semi", "anti")
    found = [{"left_number": each["number"], "right_number": each.get("number_right")} for each in played.main]
    assert only_left or all("number_right" in each for each in played.main)
    assert model.followed(found) == model.answer(rows, model.near(-3 * MINUTE, 7 * MINUTE, "[]"), how)
    assert (played.late, played.late_right) == ([], [])
