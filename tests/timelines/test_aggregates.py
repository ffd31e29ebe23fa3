"""Aggregates of windows, over nulls too, whatever way the rows are split."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

import headrace as hr
from headrace.testing import at, batch, crash, expect, play, row, timeline, watermark

everything = (
    hr.tumbling("everything", size="1 hour", key="account")
    .agg(rows="count(*)", known="count(x)", total="sum(x)", least="min(x)", most="max(x)", mean="avg(x)")
    .late(hr.side_output())
)


@pytest.mark.spark
def test_aggregates_pass_over_nulls_and_count_star_does_not() -> None:
    timeline(
        everything,
        at("10:05", account="a", x=4),
        at("10:06", account="a", x=None),
        at("10:06", account="none", x=None),
        batch(),
        at("10:07", account="a", x=-1, partition=1),
        at("10:08", account="none", x=None),
        at("10:08", account="a", x=None),
        crash(),
        batch(),
        watermark("11:00"),
        expect(
            row(account="a", rows=4, known=2, total=3, least=-1, most=4, mean=1.5),
            row(account="none", rows=2, known=0, total=None, least=None, most=None, mean=None),
        ),
    )


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param([0.5, 1.5, None], {"known": 2, "total": 2.0, "least": 0.5, "most": 1.5, "mean": 1.0}, id="floats"),
        pytest.param(
            [1.0, float("nan")],
            {"total": float("nan"), "least": 1.0, "most": float("nan"), "mean": float("nan")},
            id="nan is the greatest",
        ),
        pytest.param(
            [Decimal("0.10"), Decimal("0.20"), Decimal("0.31")],
            {"total": Decimal("0.61"), "least": Decimal("0.10"), "mean": Decimal("0.203333")},
            id="decimals are exact",
        ),
        pytest.param([2**62, 2**62, -(2**62)], {"total": 2**62, "most": 2**62}, id="sums may pass 64 bits on the way"),
    ],
)
def test_numbers_in_one_batch_and_in_many_give_the_same(values: list[Any], expected: dict[str, Any]) -> None:
    rows = [at(f"10:0{place}", account="a", x=value) for place, value in enumerate(values)]
    split = [element for each in rows for element in (each, batch())]
    for elements in (rows, split):
        timeline(everything, *elements, watermark("11:00"), expect(account="a", **expected))


def test_a_sum_beyond_64_bits_is_an_error_with_its_key() -> None:
    with pytest.raises(hr.HeadraceError, match=r"\[SUM_OVERFLOW\] step 'everything': total = .* for key 'a' is beyond"):
        play(everything, at("10:00", account="a", x=2**62), at("10:01", account="a", x=2**62), watermark("11:00"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sum(v)", r"s = sum\(v\) for key 'a' is beyond the range of DECIMAL\(38, 0\)"),
        ("avg(v)", r"s = avg\(v\) for key 'a' is beyond the range of DECIMAL\(38, 4\)"),
    ],
)
def test_a_sum_or_average_of_decimals_that_does_not_fit_is_an_error_with_its_key(text: str, said: str) -> None:
    step = hr.tumbling("spend", size="1 hour", key="account").agg(s=text).late(hr.side_output())
    rows = [at(f"10:0{place}", account="a", v=Decimal("9" * 38)) for place in range(2)]
    split = [element for each in rows for element in (each, batch())]
    for elements in (rows, split):
        with pytest.raises(hr.HeadraceError, match=rf"\[SUM_OVERFLOW\] step 'spend': {said}.*DOUBLE"):
            play(step, *elements, watermark("11:00"))


def test_a_sum_of_decimals_that_passes_its_range_and_returns_is_right() -> None:
    step = hr.tumbling("spend", size="1 hour", key="account").agg(s="sum(v)").late(hr.side_output())
    values = [Decimal("9" * 38), Decimal("9" * 38), Decimal("-" + "9" * 38)]
    rows = [element for value in values for element in (at("10:00", account="a", v=value), batch())]
    timeline(step, *rows, watermark("11:00"), expect(account="a", s=Decimal("9" * 38)))


def test_text_and_dates_have_a_least_and_a_greatest() -> None:
    step = hr.tumbling("ends", size="1 hour", key="account").agg(
        first="min(name)", last="max(name)", earliest="min(day)", latest="max(day)"
    )
    timeline(
        step.late(hr.drop()),
        at("10:05", account="a", name="b", day=date(2026, 1, 2)),
        batch(),
        at("10:05", account="a", name="B", day=date(1969, 1, 2)),
        at("10:05", account="a", name="ä", day=None),
        at("10:05", account="a", name=None, day=None),
        watermark("11:00"),
        expect(account="a", first="B", last="ä", earliest=date(1969, 1, 2), latest=date(2026, 1, 2)),
    )


def test_an_aggregate_may_be_of_an_expression_over_the_row() -> None:
    step = hr.tumbling("sums", size="1 hour", key="account").agg(
        paid="sum(price * pieces)", large="count(CASE WHEN price > 5 THEN 1 END)"
    )
    timeline(
        step.late(hr.drop()),
        at("10:05", account="a", price=10.0, pieces=2),
        at("10:06", account="a", price=1.0, pieces=3),
        watermark("11:00"),
        expect(account="a", paid=23.0, large=1),
    )


def test_an_aggregate_of_a_column_that_does_not_exist_is_refused_before_any_row_is_read() -> None:
    step = hr.tumbling("sums", size="1 hour", key="account").agg(paid="sum(prise)").late(hr.drop())
    with pytest.raises(hr.DefinitionError, match="prise"):
        timeline(step, at("10:05", account="a", price=10))


def test_a_sum_of_text_is_refused() -> None:
    step = hr.tumbling("sums", size="1 hour", key="account").agg(paid="sum(account)").late(hr.drop())
    with pytest.raises(hr.DefinitionError, match=r"\[AGGREGATE_TYPE\]"):
        timeline(step, at("10:05", account="a"))


@pytest.mark.parametrize(
    ("value", "of", "largest"),
    [
        ("paid.x", "ordered.x", {"paid.x": 4, "ordered.x": 7}),
        ("paid.x ", "x", {"paid.x": 4, "x": 1}),
        ("x", "CAST(x AS DOUBLE)", {"x": 2, "CAST(x AS DOUBLE)": 2.0}),
    ],
)
def test_two_fields_of_one_name_are_told_apart_by_their_whole_text(
    value: str, of: str, largest: dict[str, Any]
) -> None:
    timeline(
        hr.tumbling("best", size="1 hour", key="account").agg(most=hr.top(value, n=1, of=of)).late(hr.drop()),
        at("10:00", account="a", x=2, paid={"x": 1}, ordered={"x": 2}),
        batch(),
        at("10:01", account="a", x=1, paid={"x": 4}, ordered={"x": 7}),
        watermark("11:00"),
        expect(account="a", most=[largest]),
    )


def test_over_no_value_lists_are_empty_and_everything_else_is_null() -> None:
    step = hr.tumbling("none", size="1 hour", key="account").agg(
        top=hr.top("x", n=2),
        top_of=hr.top("x", n=2, of="account"),
        listed=hr.collect_list("x", at_most=2),
        different=hr.collect_set("x", at_most=2),
        half=hr.percentile("x", 0.5),
        halves=hr.percentile("x", [0.5]),
        mean=hr.ewm("x", half_life="1 hour"),
    )
    timeline(
        step.late(hr.drop()),
        at("10:00", account="a", x=None),
        at("10:00", account="b", x=1.0),
        watermark("11:00"),
        expect(
            row(account="a", top=[], top_of=[], listed=[], different=[], half=None, halves=None, mean=None),
            row(
                account="b",
                top=[1.0],
                top_of=[{"x": 1.0, "account": "b"}],
                listed=[1.0],
                different=[1.0],
                half=1.0,
                halves=[1.0],
                mean=1.0,
            ),
        ),
    )


@pytest.mark.spark
def test_whole_rows_structs_and_lists_are_values_like_any_other() -> None:
    step = hr.tumbling("rows", size="1 hour", key="account").agg(
        last="last(struct(*))",
        dearest="max_by(struct(shop, tags AS labels), x)",
        tags="first(tags)",
        shops=hr.collect_list("shop", at_most=2),
        top=hr.top("x", n=2, of="shop"),
        rows=hr.top("x", n=1, of="struct(x, tags)"),
    )
    bakery, mill = {"name": "bakery", "at": datetime(2026, 1, 1, tzinfo=UTC)}, {"name": "mill", "at": None}
    timeline(
        step.late(hr.drop()),
        at("10:05", account="a", x=4.0, shop=bakery, tags=["t", None]),
        batch(),
        at("10:06", account="a", x=4.0, shop=mill, tags=[]),
        at("10:04", account="a", x=float("inf"), shop=None, tags=None),
        crash(),
        batch(),
        at("10:07", account="a", x=None, shop=mill, tags=["z"]),
        watermark("11:00"),
        expect(
            account="a",
            last={
                "account": "a",
                "x": None,
                "shop": mill,
                "tags": ["z"],
                "at": "10:07",
            },
            dearest={"shop": None, "labels": None},
            tags=None,
            shops=[bakery, mill],
            top=[{"x": float("inf"), "shop": None}, {"x": 4.0, "shop": bakery}],
            rows=[{"x": float("inf"), "struct(x, tags)": {"x": float("inf"), "tags": None}}],
        ),
    )


@pytest.mark.spark
def test_results_are_computed_from_several_aggregates_and_products_are_exact() -> None:
    step = hr.tumbling("sums", size="1 hour", key="account").agg(
        paid="sum(price * pieces)",
        mean="sum(price) / count(*)",
        spread="max(price) - min(price)",
        share="count(*) FILTER (WHERE day = DATE '2026-01-02') / nullif(count(*), 0)",
        label="CASE WHEN count(*) > 2 THEN 'many ' || max(upper(trim(account))) ELSE 'few' END",
        months="count(DISTINCT year(day) * 100 + month(day))",
        even="count(*) FILTER (WHERE pieces % 2 = 0)",
        unread="sum(CAST(left(text, 2) AS INT))",
    )
    timeline(
        step.late(hr.update_for("1 hour")),
        at("10:05", account=" a ", price=3_000_000_000, pieces=2_000_000_000, day=date(2026, 1, 2), text="12 x"),
        batch(),
        at("10:06", account=" a ", price=5, pieces=None, day=date(2026, 1, 31), text="x"),
        crash(),
        batch(),
        watermark("11:00"),
        expect(
            account=" a ",
            paid=6_000_000_000_000_000_000,
            mean=1_500_000_002.5,
            spread=2_999_999_995,
            share=0.5,
            label="few",
            months=1,
            even=1,
            unread=12,
        ),
        at("10:07", account=" a ", price=1, pieces=1, day=date(2026, 2, 1), text=None),
        batch(),
        expect(
            account=" a ",
            paid=6_000_000_000_000_000_001,
            mean=3_000_000_006 / 3,
            spread=2_999_999_999,
            share=1 / 3,
            label="many A",
            months=2,
            even=1,
            unread=12,
            revision=1,
        ),
    )


@pytest.mark.parametrize("text", ["max(x) - min(x)", "sum(x * x)", "sum(x) + 1"])
def test_whole_numbers_in_and_around_aggregates_that_do_not_fit_are_an_error_with_the_key(text: str) -> None:
    step = hr.tumbling("sums", size="1 hour", key="account").agg(s=text).late(hr.drop())
    with pytest.raises(hr.HeadraceError, match=r"\[SUM_OVERFLOW\] step 'sums': s = .* for key 'a' is beyond .* BIGINT"):
        play(
            step,
            at("10:05", account="a", x=2**63 - 1),
            batch(),
            at("10:05", account="a", x=-3),
            at("10:05", account="a", x=3),
            watermark("11:00"),
        )


@pytest.mark.spark
def test_measures_and_conditions_of_a_pattern_compute_with_the_same_functions() -> None:
    step = (
        hr.pattern("raises", key="account")
        .begin("low", "price % 2 = 1")
        .followed_by("high", "price / low.price >= 2 AND left(shop, 1) = left(low.shop, 1)")
        .within("1 hour")
        .select(
            factor="high.price / low.price",
            paid="sum(low.price * low.pieces) + sum(high.price * high.pieces)",
            days="datediff(high.day, low.day)",
            shops="low.shop || '-' || last(high.shop)",
            rest="nullif(high.price % low.price, 0)",
        )
    )
    timeline(
        step.late(hr.drop()),
        at("10:00", account="a", price=3, pieces=2, shop="mill", day=date(2026, 1, 31)),
        at("10:01", account="a", price=4, pieces=1, shop="mall", day=date(2026, 2, 1)),
        watermark("10:02"),
        crash(),
        batch(),
        at("10:02", account="a", price=8, pieces=1, shop="bakery", day=date(2026, 2, 1)),
        at("10:03", account="a", price=8, pieces=1, shop="mall", day=date(2026, 2, 2)),
        watermark("10:04"),
        expect(account="a", factor=8 / 3, paid=14, days=2, shops="mill-mall", rest=2),
    )
