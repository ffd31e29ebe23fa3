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
        "ELSE COALESCE(NOT account IS NULL, struct(*) IS NULL, struct(amount) IS NULL, false) END"
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
        "account LIKE account",
        "account LIKE 'a!%' ESCAPE '!'",
        r"account LIKE 'a\\%'",
        "account LIKE ANY ('a%', 'b%')",
        "account RLIKE 'a'",
        "replace(account, account, 'a')",
        "replace(account, 'a')",
        "trim('x' FROM account)",
        "datediff(HOUR, day, day)",
        "round(amount)",
        "struct(amount, amount)",
        "struct(*, amount)",
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
        "concat('a', 'b')",
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
        ("price / 2", "has no exact result. Cast one side, as in CAST(x AS DOUBLE)"),
        ("amount % 2", "has no exact result"),
        ("price % 2", "has no exact result"),
        ("price * price * price * price", "can have more than 38 digits"),
        ("hour(at)", "Its day and hour depend on a zone: compute them with withColumn before the step"),
        ("hour(day)", "Date is not a TIMESTAMP_NTZ"),
        ("year(account)", "String is not a DATE or TIMESTAMP_NTZ"),
        ("unix_millis(local)", "is not a TIMESTAMP"),
        ("left(account, amount)", "Float64 is not a whole number"),
        ("concat(account, count)", "Int64 is not a string"),
        ("account + amount", "String is not a number"),
        ("amount + NULL", "Null is not a number"),
        ("-account", "String is not a number"),
        ("CAST(amount AS STRING)", "a cast from Float64 to String"),
        ("CAST(at AS DATE)", "a cast from Datetime"),
        ("CAST(account AS DATE)", "a cast from String to Date"),
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


def test_what_spark_would_stop_for_is_null() -> None:
    frame = pl.DataFrame({"n": [2**31 - 1, 0, None], "text": ["12", "x", "3.5"]}, schema_overrides={"n": pl.Int32})
    for text, expected in {
        "n + 1": [None, 1, None],
        "n * n": [None, 0, None],
        "1 / n": [1 / (2**31 - 1), None, None],
        "5 % n": [5, None, None],
        "CAST(n AS TINYINT)": [None, 0, None],
        "CAST(text AS INT)": [12, None, None],
    }.items():
        assert frame.select(parse_row_expression(text).operand(frame.schema).value).to_series().to_list() == expected


def test_exact_arithmetic_has_all_digits_of_whole_numbers() -> None:
    frame = pl.DataFrame({"n": [2**63 - 1, -(2**63)]})
    for text, expected in {"n * n": [(2**63 - 1) ** 2, 2**126], "-n - 1": [-(2**63), 2**63 - 1]}.items():
        operand = parse_row_expression(text).operand(frame.schema, exact=True)
        assert [int(value) for value in frame.select(operand.value).to_series()] == expected
