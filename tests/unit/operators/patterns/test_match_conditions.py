"""Conditions asked of each candidate say what the same SQL says of whole columns, nulls and NaN included."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import product
from typing import Any

import polars as pl
import pytest

from headrace.expressions.nodes import columns_of, step_values_of
from headrace.expressions.rows import PolarsLowering, RowExpression
from headrace.expressions.step_expressions import parse_step_expression
from headrace.operators.patterns.match_conditions import bind_condition, parse_step_condition
from headrace.operators.patterns.match_values import CarriedColumns, bind_measures, physical, step_operands
from headrace.operators.patterns.matcher import Node

SCHEMA = {
    "x": pl.Float64(),
    "f": pl.Float32(),
    "n": pl.Int64(),
    "d": pl.Decimal(10, 2),
    "s": pl.String(),
    "ok": pl.Boolean(),
    "at": pl.Datetime("us", "UTC"),
    "day": pl.Date(),
    "local": pl.Datetime("us"),
}
NAN = float("nan")
VALUES: dict[str, list[Any]] = {
    "x": [None, NAN, -0.0, 1.5, 3.0],
    "f": [None, 0.1, 2.5],
    "n": [None, 0, 2, 2**53 + 1],
    "d": [None, Decimal("1.50"), Decimal("3.00")],
    "s": [None, "a", "B", "ß.\nΣ", "ΟΔΟΣ", "50%", " 12 "],
    "ok": [None, True, False],
    "at": [None, datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)],
    "day": [None, date(2026, 1, 31), date(1969, 12, 30), date(2024, 2, 29)],
    "local": [None, datetime(2026, 3, 29, 2, 30, 59, 999_999), datetime(1960, 12, 31, 23, 59, 1)],
}
CONDITIONS = [
    *(f"x {sign} a.x" for sign in ("=", "<>", "<", "<=", ">", ">=", "<=>")),
    *(f"n {sign} a.n" for sign in ("=", "<", "<=>")),
    "n > a.x",
    "x > a.n",
    "d >= a.d",
    "d > a.x",
    "n = a.d",
    "x > 10 * a.x - 1.5",
    "f * a.f > 0.25",
    "f + a.f > a.x",
    "-a.x < x",
    "abs(a.x - x) < 2e0",
    "NOT (a.ok AND ok)",
    "a.ok OR ok",
    "a.ok AND NOT ok",
    "a.x IS NULL OR x > a.x",
    "a.x IS NOT NULL AND n IS NULL",
    "a.s IN (s, 'a')",
    "s NOT IN ('B', a.s)",
    "a.n IN (9007199254740992, x)",
    "x BETWEEN a.x AND 3",
    "coalesce(a.x, x, 0.0) > 1",
    "CAST(a.n AS DOUBLE) > x",
    "at > a.at",
    "a.at < TIMESTAMP '2026-01-02T00:00:00Z' AND at = a.at",
    "upper(a.s) = s",
    "upper(first(a.s)) = s",
    "lower(first(a.s)) = lower(s)",
    "length(first(a.s)) > n",
    "length(upper(last(a.s))) >= 2",
    "a.s LIKE 'a'",
    "a.s NOT LIKE '%.%' OR s LIKE 'B'",
    *(
        f"first(a.s) LIKE '{pattern}'"
        for pattern in ("%", "_", "__", "50%", "50_", "ß%Σ", "ß.", "", "%%_.%", "[a]", "A")
    ),
    "first(a.s) NOT LIKE '%.%'",
    "CAST(first(a.n) AS DOUBLE) > x",
    "CASE WHEN a.x > 1 THEN x > 1 WHEN a.ok THEN ok END",
    "CASE a.s WHEN s THEN x ELSE n END > 1",
    "IF(a.ok, n, x) >= 2",
    "(a.x) = ((x))",
    *(f"first(a.n) {sign} n > 1" for sign in ("+", "-", "*", "%", "DIV")),
    *(f"n {sign} last(a.n) = 0" for sign in ("+", "-", "*", "%", "DIV")),
    *(f"d {sign} first(a.d) > 2" for sign in "+-*"),
    "n * 4611686018427387904 * first(a.n) IS NULL",
    *(
        "first(a.n) / n > 1",
        "x / first(a.x) > 1",
        "n / first(a.f) IS NULL",
        "-first(a.n) < n",
        "abs(first(a.n) - 5) > n",
    ),
    *("nullif(first(a.n), n) IS NULL", "nullif(s, first(a.s)) IS NULL", "first(a.d) * n + d > 3", "-first(a.d) < d"),
    "concat(first(a.s), s, '!') LIKE 'a%'",
    "first(a.s) || s = 'aa'",
    *(f"substring(first(a.s), {place}, 2) = substring(s, {place}, 2)" for place in (-9, -2, 0, 1, 2)),
    "substring(first(a.s), n) = s",
    *(f"{function}(first(a.s), 2) = s" for function in ("left", "right")),
    *(f"{function}(first(a.s) || ' ') = s" for function in ("trim", "ltrim", "rtrim")),
    "replace(first(a.s), 'a', 'B') = s",
    "replace(first(a.s), '', 'B') = s",
    *(f"{function}(first(a.s), s)" for function in ("startswith", "endswith", "contains")),
    *(
        f"{function}(first(a.day)) > {function}(day)"
        for function in ("year", "quarter", "month", "day", "dayofyear", "dayofweek", "weekofyear", "last_day")
    ),
    *(
        f"{function}(first(a.local)) > {function}(local)"
        for function in ("year", "hour", "minute", "second", "last_day")
    ),
    *("datediff(first(a.day), local) > 3", "date_add(first(a.day), 40) > day", "date_sub(first(a.local), 40) > day"),
    *(f"unix_{unit}(first(a.at)) > unix_{unit}(at)" for unit in ("seconds", "millis", "micros")),
    *(f"CAST(first(a.{column}) AS INT) > n" for column in "xfnds"),
    *(f"CAST(first(a.{column}) AS BIGINT) > n" for column in "xfnds"),
    *(f"CAST(first(a.{column}) AS STRING) LIKE '%0%'" for column in ("n", "d", "ok", "day", "s")),
    *(f"CAST(first(a.{column}) AS DECIMAL(4, 1)) > d" for column in "nd"),
    "CAST(first(a.s) AS DOUBLE) > x",
    "struct(first(a.n)) IS NULL",
]


def candidates(text: str) -> list[dict[str, Any]]:
    tree = parse_step_expression(text, ["a"])
    arguments = [value.argument for value in step_values_of(tree) if value.argument is not None]
    used = {column.path[0] for part in (tree, *arguments) for column in columns_of(part)}
    names = [name for name in SCHEMA if name in used]
    rows = [dict(zip(names, values, strict=True)) for values in product(*(VALUES[name] for name in names))]
    return [{**dict.fromkeys(SCHEMA), **row} for row in rows]


def as_row(columns: CarriedColumns, values: dict[str, Any]) -> tuple[Any, ...]:
    frame = pl.DataFrame([values], schema=SCHEMA)
    computed = frame.select(
        operand.value.cast(physical(operand.dtype)).alias(str(number))
        for number, operand in enumerate(columns.operands.values())
    )
    return (0, 0, *(computed.row(0) if columns.operands else ()))


@pytest.mark.parametrize("text", CONDITIONS)
def test_a_condition_over_the_match_means_what_sql_means(text: str) -> None:
    columns = CarriedColumns(SCHEMA)
    tree = parse_step_expression(text, ["a"])
    asked = bind_condition(tree, text, columns, ["a"])
    values = step_operands(step_values_of(tree), SCHEMA)
    types = {value.sql: operand.dtype for value, operand in values.items()}
    expression = PolarsLowering(text, SCHEMA, values).operand(tree).value
    for row, before in product(candidates(text), candidates(text)):
        node: Node = (as_row(columns, before), 0, None)
        matched = {
            value.sql: pl.DataFrame([before], schema=SCHEMA)
            .select(RowExpression(value.argument.sql, value.argument).operand(SCHEMA).value)
            .item()
            for value in values
            if value.argument is not None
        }
        frame = pl.DataFrame([{**row, **matched}], schema={**SCHEMA, **types})
        truth = frame.select(expression).item()
        assert asked(as_row(columns, row), node) is truth, (row, before)


def test_a_step_without_rows_is_null_and_counts_nothing() -> None:
    for text, truth in {
        "a.x IS NULL": True,
        "count(a.*) = 0": True,
        "count(a.x) = 0": True,
        "sum(a.n) IS NULL": True,
        "x > avg(a.x)": None,
        "elapsed(a) IS NULL": True,
        "elapsed() = 0": True,
        "coalesce(max(a.x), 7.0) > 1": True,
    }.items():
        columns = CarriedColumns(SCHEMA)
        condition = parse_step_condition(text, ["a"]).bind(columns, ["a"])
        assert condition is not None
        assert condition(as_row(columns, {**dict.fromkeys(SCHEMA), "x": 1.0}), None) is truth, text


def test_an_average_of_decimals_is_computed_with_as_a_double() -> None:
    columns = CarriedColumns(SCHEMA)
    for text, truth in {
        "d > 10 * avg(a.d)": True,
        "d > 20 * (avg(a.d))": False,
        "d - avg(a.d) < 19": True,
        "abs(avg(a.d) - d) > 18": True,
        "-avg(a.d) < d": True,
        "d > avg(a.d)": True,
    }.items():
        condition = parse_step_condition(text, ["a"]).bind(columns, ["a"])
        assert condition is not None
        before: Node = (as_row(columns, {**dict.fromkeys(SCHEMA), "d": Decimal("1.50")}), 0, None)
        assert condition(as_row(columns, {**dict.fromkeys(SCHEMA), "d": Decimal("20.00")}), before) is truth, text
    measures = bind_measures({"ten": "10 * avg(a.d)", "mean": "avg(a.d)"}, CarriedColumns(SCHEMA), ["a"])
    assert measures.schema == {"ten": pl.Float64(), "mean": pl.Decimal(14, 6)}
    assert measures.of([((0, 0, Decimal("1.50")), 0, None)]).rows() == [(15.0, Decimal("1.500000"))]


def test_a_sum_of_decimals_keeps_all_their_digits() -> None:
    columns = CarriedColumns({"d": pl.Decimal(38, 4)})
    measures = bind_measures({"total": "sum(a.d)"}, columns, ["a"])
    large = Decimal("12345678901234567890123456789.0123")
    assert measures.of([((0, 0, large), 0, None)])["total"].to_list() == [large]


def test_aggregates_are_exact_and_typed_as_spark_types_them() -> None:
    columns = CarriedColumns(SCHEMA)
    measures = bind_measures(
        {
            "total": "sum(a.d)",
            "mean": "avg(a.d)",
            "least": "min(a.x)",
            "most": "max(a.x)",
            "whole": "sum(a.n)",
            "first": "first(a.s)",
            "last": "a.s",
            "known": "count(a.s)",
            "rows": "count(a.*)",
            "too_large": "sum(a.n)",
            "since": "elapsed()",
        },
        columns,
        ["a"],
    )
    rows: list[dict[str, Any]] = [
        {"d": Decimal("1.01"), "x": NAN, "n": 2**62, "s": "one"},
        {"d": None, "x": 1.0, "n": 2**62, "s": None},
        {"d": Decimal("1.01"), "x": None, "n": None, "s": None},
        {"d": Decimal("1.00"), "x": 3.0, "n": None, "s": "two"},
    ]
    node: Any = None
    for number, values in enumerate(rows):
        _, _, *held = as_row(columns, {**dict.fromkeys(SCHEMA), **values})
        node = ((number * 1_500_000, number, *held), 0, node)
    matched = measures.of([node])
    assert matched.schema["total"] == pl.Decimal(20, 2)
    assert matched.schema["mean"] == pl.Decimal(14, 6)
    found = matched.row(0, named=True)
    assert found.pop("most") != found["least"]
    assert found == {
        "total": Decimal("3.02"),
        "mean": Decimal("1.006667"),
        "least": 1.0,
        "whole": None,
        "first": "one",
        "last": "two",
        "known": 2,
        "rows": 4,
        "too_large": None,
        "since": 4.5,
    }


def test_sums_of_products_are_exact_and_plain_values_are_carried_once() -> None:
    columns = CarriedColumns({"i": pl.Int32()})
    measures = bind_measures(
        {"total": "sum(a.i * a.i)", "mean": "avg(a.i * a.i)", "sum": "sum(a.i)", "i": "a.i"}, columns, ["a"]
    )
    assert [operand.dtype for operand in columns.operands.values()] == [pl.Decimal(20, 0), pl.Int32()]
    square = Decimal((2**31 - 1) ** 2)
    matched = measures.of([((0, 0, square, 2**31 - 1), 0, ((0, 1, square, 2**31 - 1), 0, None))])
    assert matched.schema["total"] == pl.Int64()
    assert matched.row(0) == (2 * (2**31 - 1) ** 2, float(square), 2 * (2**31 - 1), 2**31 - 1)
