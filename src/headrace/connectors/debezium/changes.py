"""``hr.debezium_changes``: the messages of Debezium's connectors as a changelog."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pyspark.sql.types import StructField, StructType

from headrace.changelog import DATABASE_CHANGELOG, OnTruncate, check_free
from headrace.errors import DefinitionError, check_choice
from headrace.keys import key_argument, key_columns
from headrace.schemas import parse_ddl, spark_schema
from headrace.secrets import call_text
from headrace.stability import stable

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

    def __post_init__(self) -> None:
        names = [field.name for field in parse_ddl(self.columns).fields]
        unknown = [column for column in self.key if column not in names]
        if unknown or not self.key:
            what = f"key column {unknown[0]!r} is not among the columns" if unknown else "key=[] names no column"
            raise DefinitionError(
                "COLUMN_UNKNOWN", f"debezium_changes: {what}. Name the table's primary key out of: {', '.join(names)}."
            )
        check_free(names, "debezium_changes", "Leave it out or rename it")
        for name, given in self._options.items():
            check_choice(_CHOICES[name], **{name: given})

    def __repr__(self) -> str:
        return call_text(debezium_changes, self.columns, key=key_argument(self.key), **self._options)

    @property
    def _options(self) -> dict[str, str]:
        return {name: getattr(self, name) for name in _CHOICES}

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
