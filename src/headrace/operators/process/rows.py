"""Rows as the user's code sees them, tuples whose columns are attributes; and rows that it emits to an output."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import polars as pl

from headrace.event_time.strategy import EPOCH
from headrace.operators.process.state import CallError
from headrace.operators.process.value_types import converter_for
from headrace.stability import stable

RESERVED_OUTPUTS = (
    "main",
    "late",
    "side",
    "dead_letters",
    "waiting",
    "log",
    "tables",
    "state",
    "sources",
    "pins",
    "pump",
)
"""Names of outputs that every step has, and of other attributes of a step's outputs."""


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


def input_rows(columns: Sequence[pl.Series]) -> Iterator[InputRow]:
    """The rows of columns, of a class made for them."""
    values = ((column.to_physical() if is_lazy(column.dtype) else column).to_list() for column in columns)
    return map(row_class({column.name: column.dtype for column in columns}), zip(*values, strict=True))


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


@dataclass(frozen=True, slots=True, repr=False)
class OutputRow:
    """A row for a side output."""

    name: str
    row: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"hr.output({self.name!r}, {self.row!r})"


@stable
def output(name: str, row: Mapping[str, Any]) -> OutputRow:
    """A row for a side output that ``hr.process(..., outputs={...})`` declares; yield it in ``on_row`` or ``on_timer``.

    >>> output("suspects", {"user": "ann"})
    hr.output('suspects', {'user': 'ann'})
    """
    return OutputRow(name, row)


class OutputBuffer:
    """The rows of one output in a batch: tuples of the declared columns, the time, and perhaps the rules' version."""

    __slots__ = ("_added", "_columns", "_declared", "_name", "rows")

    def __init__(self, name: str, declared: Mapping[str, pl.DataType], added: Mapping[str, pl.DataType]) -> None:
        self._name, self._declared, self._added = name, declared, added
        self._columns = [(column, converter_for(dtype)) for column, dtype in declared.items()]
        self.rows: list[tuple[Any, ...]] = []

    def converted(self, row: Any) -> list[Any]:
        """The declared columns of a row; a column that it omits is null."""
        if not isinstance(row, dict):
            raise CallError(
                f"[OUTPUT_NO_DICT] output {self._name!r} got {row!r}. Yield dicts with the declared columns, or return "
                "a list of dicts."
            )
        known = 0
        values = []
        for column, convert in self._columns:
            value = row.get(column)
            if value is not None or column in row:
                known += 1
            try:
                values.append(convert(value))
            except ValueError as error:
                raise CallError(f"[OUTPUT_TYPE] output {self._name!r}, column {column!r}: {error}") from None
        if known < len(row):
            unknown = ", ".join(repr(column) for column in row if column not in self._declared)
            raise CallError(
                f"[OUTPUT_COLUMN_UNKNOWN] output {self._name!r} has no column {unknown}. Its columns are "
                f"{', '.join(self._declared)}."
            )
        return values

    def frame(self) -> pl.DataFrame:
        schema = {**self._declared, **self._added}
        if not self.rows:
            return pl.DataFrame(schema=schema)
        # What is added are whole numbers, of which Polars makes times much faster than it takes them as times.
        given = {**schema, **dict.fromkeys(self._added, pl.Int64())}
        columns = zip(given.items(), zip(*self.rows, strict=True), strict=True)
        series = [pl.Series(name, values, dtype, strict=True) for (name, dtype), values in columns]
        return pl.DataFrame(series).cast(pl.Schema(self._added))


class OutputCollector:
    """Collects the rows of one call until it has succeeded."""

    __slots__ = ("_main", "_outputs", "_version", "staged")

    def __init__(self, outputs: Mapping[str, OutputBuffer], version: Callable[[int], int] | None) -> None:
        self._main = outputs["main"]
        self._outputs = outputs
        self._version = version
        self.staged: list[tuple[OutputBuffer, tuple[Any, ...]]] = []

    def collect(self, emitted: Iterable[Any] | None, time: int) -> None:
        """Stage rows, with the time and perhaps the version of the rules then."""
        for item in () if emitted is None else emitted:
            output, row = (self._side(item.name), item.row) if type(item) is OutputRow else (self._main, item)
            added = (time,) if self._version is None else (time, self._version(time))
            self.staged.append((output, (*output.converted(row), *added)))

    def commit(self) -> None:
        for output, row in self.staged:
            output.rows.append(row)
        self.staged.clear()

    def _side(self, name: str) -> OutputBuffer:
        if name not in self._outputs:
            known = ", ".join(repr(each) for each in self._outputs)
            if name in RESERVED_OUTPUTS:
                raise CallError(
                    f"[OUTPUT_UNKNOWN] output {name!r} is Headrace's own and takes no rows of a process; the outputs "
                    f"are {known}. Declare one of another name with hr.process(..., outputs={{...}})."
                )
            raise CallError(
                f"[OUTPUT_UNKNOWN] there is no output {name!r}; the outputs are {known}. Declare it with "
                f"hr.process(..., outputs={{{name!r}: '...'}})."
            )
        return self._outputs[name]
