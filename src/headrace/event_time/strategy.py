"""Time strategies: where a row's time comes from, which times are valid, and how far the watermark trails behind.

A column that carries event time is marked in the schema, so that the mark survives the user's own select.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from headrace.durations import Duration, microseconds, not_too_long, positive_microseconds, spoken
from headrace.errors import DefinitionError, check_choice
from headrace.graph import graph_behind
from headrace.nodes import NodeId
from headrace.stability import stable

WhenAllIdle = Literal["hold", "advance"]
Partitions = Collection[str | int] | int
"""The values of a column that are expected, or how many there are."""
MOST_PARTITIONS = 10_000
BEGINNING = -(2**63)
END = 2**63 - 1
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME_TAG = "headrace.time"
"""Column metadata: the node whose event time the column carries."""


def tagged(fields: Iterable[StructField], column: str, node: NodeId) -> StructType:
    """A schema of these fields, in which one column carries the event time of a node."""
    tags = {column: {_TIME_TAG: str(node)}}
    return StructType(
        [StructField(field.name, field.dataType, field.nullable, tags.get(field.name)) for field in fields]
    )


def time_fields(schema: StructType) -> list[StructField]:
    """The columns that carry event time."""
    return [field for field in schema.fields if _TIME_TAG in (field.metadata or {})]


def tagged_node(column: StructField) -> NodeId:
    """The node whose event time a column carries."""
    return NodeId.parse(column.metadata[_TIME_TAG])


def instant(moment: datetime | str, *, argument: str) -> int:
    """A moment as microseconds since the epoch; a moment without a zone is UTC.

    >>> instant("1970-01-01T00:00:01", argument="not_before")
    1000000
    """
    try:
        parsed = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    except ValueError:
        raise DefinitionError(
            "MOMENT_UNREADABLE", f"{argument}={moment!r} is not a moment. Write it as in '2026-01-01T10:00:00Z'."
        ) from None
    aware = parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)
    return (aware - EPOCH) // timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class ValidTimes:
    """The event times to accept; rows outside become dead letters and never move the watermark."""

    not_before: int | None = None
    max_future: int | None = None


def _length(duration: Duration, *, argument: str) -> int:
    return not_too_long(microseconds(duration, argument=argument), duration, argument=argument)


@stable
def valid_times(*, not_before: datetime | str | None = None, max_future: Duration | None = "5 minutes") -> ValidTimes:
    """The event times to accept: from a moment on, and at most ``max_future`` ahead of the clock.

    >>> valid_times(max_future="1 minute").max_future
    60000000
    """
    return ValidTimes(
        None if not_before is None else instant(not_before, argument="not_before"),
        None if max_future is None else _length(max_future, argument="max_future"),
    )


@dataclass(frozen=True, slots=True)
class TimeStrategy:
    """How a source's rows get their time and its partitions their watermark; applied with ``frame.transform``."""

    kind: Literal["event", "ingestion", "processing"]
    column: str
    out_of_order: int = 0
    idle: int | None = None
    accept: ValidTimes = ValidTimes()
    partition: str | None = None
    when_all_idle: WhenAllIdle = "hold"
    expected: tuple[str, ...] | int = ()
    """The values of ``partition`` that hold the watermark before their first row, or how many there are."""

    def __call__(self, frame: DataFrame) -> DataFrame:
        """The same source with its time declared; the frame must come straight from a source."""
        timed = graph_behind(frame, reader=repr(self)).origin_of(frame).timed(self)
        if timed is None:
            raise DefinitionError(
                "EVENT_TIME_NOT_AT_SOURCE",
                f"hr.{self.kind}_time({self.column!r}) was given a frame that does not come straight from a source, so "
                "filtered rows would not advance the watermark. Apply it right after hr.read_...(...), "
                "before your own where and select.",
            )
        return timed

    def __repr__(self) -> str:
        if self.kind != "event":
            return f"hr.{self.kind}_time({self.column!r})"
        partition = "" if self.partition is None else f", partition={self.partition!r}"
        expected = self.expected if isinstance(self.expected, int) else [*self.expected]
        partitions = f", partitions={expected!r}" if expected else ""
        return f"hr.event_time({self.column!r}, out_of_order={spoken(self.out_of_order)!r}{partition}{partitions})"


@stable
def event_time(
    column: str,
    *,
    out_of_order: Duration = "0 seconds",
    idle: Duration | None = "1 minute",
    accept: ValidTimes | None = None,
    partition: str | None = None,
    partitions: Partitions | None = None,
    when_all_idle: WhenAllIdle = "hold",
) -> TimeStrategy:
    """A row's time is in ``column``; the watermark trails the highest time seen by ``out_of_order``.

    ``partition`` names a column: each of its values has a watermark of its own, and the lowest counts. The values
    ``partitions`` (or so many values) hold the watermark before their first row too, for ``idle`` from the start on.

    >>> event_time("at", out_of_order="10 seconds")
    hr.event_time('at', out_of_order='10 seconds')
    """
    bound = _length(out_of_order, argument="out_of_order")
    if bound < 0:
        raise DefinitionError(
            "OUT_OF_ORDER_NEGATIVE",
            f"out_of_order={out_of_order!r} is negative, so the watermark would run ahead of the rows. "
            "Give '0 seconds' for rows in order, or how far they may be out of order.",
        )
    check_choice(WhenAllIdle, when_all_idle=when_all_idle)
    quiet = None if idle is None else positive_microseconds(idle, argument="idle")
    expected = () if partitions is None else _expected(partitions, column=partition)
    return TimeStrategy("event", column, bound, quiet, accept or valid_times(), partition, when_all_idle, expected)


def _expected(partitions: Partitions, *, column: str | None) -> tuple[str, ...] | int:
    """The expected values as text, as they are compared, or their number."""
    if column is None:
        raise DefinitionError(
            "PARTITIONS_WITHOUT_COLUMN",
            f"partitions={partitions!r} are values of a column, but partition= names none. Add partition='gateway', "
            "with the name of the column.",
        )
    values = [*partitions] if isinstance(partitions, Collection) and not isinstance(partitions, str) else []
    number = partitions if isinstance(partitions, int) else len(values)
    if type(partitions) is bool or not {*map(type, values)} <= {str, int} or not 1 <= number <= MOST_PARTITIONS:
        raise DefinitionError(
            "PARTITIONS_INVALID",
            f"partitions={partitions!r} must be the expected values of column {column!r}, strings or whole numbers, or "
            f"how many there are: 1 to {MOST_PARTITIONS:,}. Write it as in partitions=['north', 'south'] or "
            "partitions=2.",
        )
    return partitions if isinstance(partitions, int) else tuple(dict.fromkeys(map(str, values)))


@stable
def ingestion_time(column: str = "ingested_at") -> TimeStrategy:
    """A row's time is its arrival (a file's modification time); for monitoring, not for business windows.

    >>> ingestion_time()
    hr.ingestion_time('ingested_at')
    """
    return TimeStrategy("ingestion", column)


@stable
def processing_time(column: str = "processed_at") -> TimeStrategy:
    """A row's time is its batch's logged clock; for monitoring, not for business windows.

    >>> processing_time()
    hr.processing_time('processed_at')
    """
    return TimeStrategy("processing", column)
