"""``hr.debezium_changes``: the messages of Debezium's connectors as a changelog."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from pyspark.sql.types import StructField, StructType

from headrace.changelog import DATABASE_CHANGELOG, OnTruncate
from headrace.errors import DefinitionError
from headrace.keys import key_columns
from headrace.schemas import parse_ddl, spark_schema
from headrace.stability import stable

Tombstones = Literal["skip", "delete"]
Decimals = Literal["base64", "text"]
Times = Literal["microseconds", "milliseconds", "nanoseconds"]
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "on_truncate": get_args(OnTruncate),
    "tombstones": get_args(Tombstones),
    "decimals": get_args(Decimals),
    "times": get_args(Times),
}
"""The values of each option, the default first."""


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
        taken = [name for name in DATABASE_CHANGELOG if name in names]
        if taken:
            raise DefinitionError(
                "COLUMN_EXISTS",
                f"debezium_changes: {taken[0]!r} is also a column of every changelog. Leave the table's column out, or "
                "let the connector rename it (transform ReplaceField).",
            )
        for name, given in self._options:
            if given not in _CHOICES[name]:
                known = " or ".join(map(repr, _CHOICES[name]))
                raise DefinitionError(
                    "OPTION_UNKNOWN", f"debezium_changes: {name}={given!r} is not known. Use {known}."
                )

    def __repr__(self) -> str:
        given = [repr(self.columns), f"key={self.key[0]!r}" if len(self.key) == 1 else f"key={list(self.key)!r}"]
        given += [f"{name}={value!r}" for name, value in self._options if value != _CHOICES[name][0]]
        return f"hr.debezium_changes({', '.join(given)})"

    @property
    def _options(self) -> Iterable[tuple[str, str]]:
        return zip(_CHOICES, (self.on_truncate, self.tombstones, self.decimals, self.times), strict=True)

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
