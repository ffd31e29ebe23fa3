"""Schemas keep their meaning between Spark, Polars and Arrow."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as spark_types
from pyspark.sql.pandas.types import to_arrow_schema

from headrace.errors import DefinitionError
from headrace.schemas import arrow_batches, from_arrow, parse_ddl, polars_schema, spark_schema

EVERY_TYPE = (
    "bool BOOLEAN, byte TINYINT, short SMALLINT, int INT, long BIGINT, float FLOAT, double DOUBLE, text STRING, "
    "bytes BINARY, day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, wait INTERVAL DAY TO SECOND, price DECIMAL(10,2), "
    "total DECIMAL(38,18), nested STRUCT<at: TIMESTAMP, tags: ARRAY<STRING>>, times ARRAY<TIMESTAMP>"
)
NOON = datetime(2026, 7, 1, 12, 0, 0, 123456, tzinfo=UTC)
ROWS: list[tuple[object, ...]] = [
    (
        *(True, -128, -32768, -(2**31), -(2**63), 1.5, -0.0, "é水", b"\x00\xff", date(1582, 10, 15), NOON),
        *(NOON.replace(tzinfo=None), timedelta(days=-3, microseconds=7), Decimal("-12345678.90")),
        *(Decimal("12345678901234567890.123456789012345678"), {"at": NOON, "tags": ["a", None]}, [NOON, None]),
    ),
    (None,) * 17,
    (
        *(False, 127, 32767, 2**31 - 1, 2**63 - 1, float("inf"), 5e-324, "", b"", date(9999, 12, 31)),
        *(datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC), datetime(1, 1, 1), timedelta(0), Decimal("0.00")),
        *(Decimal("0E-18"), {"at": None, "tags": []}, []),
    ),
]


def _every_type() -> pl.DataFrame:
    return pl.DataFrame(ROWS, schema=polars_schema(parse_ddl(EVERY_TYPE)), orient="row")


def _through_polars(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    schema = parse_ddl(EVERY_TYPE)
    for batch in batches:
        frame = from_arrow(batch)
        assert dict(frame.schema) == polars_schema(schema), frame.schema
        yield from arrow_batches(frame, schema)


@pytest.mark.spark
@pytest.mark.parametrize("zone", ["UTC", "America/St_Johns"])
def test_rows_of_every_type_pass_through_polars_unchanged_in_any_session_zone(spark: SparkSession, zone: str) -> None:
    schema = parse_ddl(EVERY_TYPE)
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        table = pa.Table.from_batches(arrow_batches(_every_type(), schema))
        rows = spark.createDataFrame(table, schema=schema).coalesce(1)
        there_and_back = rows.mapInArrow(_through_polars, schema).toArrow()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    [batch] = there_and_back.combine_chunks().to_batches()
    assert from_arrow(batch).equals(_every_type())


@pytest.mark.spark
def test_ddl_means_here_what_it_means_to_spark(spark: SparkSession) -> None:
    texts = [
        EVERY_TYPE,
        "account STRING NOT NULL COMMENT 'the payer', `a b` DEC(5), n NUMERIC(4, 1), d DECIMAL, r REAL, l LONG",
        "a INTERVAL HOUR TO MINUTE, b INTERVAL SECOND, m MAP<STRING, ARRAY<INT>>, timestamp TIMESTAMP_LTZ, date DATE",
        "s STRUCT<a: INT NOT NULL COMMENT 'x', b STRUCT<c: BYTE>>, x SHORT, y INTEGER",
    ]
    for text in texts:
        assert parse_ddl(text) == spark_types.StructType.fromDDL(text)


def test_polars_and_spark_schemas_turn_into_each_other() -> None:
    schema = parse_ddl(EVERY_TYPE)
    assert spark_schema(polars_schema(schema)) == schema


def test_a_schema_is_read_without_a_session() -> None:
    schema = parse_ddl("account STRING NOT NULL, amount DECIMAL(10, 2), at TIMESTAMP")
    assert schema.simpleString() == "struct<account:string,amount:decimal(10,2),at:timestamp>"
    polars = {"account": pl.String(), "amount": pl.Decimal(10, 2), "at": pl.Datetime("us", "UTC")}
    assert polars_schema(schema) == polars
    assert spark_schema(polars).simpleString() == schema.simpleString()


def test_strings_leave_as_plain_arrow_strings_in_the_order_of_the_schema() -> None:
    frame = pl.DataFrame({"extra": [1], "at": [NOON], "text": ["a"]})
    schema = parse_ddl("text STRING, at TIMESTAMP")
    [batch] = arrow_batches(frame, schema)
    assert batch.schema.equals(to_arrow_schema(schema, timezone="UTC"))
    assert batch.schema.types == [pa.string(), pa.timestamp("us", tz="UTC")]


def test_an_empty_frame_gives_no_batches() -> None:
    assert list(arrow_batches(_every_type().clear(), parse_ddl(EVERY_TYPE))) == []


def test_large_frames_leave_in_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.schemas._BATCH_BYTES", 10_000)
    frame = pl.DataFrame({"text": [str(row) * 100 for row in range(1_000)]})
    batches = list(arrow_batches(frame, parse_ddl("text STRING")))
    assert len(batches) > 10
    assert pl.concat([from_arrow(batch) for batch in batches]).equals(frame)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it names no columns"),
        ("account", "'account' has no type"),
        ("account BLABLA", "it is not a list of columns"),
        ("account STRING,", "a column is missing after the last comma"),
        ("a INT b INT", "it is not a list of columns"),
        ("a INT, A STRING", "column 'A' is named twice"),
        ("a DECIMAL(39, 2)", "a decimal has at most 38 digits"),
        ("a DECIMAL(3, 5)", "a decimal has at most 38 digits"),
        ("a INT PRIMARY KEY", "column 'a' says 'PRIMARY KEY'"),
        ("a VARCHAR(10)", "type 'VARCHAR(10)' is not known"),
        ("a INTERVAL YEAR TO MONTH", "is not a day-time interval"),
        ("a STRUCT<b BLABLA>", "it is not a list of columns"),
        ("a INT) COMMENT 'x' --", "it is not a list of columns"),
        ("a INTERVAL", "type 'INTERVAL' is not known"),
    ],
)
def test_unreadable_ddl_is_named_with_its_reason(text: str, reason: str) -> None:
    with pytest.raises(DefinitionError) as failure:
        parse_ddl(text)
    assert failure.value.id == "SCHEMA_UNREADABLE"
    assert f"schema '{text}' cannot be read: " in str(failure.value)
    assert reason in str(failure.value)


def test_a_map_column_is_refused_by_name() -> None:
    with pytest.raises(DefinitionError, match=r"\[SCHEMA_UNSUPPORTED\] column 'a.b' is MAP<STRING, INT>"):
        polars_schema(parse_ddl("a STRUCT<b: MAP<STRING, INT>>"))


@pytest.mark.parametrize("dtype", [pl.UInt32(), pl.Int128(), pl.Datetime("ns"), pl.Time(), pl.Categorical(), pl.Null()])
def test_a_polars_type_that_spark_lacks_is_refused_by_name(dtype: pl.DataType) -> None:
    with pytest.raises(DefinitionError, match=r"\[SCHEMA_UNSUPPORTED\] column 'a'"):
        spark_schema({"a": dtype})
