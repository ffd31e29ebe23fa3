"""Rows as an author's code sees them: tuples whose columns are attributes."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import polars as pl

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Row(tuple[Any, ...]):
    """A row; ``row.amount`` is the value of a column. Made for a schema by ``row_class``."""

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


def as_dict(row: Row) -> dict[str, Any]:
    """The columns of a row by name."""
    return dict(zip(row._columns, row, strict=True))


def row_class(schema: Mapping[str, pl.DataType]) -> type[Row]:
    """A class for rows of a schema. Moments stay numbers until somebody reads them: most rows are never asked.

    >>> Login = row_class({"user": pl.String(), "at": pl.Datetime("us", "UTC")})
    >>> row = Login(("ann", 1_000_000))
    >>> row.user, row.at.second
    ('ann', 1)
    """
    columns: dict[str, Any] = {
        name: property(_moment_at(place)) if is_lazy(dtype) else stored
        for (name, dtype), (place, stored) in zip(schema.items(), enumerate(_places(len(schema))), strict=True)
    }
    getters = {name: column.__get__ for name, column in columns.items()}
    return type("Row", (Row,), {**columns, "__slots__": (), "_columns": getters})


@cache
def _places(width: int) -> list[Any]:
    """What reads each place of a tuple: as those of a named tuple in C, past the row's own way to look at a place."""
    names = [f"place_{place}" for place in range(width)]
    named = namedtuple("Places", names)  # type: ignore[misc]
    return [vars(named)[name] for name in names]


def is_lazy(dtype: pl.DataType) -> bool:
    """Whether a column's values become objects only when they are read."""
    return isinstance(dtype, pl.Datetime) and dtype.time_zone is not None


def python_columns(columns: Iterable[pl.Series]) -> list[list[Any]]:
    """Columns as a row class takes them."""
    return [(column.to_physical() if is_lazy(column.dtype) else column).to_list() for column in columns]


def moment(time: int) -> datetime:
    """Microseconds since the epoch as a moment; one beyond what Python can say is the last or first that it can.

    >>> moment(1_000_000).isoformat()
    '1970-01-01T00:00:01+00:00'
    """
    try:
        return _EPOCH + timedelta(microseconds=time)
    except OverflowError:
        return (datetime.max if time > 0 else datetime.min).replace(tzinfo=UTC)


def microseconds_of(time: datetime) -> int:
    """A moment as microseconds since the epoch; one without a zone is UTC.

    >>> microseconds_of(datetime(1970, 1, 1, 0, 0, 1))
    1000000
    """
    return ((time if time.tzinfo is not None else time.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND


def _moment_at(place: int) -> Callable[[Any], Any]:
    def get(row: tuple[Any, ...]) -> Any:
        time = tuple.__getitem__(row, place)
        return None if time is None else moment(time)

    return get
