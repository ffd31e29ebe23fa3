"""A mistake in an aggregate is found before any data, and the error says what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

import headrace as hr
from headrace.errors import DefinitionError
from headrace.expressions import parse_aggregate

SCHEMA: dict[str, pl.DataType] = {
    "x": pl.Float64(),
    "name": pl.String(),
    "at": pl.Datetime("us", "UTC"),
    "tags": pl.List(pl.String()),
    "shop": pl.Struct({"city": pl.String()}),
}


@pytest.mark.parametrize(
    "text",
    [
        "count(DISTINCT x, name)",
        "sum(DISTINCT x)",
        "first(x) IGNORE NULLS",
        "first(x ORDER BY name)",
        "median(x)",
        "percentile(x, 0.5)",
        "approx_percentile(x, 0.5, 100)",
        "approx_percentile(x, name)",
        "approx_percentile(x, '0.5')",
        "approx_count_distinct(x, name)",
        "stddev(x) OVER ()",
        "skewness(x)",
        "my_aggregate(x)",
        "ceil(max(x))",
    ],
)
def test_what_is_not_listed_is_refused_with_the_list(text: str) -> None:
    with pytest.raises(DefinitionError, match=r"count\(\*\), count\(x\), count\(DISTINCT x\)") as failure:
        parse_aggregate(text, name="out")
    assert failure.value.id == "EXPRESSION_UNSUPPORTED"
    assert f"aggregate 'out': '{text}'" in str(failure.value)


@pytest.mark.parametrize(
    ("given", "dtype", "function", "needed"),
    [
        ("stddev(name)", "String", "stddev", "numbers"),
        ("var_pop(at)", "Datetime", "var_pop", "numbers"),
        ("approx_percentile(at, 0.5)", "Datetime", "percentile", "numbers"),
        ("min_by(x, shop)", "Struct", "min_by", "values with an order"),
        ("max_by(x, tags)", "List", "max_by", "values with an order"),
        ("count(DISTINCT tags)", "List", r"count\(DISTINCT ...\)", "values with an order"),
        ("approx_count_distinct(shop)", "Struct", "approx_count_distinct", "values with an order"),
        (hr.percentile("name", 0.5), "String", "percentile", "numbers"),
        (hr.top("shop", n=1), "Struct", "top", "values with an order"),
        (hr.top(1, by="tags", rows=True), "List", "top", "values with an order"),
        (hr.collect_set("tags", at_most=1), "List", "collect_set", "values with an order"),
        (hr.ewm("name", half_life="1 hour"), "String", "ewm", "numbers"),
    ],
)
def test_a_value_of_the_wrong_type_is_named_with_its_type(given: Any, dtype: str, function: str, needed: str) -> None:
    aggregate = parse_aggregate(given, name="out")
    message = rf"\[AGGREGATE_TYPE\] aggregate 'out': '\w+' is {dtype}.*, and {function} is defined for {needed}"
    for found in (aggregate.result_type, aggregate.state_types):
        with pytest.raises(DefinitionError, match=message):
            found(SCHEMA)


@pytest.mark.parametrize(
    ("define", "message"),
    [
        (
            lambda: parse_aggregate("collect_list(x)", name="out"),
            r"Say how many .* hr.collect_list\('x', at_most=100\)",
        ),
        (lambda: parse_aggregate("array_agg(x)", name="out"), r"Say how many .* hr.collect_list\('x', at_most=100\)"),
        (lambda: parse_aggregate("collect_set(x)", name="out"), r"Say how many .* hr.collect_set\('x', at_most=100\)"),
        (lambda: hr.collect_list("x"), "would keep every value, and the state would grow for ever"),
        (lambda: hr.collect_set("x"), "would keep every value, and the state would grow for ever"),
    ],
)
def test_what_would_keep_everything_needs_a_bound(define: Callable[[], Any], message: str) -> None:
    with pytest.raises(DefinitionError, match=rf"\[BOUND_MISSING\] .*{message}"):
        define()


@pytest.mark.parametrize("bound", [0, -1, 2.5, True, "3"])
def test_a_bound_is_a_whole_number_of_at_least_one(bound: Any) -> None:
    definitions: tuple[Callable[[], Any], ...] = (
        lambda: hr.collect_list("x", at_most=bound),
        lambda: hr.collect_set("x", at_most=bound),
        lambda: hr.top("x", n=bound),
    )
    for define in definitions:
        with pytest.raises(DefinitionError, match=r"\[BOUND_NOT_POSITIVE\]"):
            define()


@pytest.mark.parametrize("share", [-0.1, 1.01, 99, float("nan"), "0.5", True, [], [0.5, 2], [0.5, "a"], None])
def test_a_percentile_lies_between_zero_and_one(share: Any) -> None:
    with pytest.raises(DefinitionError, match=r"\[PERCENTILE_RANGE\] .*Write the 99th percentile as 0.99"):
        hr.percentile("x", share)


def test_a_percentile_in_quotes_is_told_whole() -> None:
    with pytest.raises(DefinitionError, match=r"\[PERCENTILE_RANGE\] percentile of 'x': '0.99' is not a number"):
        hr.percentile("x", "0.99")  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["approx_percentile(x, 99)", "approx_percentile(x, array(0.5, -1))"])
def test_a_percentile_in_text_lies_between_zero_and_one(text: str) -> None:
    with pytest.raises(DefinitionError, match=r"\[PERCENTILE_RANGE\]"):
        parse_aggregate(text, name="out")


@pytest.mark.parametrize(
    "define",
    [
        lambda: hr.percentile("x", 0.5, error=0),
        lambda: hr.percentile("x", 0.5, error=1),
        lambda: hr.percentile("x", 0.5, error="1%"),  # type: ignore[arg-type]
        lambda: hr.percentile("x", 0.5, error=None),  # type: ignore[arg-type]
        lambda: parse_aggregate("approx_count_distinct(x, 0)", name="out"),
        lambda: parse_aggregate("approx_count_distinct(x, 0.9)", name="out"),
    ],
)
def test_an_error_that_no_sketch_has_is_refused(define: Callable[[], Any]) -> None:
    with pytest.raises(DefinitionError, match=r"\[SKETCH_ERROR_RANGE\]"):
        define()


def test_a_half_life_is_a_positive_duration() -> None:
    with pytest.raises(DefinitionError, match=r"\[DURATION_NOT_POSITIVE\] half_life='0 seconds'"):
        hr.ewm("x", half_life="0 seconds")
    with pytest.raises(DefinitionError, match=r"\[DURATION_UNREADABLE\] half_life='soon'"):
        hr.ewm("x", half_life="soon")


def test_what_is_the_same_for_every_row_is_no_argument() -> None:
    definitions: list[Callable[[], object]] = [
        lambda: hr.top("1", n=2),
        lambda: hr.top("x", n=2, of="'a'"),
        lambda: hr.percentile("1 + 1e0", 0.5),
        lambda: hr.collect_set("NULL", at_most=1),
        lambda: parse_aggregate("min_by(x, 1)", name="out"),
    ]
    for define in definitions:
        with pytest.raises(DefinitionError, match=r"\[EXPRESSION_UNSUPPORTED\] .*reads no column"):
            define()


def test_a_value_is_not_ranked_by_itself() -> None:
    with pytest.raises(DefinitionError, match=r"\[TOP_OF_ITSELF\] hr.top\('x', of='x'\)"):
        hr.top("x", n=1, of="x")
    with pytest.raises(DefinitionError, match=r"\[TOP_OF_ITSELF\] hr.top\('x', of='  x'\)"):
        hr.top("x", n=1, of="  x")
    with pytest.raises(DefinitionError, match=r"\[TOP_OF_ITSELF\] hr.top\('x \+ 1', of='x\+1'\)"):
        hr.top("x + 1", n=1, of="x+1")


def test_an_unknown_column_is_answered_with_the_existing_ones() -> None:
    for given in ("first(amuont)", hr.top("x", n=1, of="amuont"), hr.collect_set("amuont", at_most=2)):
        with pytest.raises(DefinitionError, match=r"\[COLUMN_UNKNOWN\] 'amuont': there is no column 'amuont'"):
            parse_aggregate(given, name="out").result_type(SCHEMA)


@pytest.mark.parametrize(
    "given",
    [
        hr.percentile("x", 0.99),
        hr.percentile("x", [0.5, 0.99], error=0.05).where("name = 'a'"),
        hr.top("x", n=3),
        hr.top("x + 1", n=3, of="shop.city"),
        hr.collect_list("name", at_most=100),
        hr.collect_set("name", at_most=100).where("x > 0"),
        hr.ewm("x", half_life="90 seconds"),
    ],
)
def test_a_value_prints_as_the_code_that_makes_it(given: Any) -> None:
    again = eval(repr(given), {"hr": hr})
    assert again == given
    assert parse_aggregate(given, name="out").text == repr(given)
    assert parse_aggregate(given, name="out") == parse_aggregate(again, name="out")


def test_fields_of_a_top_are_called_after_what_they_are() -> None:
    assert parse_aggregate(hr.top("x", n=3, of="shop.city"), name="out").result_type(SCHEMA) == pl.List(
        pl.Struct({"x": pl.Float64(), "city": pl.String()})
    )
