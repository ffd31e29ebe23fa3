"""A process on the wheel: rows wait for their turn, keys with something to do become objects, changes go back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from headrace.event_time.lateness import Lateness
from headrace.event_time.record import TimeBounds
from headrace.event_time.strategy import END
from headrace.operators.process.calls import Calls, Timed, key_values
from headrace.operators.process.keyed_process import KeyedProcess, states_of
from headrace.operators.process.layout import ARRIVAL, DUE, DUE_CLOCK, KEPT, ROW, Layout, is_empty
from headrace.operators.process.on_error import OnError
from headrace.operators.process.outputs import OutputRows
from headrace.operators.process.rows import python_columns, row_class
from headrace.operators.process.rules import RuleHistory
from headrace.operators.rows import KEY_NUMBER, Rows
from headrace.schemas import MOMENT
from headrace.wheel.key_groups import canonical
from headrace.wheel.operator import Applied, Combined, Due, Holding

LATE = "__late"
MOST_CHUNKS = 8
NONE = -1
"""In the place of a number: the row belongs to no key that is touched."""
Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]
_FAILED = {"reason": pl.String(), "detail": pl.String(), "row": pl.String(), "is_timer": pl.Boolean()}


@dataclass(frozen=True)
class Processing:
    """Calls an author's process for the rows and timers of each key.

    A state row is a key with its states, timers and the earliest time at which something of it is due, or a row that
    waits. Only keys with rows, or with something due, are touched.
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
    def key(self) -> tuple[str, ...]:
        """The key columns."""
        return self.rows.key

    @property
    def identity(self) -> tuple[str, ...]:
        """A key, or one of its waiting rows."""
        return (*self.key, ARRIVAL)

    @cached_property
    def partial_schema(self) -> dict[str, pl.DataType]:
        """Rows travel whole, with the time at which event time has passed them."""
        late = {LATE: pl.Boolean()} if self._delivers else {}
        return {**self.rows.keys, DUE: pl.Int64(), ROW: self._row, **late}

    @cached_property
    def state_schema(self) -> dict[str, pl.DataType]:
        """Keys with their states and timers; rows that wait."""
        waiting: dict[str, pl.DataType] = {ROW: self._row} if self.ordered else {}
        due = {ARRIVAL: pl.Int64(), DUE: pl.Int64(), DUE_CLOCK: pl.Int64()}
        return {**self.rows.keys, **due, **waiting, **self._layout.columns}

    @property
    def output_schema(self) -> dict[str, pl.DataType]:
        """The declared columns of the main output, and what every row carries."""
        return self._carrying(self.outputs["main"])

    @property
    def side_schemas(self) -> dict[str, dict[str, pl.DataType]]:
        """The declared side outputs, and late rows where they are kept."""
        late = {"late": self.rows.late_schema} if self.lateness.keeps_rows else {}
        declared = {name: self._carrying(columns) for name, columns in self.outputs.items() if name != "main"}
        return {**late, **declared}

    def combine(self, rows: pl.DataFrame, bounds: TimeBounds) -> Combined:
        """Set late rows aside, unless they are delivered; the others travel one by one."""
        late = rows.select(self.rows.is_late(bounds).alias(LATE)).to_series()
        too_late = rows.clear()
        if not self._delivers and late.any():
            too_late, rows = rows.filter(late), rows.filter(~late)
        travelling = rows.select(
            *self.key,
            (self.rows.row_time + 1).alias(DUE),
            pl.struct(field.name for field in self._row.fields).alias(ROW),
            *([late] if self._delivers else []),
        )
        return Combined(canonical(travelling, self.key), self.rows.with_late_by(too_late, bounds), rows.height)

    def merge(self, partials: pl.DataFrame) -> pl.DataFrame:
        """Rows stay as they are, in the order of their arrival."""
        return partials

    def apply(self, state: pl.DataFrame, partials: pl.DataFrame, bounds: TimeBounds) -> Applied:
        """Let rows wait, hand on those whose turn it is, and fire the timers that are due."""
        return self._handled(state, partials, bounds, None)

    def _handled(
        self, state: pl.DataFrame, partials: pl.DataFrame, bounds: TimeBounds, rules: RuleHistory | None
    ) -> Applied:
        arrival = state[ARRIVAL].to_numpy()
        is_due = self._is_due(state, bounds)
        waited = int((arrival > KEPT).sum())
        taken = np.flatnonzero(is_due & (arrival > KEPT))
        released, waiting = self._released(_at(state, taken), partials, int(arrival.max(initial=KEPT)) + 1, bounds)
        woken = np.flatnonzero(is_due & (arrival == KEPT))
        keys = self._keys(released, _at(state, woken))
        if not (keys.height or waiting.height):
            idle = Holding(waited, 0, waited)
            return Applied(state, self._nothing, state.clear().select(self.identity), self._no_output, holding=idle)
        # The keys among the state's rows, by their numbers; everything else has none.
        numbers = self._numbers(state, keys) if keys.height else np.full(state.height, NONE)
        touched = np.flatnonzero(numbers != NONE)
        outputs = {name: OutputRows(name, each, self._carrying(each)) for name, each in self.outputs.items()}
        calls = Calls(self.process, self.name, self.ordered, self.on_error, bounds, outputs, rules)
        known = dict(zip(numbers[touched].tolist(), self._layout.cells(_at(state, touched)), strict=True))
        changed = self._called(calls, keys, known, set(numbers[woken].tolist()), released)
        kept = {number: cells for number, cells in changed.items() if not is_empty(cells)}
        upserts = self._upserts(keys, kept)
        leaves = np.zeros(state.height, bool)
        leaves[taken] = True
        leaves[touched] = np.isin(numbers[touched], list(changed))
        gone = np.flatnonzero(leaves & ~np.isin(numbers, list(kept)))
        remaining = [state.filter(~leaves) if leaves.any() else state, upserts, waiting]
        failures = calls.failures
        after = pl.concat([each for each in remaining if each.height] or [upserts])
        return Applied(
            after.rechunk() if after.n_chunks() > MOST_CHUNKS else after,
            pl.concat([upserts, waiting]) if waiting.height else upserts,
            _at(state, gone).select(self.identity),
            outputs["main"].frame(),
            side={name: rows.frame() for name, rows in outputs.items() if name != "main"},
            failed=pl.DataFrame(failures.letters, _FAILED, orient="row") if failures.letters else None,
            holding=Holding(
                waited,
                released.height - len(failures.letters) + failures.timers,
                waited - len(taken) + waiting.height,
            ),
        )

    def due(self, state: pl.DataFrame, bounds: TimeBounds) -> Due:
        """The earliest moment at which a row has its turn, a timer fires or a value is over."""
        event, clock = (END if state.is_empty() else int(state[name].min()) for name in (DUE, DUE_CLOCK))  # type: ignore[arg-type]
        return Due(None if event == END else event, None if clock == END else clock)

    def _is_due(self, state: pl.DataFrame, bounds: TimeBounds) -> Mask:
        event, clock = state[DUE].to_numpy(), state[DUE_CLOCK].to_numpy()
        # At the end of time everything is due but what has no due time at all.
        return ((event <= bounds.fire) & (event < END)) | (clock <= bounds.clock)

    @property
    def _delivers(self) -> bool:
        return self.lateness.kind == "deliver"

    @cached_property
    def _layout(self) -> Layout:
        return Layout(states_of(self.process))

    @cached_property
    def _row(self) -> pl.Struct:
        """Everything of a row but its key, which stands beside it."""
        return pl.Struct({name: dtype for name, dtype in self.rows.schema.items() if name not in self.key})

    @property
    def _carried(self) -> dict[str, pl.DataType]:
        return {self.output_time: MOMENT}

    def _carrying(self, columns: Mapping[str, pl.DataType]) -> dict[str, pl.DataType]:
        return {**columns, **self._carried}

    def _released(
        self, taken: pl.DataFrame, partials: pl.DataFrame, following: int, bounds: TimeBounds
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The rows whose turn it is, in the order of arrival; and those that wait from now on, as state rows."""
        passed = partials[DUE].to_numpy() <= bounds.fire
        arrived, waiting = partials, self._nothing
        if self.ordered and not passed.all():
            arrived, early = partials.filter(passed), partials.filter(~passed)
            waiting = self._as_state(
                {
                    **{name: early[name] for name in (*self.key, DUE, ROW)},
                    ARRIVAL: pl.Series(range(following, following + early.height), dtype=pl.Int64),
                    DUE_CLOCK: pl.Series([END] * early.height, dtype=pl.Int64),
                }
            )
        if taken.is_empty():
            return arrived, waiting
        waited = taken.select(*self.key, DUE, ROW, *([pl.lit(False).alias(LATE)] if self._delivers else []))
        return pl.concat([waited, arrived]), waiting

    def _as_state(self, columns: Mapping[str, pl.Series]) -> pl.DataFrame:
        """Rows with all columns of the state; those that are not given are null."""
        missing = [pl.lit(None, dtype).alias(name) for name, dtype in self.state_schema.items() if name not in columns]
        given = pl.DataFrame(dict(columns))
        return (given.with_columns(missing) if missing else given).select(self.state_schema.keys())

    @cached_property
    def _nothing(self) -> pl.DataFrame:
        return pl.DataFrame(schema=self.state_schema)

    @cached_property
    def _no_output(self) -> pl.DataFrame:
        return pl.DataFrame(schema=self.output_schema)

    def _keys(self, released: pl.DataFrame, woken: pl.DataFrame) -> pl.DataFrame:
        """The keys that have rows or something due, numbered, with the arrival number of their state rows."""
        keys = released.select(self.key)
        if woken.height:
            keys = pl.concat([keys, woken.select(self.key)])
        keys = keys.unique(maintain_order=True)
        numbers = pl.Series(KEY_NUMBER, np.arange(keys.height))
        return keys.with_columns(pl.lit(KEPT, pl.Int64).alias(ARRIVAL), numbers)

    def _numbers(self, rows: pl.DataFrame, keys: pl.DataFrame) -> Numbers:
        """The number of each row's key. By two columns: by one, Polars (2.1) does not find NaN in a sorted one."""
        identities = rows.select(self.identity)
        joined = identities.join(keys, on=list(self.identity), how="left", nulls_equal=True, maintain_order="left")
        numbers = joined[KEY_NUMBER].to_numpy()
        # Where a number is missing they come as floats.
        return numbers if numbers.dtype == np.int64 else np.nan_to_num(numbers, nan=NONE).astype(np.int64)

    def _called(
        self,
        calls: Calls,
        keys: pl.DataFrame,
        known: Mapping[int, tuple[Any, ...]],
        woken: Set[int],
        released: pl.DataFrame,
    ) -> dict[int, tuple[Any, ...]]:
        """Call the author's code for every key that is touched; the cells of those that have changed."""
        rows: Iterator[Timed] = iter(())
        counts = [0] * keys.height
        if released.height:
            numbers = self._numbers(released.with_columns(pl.lit(KEPT, pl.Int64).alias(ARRIVAL)), keys)
            counts = np.bincount(numbers, minlength=keys.height).tolist()
            order = (
                np.lexsort((released[DUE].to_numpy(), numbers)) if self.ordered else np.argsort(numbers, stable=True)
            )
            rows = self._timed(released[order])
        changed: dict[int, tuple[Any, ...]] = {}
        for number, key in enumerate(key_values([keys[name].to_list() for name in self.key])):
            cells = calls.key(key, known.get(number), islice(rows, counts[number]), woken=number in woken)
            if cells is not None:
                changed[number] = cells
        return changed

    def _timed(self, rows: pl.DataFrame) -> Iterator[Timed]:
        """Rows as the author's code sees them, with their times."""
        others = rows[ROW].struct.unnest()
        columns = python_columns([(rows if name in self.key else others)[name] for name in self.rows.schema])
        late = rows[LATE].to_list() if self._delivers else repeat(False, rows.height)
        return zip(map(row_class(self.rows.schema), zip(*columns, strict=True)), _times(rows), late, strict=True)

    def _upserts(self, keys: pl.DataFrame, kept: Mapping[int, tuple[Any, ...]]) -> pl.DataFrame:
        """The keys to store."""
        stored = self._layout.series(list(kept.values()))
        changed = keys[list(kept)]
        return self._as_state({**{name: changed[name] for name in (*self.key, ARRIVAL)}, **stored})


def _at(state: pl.DataFrame, places: Numbers) -> pl.DataFrame:
    return state[places] if len(places) else state.clear()


def _times(rows: pl.DataFrame) -> list[int]:
    times: list[int] = (rows[DUE].to_numpy() - 1).tolist()
    return times
