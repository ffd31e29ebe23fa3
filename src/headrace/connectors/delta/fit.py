"""Whether rows fit a Delta table, found before the first batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyspark.sql.types import ArrayType, DataType, DayTimeIntervalType, StructType

from headrace.connectors.delta.log import DeltaLog
from headrace.errors import DefinitionError, HeadraceError

COUNTED = "spark.databricks.delta.stats.collect"


def check_fit(log: DeltaLog, columns: StructType, partition_by: Sequence[str]) -> None:
    """Fail with what is wrong, when rows of these columns cannot be written to the table at a path."""
    problem = _unstorable(columns)
    if problem is None and log.exists():
        problem = _misfit(log, columns, partition_by)
    if problem is not None:
        raise DefinitionError("DELTA_SCHEMA", f"Delta table {log.path!r}: {problem}")
    if log.spark.conf.get(COUNTED, "true") == "false":
        raise HeadraceError(
            "DELTA_STATISTICS_OFF",
            f"{COUNTED}=false keeps Delta from counting rows, and the account of a batch needs their number. "
            "Set it to true for this session.",
        )


def _unstorable(columns: StructType) -> str | None:
    for field in columns.fields:
        if any(isinstance(kind, DayTimeIntervalType) for kind in _inside(field.dataType)):
            return (
                f"column {field.name!r} is {field.dataType.simpleString()}, which Delta cannot keep. Write it as a "
                f"number of seconds, as in frame.withColumn({field.name!r}, F.col({field.name!r}).cast('bigint'))."
            )
    return None


def _misfit(log: DeltaLog, columns: StructType, partition_by: Sequence[str]) -> str | None:
    held = {field.name: field for field in log.schema().fields}
    folders = log.partition_columns()
    for field in columns.fields:
        if field.name not in held:
            return f"it has no column {field.name!r}, only {', '.join(held)}. Add the column or select others."
        if _shape(field.dataType) != _shape(held[field.name].dataType):
            return (
                f"column {field.name!r} is {held[field.name].dataType.simpleString()}, the rows have "
                f"{field.dataType.simpleString()}. Cast it."
            )
    for name, field in held.items():
        if name not in columns.names and (not field.nullable or name in folders):
            return f"the rows lack its column {name!r}, which cannot be left out. Add it to the rows."
    if partition_by and tuple(partition_by) != folders:
        have = f"has folders by {', '.join(folders)}" if folders else "has no folders"
        return f"it {have}, not by {', '.join(partition_by)}. Leave partition_by out, or write to another path."
    return None


def _shape(kind: DataType) -> object:
    """A type without what is nullable in it and without comments."""
    if isinstance(kind, StructType):
        return tuple((field.name, _shape(field.dataType)) for field in kind.fields)
    return ("array", _shape(kind.elementType)) if isinstance(kind, ArrayType) else kind.simpleString()


def _inside(kind: DataType) -> Iterator[DataType]:
    yield kind
    if isinstance(kind, StructType):
        for field in kind.fields:
            yield from _inside(field.dataType)
    elif isinstance(kind, ArrayType):
        yield from _inside(kind.elementType)
