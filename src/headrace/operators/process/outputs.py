"""Rows that a process emits: to the main output, or to a declared side output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from headrace.operators.process.value_types import converter_for
from headrace.stability import stable

RESERVED_OUTPUTS = ("main", "late", "side", "dead_letters", "waiting", "spark", "log", "tables")
"""Names of outputs that every step has, and of other attributes of a step's outputs."""


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


class OutputError(ValueError):
    """A row was emitted that does not fit its output."""


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
            raise OutputError(
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
                raise OutputError(f"[OUTPUT_TYPE] output {self._name!r}, column {column!r}: {error}") from None
        if known < len(row):
            unknown = ", ".join(repr(column) for column in row if column not in self._declared)
            raise OutputError(
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

    __slots__ = ("_main", "_outputs", "staged")

    def __init__(self, outputs: Mapping[str, OutputBuffer]) -> None:
        self._main = outputs["main"]
        self._outputs = outputs
        self.staged: list[tuple[OutputBuffer, tuple[Any, ...]]] = []

    def collect(self, item: Any, added: tuple[Any, ...]) -> None:
        """Stage a row, with the values of the columns that every row has."""
        output, row = (self._side(item.name), item.row) if type(item) is OutputRow else (self._main, item)
        self.staged.append((output, (*output.converted(row), *added)))

    def commit(self) -> None:
        """Append the staged rows: the call has succeeded."""
        for output, row in self.staged:
            output.rows.append(row)
        self.staged.clear()

    def _side(self, name: str) -> OutputBuffer:
        if name not in self._outputs:
            known = ", ".join(repr(each) for each in self._outputs)
            if name in RESERVED_OUTPUTS:
                raise OutputError(
                    f"[OUTPUT_UNKNOWN] output {name!r} is Headrace's own and takes no rows of a process; the outputs "
                    f"are {known}. Declare one of another name with hr.process(..., outputs={{...}})."
                )
            raise OutputError(
                f"[OUTPUT_UNKNOWN] there is no output {name!r}; the outputs are {known}. Declare it with "
                f"hr.process(..., outputs={{{name!r}: '...'}})."
            )
        return self._outputs[name]
