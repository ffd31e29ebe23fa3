"""A process on the wheel: rows wait for their turn, keys with something to do become objects, changes go back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, repeat
from typing import Any

import polars as pl

from headrace.event_time.lateness import Lateness
from headrace.event_time.record import Edge
from headrace.operators.key_order import KEY_NUMBER, in_key_order
from headrace.operators.process.calls import Calls, Timed, key_values
from headrace.operators.process.keyed_process import KeyedProcess, states_of
from headrace.operators.process.late import Deliver
from headrace.operators.process.layout import ARRIVAL, DUE, DUE_CLOCK, KEPT, ROW, Layout, is_empty
from headrace.operators.process.on_error import OnError
from headrace.operators.process.outputs import OutputRows
from headrace.operators.process.rows import python_columns, row_class
from headrace.operators.process.rules import RuleHistory
from headrace.operators.windows.aggregation import Aggregation
from headrace.schemas import MOMENT
from headrace.wheel.key_hash import canonical
from headrace.wheel.operator import Applied, Combined, Due, Holding

LATE = "__late"
_FAILED = {"reason": pl.String(), "detail": pl.String(), "row": pl.String()}


@dataclass(frozen=True)
class Processing:
    """Calls an author's process for the rows and timers of each key.

    A state row is a key with its states, timers and the earliest time at which something of it is due, or a row that
    waits. Only keys with rows, or with something due, are touched.
    """

    name: str
    process: KeyedProcess
    rows: Aggregation
    """What is known of the rows; nothing is aggregated."""
    outputs: Mapping[str, Mapping[str, pl.DataType]]
    """The declared columns of each output, ``main`` among them."""
    output_time: str
    ordered: bool
    on_error: OnError
    lateness: Lateness | Deliver

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

    def combine(self, rows: pl.DataFrame, edge: Edge) -> Combined:
        """Set late rows aside, unless they are delivered; the others travel one by one."""
        late = rows.select(((self.rows.row_time < edge.late) | self.rows.is_correction).alias(LATE)).to_series()
        too_late = rows.clear()
        if not self._delivers and late.any():
            too_late, rows = rows.filter(late), rows.filter(~late)
        travelling = rows.select(
            *self.key,
            (self.rows.row_time + 1).alias(DUE),
            pl.struct(field.name for field in self._row.fields).alias(ROW),
            *([late] if self._delivers else []),
        )
        return Combined(canonical(travelling, self.key), self.rows.late(too_late, edge), rows.height)

    def merge(self, partials: pl.DataFrame) -> pl.DataFrame:
        """Rows stay as they are, in the order of their arrival."""
        return partials

    def apply(self, state: pl.DataFrame, partials: pl.DataFrame, edge: Edge) -> Applied:
        """Let rows wait, hand on those whose turn it is, and fire the timers that are due."""
        return self._handled(state, partials, edge, None)

    def _handled(self, state: pl.DataFrame, partials: pl.DataFrame, edge: Edge, rules: RuleHistory | None) -> Applied:
        is_due = ((pl.col(DUE) <= edge.fire) | (pl.col(DUE_CLOCK) <= edge.clock)).fill_null(False)
        due = state.filter(is_due)
        quiet = state if due.is_empty() else state.filter(~is_due)
        woken, taken = due.filter(pl.col(ARRIVAL) == KEPT), due.filter(pl.col(ARRIVAL) > KEPT)
        waited = int((state[ARRIVAL] > KEPT).sum())
        released, waiting = self._released(taken, partials, _following(state) if waited else KEPT + 1, edge)
        keys = self._keys(released, woken)
        untouched, touched = self._known(quiet, woken, keys)
        outputs = self._output_rows()
        calls = Calls(self.process, self.name, self.ordered, self.on_error, edge, outputs, rules)
        changed = self._called(calls, keys, touched, released)
        upserts, gone = self._changes(changed, keys, touched)
        unchanged = touched.filter(~pl.col(KEY_NUMBER).is_in(list(changed)))
        remaining = [untouched, unchanged.select(self.state_schema.keys()), upserts, waiting]
        failures = calls.failures
        return Applied(
            pl.concat([each for each in remaining if not each.is_empty()] or [upserts]),
            pl.concat([upserts, waiting]),
            pl.concat([gone, taken.select(self.identity)]),
            outputs["main"].frame(),
            side={name: rows.frame() for name, rows in outputs.items() if name != "main"},
            failed=pl.DataFrame(failures.letters, _FAILED, orient="row") if failures.letters else None,
            # A timer that failed is counted as a row that had waited: it stood in the state and is now a dead letter.
            holding=Holding(
                waited + failures.timers,
                released.height - len(failures.letters) + failures.timers,
                waited - taken.height + waiting.height,
            ),
        )

    def due(self, state: pl.DataFrame, edge: Edge) -> Due:
        """The earliest moment at which a row has its turn, a timer fires or a value is over."""
        return Due(*state.select(pl.col(DUE).min(), pl.col(DUE_CLOCK).min()).row(0))

    @property
    def _delivers(self) -> bool:
        return isinstance(self.lateness, Deliver)

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

    def _output_rows(self) -> dict[str, OutputRows]:
        return {name: OutputRows(name, columns, self._carrying(columns)) for name, columns in self.outputs.items()}

    def _released(
        self, taken: pl.DataFrame, partials: pl.DataFrame, following: int, edge: Edge
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The rows whose turn it is, in the order of arrival; and those that wait from now on, as state rows."""
        arrived = partials if self._delivers else partials.with_columns(pl.lit(False).alias(LATE))
        if not self.ordered:
            return arrived, self._as_state(partials.clear())
        passed = arrived[DUE] <= edge.fire
        waiting = arrived.filter(~passed).drop(LATE)
        numbers = pl.int_range(following, following + pl.len()).alias(ARRIVAL)
        waited = taken.select(*self.key, DUE, ROW, pl.lit(False).alias(LATE))
        released = pl.concat([waited, arrived if waiting.is_empty() else arrived.filter(passed)])
        return released, self._as_state(waiting.with_columns(numbers))

    def _as_state(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows with all columns of the state; those that they do not have are null."""
        missing = (name for name in self.state_schema if name not in rows.columns)
        return rows.with_columns(pl.lit(None, self.state_schema[name]).alias(name) for name in missing).select(
            self.state_schema.keys()
        )

    def _keys(self, released: pl.DataFrame, woken: pl.DataFrame) -> pl.DataFrame:
        """The keys that have rows or something due, numbered."""
        keys = pl.concat([released.select(self.key), woken.select(self.key)]).unique(maintain_order=True)
        return keys.with_columns(pl.lit(KEPT, pl.Int64).alias(ARRIVAL)).with_row_index(KEY_NUMBER)

    def _known(self, quiet: pl.DataFrame, woken: pl.DataFrame, keys: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """State rows to which nothing happens; and those of the keys, with their numbers."""
        if keys.is_empty():
            return quiet, self._numbered(woken, keys)
        numbered = self._numbered(quiet, keys)
        mine = numbered[KEY_NUMBER].is_not_null()
        return numbered.filter(~mine).drop(KEY_NUMBER), pl.concat([numbered.filter(mine), self._numbered(woken, keys)])

    def _numbered(self, rows: pl.DataFrame, keys: pl.DataFrame) -> pl.DataFrame:
        return rows.join(keys, on=list(self.identity), how="left", nulls_equal=True, maintain_order="left")

    def _called(
        self, calls: Calls, keys: pl.DataFrame, touched: pl.DataFrame, released: pl.DataFrame
    ) -> dict[int, tuple[Any, ...]]:
        """Call the author's code for every key that is touched; the cells of those that have changed."""
        known = dict(zip(touched[KEY_NUMBER].to_list(), self._layout.cells(touched), strict=True))
        numbered = self._numbered(released.with_columns(pl.lit(KEPT, pl.Int64).alias(ARRIVAL)), keys)
        ordered = in_key_order(numbered, DUE) if self.ordered else numbered.sort(KEY_NUMBER, maintain_order=True)
        counts = dict(ordered[KEY_NUMBER].rle().struct.unnest().select("value", "len").iter_rows())
        rows = self._timed(ordered)
        changed: dict[int, tuple[Any, ...]] = {}
        for number, key in enumerate(key_values([column.to_list() for column in keys.select(self.key)])):
            cells = calls.key(key, known.get(number), islice(rows, counts.get(number, 0)))
            if cells is not None:
                changed[number] = cells
        return changed

    def _timed(self, ordered: pl.DataFrame) -> Iterator[Timed]:
        """Rows as the author's code sees them, with their times."""
        whole = ordered.select(*self.key, ROW).unnest(ROW).select(self.rows.schema.keys())
        made = map(row_class(self.rows.schema), zip(*python_columns(whole), strict=True))
        late = ordered[LATE].to_list() if self._delivers else repeat(False, ordered.height)
        return zip(made, (ordered[DUE] - 1).to_list(), late, strict=True)

    def _changes(
        self, changed: dict[int, tuple[Any, ...]], keys: pl.DataFrame, touched: pl.DataFrame
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Keys to store, and the identities of those of which nothing is left."""
        kept = {number: cells for number, cells in changed.items() if not is_empty(cells)}
        empty = [number for number in changed if number not in kept]
        stored = self._layout.frame(list(kept.values()))
        upserts = pl.concat([keys[list(kept)].drop(KEY_NUMBER), stored], how="horizontal")
        gone = touched.filter(pl.col(KEY_NUMBER).is_in(empty))
        return self._as_state(upserts), gone.select(self.identity)


def _following(state: pl.DataFrame) -> int:
    """The number of the next row that waits."""
    return int(state.select(pl.col(ARRIVAL).max()).item()) + 1
