"""Every listed expression and aggregate gives in Polars what it gives in Spark."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Context, Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.expressions import parse_aggregate, parse_row_expression
from headrace.schemas import arrow_batches, parse_ddl, polars_schema

DDL = (
    "tiny TINYINT, small SMALLINT, int INT, long BIGINT, float FLOAT, x DOUBLE, y DOUBLE, dec DECIMAL(10,2), "
    "wide DECIMAL(38,18), text STRING, other STRING, yes BOOLEAN, no BOOLEAN, day DATE, at TIMESTAMP, "
    "local TIMESTAMP_NTZ, wait INTERVAL DAY TO SECOND, bytes BINARY, s STRUCT<a: INT, t: STRUCT<b: STRING>>, "
    "digits STRING"
)
COMPARABLE = ["tiny", "small", "int", "long", "float", "x", "dec", "wide"]
OPERATORS = ["=", "<>", "<", "<=", ">", ">=", "<=>"]

EXPRESSIONS = [
    *(f"{left} {operator} {right}" for left in COMPARABLE for right in ("x", "dec") for operator in OPERATORS),
    *(f"int {operator} long" for operator in OPERATORS),
    *(f"x {operator} y" for operator in OPERATORS),
    *(f"float {operator} y" for operator in OPERATORS),
    *(
        f"{column} {operator} {literal}"
        for column in COMPARABLE
        for literal in ("0", "1.5", "1e0")
        for operator in "=<"
    ),
    *(f"text {operator} other" for operator in OPERATORS),
    *(f"bytes {operator} bytes" for operator in OPERATORS),
    *(f"yes {operator} no" for operator in OPERATORS),
    *(f"day {operator} DATE '2026-03-01'" for operator in OPERATORS),
    *(f"at {operator} TIMESTAMP '2026-03-01T10:00:00.5+02:00'" for operator in OPERATORS),
    *(f"local {operator} TIMESTAMP_NTZ '2026-03-01 10:00:00'" for operator in OPERATORS),
    "wait > wait",
    *("x = NULL", "x <=> NULL", "NULL = NULL", "NULL <=> NULL", "text <> 'é'", 'text = "it\'s"', "text < ''"),
    *("yes AND no", "yes OR no", "NOT yes", "yes AND NULL", "no OR NULL", "NOT NULL", "yes AND (no OR x > 1)"),
    *("x IS NULL", "x IS NOT NULL", "s.t IS NULL", "s IS NOT NULL", "NULL IS NULL"),
    *(
        "int IN (1, 2)",
        "int IN (1, NULL)",
        "int NOT IN (1, NULL)",
        "x IN (0, 1.5)",
        "x NOT IN (0e0, 2)",
        "dec IN (1.5, 7)",
    ),
    *("text IN ('a', 'é')", "NULL IN (1)", "long IN (9223372036854775807, -9223372036854775808)", "x IN (y, 1)"),
    *("x BETWEEN 0 AND 2", "x NOT BETWEEN y AND 2", "text BETWEEN 'a' AND 'z'", "dec BETWEEN -1 AND 1.505"),
    *(
        "text LIKE 'a%'",
        "text NOT LIKE '_'",
        "text LIKE ''",
        "NULL LIKE 'a'",
        "UPPER(text) LIKE '%É'",
        "s.t.b LIKE '%'",
    ),
    *(
        "CASE WHEN x > 1 THEN 'big' WHEN x < 0 THEN 'negative' END",
        "CASE int WHEN 1 THEN x WHEN NULL THEN 7 ELSE 0 END",
    ),
    *(
        "CASE WHEN yes THEN int ELSE long END",
        "CASE WHEN yes THEN dec ELSE 0 END",
        "CASE WHEN yes THEN float ELSE int END",
    ),
    *(
        "IF(yes, x, y)",
        "IF(x > 1, NULL, 1)",
        "IF(NULL, 1, 2)",
        "COALESCE(x, y, 0)",
        "COALESCE(dec, int)",
        "COALESCE(text, '-')",
    ),
    *("COALESCE(NULL, day)", "COALESCE(at, TIMESTAMP '2026-01-01T00:00:00Z')", "nvl(text, other)"),
    *(
        f"{left} {sign} {right}"
        for sign in "+-*"
        for left, right in [("x", "y"), ("x", "float"), ("int", "x"), ("x", "long")]
    ),
    *(f"{left} {sign} {right}" for sign in "+-*" for left, right in [("float", "float"), ("x", "dec"), ("wide", "x")]),
    *(
        f"{left} {sign} {right}"
        for sign in "+-*"
        for left, right in [("x", "0"), ("0", "x"), ("0e0", "x"), ("x", "1.1"), ("1", "float")]
    ),
    *(
        "-x",
        "-float",
        "- (x)",
        "-(-x)",
        "ABS(x)",
        "ABS(float)",
        "x * -1",
        "x - -0.1",
        "-5",
        "-1.50",
        "-2147483648",
        "-1L",
    ),
    *(
        "-9223372036854775808",
        "2147483648",
        "1.50",
        ".5",
        "1L",
        "2S",
        "3Y",
        "1.5D",
        "true",
        "'a'",
        "00012",
        "0.05",
    ),
    *(f"CAST({column} AS DOUBLE)" for column in COMPARABLE),
    *(
        "CAST(tiny AS BIGINT)",
        "CAST(int AS BIGINT)",
        "CAST(NULL AS STRING)",
        "CAST(12345678901234567890.123 AS DOUBLE)",
    ),
    *(f"{left} {sign} {right}" for sign in "+-*" for left, right in [("dec", "dec"), ("dec", "long"), ("tiny", "dec")]),
    *(f"{left} {sign} {right}" for sign in "+-*" for left, right in [("dec", "2"), ("17", "dec"), ("dec", "1.5")]),
    *("-dec", "ABS(dec)", "ABS(wide)", "-s.a - 1L", "tiny * 2L", "dec * 0 - -1"),
    *(f"{column} / 3" for column in ("tiny", "int", "long", "float", "x")),
    *(
        "x / 2e0",
        "1 / 7",
        "int / 0.5e0",
        "int % 7",
        "tiny % -5",
        "long % 10",
        "long DIV 7",
        "int DIV -3",
        "small DIV 2",
    ),
    *("NULLIF(int, 1)", "NULLIF(text, other)", "NULLIF(1, x)", "NULLIF(day, day)"),
    *(
        "text || other",
        "concat(text, '-', other)",
        "'<' || text || '>'",
        "replace(text, 'a', 'bb')",
        "replace(text, '', 'x')",
    ),
    *(
        f"substring(text, {place}, {length})"
        for place in ("-3", "-1", "0", "1", "2", "tiny")
        for length in ("-1", "0", "2")
    ),
    *("substr(text, 2)", "substring(text, -2)", "substring(other, tiny)", "substring(text, 1, tiny)"),
    *(f"{function}(text, {length})" for function in ("left", "right") for length in ("-1", "0", "1", "9", "tiny")),
    *(f"{function}('  ' || text || ' \t ')" for function in ("trim", "ltrim", "rtrim")),
    *(
        f"{function}(text, {part})"
        for function in ("startswith", "endswith", "contains")
        for part in ("other", "''", "'e'")
    ),
    *(
        f"{function}({column})"
        for function in (
            "year",
            "quarter",
            "month",
            "day",
            "dayofmonth",
            "dayofyear",
            "dayofweek",
            "weekofyear",
            "last_day",
        )
        for column in ("day", "local")
    ),
    *(f"{function}(local)" for function in ("hour", "minute", "second")),
    *(f"{function}(at)" for function in ("unix_seconds", "unix_millis", "unix_micros")),
    *(
        "datediff(day, DATE '2026-01-01')",
        "datediff(local, day)",
        "date_sub(day, 30)",
        "date_add(DATE '2026-01-31', tiny)",
    ),
    *("date_add(day, -1)", "date_add(local, 1)"),
    *(f"CAST({column} AS STRING)" for column in ("tiny", "int", "long", "dec", "wide", "yes", "day", "text")),
    *("CAST(dec AS INT)", "CAST(dec AS DECIMAL(12, 1))", "CAST(dec AS DECIMAL(20, 5))", "CAST(tiny AS DECIMAL(5, 2))"),
    *("struct(int, text AS t)", "struct(x + 1)"),
    *("UPPER(text)", "LOWER(text)", "LENGTH(text)", "LENGTH(other)", "s.a", "s.t.b", "`text`", "(x)", "s.a > 1"),
]
_TRY = {"+": "try_add", "-": "try_subtract", "*": "try_multiply", "/": "try_divide", "%": "try_mod"}
_PAIRS = [("int", "int"), ("int", "small"), ("long", "int"), ("tiny", "tiny"), ("long", "long")]
TRIED = {
    **{f"{left} {sign} {right}": f"{name}({left}, {right})" for sign, name in _TRY.items() for left, right in _PAIRS},
    **{
        f"{left} / {right}": f"try_divide({left}, {right})"
        for left, right in [("x", "y"), ("x", "int"), ("float", "float")]
    },
    **{
        f"-{column}": f"try_subtract(CAST(0 AS {dtype}), {column})"
        for column, dtype in [("int", "INT"), ("long", "BIGINT")]
    },
    "ABS(long)": "IF(long < -9223372036854775807, NULL, ABS(long))",
    "long DIV int": "IF(int = 0 OR (int = -1 AND long < -9223372036854775807), NULL, long DIV int)",
    **{
        f"CAST({column} AS {dtype})": f"try_cast({column} AS {dtype})"
        for column in ("x", "float", "long", "dec", "wide", "digits", "text")
        for dtype in ("TINYINT", "INT", "BIGINT")
    },
    **{f"CAST({column} AS DOUBLE)": f"try_cast({column} AS DOUBLE)" for column in ("digits", "text")},
    **{
        f"CAST(wide AS {dtype})": f"try_cast(wide AS {dtype})"
        for dtype in ("DECIMAL(10, 3)", "DECIMAL(38, 20)", "DECIMAL(20, 0)")
    },
    "CAST(long AS DECIMAL(10, 2))": "try_cast(long AS DECIMAL(10, 2))",
}
"""What can fail in Spark, and Spark's own form of it that gives null instead."""
SPREADS = ["stddev", "stddev_samp", "stddev_pop", "variance", "var_samp", "var_pop"]
EXACT = {
    "sum(int * small)": "sum(CAST(int AS BIGINT) * small)",
    "avg(int * small)": "avg(CAST(int AS BIGINT) * small)",
    "sum(tiny * tiny - small)": "sum(CAST(tiny AS BIGINT) * tiny - small)",
    "sum(IF(yes, int * int, 0))": "sum(IF(yes, CAST(int AS BIGINT) * int, 0L))",
    "sum(-int) - count(*)": "sum(-CAST(int AS BIGINT)) - count(*)",
}
"""Sums of whole numbers that do not overflow where Spark would stop, and what they equal."""
AGGREGATES = [
    "count(*)",
    "count(1)",
    *(f"count({column})" for column in ("x", "text", "s", "yes AND no")),
    *(
        f"{function}({column})"
        for function in ("min", "max")
        for column in [*COMPARABLE, "text", "yes", "day", "at", "local"]
    ),
    *(
        f"{function}({column})"
        for function in ("sum", "avg")
        for column in ("tiny", "small", "int", "float", "x", "dec", "wide")
    ),
    *(f"count(DISTINCT {column})" for column in [*COMPARABLE, "text", "yes", "day", "at", "local", "bytes", "wait"]),
    *(f"{function}({column})" for function in SPREADS for column in ("tiny", "small", "float", "x", "dec")),
    *(f"{function}({column}, place)" for function in ("min_by", "max_by") for column in (*COMPARABLE, "text", "at")),
    *("min_by(text, x + place)", "max_by(yes, CAST(place AS DOUBLE))", "min_by(place, place)"),
    *(f"{aggregate} FILTER (WHERE yes)" for aggregate in ("count(*)", "sum(int)", "avg(dec)", "max(text)")),
    *("count(DISTINCT text) FILTER (WHERE int > 0)", "stddev(small) FILTER (WHERE yes AND no)"),
    *("min_by(x, place) FILTER (WHERE x IS NOT NULL)", "var_pop(x) FILTER (WHERE x < 10)"),
    *("max(place) - min(place)", "sum(small) / count(*)", "count(*) % 7", "1 + count(x)", "nullif(count(x), 3)"),
    *("coalesce(sum(int) FILTER (WHERE yes), 0)", "CASE WHEN count(*) > 3 THEN max(text) ELSE min(text) END"),
    *(
        "sum(dec) * 2",
        "avg(dec) - min(dec)",
        "max(dec) - min(dec)",
        "-sum(small)",
        "CAST(sum(dec) AS DOUBLE) / count(*)",
    ),
    *(
        "min(text) || max(other)",
        "sum(int) > 0",
        "sum(tiny * 2L)",
        "avg(small * 2L)",
        "sum(dec * small)",
        "sum(int) = sum(small)",
    ),
    *EXACT,
    *("sum(IF(x > 1, 1, 0))", "avg(small)", "max(x + y)", "sum(dec)", "min(s.a)", "max(bytes)", "min(wait)"),
]
NAN, INFINITY = math.nan, math.inf
VALUES: dict[str, list[Any]] = {
    "tiny": [None, 0, 1, -128, 127],
    "small": [None, 0, 1, -32768, 32767],
    "int": [None, 0, 1, 2, -(2**31), 2**31 - 1],
    "long": [None, 0, 1, 2**53 + 1, -(2**63), 2**63 - 1],
    "float": [None, 0.0, -0.0, 1.5, 0.10000000149011612, NAN, INFINITY, -INFINITY, 3.4028234663852886e38, 1e-45],
    "x": [None, 0.0, -0.0, 1.0, 1.5, 0.1, NAN, INFINITY, -INFINITY, sys.float_info.max, 5e-324, -2.5],
    "y": [1.0, None, NAN, -0.0, INFINITY, 0.0, 1e300],
    "dec": [None, "0.00", "1.50", "-1.50", "99999999.99", "-99999999.99", "0.01", "7.00"],
    "wide": [None, "0", "1.5", "12345678901234567890.123456789012345678", "-0.000000000000000001", "0.1"],
    "text": [None, "", "a", "A", "é", "E\u0301", "straße", "ΑΣ", "İ", "水", "\U0001f40c\U0001f40c", "it's", "z\u0000"],
    "other": ["a", None, "é", "\uffff", "\U0001f40c", ""],
    "yes": [True, False, None],
    "no": [False, None, True, True],
    "day": [None, date(2026, 3, 1), date(1582, 10, 4), date(9999, 12, 31), date(1970, 1, 1)],
    "at": [
        None,
        datetime(2026, 3, 1, 8, 0, 0, 500000, tzinfo=UTC),
        datetime(2026, 3, 1, 13, 30, 0, 500000, tzinfo=timezone(timedelta(hours=5, minutes=30))),
        datetime(1900, 1, 1, tzinfo=UTC),
    ],
    "local": [None, datetime(2026, 3, 1, 10), datetime(2026, 3, 29, 2, 30), datetime(1, 1, 1)],
    "wait": [None, timedelta(microseconds=-1), timedelta(days=3)],
    "bytes": [None, b"", b"\x00", b"\x7f", b"\xff"],
    "digits": [
        None,
        "1",
        " 2 ",
        "+3",
        "-4",
        "5.0",
        "x",
        "",
        "1e3",
        ".5",
        "7.",
        "9223372036854775808",
        "2147483648",
        "300",
    ],
    "s": [None, {"a": None, "t": None}, {"a": 2, "t": {"b": "q"}}, {"a": 1, "t": {"b": None}}],
}
# Many digits at many lengths, for the rounding of decimals to doubles.
VALUES["wide"] += [str(Decimal(7**power).scaleb(-18, Context(prec=60))) for power in range(1, 45)]
ROWS = 240


def _frame() -> pl.DataFrame:
    schema = polars_schema(parse_ddl(DDL))
    columns: dict[str, pl.Series] = {}
    for position, (name, dtype) in enumerate(schema.items()):
        values = VALUES[name]
        if isinstance(dtype, pl.Decimal):
            values = [None if value is None else Decimal(value) for value in values]
        # Each column turns at its own pace, so that values meet in many pairs.
        chosen = [values[(row + row // (3 + position)) % len(values)] for row in range(ROWS)]
        columns[name] = pl.Series(name, chosen, dtype=dtype)
    return pl.DataFrame(columns)


def _in_spark(spark: SparkSession, frame: pl.DataFrame, ddl: str) -> DataFrame:
    schema = parse_ddl(ddl)
    return spark.createDataFrame(pa.Table.from_batches(arrow_batches(frame, schema)), schema=schema)


def _written(series: pl.Series) -> list[str]:
    """Values as text, which tells -0.0 from 0.0, 1 from 1.0 and finds NaN equal to itself."""
    return [repr(value) for value in series.to_list()]


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """Spark in a zone that is neither UTC nor whole hours away from it."""
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")
    yield spark
    spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.spark
def test_every_listed_row_expression_agrees_with_spark(session: SparkSession) -> None:
    frame = _frame()
    in_spark = _in_spark(session, frame, DDL)
    texts = {**{text: text for text in EXPRESSIONS}, **TRIED}
    selected = in_spark.selectExpr(*(f"{text} AS `{position}`" for position, text in enumerate(texts.values())))
    expected = pl.DataFrame(selected.toArrow())
    types = polars_schema(selected.schema)
    wrong: list[str] = []
    for position, text in enumerate(texts):
        operand = parse_row_expression(text).operand(frame.schema)
        result = frame.select(row=pl.int_range(pl.len()), value=operand.value)["value"]
        wanted = expected[str(position)]
        if result.dtype != operand.dtype or result.dtype != types[str(position)]:
            wrong.append(f"{text}: {operand.dtype}, {result.dtype}, Spark {types[str(position)]}")
        elif _written(result) != _written(wanted):
            rows = [
                index
                for index, pair in enumerate(zip(_written(result), _written(wanted), strict=True))
                if len(set(pair)) > 1
            ]
            wrong.append(
                f"{text}: row {rows[0]} is {result[rows[0]]!r}, in Spark {wanted[rows[0]]!r}: {frame.row(rows[0])}"
            )
    assert not wrong, "\n".join(wrong)


@pytest.mark.spark
def test_every_aggregate_agrees_with_spark_however_the_rows_are_split(session: SparkSession) -> None:
    groups = (pl.int_range(pl.len()) * 7 % 60).cast(pl.Int32)
    # Group 59 holds nothing but nulls.
    frame = _frame().with_columns(grouped=groups)
    empty = pl.DataFrame({"grouped": [59]}, schema={"grouped": pl.Int32})
    frame = pl.concat([frame.filter(pl.col("grouped") != 59), empty], how="diagonal")
    # Each row has a place of its own, so that min_by and max_by have no choice.
    frame = frame.with_columns(place=(pl.int_range(pl.len()) * 77 % 1009).cast(pl.Int32))
    answer = _aggregated_by_spark(session, frame, [_tried(text) for text in AGGREGATES])
    expected, types = pl.DataFrame(answer.toArrow()), polars_schema(answer.schema)
    wrong: list[str] = []
    for position, text in enumerate(AGGREGATES):
        aggregate, wanted = parse_aggregate(text, name="out"), expected[str(position)]
        result = _aggregated_by_us(frame, text)
        if not result.dtype == aggregate.result_type(frame.schema) == types[str(position)]:
            wrong.append(f"{text}: {result.dtype}, {aggregate.result_type(frame.schema)}, Spark {types[str(position)]}")
        for group, pair in enumerate(zip(result.to_list(), wanted.to_list(), strict=True)):
            if not _agree(*pair):
                wrong.append(f"{text}: group {group} is {pair[0]!r}, in Spark {pair[1]!r}")
    assert wrong == []


def _tried(text: str) -> str:
    """The function that gives null where the plain one would stop the query."""
    return EXACT.get(text, text).replace("avg(", "try_avg(").replace("sum(", "try_sum(")


def _aggregated_by_spark(session: SparkSession, frame: pl.DataFrame, texts: list[str]) -> DataFrame:
    columns = ", ".join(f"{text} AS `{position}`" for position, text in enumerate(texts))
    _in_spark(session, frame, f"{DDL}, grouped INT, place INT").createOrReplaceTempView("aggregated")
    return session.sql(f"SELECT grouped, {columns} FROM aggregated GROUP BY grouped ORDER BY grouped")


def _aggregated_by_us(frame: pl.DataFrame, text: str) -> pl.Series:
    """The results by group; ``place`` is the event time."""
    aggregate = parse_aggregate(text, name="out")
    partial, merge = aggregate.partial(frame.schema, pl.col("place").cast(pl.Int64)), aggregate.merge(frame.schema)
    pieces = [frame[start : start + 50] for start in range(0, frame.height, 50)]
    partials = [piece.group_by("grouped").agg(**partial) for piece in pieces]
    merged = pl.concat(partials).group_by("grouped").agg(**merge).sort("grouped")
    return merged.select(aggregate.result(frame.schema))["out"]


@pytest.mark.spark
def test_first_and_last_are_sparks_over_rows_in_the_order_of_time(session: SparkSession) -> None:
    frame = _frame().with_columns(
        grouped=(pl.int_range(pl.len()) * 7 % 60).cast(pl.Int32),
        place=(pl.int_range(pl.len()) * 77 % 1009).cast(pl.Int32),
    )
    columns = [*COMPARABLE, "text", "yes", "day", "at", "local", "bytes", "wait"]
    texts = [f"{function}({column})" for function in ("first", "last") for column in columns]
    # Spark takes rows as they come, so there they come in order.
    in_order = _aggregated_by_spark(session, frame.sort("place"), texts)
    expected, types = pl.DataFrame(in_order.toArrow()), polars_schema(in_order.schema)
    for position, text in enumerate(texts):
        result = _aggregated_by_us(frame, text)
        assert result.dtype == types[str(position)], text
        assert all(map(_agree, result.to_list(), expected[str(position)].to_list())), text


@pytest.mark.spark
def test_sketches_agree_with_spark_within_their_errors(session: SparkSession) -> None:
    frame = _frame().with_columns(
        grouped=(pl.int_range(pl.len()) % 4).cast(pl.Int32), place=pl.int_range(pl.len()).cast(pl.Int32)
    )
    # Sizes that are more than a factor of 10**19 apart are not kept apart.
    sizes = [pl.col(name).cast(pl.Float64).abs() for name in ("x", "float", "wide")]
    frame = frame.filter(size.is_between(1e-9, 1e9) | (size == 0) for size in sizes)
    shares = "array(0.0, 0.25, 0.5, 0.9, 1.0)"
    numbers = ["tiny", "small", "int", "long", "float", "x", "dec", "wide", "place"]
    texts = [f"approx_percentile({column}, {shares})" for column in numbers]
    texts += [f"percentile_approx({column}, 0.5) FILTER (WHERE place > 50)" for column in numbers]
    texts += [f"approx_count_distinct({column})" for column in (*numbers, "text", "at", "day", "bytes")]
    answer = _aggregated_by_spark(session, frame, texts)
    expected, types = pl.DataFrame(answer.toArrow()), polars_schema(answer.schema)
    for position, text in enumerate(texts):
        result, wanted = _aggregated_by_us(frame, text), expected[str(position)]
        assert result.dtype == types[str(position)], text
        # Spark's percentiles are exact for so few values, and its counts within 5 %.
        error = 0.07 if text.startswith("approx_count") else 0.01
        for ours, theirs in zip(result.explode().to_list(), wanted.explode().to_list(), strict=True):
            assert (ours is None) == (theirs is None), text
            assert ours is None or abs(ours - theirs) <= abs(float(theirs)) * error, f"{text}: {ours}, {theirs}"


def _agree(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, float) and isinstance(theirs, float):
        # Sums of floats depend on the order of the rows, in Spark too.
        return (math.isnan(ours) and math.isnan(theirs)) or math.isclose(ours, theirs, rel_tol=1e-12)
    return bool(ours == theirs)


@pytest.mark.spark
def test_letters_change_case_and_count_as_in_spark_for_every_character(session: SparkSession) -> None:
    characters = [chr(code) for code in range(1, 0x110000) if not 0xD800 <= code <= 0xDFFF]
    # Apart by spaces, because the case of one character may depend on its neighbours.
    lines = [" ".join(characters[start : start + 100]) for start in range(0, len(characters), 100)]
    frame = pl.DataFrame({"text": lines})
    texts = ["UPPER(text)", "LOWER(text)", "LENGTH(text)"]
    expected = pl.DataFrame(_in_spark(session, frame, "text STRING").selectExpr(*texts).toArrow())
    for text, wanted in zip(texts, expected.get_columns(), strict=True):
        result = frame.select(parse_row_expression(text).operand(frame.schema).value).to_series()
        assert result.equals(wanted), text


def test_patterns_of_text_match_as_in_spark(session: SparkSession) -> None:
    lines = [
        "",
        "a",
        "ab",
        "a\nb",
        "a\n",
        "\r\n",
        "a.b",
        "axb",
        "(a|b)[c]*+?^$ {d}",
        "é",
        "e\u0301",
        "😀",
        "a😀b",
        "%",
        "_",
        "\\",
        None,
    ]
    frame = pl.DataFrame({"text": lines})
    patterns = [
        "%",
        "_",
        "__",
        "a%",
        "%b",
        "a_b",
        "a.b",
        "%\n%",
        "a%b%",
        "(a|b)[c]*+?^$ {d}",
        "%$%",
        "%[c]%",
        "%%",
        "_%_",
    ]
    texts = [f"text {like} '{pattern}'" for pattern in patterns for like in ("LIKE", "NOT LIKE")]
    expected = pl.DataFrame(_in_spark(session, frame, "text STRING").selectExpr(*texts).toArrow())
    for text, wanted in zip(texts, expected.get_columns(), strict=True):
        result = frame.select(parse_row_expression(text).operand(frame.schema).value).to_series()
        assert result.to_list() == wanted.to_list(), text
