"""What a source takes as its schema to read messages about a table as a changelog, in the words of each envelope."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Literal

from pyspark.sql.types import StructField, StructType

from headrace.changelog import DATABASE_CHANGELOG, OnTruncate, check_free
from headrace.errors import DefinitionError, check_choice
from headrace.keys import key_argument, key_columns
from headrace.schemas import parse_ddl, spark_schema
from headrace.secrets import call_text
from headrace.stability import stable

Envelope = Literal["debezium", "canal", "maxwell", "upsert"]
"""Who writes the messages; with ``upsert`` a message is a row, and one without a value deletes its key."""
Tombstones = Literal["skip", "delete"]
Decimals = Literal["base64", "text"]
Times = Literal["microseconds", "milliseconds", "nanoseconds"]
_CHOICES = {"on_truncate": OnTruncate, "tombstones": Tombstones, "decimals": Decimals, "times": Times}


@dataclass(frozen=True, slots=True, repr=False)
class DebeziumChanges:
    """How the messages of a table become rows; a source takes it as its schema."""

    columns: str
    key: tuple[str, ...]
    on_truncate: OnTruncate = "dead_letter"
    tombstones: Tombstones = "skip"
    decimals: Decimals = "base64"
    times: Times = "microseconds"
    envelope: Envelope = "debezium"
    table: str | None = None
    """The table whose messages are read, where a topic has those of several: ``database.table``."""

    def __post_init__(self) -> None:
        names = [field.name for field in parse_ddl(self.columns).fields]
        unknown = [column for column in self.key if column not in names]
        if unknown or not self.key:
            what = f"key column {unknown[0]!r} is not among the columns" if unknown else "key=[] names no column"
            raise DefinitionError(
                "COLUMN_UNKNOWN", f"{self.label}: {what}. Name the table's primary key out of: {', '.join(names)}."
            )
        check_free(names, self.label, "Leave it out or rename it")
        for name, choices in _CHOICES.items():
            check_choice(choices, **{name: getattr(self, name)})

    def __repr__(self) -> str:
        given = signature(_FUNCTIONS[self.envelope]).parameters.keys() & {*_CHOICES, "table"}
        options = {name: getattr(self, name) for name in (*_CHOICES, "table") if name in given}
        return call_text(_FUNCTIONS[self.envelope], self.columns, key=key_argument(self.key), **options)

    @property
    def label(self) -> str:
        """The definition in error messages."""
        return f"{self.envelope}_changes"

    @property
    def struct(self) -> StructType:
        """The changelog's columns; all of them may be null, because a delete may have only its key."""
        table = [StructField(field.name, field.dataType) for field in parse_ddl(self.columns).fields]
        return StructType([*table, *spark_schema(DATABASE_CHANGELOG).fields])


@stable
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


@stable
def canal_changes(
    columns: str, *, key: str | Sequence[str], table: str | None = None, on_truncate: OnTruncate = "dead_letter"
) -> DebeziumChanges:
    """The ``schema=`` of a source that reads Canal's flat messages of one table as a changelog.

    Of a topic with several tables ``table="shop.orders"`` reads one. An update has its old row too.

    >>> import headrace as hr
    >>> hr.canal_changes("id BIGINT, total DECIMAL(10,2)", key="id", table="shop.orders")
    hr.canal_changes('id BIGINT, total DECIMAL(10,2)', key='id', table='shop.orders')
    """
    texts = {"decimals": "text", "envelope": "canal", "table": table}
    return DebeziumChanges(columns, key_columns(key), on_truncate, **texts)  # type: ignore[arg-type]


@stable
def maxwell_changes(columns: str, *, key: str | Sequence[str], table: str | None = None) -> DebeziumChanges:
    """The ``schema=`` of a source that reads Maxwell's messages of one table as a changelog.

    Of a topic with several tables ``table="shop.orders"`` reads one. An update has its old row too.

    >>> import headrace as hr
    >>> hr.maxwell_changes("id BIGINT, total DECIMAL(10,2)", key="id").struct.fieldNames()[:3]
    ['id', 'total', 'change']
    """
    return DebeziumChanges(columns, key_columns(key), decimals="text", envelope="maxwell", table=table)


@stable
def upsert_changes(columns: str, *, key: str | Sequence[str]) -> DebeziumChanges:
    """The ``schema=`` of a source that reads a compacted topic as the changelog of a table, as Flink's upsert-kafka.

    A message is the row of its key, one without a value deletes it. The message's key is the text of the ``key`` column
    or a JSON object of the key columns, as ``hr.to_kafka(..., changes="upsert")`` writes them.

    >>> import headrace as hr
    >>> hr.upsert_changes("id BIGINT, name STRING", key="id")
    hr.upsert_changes('id BIGINT, name STRING', key='id')
    """
    return DebeziumChanges(columns, key_columns(key), tombstones="delete", decimals="text", envelope="upsert")


_FUNCTIONS: Mapping[Envelope, Callable[..., DebeziumChanges]] = {
    "debezium": debezium_changes,
    "canal": canal_changes,
    "maxwell": maxwell_changes,
    "upsert": upsert_changes,
}
