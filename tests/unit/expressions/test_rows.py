"""Row expressions are parsed once, checked against the schema and computed over whole frames."""

from __future__ import annotations

from typing import get_args

import polars as pl
import pytest

from headrace.errors import DefinitionError
from headrace.expressions import parse_row_expression
from headrace.expressions.nodes import Expression, StepValue, walk

SCHEMA: dict[str, pl.DataType] = {
    "account": pl.String(),
    "amount": pl.Float64(),
    "count": pl.Int64(),
    "price": pl.Decimal(10, 2),
    "at": pl.Datetime("us", "UTC"),
    "local": pl.Datetime("us"),
    "day": pl.Date(),
    "tags": pl.List(pl.String()),
    "shop": pl.Struct({"city": pl.String(), "place": pl.Struct({"floor": pl.Int32()})}),
}


def test_every_kind_of_node_is_parsed_and_translated() -> None:
    expression = parse_row_expression(
        "CASE WHEN -amount * 2 > CAST(count AS DOUBLE) AND account LIKE 'a%' THEN account IN ('a') "
        "ELSE COALESCE(NOT account IS NULL, false) END"
    )
    assert {type(part) for part in walk(expression.tree)} == set(get_args(Expression)) - {StepValue}
    assert expression.operand(SCHEMA).dtype == pl.Boolean()


def test_an_expression_names_the_columns_it_reads_and_not_the_fields_in_them() -> None:
    expression = parse_row_expression("shop.city = 'Oslo' AND shop.place.floor > 1 OR `amount` > 2")
    assert expression.columns == {"shop", "amount"}


def test_expressions_of_one_text_are_equal() -> None:
    assert parse_row_expression("amount > 1") == parse_row_expression("amount > 1")
    assert parse_row_expression("amount > 1") != parse_row_expression("amount > 2")


def test_conditions_follow_three_valued_logic() -> None:
    frame = pl.DataFrame({"amount": [None, 1.0, 3.0], "account": ["a", None, None]})
    condition = parse_row_expression("amount > 2 OR account = 'a'")
    assert frame.select(condition.operand(frame.schema).value).to_series().to_list() == [True, None, True]


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("amount * 2", pl.Float64()),
        ("COALESCE(price, count)", pl.Decimal(22, 2)),
        ("IF(amount > 1, 'a', NULL)", pl.String()),
        ("shop.place.floor", pl.Int32()),
        ("TIMESTAMP '2026-01-31T09:00:00Z'", pl.Datetime("us", "UTC")),
        ("NULL", pl.Null()),
        ("99999999999999999999", pl.Decimal(20, 0)),
    ],
)
def test_the_type_of_a_result_is_known_from_the_schema(text: str, dtype: pl.DataType) -> None:
    assert parse_row_expression(text).operand(SCHEMA).dtype == dtype


@pytest.mark.parametrize("text", ["", "amount >", "amount, account", "1; 2", "sum(", "amount > = = 2"])
def test_text_that_is_no_expression_is_unreadable(text: str) -> None:
    with pytest.raises(DefinitionError) as failure:
        parse_row_expression(text)
    assert failure.value.id == "EXPRESSION_UNREADABLE"
    assert f"'{text}' is not a SQL expression" in str(failure.value)


@pytest.mark.parametrize(
    "text",
    [
        "amount / 2",
        "count % 2",
        "account LIKE account",
        "account LIKE 'a!%' ESCAPE '!'",
        r"account LIKE 'a\\%'",
        "account LIKE ANY ('a%', 'b%')",
        "account RLIKE 'a'",
        "account || 'a'",
        "substring(account, 1, 2)",
        "rand() > 0.5",
        "current_timestamp()",
        "sum(amount) > 2",
        "amount IN (SELECT 1)",
        "tags[0]",
        "amount IS TRUE",
        "TRY_CAST(amount AS DOUBLE)",
        "amount AS x",
        "SELECT 1",
        "*",
        "shop.*",
        "amount BETWEEN SYMMETRIC 2 AND 1",
        "account = 'it''s'",
        "account = 'a\\n'",
        "at > now()",
        "IF(amount > 1, 2)",
        "UPPER(account) COLLATE UTF8_LCASE = 'A'",
        "INTERVAL 1 DAY",
        "X'1F'",
        "my_function(amount)",
    ],
)
def test_what_is_not_listed_is_refused_with_the_list(text: str) -> None:
    with pytest.raises(DefinitionError, match="AND, OR, NOT, IS") as failure:
        parse_row_expression(text).operand(SCHEMA)
    assert failure.value.id == "EXPRESSION_UNSUPPORTED"
    assert f"'{text}'" in str(failure.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("account > 1", "String and Int32 have no common type"),
        ("account IN ('a', 1)", "String and Int32 have no common type"),
        ("at > day", "have no common type"),
        ("at > local", "have no common type"),
        ("at > '2026-01-01'", "have no common type"),
        ("CASE WHEN amount > 1 THEN 1 ELSE 'a' END", "Int32 and String have no common type"),
        ("count + 1", "Cast one side, as in CAST(x AS DOUBLE)"),
        ("price * 2", "Cast one side, as in CAST(x AS DOUBLE)"),
        ("account + amount", "String is not a number"),
        ("amount + NULL", "Null is not a number"),
        ("-count", "the negative of Int64 can overflow"),
        ("ABS(count)", "ABS of Int64 is not supported"),
        ("CAST(account AS DOUBLE)", "a cast from String to Float64"),
        ("CAST(amount AS INT)", "a cast from Float64 to Int32"),
        ("CAST(count AS INT)", "a cast from Int64 to Int32"),
        ("CAST(300 AS TINYINT)", "a cast from Int32 to Int8"),
        ("CAST('1.5' AS DOUBLE)", "cannot be read as Float64"),
        ("TIMESTAMP '2026-01-31 09:00:00'", "cannot be read as Datetime"),
        ("TIMESTAMP_NTZ '2026-01-31 09:00:00Z'", "cannot be read as Datetime"),
        ("DATE '2026-02-30'", "cannot be read as Date"),
        ("tags = tags", "cannot be compared"),
        ("shop IN (shop)", "cannot be compared"),
        ("UPPER(amount)", "Float64 is not a string"),
        ("amount LIKE '1%'", "Float64 is not a string"),
        ("amount AND TRUE", "it is Float64 where a condition is needed"),
        ("NOT account", "it is String where a condition is needed"),
        ("1e400", "outside the range"),
        ("0.000000000000000000000000000000000000001", "outside the range"),
    ],
)
def test_operands_of_the_wrong_type_are_named(text: str, reason: str) -> None:
    with pytest.raises(DefinitionError) as failure:
        parse_row_expression(text).operand(SCHEMA)
    assert failure.value.id == "EXPRESSION_TYPE"
    assert reason in str(failure.value)


def test_an_unknown_column_is_answered_with_the_existing_ones() -> None:
    with pytest.raises(
        DefinitionError, match=r"\[COLUMN_UNKNOWN\] 'amuont > 1': there is no column 'amuont'"
    ) as failure:
        parse_row_expression("amuont > 1").operand(SCHEMA)
    assert "Existing columns: account, amount, count, price" in str(failure.value)


def test_an_unknown_field_is_answered_with_the_existing_ones() -> None:
    with pytest.raises(DefinitionError, match=r"'shop.town' has no field 'town'. Existing fields: city, place"):
        parse_row_expression("shop.town").operand(SCHEMA)
    with pytest.raises(DefinitionError, match=r"'amount.x' has no field 'x'. Existing fields: none, it is Float64"):
        parse_row_expression("amount.x").operand(SCHEMA)


def test_a_condition_must_be_boolean() -> None:
    assert parse_row_expression("amount > 1").columns == {"amount"}
    with pytest.raises(DefinitionError, match=r"\[CONDITION_TYPE\] 'amount' is Float64"):
        parse_row_expression("amount").truth(SCHEMA)


def test_times_are_compared_as_instants_whatever_zone_labels_them() -> None:
    frame = pl.DataFrame({"at": ["2026-01-01T00:00:00"]}).select(
        pl.col("at").str.to_datetime(time_unit="us", time_zone="UTC")
    )
    frame = frame.with_columns(there=pl.col("at").dt.convert_time_zone("Asia/Kathmandu"))
    assert frame.select(parse_row_expression("at = there").operand(frame.schema).value).to_series().to_list() == [True]
