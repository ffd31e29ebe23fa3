"""Rows that a process emits: to the main output, or to a declared side output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from headrace.errors import DefinitionError
from headrace.graph import check_name
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


def check_outputs(step: str, outputs: Mapping[str, str] | None) -> dict[str, str]:
    """Check the declared side outputs: their names and columns.

    >>> check_outputs("logins", {"suspects": "user STRING"})
    {'suspects': 'user STRING'}
    """
    declared = {} if outputs is None else outputs
    if not isinstance(declared, Mapping) or not all(
        isinstance(name, str) and isinstance(columns, str) for name, columns in declared.items()
    ):
        raise DefinitionError(
            "OUTPUTS_INVALID",
            f"step {step!r}: outputs={outputs!r} must be a dict of names and columns, as in "
            "outputs={'suspects': 'user STRING, failures INT'}.",
        )
    for name in declared:
        check_name("output", name)
        if name in RESERVED_OUTPUTS:
            raise DefinitionError(
                "OUTPUT_NAME_TAKEN", f"step {step!r}: an output cannot be named {name!r}. Choose another name."
            )
    return dict(declared)


class OutputError(ValueError):
    """A row was emitted that does not fit its output."""


class OutputBuffer:
    """The rows of one output in a batch: tuples of the declared columns, the time, and perhaps the rules' version."""

    __slots__ = ("_columns", "_name", "_schema", "rows")

    def __init__(self, name: str, declared: Mapping[str, pl.DataType], schema: Mapping[str, pl.DataType]) -> None:
        self._name = name
        self._columns = [(column, converter_for(dtype)) for column, dtype in declared.items()]
        self._schema = dict(schema)
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
            names = [column for column, _ in self._columns]
            unknown = ", ".join(repr(column) for column in row if column not in names)
            raise OutputError(
                f"[OUTPUT_COLUMN_UNKNOWN] output {self._name!r} has no column {unknown}. Its columns are "
                f"{', '.join(names)}."
            )
        return values

    def frame(self) -> pl.DataFrame:
        if not self.rows:
            return pl.DataFrame(schema=self._schema)
        columns = zip(*self.rows, strict=True)
        return pl.DataFrame(
            [_column(name, values, dtype) for (name, dtype), values in zip(self._schema.items(), columns, strict=True)]
        )


def _column(name: str, values: tuple[Any, ...], dtype: pl.DataType) -> pl.Series:
    if isinstance(dtype, pl.Datetime) and values and isinstance(values[0], int):
        return pl.Series(name, values, dtype=pl.Int64).cast(dtype)
    return pl.Series(name, values, dtype=dtype, strict=True)


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
