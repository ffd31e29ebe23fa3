"""The elements of a timeline: rows, watermarks, clocks, tables, batches, crashes, expectations, and their times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Literal

from headrace.event_time.strategy import instant

DAY = "2026-01-01"
Moment = str | datetime
Side = Literal["left", "right"]
"""Which input of a step a row belongs to."""
Row = Mapping[str, Any]
"""A row in an expectation; only the columns it names are compared."""


def moment(given: Moment) -> int:
    """A time as microseconds since the epoch.

    >>> moment("10:05") == moment("2026-01-01T10:05:00Z")
    True
    """
    if isinstance(given, str) and "-" not in given:
        given = f"{DAY}T{given if given.count(':') > 0 else given + ':00'}"
    return instant(given, argument="time")


def shown(time: int | datetime) -> str:
    """A time as timelines write it.

    >>> shown(moment("10:05:30"))
    '10:05:30'
    """
    when = datetime.fromtimestamp(time / 1_000_000, UTC) if isinstance(time, int) else time.astimezone(UTC)
    clock = when.strftime("%H:%M" if not (when.second or when.microsecond) else "%H:%M:%S")
    clock += f".{when.microsecond:06d}".rstrip("0") if when.microsecond else ""
    return clock if when.strftime("%Y-%m-%d") == DAY else f"{when.strftime('%Y-%m-%d')}T{clock}"


@dataclass(frozen=True, slots=True)
class At:
    """A row that arrives."""

    time: int | None
    columns: Mapping[str, Any]
    partition: int
    side: Side = "left"

    def __str__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in self.columns.items())
        side = "right " if self.side == "right" else ""
        return f"{side}at {'no time' if self.time is None else shown(self.time)}  {values}"


@dataclass(frozen=True, slots=True)
class Watermark:
    """The watermark moves, of both inputs or of one."""

    time: int
    side: Side | None = None

    def __str__(self) -> str:
        return f"{'' if self.side is None else f'{self.side} '}watermark {shown(self.time)}"


@dataclass(frozen=True, slots=True)
class Clock:
    """Processing time moves."""

    time: int

    def __str__(self) -> str:
        return f"clock {shown(self.time)}"


@dataclass(frozen=True, slots=True)
class TableContent:
    """A small table gets other rows."""

    step: str
    rows: tuple[Row, ...]
    schema: str | None

    def __str__(self) -> str:
        return f"table {self.step}  {len(self.rows)} rows"


class Signal(StrEnum):
    """What happens to the rows so far."""

    BATCH = "batch"
    CRASH = "crash"


@dataclass(frozen=True, slots=True)
class Expect:
    """All rows of an output since the last expectation of it."""

    rows: tuple[Row, ...]
    output: str

    def __str__(self) -> str:
        return f"expect {len(self.rows)} rows of {self.output}"


Element = At | Watermark | Clock | TableContent | Signal | Expect


def at(time: Moment | None, *, partition: int = 0, side: Side = "left", **columns: Any) -> At:
    """A row with this event time (column ``at``); ``None`` for a row without one, ``side`` for a step's second input.

    >>> print(at("10:05", account="a"))
    at 10:05  account='a'
    """
    return At(None if time is None else moment(time), columns, partition, side)


def watermark(time: Moment, *, side: Side | None = None) -> Watermark:
    """Run the rows so far, then an empty batch at this watermark; ``side`` for one of two inputs.

    >>> print(watermark("11:00"))
    watermark 11:00
    """
    return Watermark(moment(time), side)


def clock(time: Moment) -> Clock:
    """Run the rows so far, then move processing time; what is due by then comes with the next batch.

    At the beginning of a timeline it is the time at which the flow starts.

    >>> print(clock("11:00:30"))
    clock 11:00:30
    """
    return Clock(moment(time))


def table(step: str, *rows: Row, schema: str | None = None) -> TableContent:
    """Run the rows so far, then give the table of this broadcast join these rows; the join reads it when it is due.

    The timeline's table takes the place of the step's own, which is never read. Its columns are those of all rows that
    it ever has in the timeline, or those of a ``schema``.

    >>> print(table("rates", row(currency="EUR", rate=1.1), row(currency="GBP", rate=1.3)))
    table rates  2 rows
    """
    return TableContent(step, rows, schema)


def batch() -> Signal:
    """Run the rows so far as one batch under the watermark in force.

    >>> print(batch())
    batch
    """
    return Signal.BATCH


def crash() -> Signal:
    """Die while the batch of the rows so far runs, then start again from the last committed batch.

    >>> print(crash())
    crash
    """
    return Signal.CRASH


def row(**columns: Any) -> Row:
    """One row of an expectation with several.

    >>> row(account="a")
    {'account': 'a'}
    """
    return columns


def expect(*rows: Row, output: str = "main", **columns: Any) -> Expect:
    """Exactly these rows of an output since its last expectation; order matters only within a key.

    >>> print(expect(account="a", spent=5.0))
    expect 1 rows of main
    """
    return Expect((*rows, columns) if columns else rows, output)
