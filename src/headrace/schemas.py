"""Schemas of Spark, Polars and Arrow, and the conversions between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

import polars as pl
import pyarrow as pa
import sqlglot
from polars.datatypes import DataTypeClass
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_schema
from sqlglot import exp
from sqlglot.errors import SqlglotError

from headrace.errors import DefinitionError

PolarsType = pl.DataType | DataTypeClass
MOMENT = pl.Datetime("us", "UTC")
"""The type of event times and of every other point in time."""

_TYPES: tuple[tuple[type[spark.DataType], pl.DataType, tuple[str, ...]], ...] = (
    (spark.BooleanType, pl.Boolean(), ("BOOLEAN",)),
    (spark.ByteType, pl.Int8(), ("TINYINT",)),
    (spark.ShortType, pl.Int16(), ("SMALLINT",)),
    (spark.IntegerType, pl.Int32(), ("INT",)),
    (spark.LongType, pl.Int64(), ("BIGINT",)),
    (spark.FloatType, pl.Float32(), ("FLOAT",)),
    (spark.DoubleType, pl.Float64(), ("DOUBLE",)),
    (spark.StringType, pl.String(), ("TEXT",)),
    (spark.BinaryType, pl.Binary(), ("BINARY",)),
    (spark.DateType, pl.Date(), ("DATE",)),
    (spark.TimestampType, MOMENT, ("TIMESTAMPTZ", "TIMESTAMPLTZ")),
    (spark.TimestampNTZType, pl.Datetime("us"), ("TIMESTAMPNTZ",)),
    (spark.DayTimeIntervalType, pl.Duration("us"), ()),
)
"""Types without parameters: in Spark, in Polars, and their names in SQL as sqlglot gives them."""
_POLARS_TYPES = {spark_class: polars for spark_class, polars, _ in _TYPES}
_SQL_TYPES = {name: spark_class for spark_class, _, names in _TYPES for name in names}
_INTERVAL_UNITS = ("DAY", "HOUR", "MINUTE", "SECOND")
_LARGEST_PRECISION = 38
# Far below the 2 GiB that the 32-bit offsets of Spark's strings allow in one batch.
_BATCH_BYTES = 64 << 20


def polars_schema(struct: spark.StructType) -> dict[str, pl.DataType]:
    """The Polars types of a Spark schema's columns."""
    return {field.name: polars_type(field.dataType, field.name) for field in struct.fields}


def polars_type(dtype: spark.DataType, column: str) -> pl.DataType:
    """The Polars type of one Spark type; the column is named when there is none."""
    if isinstance(dtype, spark.DecimalType):
        return pl.Decimal(dtype.precision, dtype.scale)
    if isinstance(dtype, spark.StructType):
        return pl.Struct({field.name: polars_type(field.dataType, f"{column}.{field.name}") for field in dtype.fields})
    if isinstance(dtype, spark.ArrayType):
        return pl.List(polars_type(dtype.elementType, f"{column}.element"))
    if type(dtype) in _POLARS_TYPES:
        return _POLARS_TYPES[type(dtype)]
    raise _unsupported(column, shown_type(dtype))


def spark_schema(schema: Mapping[str, PolarsType]) -> spark.StructType:
    """The Spark schema of Polars columns, every column nullable."""
    return spark.StructType([spark.StructField(name, spark_type(dtype, name)) for name, dtype in schema.items()])


def spark_type(dtype: PolarsType, column: str) -> spark.DataType:
    """The Spark type of one Polars type; the column is named when there is none."""
    if isinstance(dtype, pl.Decimal):
        return spark.DecimalType(dtype.precision, dtype.scale)
    if isinstance(dtype, pl.Struct):
        types = {field.name: spark_type(field.dtype, f"{column}.{field.name}") for field in dtype.fields}
        return spark.StructType([spark.StructField(name, inner) for name, inner in types.items()])
    if isinstance(dtype, pl.List):
        return spark.ArrayType(spark_type(dtype.inner, f"{column}.element"))
    if isinstance(dtype, pl.Datetime) and dtype.time_unit == "us" and dtype.time_zone is not None:
        return spark.TimestampType()
    for spark_class, polars in _POLARS_TYPES.items():
        if dtype == polars:
            return spark_class()
    raise _unsupported(column, str(dtype))


def shown_type(dtype: PolarsType | spark.DataType) -> str:
    """A type as Spark's SQL names it.

    >>> shown_type(pl.List(pl.Struct({"a": pl.Int32()})))
    'ARRAY<STRUCT<a: INT>>'
    """
    match dtype if isinstance(dtype, spark.DataType) else spark_type(dtype, ""):
        case spark.ArrayType() as array:
            return f"ARRAY<{shown_type(array.elementType)}>"
        case spark.MapType() as pairs:
            return f"MAP<{shown_type(pairs.keyType)}, {shown_type(pairs.valueType)}>"
        case spark.StructType() as struct:
            return f"STRUCT<{', '.join(f'{field.name}: {shown_type(field.dataType)}' for field in struct.fields)}>"
        case other:
            return other.simpleString().upper()


def arrow_batches(frame: pl.DataFrame, schema: spark.StructType) -> Iterator[pa.RecordBatch]:
    """The frame as record batches that Spark's ``mapInArrow`` accepts for the schema, in the schema's column order."""
    target = to_arrow_schema(schema, timezone="UTC")
    ordered = frame.select(target.names)
    rows = max(1, ordered.height * _BATCH_BYTES // max(1, int(ordered.estimated_size())))
    for part in ordered.iter_slices(rows):
        yield from part.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(target).combine_chunks().to_batches()


def from_arrow(batch: pa.RecordBatch) -> pl.DataFrame:
    """A record batch from Spark as a frame; timestamps labelled with the session's zone become UTC."""
    target = pa.schema([field.with_type(_in_utc(field.type)) for field in batch.schema])
    return cast(pl.DataFrame, pl.from_arrow(batch if target.equals(batch.schema) else batch.cast(target)))


def parse_ddl(text: str) -> spark.StructType:
    """The Spark schema that DDL text describes, read without a Spark session."""
    try:
        statement = sqlglot.parse_one(f"CREATE TABLE t ({text}\n)", dialect="spark")
    except SqlglotError as error:
        raise _unreadable(text, "it is not a list of columns") from error
    table = statement.this
    if not isinstance(statement, exp.Create) or not isinstance(table, exp.Schema) or not table.expressions:
        raise _unreadable(text, "it names no columns")
    if text.rstrip().endswith(","):
        raise _unreadable(text, "a column is missing after the last comma")
    return _struct(table.expressions, text)


def type_of(node: exp.DataType, text: str) -> spark.DataType:
    """The Spark type that a parsed SQL type means; ``text`` is the whole schema, for errors."""
    kind = node.this
    if isinstance(kind, exp.Interval):
        return _interval(kind, text)
    name, parameters = getattr(kind, "name", str(kind)), node.expressions
    if name == "DECIMAL":
        precision, scale = *(int(parameter.name) for parameter in parameters), *(10, 0)[len(parameters) :]
        if not 0 <= scale <= precision <= _LARGEST_PRECISION:
            raise _unreadable(
                text, f"a decimal has at most {_LARGEST_PRECISION} digits, including those after the point"
            )
        return spark.DecimalType(precision, scale)
    if name == "STRUCT" and parameters:
        return _struct(parameters, text)
    if name in ("ARRAY", "LIST") and len(parameters) == 1:
        return spark.ArrayType(type_of(parameters[0], text))
    if name == "MAP" and len(parameters) == 2:
        return spark.MapType(type_of(parameters[0], text), type_of(parameters[1], text))
    if name not in _SQL_TYPES or parameters:
        raise _unreadable(text, f"type '{node.sql(dialect='spark')}' is not known")
    return _SQL_TYPES[name]()


def _struct(columns: list[exp.Expr], text: str) -> spark.StructType:
    fields: list[spark.StructField] = []
    for column in columns:
        kind = column.args.get("kind")
        if not isinstance(column, exp.ColumnDef) or not isinstance(kind, exp.DataType):
            raise _unreadable(text, f"'{column.sql(dialect='spark')}' has no type")
        if any(column.name.lower() == field.name.lower() for field in fields):
            raise _unreadable(text, f"column '{column.name}' is named twice")
        nullable, metadata = True, None
        for constraint in column.args.get("constraints") or []:
            if isinstance(constraint.kind, exp.NotNullColumnConstraint) and not constraint.kind.args.get("allow_null"):
                nullable = False
            elif isinstance(constraint.kind, exp.CommentColumnConstraint):
                metadata = {"comment": constraint.kind.name}
            else:
                raise _unreadable(text, f"column '{column.name}' says '{constraint.sql(dialect='spark')}'")
        fields.append(spark.StructField(column.name, type_of(kind, text), nullable, metadata))
    return spark.StructType(fields)


def _interval(interval: exp.Interval, text: str) -> spark.DayTimeIntervalType:
    unit = interval.args["unit"]
    names = (unit.this.name, unit.expression.name) if isinstance(unit, exp.IntervalSpan) else (unit.name, unit.name)
    if any(name.upper() not in _INTERVAL_UNITS for name in names):
        raise _unreadable(text, f"'{interval.sql(dialect='spark')}' is not a day-time interval")
    start, end = (_INTERVAL_UNITS.index(name.upper()) for name in names)
    return spark.DayTimeIntervalType(start, end)


def _in_utc(dtype: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(dtype) and dtype.tz is not None:
        return pa.timestamp(dtype.unit, tz="UTC")
    if pa.types.is_struct(dtype):
        return pa.struct([field.with_type(_in_utc(field.type)) for field in dtype])
    if pa.types.is_list(dtype):
        return pa.list_(dtype.value_field.with_type(_in_utc(dtype.value_type)))
    return dtype


def _unreadable(text: str, reason: str) -> DefinitionError:
    return DefinitionError(
        "SCHEMA_UNREADABLE",
        f"schema '{text}' cannot be read: {reason}. Write columns as in 'account STRING NOT NULL, amount DOUBLE, "
        "at TIMESTAMP'.",
    )


def _unsupported(column: str, dtype: str) -> DefinitionError:
    return DefinitionError(
        "SCHEMA_UNSUPPORTED",
        f"column '{column}' is {dtype}, which Spark and Polars do not both have. Use booleans, signed integers, "
        "floats, decimals, strings, binary, dates, timestamps in microseconds, day-time intervals, or structs and "
        f"arrays of these, or convert the column, as with F.to_json({column.partition('.')[0]!r}) if it is nested.",
    )
