"""Tumbling windows as an author says them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import polars as pl

from headrace.durations import MICROSECONDS, Duration, microseconds, positive_microseconds, spoken
from headrace.errors import DefinitionError
from headrace.event_time.lateness import Lateness
from headrace.expressions import Aggregate, parse_aggregate
from headrace.graph import check_name
from headrace.operators.step import Outputs, place
from headrace.operators.windows.aggregation import WindowAggregation
from headrace.operators.windows.assigners import CalendarDays, FixedWindows, Windows
from headrace.operators.windows.emission import ON_CLOSE, Emission

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TAKEN = ("window", "pane", "revision", "change")


@dataclass(frozen=True, slots=True)
class Tumbling:
    """Fixed windows without overlap: a value that becomes an operator once ``agg`` and ``late`` are chosen."""

    name: str
    key: tuple[str, ...]
    size: int
    offset: int
    time_zone: str | None
    aggregates: tuple[Aggregate, ...] = ()
    emission: Emission = ON_CLOSE
    lateness: Lateness | None = None

    def agg(self, **aggregates: str) -> Tumbling:
        """Name the results and give each an aggregate as SQL text, as in ``spent="sum(amount)"``."""
        for name in aggregates:
            if name in (*TAKEN, *self.key):
                raise DefinitionError(
                    "RESULT_NAME_TAKEN",
                    f"window {self.name!r}: result {name!r} has the name of a key or of a column every window has "
                    f"({', '.join(TAKEN)}). Choose another name.",
                )
        parsed = tuple(parse_aggregate(text, name=name) for name, text in aggregates.items())
        return replace(self, aggregates=parsed)

    def emit(self, emission: Emission) -> Tumbling:
        """Choose when results are emitted; ``hr.on_close()`` unless said otherwise."""
        return replace(self, emission=emission)

    def late(self, lateness: Lateness) -> Tumbling:
        """Choose what happens to late rows; there is no default."""
        return replace(self, lateness=lateness)

    def __call__(self, frame: DataFrame) -> DataFrame:
        """The windows of a frame, for ``frame.transform(step)``."""
        return self.outputs(frame).main

    def outputs(self, frame: DataFrame) -> Outputs:
        """The windows of a frame and, beside them, its late rows."""
        return place(self, self.bind, frame)

    def bind(self, schema: Mapping[str, pl.DataType], time: str) -> WindowAggregation:
        """The operator that runs over rows of this schema."""
        if self.lateness is None:
            raise DefinitionError(
                "LATE_NOT_CHOSEN",
                f"window {self.name!r} does not say what happens to late rows, so some would silently be lost. "
                "Add .late(hr.drop()), .late(hr.side_output()) or .late(hr.update_for('5 minutes')).",
            )
        if not self.aggregates:
            raise DefinitionError(
                "AGGREGATES_MISSING",
                f"window {self.name!r} computes nothing. Add .agg(...), as in .agg(rows='count(*)').",
            )
        for column in self.key:
            if column not in schema:
                raise DefinitionError(
                    "COLUMN_UNKNOWN",
                    f"window {self.name!r}: key column {column!r} does not exist. "
                    f"Existing columns: {', '.join(schema)}.",
                )
            if schema[column].is_nested():
                raise DefinitionError(
                    "KEY_TYPE",
                    f"window {self.name!r}: key column {column!r} is {schema[column]}, which cannot be a key. "
                    "Use its fields or elements.",
                )
        operator = WindowAggregation(
            self.name, self.key, time, self._windows(), self.aggregates, self.lateness, dict(schema)
        )
        _ = operator.output_schema  # types of all aggregates are checked here, before any data is read
        return operator

    def _windows(self) -> Windows:
        if self.time_zone is None:
            return FixedWindows(self.size, self.offset)
        return CalendarDays(self.size // MICROSECONDS["day"], self.time_zone)

    @property
    def fingerprint(self) -> Mapping[str, object]:
        """What must stay the same for the state to stay valid; ``late`` may only become longer."""
        return {
            "kind": "tumbling",
            "key": list(self.key),
            "size": self.size,
            "offset": self.offset,
            "time_zone": self.time_zone,
            "aggregates": {aggregate.name: aggregate.text for aggregate in self.aggregates},
        }

    @property
    def retention(self) -> int:
        """How long state is kept after a window has closed."""
        return 0 if self.lateness is None else self.lateness.correctable

    def __repr__(self) -> str:
        arguments = [repr(self.name), f"size={spoken(self.size)!r}", f"key={_author_key(self.key)!r}"]
        if self.offset:
            arguments.append(f"offset={spoken(self.offset)!r}")
        if self.time_zone is not None:
            arguments.append(f"time_zone={self.time_zone!r}")
        aggregates = ", ".join(f"{aggregate.name}={aggregate.text!r}" for aggregate in self.aggregates)
        chain = f".agg({aggregates})" if aggregates else ""
        chain += f".emit({self.emission!r})"
        chain += "" if self.lateness is None else f".late({self.lateness!r})"
        return f"hr.tumbling({', '.join(arguments)}){chain}"


def tumbling(
    name: str,
    *,
    size: Duration,
    key: str | Sequence[str],
    offset: Duration | None = None,
    time_zone: str | None = None,
) -> Tumbling:
    """Fixed windows ``[start, end)`` without overlap; whole days with a time zone follow its calendar.

    >>> tumbling("hourly", size="1 hour", key="account").agg(spent="sum(amount)")
    hr.tumbling('hourly', size='1 hour', key='account').agg(spent='sum(amount)').emit(hr.on_close())
    """
    check_name("step", name)
    length = positive_microseconds(size, argument="size")
    moved = 0 if offset is None else microseconds(offset, argument="offset")
    if not -length < moved < length:
        raise DefinitionError(
            "WINDOW_OFFSET_TOO_LONG",
            f"window {name!r}: offset={offset!r} is not shorter than size={size!r}. Use the offset within one window.",
        )
    if time_zone is not None:
        _check_calendar(name, length, moved, time_zone)
    return Tumbling(name, (key,) if isinstance(key, str) else tuple(key), length, moved, time_zone)


def _check_calendar(name: str, length: int, offset: int, time_zone: str) -> None:
    if length % MICROSECONDS["day"] or offset:
        raise DefinitionError(
            "CALENDAR_NEEDS_DAYS",
            f"window {name!r}: time_zone={time_zone!r} makes windows follow the calendar, which needs a size of whole "
            "days and no offset. Use size='1 day', or leave time_zone out.",
        )
    try:
        ZoneInfo(time_zone)
    except (ZoneInfoNotFoundError, ValueError):
        raise DefinitionError(
            "TIME_ZONE_UNKNOWN",
            f"window {name!r}: time_zone={time_zone!r} is not known. Use a name as in 'Europe/Berlin'.",
        ) from None


def _author_key(key: tuple[str, ...]) -> str | list[str]:
    return key[0] if len(key) == 1 else list(key)
