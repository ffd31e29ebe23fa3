"""``hr.debezium_changes``: the messages of Debezium's connectors as a changelog."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Literal, get_args

from pyspark.sql.types import ArrayType, StringType, StructField, StructType, TimestampType

from headrace.changelog import CHANGE, POSITION, UNCHANGED
from headrace.errors import DefinitionError
from headrace.keys import key_columns
from headrace.schemas import parse_ddl, polars_schema

OnTruncate = Literal["dead_letter", "stop"]
Tombstones = Literal["skip", "delete"]
Decimals = Literal["base64", "text"]
Times = Literal["milliseconds", "microseconds", "nanoseconds"]

COMMITTED_AT, TRANSACTION = "committed_at", "transaction"
ADDED = (
    StructField(CHANGE, StringType()),
    StructField(POSITION, StringType()),
    StructField(COMMITTED_AT, TimestampType()),
    StructField(TRANSACTION, StringType()),
    StructField(UNCHANGED, ArrayType(StringType())),
)
"""The columns that a changelog has beside those of the table."""
ADDED_TYPES = polars_schema(StructType(list(ADDED)))


@dataclass(frozen=True, slots=True, repr=False)
class DebeziumChanges:
    """How the messages of a table become rows; a source takes it as its schema."""

    columns: str
    key: tuple[str, ...]
    on_truncate: OnTruncate = "dead_letter"
    tombstones: Tombstones = "skip"
    decimals: Decimals = "base64"
    times: Times = "microseconds"

    def __post_init__(self) -> None:
        names = [field.name for field in parse_ddl(self.columns).fields]
        unknown = [column for column in self.key if column not in names]
        if unknown or not self.key:
            what = f"key column {unknown[0]!r} is not among the columns" if unknown else "key=[] names no column"
            raise DefinitionError(
                "COLUMN_UNKNOWN", f"debezium_changes: {what}. Name the table's primary key out of: {', '.join(names)}."
            )
        taken = [field.name for field in ADDED if field.name in names]
        if taken:
            raise DefinitionError(
                "COLUMN_EXISTS",
                f"debezium_changes: {taken[0]!r} is also a column of every changelog. Leave the table's column out, or "
                "let the connector rename it (transform ReplaceField).",
            )
        self._check("on_truncate", self.on_truncate, get_args(OnTruncate))
        self._check("tombstones", self.tombstones, get_args(Tombstones))
        self._check("decimals", self.decimals, get_args(Decimals))
        self._check("times", self.times, get_args(Times))

    def __repr__(self) -> str:
        given = [repr(self.columns), f"key={self.key[0]!r}" if len(self.key) == 1 else f"key={list(self.key)!r}"]
        options = {field.name: field.default for field in fields(self) if field.default is not MISSING}
        given += [f"{name}={getattr(self, name)!r}" for name, usual in options.items() if getattr(self, name) != usual]
        return f"hr.debezium_changes({', '.join(given)})"

    @property
    def struct(self) -> StructType:
        """The changelog's columns; all of them may be null, because a delete may have only its key."""
        table = [StructField(field.name, field.dataType) for field in parse_ddl(self.columns).fields]
        return StructType([*table, *ADDED])

    def _check(self, name: str, given: str, known: tuple[str, ...]) -> None:
        if given not in known:
            raise DefinitionError(
                "OPTION_UNKNOWN",
                f"debezium_changes: {name}={given!r} is not known. Use {' or '.join(map(repr, known))}.",
            )


def debezium_changes(
    columns: str,
    *,
    key: str | Sequence[str],
    on_truncate: OnTruncate = "dead_letter",
    tombstones: Tombstones = "skip",
    decimals: Decimals = "base64",
    times: Times = "microseconds",
) -> DebeziumChanges:
    """The ``schema=`` of a source that reads Debezium's messages of one table as a changelog.

    ``columns`` are the wanted columns of the table, ``key`` is its primary key. Added are ``change``, ``position``,
    ``committed_at``, ``transaction`` and ``unchanged`` (columns whose large, unchanged values the database did not
    send). Messages may have a schema part or not, and be whole envelopes or unwrapped rows. ``tombstones="delete"`` is
    for unwrapped rows whose deletes come only as tombstones. ``decimals`` and ``times`` say how values without a schema
    part are written: decimals in base 64 or as text, and the unit of timestamps. A truncated table is a dead letter,
    or stops the flow with ``on_truncate="stop"``.

    >>> import headrace as hr
    >>> orders = hr.debezium_changes("id BIGINT, total DECIMAL(10,2)", key="id")
    >>> orders.struct.fieldNames()
    ['id', 'total', 'change', 'position', 'committed_at', 'transaction', 'unchanged']
    >>> @hr.pipeline
    ... def shop(spark):
    ...     hr.read_kafka(spark, "shop.public.orders", servers="broker:9092", schema=orders)
    """
    return DebeziumChanges(columns, key_columns(key), on_truncate, tombstones, decimals, times)
