"""Rows as the user's code sees them: tuples whose columns are attributes."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import polars as pl

from headrace.event_time.strategy import EPOCH


class InputRow(tuple[Any, ...]):
    """A row; ``row.amount`` is the value of a column. ``row_class`` makes a subclass for a schema."""

    __slots__ = ()
    _columns: Mapping[str, Callable[[Any], Any]] = {}

    def __iter__(self) -> Iterator[Any]:
        return (get(self) for get in self._columns.values())

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return tuple(self)[place]
        return tuple(self._columns.values())[place](self)

    def __repr__(self) -> str:
        return f"Row({', '.join(f'{name}={value!r}' for name, value in as_dict(self).items())})"


def as_dict(row: InputRow) -> dict[str, Any]:
    """The columns of a row by name."""
    return dict(zip(row._columns, row, strict=True))


def row_class(schema: Mapping[str, pl.DataType]) -> type[InputRow]:
    """A class for rows of a schema. Timestamps become objects when they are read: most are never read.

    >>> Login = row_class({"user": pl.String(), "at": pl.Datetime("us", "UTC")})
    >>> row = Login(("ann", 1_000_000))
    >>> row.user, row.at.second
    ('ann', 1)
    """
    columns: dict[str, Any] = {
        name: property(_timestamp_at(place)) if is_lazy(dtype) else _places(len(schema))[place]
        for place, (name, dtype) in enumerate(schema.items())
    }
    getters = {name: column.__get__ for name, column in columns.items()}
    return type("Row", (InputRow,), {**columns, "__slots__": (), "_columns": getters})


@cache
def _places(width: int) -> list[Any]:
    """Getters of each place of a tuple: a named tuple's are in C, and bypass the row's own ``__getitem__``."""
    names = [f"place_{place}" for place in range(width)]
    named = namedtuple("Places", names)  # type: ignore[misc]
    return [vars(named)[name] for name in names]


def is_lazy(dtype: pl.DataType) -> bool:
    """Whether a column's values become objects only when they are read."""
    return isinstance(dtype, pl.Datetime) and dtype.time_zone is not None


def python_columns(columns: Iterable[pl.Series]) -> list[list[Any]]:
    """Columns as a row class takes them."""
    return [(column.to_physical() if is_lazy(column.dtype) else column).to_list() for column in columns]


def as_datetime(time: int) -> datetime:
    """Microseconds since the epoch as a datetime; out of Python's range, the last or first that there is.

    >>> as_datetime(1_000_000).isoformat()
    '1970-01-01T00:00:01+00:00'
    """
    try:
        return EPOCH + timedelta(microseconds=time)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC) if time > 0 else datetime.min.replace(tzinfo=UTC)


def _timestamp_at(place: int) -> Callable[[Any], Any]:
    def get(row: tuple[Any, ...]) -> Any:
        time = tuple.__getitem__(row, place)
        return None if time is None else as_datetime(time)

    return get
