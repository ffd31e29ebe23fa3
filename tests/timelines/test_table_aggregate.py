"""Aggregates of tables that are followed by their changes."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

import headrace as hr
from headrace.errors import HeadraceError
from headrace.operators.tables.table_aggregate import table_aggregate
from headrace.operators.tables.table_join import table_join
from headrace.testing import at, batch, crash, expect, play, row, timeline, watermark

SPEND = table_aggregate("spend", key="shop", row_key="id").agg(n="count(*)", total="sum(amount)", most="max(amount)")
PLAIN = table_aggregate("spend", key="shop").agg(n="count(*)", total="sum(amount)", most="max(amount)")


def order(position: int, kind: str, id: int, shop: str | None, amount: Any, *, time: str = "10:00") -> Any:
    return at(time, id=id, shop=shop, amount=amount, change=kind, position=f"{position:04d}")


def said(change: str, shop: str | None, n: int, total: Any, most: Any, **more: Any) -> Any:
    return row(shop=shop, n=n, total=total, most=most, change=change, **more)


@pytest.mark.spark
@pytest.mark.parametrize("step", [SPEND, PLAIN], ids=["by row", "by change"])
def test_a_sum_stays_right_when_rows_are_changed_and_deleted(step: Any) -> None:
    timeline(
        step,
        order(1, "insert", 1, "s", 10),
        order(2, "insert", 2, "s", 5),
        batch(),
        expect(said("insert", "s", 2, 15, 10)),
        order(3, "update_before", 1, "s", 10),
        order(3, "update_after", 1, "s", 4),
        batch(),
        expect(said("update_before", "s", 2, 15, 10), said("update_after", "s", 2, 9, 5)),
        order(4, "delete", 2, "s", 5),
        batch(),
        expect(said("update_before", "s", 2, 9, 5), said("update_after", "s", 1, 4, 4)),
        order(5, "delete", 1, "s", 4),
        batch(),
        expect(said("delete", "s", 1, 4, 4)),
    )


@pytest.mark.parametrize("step", [SPEND, PLAIN], ids=["by row", "by change"])
def test_a_row_may_move_to_another_group(step: Any) -> None:
    timeline(
        step,
        order(1, "insert", 1, "s", 10),
        order(2, "insert", 2, "t", 1),
        batch(),
        expect(said("insert", "s", 1, 10, 10), said("insert", "t", 1, 1, 1)),
        order(3, "update_before", 1, "s", 10),
        order(3, "update_after", 1, "t", 12),
        batch(),
        expect(
            said("delete", "s", 1, 10, 10), said("update_before", "t", 1, 1, 1), said("update_after", "t", 2, 13, 12)
        ),
    )


@pytest.mark.spark
def test_stale_and_repeated_changes_are_told_by_the_key_of_the_row() -> None:
    timeline(
        SPEND,
        order(5, "insert", 1, "s", 10),
        batch(),
        expect(said("insert", "s", 1, 10, 10)),
        order(5, "insert", 1, "s", 10),
        order(4, "insert", 1, "s", 9),
        batch(),
        expect(),
        order(6, "delete", 1, "s", None),
        batch(),
        expect(said("delete", "s", 1, 10, 10)),
        order(5, "insert", 1, "s", 10),
        batch(),
        expect(),
    )


@pytest.mark.spark
def test_a_crash_takes_nothing_in_twice() -> None:
    timeline(
        PLAIN,
        order(1, "insert", 1, "s", 10),
        crash(),
        batch(),
        expect(said("insert", "s", 1, 10, 10)),
        order(2, "insert", 2, "s", 30),
        crash(),
        crash(),
        batch(),
        expect(said("update_before", "s", 1, 10, 10), said("update_after", "s", 2, 40, 30)),
        order(3, "delete", 2, "s", 30),
        crash(),
        batch(),
        expect(said("update_before", "s", 2, 40, 30), said("update_after", "s", 1, 10, 10)),
    )


def test_a_group_whose_results_stay_the_same_says_nothing() -> None:
    timeline(
        table_aggregate("spend", key="shop", row_key="id").agg(most="max(amount)"),
        order(1, "insert", 1, "s", 10),
        order(2, "insert", 2, "s", 5, time="10:05"),
        batch(),
        expect(shop="s", most=10, change="insert", position="00000000000000000000", changed_at="10:05"),
        order(3, "update_after", 2, "s", 6),
        batch(),
        expect(),
        order(4, "update_after", 2, "s", 11, time="10:07"),
        batch(),
        expect(
            row(shop="s", most=10, change="update_before", position="00000000000000000002", changed_at="10:07"),
            row(shop="s", most=11, change="update_after", position="00000000000000000002", changed_at="10:07"),
        ),
    )


@pytest.mark.parametrize("row_key", ["id", ()], ids=["by row", "by change"])
def test_every_aggregate_that_can_take_rows_back_does(row_key: Any) -> None:
    step = table_aggregate("all", key="shop", row_key=row_key).agg(
        n="count(*)",
        known="count(amount)",
        kinds="count(DISTINCT amount)",
        total="sum(amount)",
        mean="avg(amount)",
        least="min(amount)",
        most="max(amount)",
        large="sum(amount) FILTER (WHERE amount > 2)",
    )
    names = ("n", "known", "kinds", "total", "mean", "least", "most", "large")

    def values(*given: Any, change: str) -> Any:
        return row(shop="s", change=change, **dict(zip(names, given, strict=True)))

    timeline(
        step,
        order(1, "insert", 1, "s", None),
        batch(),
        expect(values(1, 0, 0, None, None, None, None, None, change="insert")),
        order(2, "insert", 2, "s", 1),
        order(3, "insert", 3, "s", 4),
        order(4, "insert", 4, "s", 1),
        batch(),
        expect(
            values(1, 0, 0, None, None, None, None, None, change="update_before"),
            values(4, 3, 2, 6, 2.0, 1, 4, 4, change="update_after"),
        ),
        order(5, "delete", 2, "s", 1),
        batch(),
        expect(
            values(4, 3, 2, 6, 2.0, 1, 4, 4, change="update_before"),
            values(3, 2, 2, 5, 2.5, 1, 4, 4, change="update_after"),
        ),
        order(6, "delete", 3, "s", 4),
        order(7, "delete", 4, "s", 1),
        batch(),
        expect(
            values(3, 2, 2, 5, 2.5, 1, 4, 4, change="update_before"),
            values(1, 0, 0, None, None, None, None, None, change="update_after"),
        ),
    )


def test_doubles_that_come_and_go_leave_nothing_behind() -> None:
    step = table_aggregate("spend", key="shop").agg(total="sum(amount)", mean="avg(amount)")
    values = [0.1, 0.2, 0.3, 1e16, 7.7]
    rows = [order(place, "insert", place, "s", value) for place, value in enumerate(values)]
    gone = [order(9, "delete", place, "s", value) for place, value in enumerate(values[:-1])]
    elements = [element for each in [*rows, *gone] for element in (each, batch())]
    last = play(step, *elements).main[-1]
    assert (last["total"], last["mean"], last["change"]) == (7.7, 7.7, "update_after")


def test_what_is_no_number_or_infinite_can_go_again() -> None:
    step = table_aggregate("spend", key="shop").agg(total="sum(amount)")
    inf = float("inf")
    played = play(
        step,
        order(1, "insert", 1, "s", 1.5),
        order(2, "insert", 2, "s", inf),
        batch(),
        order(3, "insert", 3, "s", float("nan")),
        batch(),
        order(4, "delete", 3, "s", float("nan")),
        order(5, "insert", 4, "s", -inf),
        batch(),
        order(6, "delete", 2, "s", inf),
        batch(),
        order(7, "delete", 4, "s", -inf),
        batch(),
    )
    shown = [repr(row["total"]) for row in played.main if row["change"] in ("insert", "update_after")]
    assert shown == ["inf", "nan", "-inf", "1.5"]


def test_decimals_are_exact_whatever_their_size() -> None:
    step = table_aggregate("spend", key="shop").agg(total="sum(amount)", mean="avg(amount)")
    large = Decimal("99999999999999999999999999.99")
    played = play(
        step,
        order(1, "insert", 1, "s", large),
        order(2, "insert", 2, "s", Decimal("0.01")),
        order(3, "insert", 3, "s", Decimal("-5.25")),
        batch(),
        order(4, "delete", 1, "s", large),
        batch(),
    )
    assert [(row["total"], row["mean"]) for row in played.main if row["change"] != "update_before"] == [
        (Decimal("99999999999999999999999994.75"), Decimal("33333333333333333333333331.583333")),
        (Decimal("-5.24"), Decimal("-2.620000")),
    ]


def test_a_sum_beyond_bigint_stops_the_flow_with_its_group() -> None:
    with pytest.raises(HeadraceError, match=r"\[SUM_OVERFLOW\] step 'spend': total = sum\(amount\) for key 's' is"):
        play(PLAIN, order(1, "insert", 1, "s", 2**62), order(2, "insert", 2, "s", 2**62), batch())


def test_a_mean_that_does_not_fit_stops_the_flow_with_its_group() -> None:
    step = table_aggregate("spend", key="shop").agg(mean="avg(amount)")
    with pytest.raises(HeadraceError, match=r"\[SUM_OVERFLOW\] step 'spend': mean = avg\(amount\) for key 's' is"):
        play(step, order(1, "insert", 1, "s", Decimal("9" * 38)), batch())


def test_the_definition_prints_as_code_and_wants_names() -> None:
    step = table_aggregate("spend", key="shop").agg(total="sum(amount)", n="count(*)")
    assert repr(step) == "hr.table_aggregate('spend', key='shop').agg(total='sum(amount)', n='count(*)')"
    with pytest.raises(hr.DefinitionError, match=r"\[AGGREGATE_UNNAMED\] step 'spend': 'count\(\*\)' has no name"):
        table_aggregate("spend", key="shop").agg("count(*)")


@pytest.mark.spark
def test_null_is_a_group_and_without_a_key_there_is_one() -> None:
    timeline(
        SPEND,
        order(1, "insert", 1, None, 10),
        order(2, "insert", 2, "s", 5),
        batch(),
        expect(said("insert", None, 1, 10, 10), said("insert", "s", 1, 5, 5)),
        order(3, "update_after", 1, None, 11),
        batch(),
        expect(said("update_before", None, 1, 10, 10), said("update_after", None, 1, 11, 11)),
    )
    timeline(
        table_aggregate("all", key=None, row_key="id").agg(n="count(*)"),
        order(1, "insert", 1, "s", 10),
        order(2, "insert", 2, "t", 5),
        batch(),
        expect(n=2, change="insert"),
        order(3, "delete", 1, "s", 10),
        order(4, "delete", 2, "t", 5),
        batch(),
        expect(n=2, change="delete"),
    )


def test_a_deletion_is_forgotten_when_event_time_has_left_it_behind() -> None:
    timeline(
        table_aggregate("spend", key="shop", row_key="id", keep_deleted="1 hour").agg(n="count(*)"),
        order(1, "insert", 1, "s", 10),
        order(3, "delete", 1, "s", 10, time="10:10"),
        watermark("11:09:59"),
        order(2, "update_after", 1, "s", 10),
        batch(),
        expect(),
        watermark("11:10"),
        order(2, "update_after", 1, "s", 10),
        batch(),
        expect(shop="s", n=1, change="insert"),
    )


@pytest.mark.spark
def test_the_view_of_a_join_is_aggregated() -> None:
    view = table_join("view", on={"shop": "id"}, left_key="order", right_key="id", how="left")
    timeline(
        (view, table_aggregate("cities", key="city", row_key=["order", "shop"]).agg(n="count(*)", total="sum(amount)")),
        at("10:00", order=1, shop="s", amount=10, change="insert", position="1"),
        at("10:00", side="right", id="s", city="Rome", change="insert", position="1"),
        batch(),
        expect(city="Rome", n=1, total=10, change="insert"),
        at("10:00", side="right", id="s", city="Rome", change="update_before", position="2"),
        at("10:00", side="right", id="s", city="Oslo", change="update_after", position="2"),
        at("10:00", order=2, shop="t", amount=7, change="insert", position="2"),
        batch(),
        expect(
            row(city="Rome", n=1, total=10, change="delete"),
            row(city="Oslo", n=1, total=10, change="insert"),
            row(city=None, n=1, total=7, change="insert"),
        ),
        at("10:00", order=2, shop="t", amount=7, change="update_before", position="3"),
        at("10:00", order=2, shop="s", amount=8, change="update_after", position="3"),
        batch(),
        expect(
            row(city=None, n=1, total=7, change="delete"),
            row(city="Oslo", n=1, total=10, change="update_before"),
            row(city="Oslo", n=2, total=18, change="update_after"),
        ),
    )


@pytest.mark.spark
@pytest.mark.parametrize("emission", [hr.on_close(), hr.on_update()], ids=repr)
def test_totals_follow_windows_that_take_their_results_back(emission: Any) -> None:
    hourly = hr.tumbling("hourly", size="1 hour", key="account").agg(spent="sum(amount)").emit(emission)
    totals = hr.table_aggregate("totals", key="account").agg(total="sum(spent)", hours="count(*)", most="max(spent)")
    timeline(
        (hourly.panes(hr.retracting()).late(hr.update_for("2 days")), totals),
        at("10:05", account="a", amount=5.0),
        watermark("11:00"),
        expect(account="a", total=5.0, hours=1, most=5.0, change="insert"),
        at("10:06", account="a", amount=2.0),
        crash(),
        batch(),
        expect(
            row(account="a", total=5.0, hours=1, most=5.0, change="update_before"),
            row(account="a", total=7.0, hours=1, most=7.0, change="update_after"),
        ),
        at("11:05", account="a", amount=1.0),
        watermark("12:00"),
        expect(
            row(account="a", total=7.0, hours=1, most=7.0, change="update_before"),
            row(account="a", total=8.0, hours=2, most=7.0, change="update_after"),
        ),
    )


@pytest.mark.spark
def test_a_row_that_is_taken_back_leaves_the_group_of_its_own_pane() -> None:
    previewed = hr.tumbling("hourly", size="1 hour", key="account").agg(spent="sum(amount)").emit(hr.on_update())
    totals = hr.table_aggregate("totals", key="pane").agg(rows="count(*)", spent="sum(spent)")
    timeline(
        (previewed.panes(hr.retracting()).late(hr.update_for("1 hour")), totals),
        at("10:05", account="a", amount=1.0),
        batch(),
        expect(pane="early", rows=1, spent=1.0, change="insert"),
        crash(),
        watermark("11:00"),
        expect(
            row(pane="early", rows=1, spent=1.0, change="delete"),
            row(pane="on_time", rows=1, spent=1.0, change="insert"),
        ),
        at("10:06", account="a", amount=2.0),
        crash(),
        batch(),
        expect(
            row(pane="on_time", rows=1, spent=1.0, change="delete"),
            row(pane="late", rows=1, spent=3.0, change="insert"),
        ),
    )


def test_totals_follow_a_join_that_takes_rows_back() -> None:
    joined = hr.interval_join("paid", on="id", between=("0 seconds", "10 minutes"), how="left")
    totals = hr.table_aggregate("totals", key="id").agg(rows="count(*)", paid="sum(paid)")
    timeline(
        (joined.late(hr.update_for("1 hour")), totals),
        at("10:00", id="a"),
        watermark("10:30"),
        expect(id="a", rows=1, paid=None, change="insert"),
        at("10:05", side="right", id="a", paid=7),
        batch(),
        expect(
            row(id="a", rows=1, paid=None, change="update_before"), row(id="a", rows=1, paid=7, change="update_after")
        ),
    )


def test_results_that_are_replaced_without_being_taken_back_are_refused() -> None:
    hourly = hr.tumbling("hourly", size="1 hour", key="account").agg(spent="sum(amount)").late(hr.update_for("1 day"))
    totals = hr.table_aggregate("totals", key="account").agg(total="sum(spent)")
    with pytest.raises(hr.DefinitionError, match=r"\[CHANGELOG_EXPECTED\] .* no change"):
        play((hourly, totals), at("10:05", account="a", amount=1.0))


def test_exact_products_are_added_and_taken_back() -> None:
    step = table_aggregate("spend", key="shop", row_key="id").agg(total="sum(amount * 3 - 1)", n="count(amount)")
    timeline(
        step,
        order(1, "insert", 1, "s", 2**62),
        order(2, "insert", 2, "s", -(2**62)),
        batch(),
        expect(row(shop="s", total=-2, n=2, change="insert")),
        order(3, "insert", 3, "s", 5),
        order(4, "delete", 2, "s", -(2**62)),
        order(5, "delete", 1, "s", 2**62),
        crash(),
        batch(),
        expect(
            row(shop="s", total=-2, n=2, change="update_before"), row(shop="s", total=14, n=1, change="update_after")
        ),
    )


def test_an_expression_over_aggregates_cannot_retract() -> None:
    with pytest.raises(hr.DefinitionError, match=r"\[AGGREGATE_CANNOT_RETRACT\]"):
        table_aggregate("spend", key="shop").agg(mean="sum(amount) / count(*)")
