"""The rows of a step: their key and event time, which of them are late, and the orders that state keeps them in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import polars as pl

from headrace.errors import DefinitionError
from headrace.event_time.lateness import Lateness
from headrace.event_time.record import TimeBounds
from headrace.event_time.strategy import BEGINNING
from headrace.event_time.strategy import END as END_OF_TIME
from headrace.rendering import json_rows
from headrace.wheel.operator import Uncombined

RESERVED = "__"
LATE_BY = "late_by"
TIME = "__time"
"""A row's event time in microseconds."""
ARRIVAL = "__arrival"
"""A row's arrival number, which no other row of its key has."""
_PLACES_BITS = 32
"""The bits that number the rows of a batch."""
KEY_NUMBER = "__key"
"""A number for each key of a frame; sorting and rolling by it is several times faster than by the key."""
ROW_NUMBER = "__row_number"
_SAME = "__same"


@dataclass(frozen=True)
class Rows:
    """The rows of one input of a step."""

    step: str
    key: tuple[str, ...]
    time: str
    schema: Mapping[str, pl.DataType]
    """Columns of the input; the time is a timestamp or the window of an earlier step."""

    def __post_init__(self) -> None:
        check_key(self.step, self.key, self.schema)
        taken = sorted(name for name in self.schema if name.startswith(RESERVED))
        if taken:
            raise DefinitionError(
                "COLUMN_RESERVED",
                f"step {self.step!r}: column {taken[0]!r} begins with {RESERVED!r}, which is reserved for Headrace's "
                f"state. Use .withColumnRenamed({taken[0]!r}, {taken[0].lstrip('_')!r}) before the step.",
            )

    @cached_property
    def keys(self) -> dict[str, pl.DataType]:
        return {name: self.schema[name] for name in self.key}

    @property
    def row_time(self) -> pl.Expr:
        """The time of a row in microseconds; of a window the last moment that belongs to it."""
        if isinstance(self.schema[self.time], pl.Struct):
            return pl.col(self.time).struct.field("end").cast(pl.Int64) - 1
        return pl.col(self.time).cast(pl.Int64)

    @property
    def late_schema(self) -> dict[str, pl.DataType]:
        """A late row: the whole row, and how far its time was behind the watermark."""
        if LATE_BY in self.schema:
            raise DefinitionError(
                "COLUMN_RESERVED",
                f"step {self.step!r}: the rows have a column {LATE_BY!r}, which late rows get. Rename it before "
                "the step, or use .late(hr.drop()).",
            )
        return {**self.schema, LATE_BY: pl.Duration("us")}

    def late_output(self, lateness: Lateness) -> dict[str, dict[str, pl.DataType]]:
        return {"late": self.late_schema} if lateness.keeps_rows else {}

    @property
    def is_correction(self) -> pl.Expr:
        """Whether a row is a correction by an earlier step: always late, for its first result has been counted."""
        follows_windows = isinstance(self.schema[self.time], pl.Struct) and "pane" in self.schema
        return pl.col("pane").eq_missing("late") if follows_windows else pl.lit(False)

    def is_late(self, bounds: TimeBounds, *, correctable: int = 0, closes: pl.Expr | None = None) -> pl.Expr:
        """Whether a row comes too late even for a correction; ``closes`` says when, if not right after the row."""
        return has_closed(self.row_time + 1 if closes is None else closes, bounds, correctable) | self.is_correction

    def split_late(
        self, rows: pl.DataFrame, bounds: TimeBounds, is_late: pl.Expr | None = None
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The rows that are taken, and the late ones (by ``is_late`` or by event time) with how late each was."""
        late = rows.select(self.is_late(bounds) if is_late is None else is_late).to_series()
        if not late.any():
            return rows, self.with_late_by(rows.clear(), bounds)
        return rows.filter(~late), self.with_late_by(rows.filter(late), bounds)

    def with_late_by(self, late: pl.DataFrame, bounds: TimeBounds) -> pl.DataFrame:
        # At a drain the watermark is the end of time, to which there is no distance.
        watermark = pl.lit(bounds.fire if bounds.fire < END_OF_TIME else bounds.late, pl.Int64)
        return late.with_columns((watermark - self.row_time).cast(pl.Duration("us")).alias(LATE_BY))


def check_key(name: str, key: tuple[str, ...], schema: Mapping[str, pl.DataType]) -> None:
    """Key columns exist, once, and their values can be compared."""
    for column in key:
        if key.count(column) > 1:
            raise DefinitionError("KEY_TWICE", f"step {name!r}: key column {column!r} is named twice. Name it once.")
        if column not in schema:
            raise DefinitionError(
                "COLUMN_UNKNOWN",
                f"step {name!r}: key column {column!r} does not exist. Existing columns: {', '.join(schema)}.",
            )
        if schema[column].is_nested():
            raise DefinitionError(
                "KEY_TYPE",
                f"step {name!r}: key column {column!r} is {schema[column]}, which cannot be a key. "
                "Use its fields or elements.",
            )


class RowByRow(Uncombined):
    """An input whose rows travel one by one to the slot of their key."""

    rows: Rows
    broadcast = False
    late_output = "late_right"
    """Of a second input."""

    @property
    def key(self) -> tuple[str, ...]:
        return self.rows.key


def has_closed(closes: pl.Expr, bounds: TimeBounds, correctable: int) -> pl.Expr:
    """Whether a result that closes at a time takes no more rows: event time has passed it, and the time to correct it.

    >>> ends = pl.DataFrame({"end": [10, 20, 30]})
    >>> ends.select(has_closed(pl.col("end"), TimeBounds(late=25, fire=25), correctable=5))["end"].to_list()
    [True, True, False]
    """
    return closes <= max(bounds.late - correctable, BEGINNING)


def failed_rows(rows: pl.DataFrame, reason: pl.Expr, detail: pl.Expr | pl.Series) -> pl.DataFrame:
    """Rows that a step cannot use, as it hands them to the dead letters.

    >>> failed_rows(pl.DataFrame({"id": [7]}), pl.lit("ID_UNKNOWN"), pl.lit("id is unknown")).rows()
    [('ID_UNKNOWN', 'id is unknown', b'{"id":7}')]
    """
    whole_rows = pl.Series("row", json_rows(rows), pl.Binary())
    return rows.select(reason.alias("reason"), detail.alias("detail"), whole_rows)


def arrivals(bounds: TimeBounds, rows: int) -> pl.Series:
    """The numbers of rows that arrive in a batch: by batch, then by place in it.

    They are positive: an operator may use others for state rows that have not arrived.

    >>> arrivals(TimeBounds(0, 0, batch=1), 2).to_list() == [2 * 2**32, 2 * 2**32 + 1]
    True
    """
    first = (bounds.batch + 1) << _PLACES_BITS
    return pl.int_range(first, first + rows, dtype=pl.Int64, eager=True).alias(ARRIVAL)


def with_schema(rows: pl.DataFrame, schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """The columns of a schema; those that the rows lack are null.

    >>> with_schema(pl.DataFrame({"n": [1], "other": [2]}), {"n": pl.Int64(), "m": pl.Int64()}).rows()
    [(1, None)]
    """
    missing = (pl.lit(None, dtype).alias(name) for name, dtype in schema.items() if name not in rows.columns)
    return rows.with_columns(*missing).select(schema.keys())


def split_matching(rows: pl.DataFrame, others: pl.DataFrame, on: Sequence[str]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rows that match none of the others, and those that do.

    >>> unmatched, matched = split_matching(pl.DataFrame({"n": [1, 2]}), pl.DataFrame({"n": [2]}), ["n"])
    >>> unmatched["n"].to_list(), matched["n"].to_list()
    ([1], [2])
    """
    matching = rows.join(others, on=on, how="semi", nulls_equal=True)
    if matching.height == rows.height:
        return rows.clear(), matching
    return rows.join(others, on=on, how="anti", nulls_equal=True), matching


def in_order_of_arrival(state: pl.DataFrame) -> pl.DataFrame:
    """The state in the order of arrival. State that was read from the store has changed rows last.

    >>> in_order_of_arrival(pl.DataFrame({ARRIVAL: [0, 2, 1]}))[ARRIVAL].to_list()
    [0, 1, 2]
    """
    return state if state[ARRIVAL].is_sorted() else state.sort(ARRIVAL)


def with_key_numbers(rows: pl.DataFrame, key: Sequence[str], *, of: pl.DataFrame) -> pl.DataFrame:
    """The rows whose keys are in ``of``, with the number of their key.

    >>> rows = pl.DataFrame({"account": ["a", "b", "a"], "at": [3, 2, 1]})
    >>> with_key_numbers(rows, ["account"], of=rows.head(1)).rows()
    [('a', 3, 0), ('a', 1, 0)]
    """
    if not key:
        return rows.with_columns(pl.lit(0, pl.UInt32).alias(KEY_NUMBER))
    numbers = of.select(key).unique(maintain_order=True).with_row_index(KEY_NUMBER)
    return join_by_key(rows, numbers, key, nulls_equal=True, maintain_order="left")


def join_by_key(
    rows: pl.DataFrame,
    others: pl.DataFrame,
    key: Sequence[str],
    *,
    how: Literal["inner", "left"] = "inner",
    nulls_equal: bool = False,
    maintain_order: Literal["none", "left", "left_right"] = "none",
) -> pl.DataFrame:
    """An equi-join by key columns; NaN equals NaN.

    >>> rows = pl.DataFrame({"level": [float("nan")]})
    >>> join_by_key(rows, rows.with_columns(name=pl.lit("none")), ["level"]).rows()
    [(nan, 'none')]
    """
    if len(key) > 1 or not rows.schema[key[0]].is_float():
        return rows.join(others, on=key, how=how, nulls_equal=nulls_equal, maintain_order=maintain_order)
    # Polars (2.1) finds no NaN when it joins by one column that it knows to be sorted; by two columns it does.
    same = pl.lit(0).alias(_SAME)
    left, right = rows.with_columns(same), others.with_columns(same)
    joined = left.join(right, on=[*key, _SAME], how=how, nulls_equal=nulls_equal, maintain_order=maintain_order)
    return joined.drop(_SAME)


def in_key_order(numbered: pl.DataFrame, *order: str) -> pl.DataFrame:
    """The rows grouped by key, and sorted within each key.

    >>> rows = pl.DataFrame({"__key": [1, 0, 1], "at": [3, 2, 1]})
    >>> in_key_order(rows, "at").rows()
    [(0, 2), (1, 1), (1, 3)]
    """
    # Two sorts, of which the second keeps the order of the first, are twice as fast as one over all columns.
    return numbered.sort(*order, maintain_order=True).sort(KEY_NUMBER, maintain_order=True)
