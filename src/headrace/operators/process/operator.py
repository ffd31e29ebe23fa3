"""The operator of a process: rows wait for the watermark, then the user's code runs for each key that has work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, repeat

import numpy as np
import polars as pl

from headrace.event_time.lateness import Lateness
from headrace.event_time.record import TimeBounds
from headrace.event_time.strategy import END
from headrace.operators.event_time_buffer import OF_KEY, RELEASED_AT, EventTimeBuffer, Numbers, event_time_order
from headrace.operators.process.context import RuleHistory
from headrace.operators.process.errors import OnError
from headrace.operators.process.keyed_process import KeyedProcess, declared_states
from headrace.operators.process.rows import OutputBuffer, input_rows
from headrace.operators.process.runner import Cells, ProcessRunner, TimedRow
from headrace.operators.process.state_layout import DUE, DUE_CLOCK, ROW, StateLayout
from headrace.operators.rows import ARRIVAL, KEY_NUMBER, TIME, RowByRow, Rows, with_schema
from headrace.schemas import MOMENT
from headrace.state.key_hash import canonical
from headrace.wheel.operator import Applied, Combined, Due

LATE = "__late"
NO_KEY = -1
"""The key number of a row that belongs to no touched key."""
_FAILED = {"reason": pl.String(), "detail": pl.String(), "row": pl.String(), "is_timer": pl.Boolean()}


@dataclass(frozen=True)
class ProcessOperator(RowByRow):
    """Calls a process for the rows and timers of each key.

    A state row is a key with its states, timers and due times, or a row that waits; only keys with work are touched.
    """

    name: str
    process: KeyedProcess
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
        released = buffered.rows
        # At the end of time everything with a due time is due.
        is_due = ((pl.col(DUE) <= bounds.fire) & (pl.col(DUE) < END)) | (pl.col(DUE_CLOCK) <= bounds.clock)
        due_keys = state.select(is_due.fill_null(value=False).arg_true()).to_series().to_numpy()
        keys = self._keys(released, state[due_keys])
        if keys.is_empty():
            nothing = pl.DataFrame(schema=self.output_schema)
            return Applied(buffered.waiting, state.clear().select(self.identity), nothing, waiting=buffered.counts)
        # The key numbers of the state's rows; a row of no touched key has none.
        numbers = self._numbers(state, keys)
        touched = np.flatnonzero(numbers != NO_KEY)
        outputs = {name: OutputBuffer(name, each, self._added) for name, each in self.outputs.items()}
        runner = ProcessRunner(
            self.process, bounds, outputs, rules, step=self.name, ordered=self.ordered, on_error=self.on_error
        )
        known = dict(zip(numbers[touched].tolist(), self._layout.cells(state[touched]), strict=True))
        changed = self._run(runner, keys, known, set(numbers[due_keys].tolist()), released)
        # Behind its states and timers a key has two due times.
        stored = {number: cells for number, cells in changed.items() if any(cells[:-2])}
        of_keys = keys.select(*self.key, ARRIVAL)[list(stored)].to_dict()
        cells = self._layout.series(list(stored.values()))
        upserts = with_schema(pl.DataFrame({**of_keys, **cells}), self.state_schema)
        gone = touched[np.isin(numbers[touched], [number for number in changed if number not in stored])]
        failed = pl.DataFrame(runner.dead_letters, _FAILED, orient="row") if runner.dead_letters else None
        failed_rows = sum(not is_timer for *_, is_timer in runner.dead_letters)
        return Applied(
            pl.concat([upserts, buffered.waiting]),
            state[gone].select(self.identity),
            outputs["main"].frame(),
            side={name: rows.frame() for name, rows in outputs.items() if name != "main"},
            failed=failed,
            waiting=replace(buffered.counts, handled=released.height - failed_rows),
        )

    def due(self, bounds: TimeBounds) -> Due:
        """When a waiting row is released, with which it is over, a timer fires or a value expires."""
        event, clock = (pl.when(pl.col(name) < END).then(pl.col(name)) for name in (DUE, DUE_CLOCK))
        return Due(pl.coalesce(RELEASED_AT, event), clock, dead_at=RELEASED_AT)

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

    def _keys(self, released: pl.DataFrame, due: pl.DataFrame) -> pl.DataFrame:
        """The keys with rows or with something due, numbered, with the arrival number of their state rows."""
        keys = pl.concat([released.select(self.key), due.select(self.key)]).unique(maintain_order=True)
        numbers = pl.Series(KEY_NUMBER, np.arange(keys.height))
        return keys.with_columns(pl.lit(OF_KEY, pl.Int64).alias(ARRIVAL), numbers)

    def _numbers(self, rows: pl.DataFrame, keys: pl.DataFrame) -> Numbers:
        """The number of each row's key. Joined by two columns: by a sorted one alone, Polars 2.1 does not find NaN."""
        identities = rows.select(self.identity)
        joined = identities.join(keys, on=list(self.identity), how="left", nulls_equal=True, maintain_order="left")
        return joined[KEY_NUMBER].fill_null(NO_KEY).to_numpy()

    def _run(
        self,
        runner: ProcessRunner,
        keys: pl.DataFrame,
        known: Mapping[int, Cells],
        due: Set[int],
        released: pl.DataFrame,
    ) -> dict[int, Cells]:
        """Run the process for every touched key; the cells of those that have changed."""
        rows: Iterator[TimedRow] = iter(())
        counts = [0] * keys.height
        if released.height:
            numbers = self._numbers(released.with_columns(pl.lit(OF_KEY, pl.Int64).alias(ARRIVAL)), keys)
            counts = np.bincount(numbers, minlength=keys.height).tolist()
            order = event_time_order(released, numbers) if self.ordered else np.argsort(numbers, stable=True)
            rows = self._timed(released[order])
        changed: dict[int, Cells] = {}
        columns = [keys[name].to_list() for name in self.key]
        # Users see a key as its value, or as a tuple of several.
        for number, key in enumerate(columns[0] if len(columns) == 1 else zip(*columns, strict=True)):
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
