"""The operator of a process: rows wait for the watermark, then the user's code runs for each key that has work.

Its state is a frame with a row for each key, beside rows that wait and rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, repeat
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from headrace.event_time.lateness import Lateness
from headrace.event_time.record import TimeBounds
from headrace.event_time.strategy import END
from headrace.key_hash import canonical
from headrace.operators.event_time_buffer import RELEASED_AT, EventTimeBuffer, Released, TouchedKeys, event_time_order
from headrace.operators.process.context import RuleHistory
from headrace.operators.process.errors import OnError
from headrace.operators.process.keyed_process import StateDescriptor, StatefulProcess, declared_states
from headrace.operators.process.rows import OutputBuffer, input_rows
from headrace.operators.process.runner import Cells, ProcessRunner, TimedRow
from headrace.operators.process.value_types import canonical_nan
from headrace.operators.rows import ARRIVAL, KEY_NUMBER, TIME, RowByRow, Rows, with_schema
from headrace.schemas import MOMENT
from headrace.wheel.operator import Applied, Combined, Due

LATE = "__late"
DUE, DUE_CLOCK = "__due", "__due_clock"
"""When a timer or an expiry of a key is due, by event time and by the clock; the end of time stands for never."""
ROW, TIMERS = "__row", "__timers"
TIMER = pl.List(pl.Struct({"name": pl.String(), "time": pl.Int64(), "payload": pl.String(), "clock": pl.Boolean()}))
_FAILED = {"reason": pl.String(), "detail": pl.String(), "row": pl.String(), "is_timer": pl.Boolean()}


@dataclass(frozen=True)
class ProcessOperator(RowByRow):
    """Calls a process for the rows and timers of each key.

    A state row is a key with its states, timers and due times, or a row that waits; only keys with work are touched.
    """

    name: str
    process: StatefulProcess
    rows: Rows
    outputs: Mapping[str, Mapping[str, pl.DataType]]
    """The declared columns of each output, ``main`` among them."""
    output_time: str
    ordered: bool
    on_error: OnError
    lateness: Lateness

    @property
    def identity(self) -> tuple[str, ...]:
        return (*self.key, ARRIVAL)

    @cached_property
    def partial_schema(self) -> dict[str, pl.DataType]:
        """Whole rows, with their times."""
        late = {LATE: pl.Boolean()} if self._delivers else {}
        return {**self.rows.keys, TIME: pl.Int64(), ROW: self._row, **late}

    @cached_property
    def state_schema(self) -> dict[str, pl.DataType]:
        waiting: dict[str, pl.DataType] = {ROW: self._row} if self.ordered else {}
        times = dict.fromkeys((ARRIVAL, TIME, DUE, DUE_CLOCK), pl.Int64())
        return {**self.rows.keys, **times, **waiting, **self._layout.columns}

    @property
    def output_schema(self) -> dict[str, pl.DataType]:
        return {**self.outputs["main"], **self._added}

    @property
    def side_schemas(self) -> dict[str, dict[str, pl.DataType]]:
        declared = {name: {**columns, **self._added} for name, columns in self.outputs.items() if name != "main"}
        return {**self.rows.late_output(self.lateness), **declared}

    def combine(self, rows: pl.DataFrame, bounds: TimeBounds) -> Combined:
        """Set late rows aside, unless they are delivered; the others are sent one by one."""
        accepted, late = self.rows.split_late(rows, bounds, pl.lit(False) if self._delivers else None)
        sent = accepted.select(
            *self.key,
            self.rows.row_time.alias(TIME),
            pl.struct(field.name for field in self._row.fields).alias(ROW),
            *([self.rows.is_late(bounds).alias(LATE)] if self._delivers else []),
        )
        return Combined(canonical(sent, self.key), late, accepted.height)

    def apply(
        self, state: pl.DataFrame, partials: pl.DataFrame, bounds: TimeBounds, rules: RuleHistory | None = None
    ) -> Applied:
        """Store the rows ahead of the watermark, process the others, and fire the timers that are due."""
        buffered = EventTimeBuffer(self.state_schema).release(state, partials, self._released_by(bounds))
        # At the end of time everything with a due time is due.
        is_due = ((pl.col(DUE) <= bounds.fire) & (pl.col(DUE) < END)) | (pl.col(DUE_CLOCK) <= bounds.clock)
        touched = TouchedKeys.of(self.key, buffered.rows, state, is_due)
        if touched.keys.is_empty():
            nothing = pl.DataFrame(schema=self.output_schema)
            return Applied(buffered.stored, state.clear().select(self.identity), nothing, waiting=buffered.counts)
        return self._processed(buffered, touched, set(touched.states.filter(is_due)[KEY_NUMBER]), bounds, rules)

    def _processed(
        self, buffered: Released, touched: TouchedKeys, due: Set[int], bounds: TimeBounds, rules: RuleHistory | None
    ) -> Applied:
        """Run the user's code for the keys that have work."""
        released = buffered.rows
        outputs = {name: OutputBuffer(name, each, self._added) for name, each in self.outputs.items()}
        runner = ProcessRunner(
            self.process, bounds, outputs, rules, step=self.name, ordered=self.ordered, on_error=self.on_error
        )
        changed = self._run(runner, touched, due, released)
        # Behind its states and timers a key has two due times.
        stored = {number: cells for number, cells in changed.items() if any(cells[:-2])}
        cells = self._layout.series(list(stored.values()))
        upserts = with_schema(touched.keys[list(stored)].with_columns(**cells), self.state_schema)
        gone = touched.states.filter(pl.col(KEY_NUMBER).is_in([each for each in changed if each not in stored]))
        failed = pl.DataFrame(runner.dead_letters, _FAILED, orient="row") if runner.dead_letters else None
        failed_rows = sum(not is_timer for *_, is_timer in runner.dead_letters)
        return Applied(
            pl.concat([upserts, buffered.stored]),
            gone.select(self.identity),
            outputs["main"].frame(),
            side={name: rows.frame() for name, rows in outputs.items() if name != "main"},
            failed=failed,
            waiting=replace(buffered.counts, handled=released.height - failed_rows),
        )

    def due(self, bounds: TimeBounds) -> Due:
        """When a waiting row is released, with which it is over, a timer fires or a value expires."""
        event, clock = (pl.when(pl.col(name) < END).then(pl.col(name)) for name in (DUE, DUE_CLOCK))
        return Due(pl.coalesce(RELEASED_AT, event), clock, dead_at=RELEASED_AT, written_once=True)

    @property
    def _delivers(self) -> bool:
        return self.lateness.kind == "deliver"

    @cached_property
    def _layout(self) -> StateLayout:
        return StateLayout(declared_states(self.process))

    @cached_property
    def _row(self) -> pl.Struct:
        return pl.Struct({name: dtype for name, dtype in self.rows.schema.items() if name not in self.key})

    @property
    def _added(self) -> dict[str, pl.DataType]:
        """The columns that every output has beside the declared ones."""
        return {self.output_time: MOMENT}

    def _released_by(self, bounds: TimeBounds) -> TimeBounds:
        """The bounds by which rows are released: unless they are put in order, none waits."""
        return bounds if self.ordered else replace(bounds, fire=END)

    def _run(
        self, runner: ProcessRunner, touched: TouchedKeys, due: Set[int], released: pl.DataFrame
    ) -> dict[int, Cells]:
        """Run the process for every touched key; the cells of those that have changed."""
        known = dict(zip(touched.states[KEY_NUMBER], self._layout.cells(touched.states), strict=True))
        numbers = touched.numbers
        counts = np.bincount(numbers, minlength=touched.keys.height).tolist()
        order = event_time_order(released, numbers) if self.ordered else np.argsort(numbers, stable=True)
        rows = self._timed(released[order])
        changed: dict[int, Cells] = {}
        columns = [touched.keys[name].to_list() for name in self.key]
        # Users see a key as its value, or as a tuple of several; the one key of a whole stream is None.
        keys = zip(*columns, strict=True) if len(columns) > 1 else columns[0] if columns else repeat(None, len(counts))
        for number, key in enumerate(keys):
            cells = runner.run_key(key, known.get(number), islice(rows, counts[number]), is_due=number in due)
            if cells is not None:
                changed[number] = cells
        return changed

    def _timed(self, rows: pl.DataFrame) -> Iterator[TimedRow]:
        others = rows[ROW].struct.unnest()
        given = input_rows([(rows if name in self.key else others)[name] for name in self.rows.schema])
        # A row that has waited was not late.
        late = rows[LATE].fill_null(False).to_list() if self._delivers else repeat(False, rows.height)
        return zip(given, rows[TIME].to_list(), late, strict=True)


@dataclass(frozen=True)
class StateLayout:
    """The columns that hold the states and timers of keys."""

    states: Mapping[str, StateDescriptor[Any]]

    @cached_property
    def columns(self) -> dict[str, pl.DataType]:
        """The columns of one key: its timers, and each state with the time at which it was written."""
        columns: dict[str, pl.DataType] = {TIMERS: TIMER}
        for name, declared in self.states.items():
            columns[f"state.{name}"] = declared.column
            if _has_time(declared):
                columns[f"state.{name}@written"] = pl.Int64()
        return columns

    def cells(self, stored: pl.DataFrame) -> list[tuple[Any, ...]]:
        """The cells of each key in the order of the states, then its timers."""
        columns: list[Sequence[Any]] = []
        for name, declared in self.states.items():
            column = stored[f"state.{name}"]
            if declared.key_type is not None:
                lists = tuples_of(column)
                columns.append([{canonical_nan(key): (value, at) for key, value, at in each} for each in lists])
            elif declared.is_collection:
                columns.append([dict(enumerate(each)) for each in tuples_of(column)])
            else:
                written = stored[f"state.{name}@written"].to_list() if _has_time(declared) else [0] * stored.height
                columns.append(list(zip(column.to_list(), written, strict=True)))
        return list(zip(*columns, tuples_of(stored[TIMERS]), strict=True))

    def series(self, cells: Sequence[tuple[Any, ...]]) -> dict[str, pl.Series]:
        columns = list(zip(*cells, strict=True)) if cells else [()] * (len(self.states) + 3)
        *states, timers, due, due_clock = columns
        made = {
            DUE: pl.Series(due, dtype=pl.Int64),
            DUE_CLOCK: pl.Series(due_clock, dtype=pl.Int64),
            TIMERS: list_column(timers, TIMER),
        }
        for (name, declared), column in zip(self.states.items(), states, strict=True):
            dtype = self.columns[f"state.{name}"]
            if declared.key_type is not None:
                lists = [None if cell is None else [(key, *entry) for key, entry in cell.items()] for cell in column]
                made[f"state.{name}"] = list_column(lists, dtype)
            elif declared.is_collection:
                lists = [None if cell is None else list(cell.values()) for cell in column]
                made[f"state.{name}"] = list_column(lists, dtype)
            else:
                values = [None if cell is None else cell[0] for cell in column]
                made[f"state.{name}"] = pl.Series(values, dtype=dtype, strict=True)
                if _has_time(declared):
                    written = [None if cell is None else cell[1] for cell in column]
                    made[f"state.{name}@written"] = pl.Series(written, dtype=pl.Int64)
        return made


def _has_time(declared: StateDescriptor[Any]) -> bool:
    return declared.ttl_config.ttl is not None and not declared.is_collection


def tuples_of(column: pl.Series) -> list[list[tuple[Any, ...]]]:
    """A column of lists of structs as lists of tuples; a null cell is empty.

    >>> column = pl.Series([[{"a": 1, "b": 2}], None], dtype=pl.List(pl.Struct({"a": pl.Int64, "b": pl.Int64})))
    >>> tuples_of(column)
    [[(1, 2)], []]
    """
    arrow = column.to_arrow(compat_level=pl.CompatLevel.oldest())
    lengths = pc.fill_null(pc.list_value_length(arrow), 0).to_pylist()
    # From Arrow: Polars expressions take many times longer when there are few cells.
    flat = iter(zip(*(pl.Series(field).to_list() for field in arrow.flatten().flatten()), strict=True))
    return [list(islice(flat, length)) for length in lengths]


def list_column(cells: Sequence[Sequence[tuple[Any, ...]] | None], dtype: pl.DataType) -> pl.Series:
    """A column of lists of structs from lists of tuples; an empty cell is null.

    >>> list_column([[(1, 2)], None], pl.List(pl.Struct({"a": pl.Int64, "b": pl.Int64}))).to_list()
    [[{'a': 1, 'b': 2}], None]
    """
    arrow = pl.Series(dtype=dtype).to_arrow(compat_level=pl.CompatLevel.oldest()).type
    return pl.Series(pa.array([cell or None for cell in cells], arrow), dtype=dtype)
