"""The aggregates of a step over rows of one schema, and what all window operators share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import ClassVar

import polars as pl

from headrace.errors import HeadraceError
from headrace.event_time.lateness import Lateness
from headrace.event_time.record import TimeBounds
from headrace.expressions import Aggregate
from headrace.expressions.rows import named_columns
from headrace.operators.rows import Rows
from headrace.operators.windows.emission import PREVIEW_AT, UNSEEN, AccumulationMode, Emission
from headrace.schemas import MOMENT, spark_type
from headrace.wheel.operator import Due

RESULT_COLUMNS = ("window", "pane", "revision", "change")
WINDOW = pl.Struct({"start": MOMENT, "end": MOMENT})
REVISION = "__revision"
"""How often a window has been emitted, minus one; null before the first time."""
NEXT_REVISION = (pl.col(REVISION).fill_null(-1) + 1).cast(pl.Int32).alias(REVISION)
INSERT_OR_UPDATE = pl.when(pl.col(REVISION) == 0).then(pl.lit("insert")).otherwise(pl.lit("update_after"))
"""The change of a result with its revision, where results are retracted."""
ROW_COUNT = {UNSEEN: pl.len().cast(pl.Int64)}
SHOWN_AS = "__shown_as"
"""The pane of a result."""
ROW = "__row_of_result"
GIVEN = "@given"
"""A suffix of column names in the state: the value when the window was emitted last."""


@dataclass(frozen=True)
class Aggregation(Rows):
    """Rows with their partial aggregates and results."""

    aggregates: tuple[Aggregate, ...]

    @cached_property
    def read(self) -> set[str]:
        return named_columns({self.time}.union(*(each.columns for each in self.aggregates)), self.schema)

    @cached_property
    def states(self) -> dict[str, pl.DataType]:
        return dict(chain.from_iterable(each.state_types(self.schema).items() for each in self.aggregates))

    @cached_property
    def results(self) -> dict[str, pl.DataType]:
        return {each.name: each.result_type(self.schema) for each in self.aggregates}

    @cached_property
    def ranked(self) -> str | None:
        """The name of the aggregate that gives rows, which is that of their rank."""
        return next((each.name for each in self.aggregates if each.function.gives_rows), None)

    @cached_property
    def ranked_rows(self) -> dict[str, pl.DataType]:
        """The columns of the rows that `ranked` gives, without the key and the results of an earlier window."""
        if self.ranked is None:
            return {}
        return {name: dtype for name, dtype in self.schema.items() if name not in (*self.key, *RESULT_COLUMNS)}

    @cached_property
    def partial(self) -> dict[str, pl.Expr]:
        return dict(chain.from_iterable(each.partial(self.schema, self.row_time).items() for each in self.aggregates))

    @cached_property
    def nothing(self) -> dict[str, pl.Expr]:
        """The partial result of no rows."""
        none = pl.DataFrame(schema=dict(self.schema)).select(**self.partial)
        return {column.name: pl.lit(column).first() for column in none}

    @cached_property
    def merged(self) -> dict[str, pl.Expr]:
        return dict(chain.from_iterable(each.merge(self.schema).items() for each in self.aggregates))

    def result(self, partials: pl.DataFrame) -> list[pl.Expr]:
        """The results; an error if one does not fit its type."""
        for each in self.aggregates:
            overflowed = each.overflowed(self.schema)
            if overflowed is not None and partials.select(overflowed.any()).item():
                raise self._overflow(each, partials.filter(overflowed))
        return [each.result(self.schema) for each in self.aggregates]

    def _overflow(self, aggregate: Aggregate, partials: pl.DataFrame) -> HeadraceError:
        of = f" for key {', '.join(map(repr, partials.select(self.key).row(0)))}" if self.key else ""
        dtype = aggregate.result_type(self.schema)
        limit = spark_type(dtype, aggregate.name).simpleString().upper().replace(",", ", ")
        wider = "DECIMAL(38, 0) or DOUBLE"
        if isinstance(dtype, pl.Decimal):
            wider = "DOUBLE, or to a DECIMAL with fewer decimal places,"
        return HeadraceError(
            "SUM_OVERFLOW",
            f"step {self.step!r}: {aggregate.name} = {aggregate.text}{of} is beyond the range of {limit}. "
            f"Cast the column to {wider} before it is summed.",
        )


@dataclass(frozen=True)
class WindowOperator(ABC):
    """Aggregates rows by key; its results carry a window, a pane and a revision."""

    aggregation: Aggregation
    lateness: Lateness
    emission: Emission
    accumulation: AccumulationMode
    output_time = "window"
    """A result's time is the last moment of its window."""
    moments: ClassVar[Mapping[str, pl.Expr]] = {}
    """Further times of the results."""
    identified_by: ClassVar[tuple[str, ...]]
    """The columns that tell the state rows of a key apart."""
    times: ClassVar[Mapping[str, pl.Expr]] = {}
    """The times of a partial result, from those of its rows or parts."""
    moved: ClassVar[tuple[str, ...]] = ()
    """The bounds of a window that change as rows come."""
    marks: ClassVar[Mapping[str, pl.Expr]] = {}
    """What the operator itself records of a window when it is emitted."""
    order: ClassVar[tuple[str, ...]] = ()
    """Columns of results beyond the output, by which a batch sorts them."""

    @property
    def name(self) -> str:
        return self.aggregation.step

    @property
    def key(self) -> tuple[str, ...]:
        return self.aggregation.key

    @property
    def identity(self) -> tuple[str, ...]:
        return (*self.key, *self.identified_by)

    @property
    def side_schemas(self) -> dict[str, dict[str, pl.DataType]]:
        return self.aggregation.late_output(self.lateness)

    def due(self, bounds: TimeBounds) -> Due:
        end = self._window[1]
        closes = pl.when(end > bounds.fire).then(end)
        return self.emission.due(closes, end + self.lateness.correctable)

    @property
    def _counted(self) -> Mapping[str, pl.Expr]:
        """The number of rows in a partial result, where previews need it."""
        return {}

    @cached_property
    def _states(self) -> dict[str, pl.DataType]:
        return {**self.aggregation.states, **dict.fromkeys(self._counted, pl.Int64())}

    @cached_property
    def _partial(self) -> dict[str, pl.Expr]:
        return {**self.times, **self.aggregation.partial, **self._counted}

    @cached_property
    def _merged(self) -> dict[str, pl.Expr]:
        return {**self.times, **self.aggregation.merged, **{name: pl.col(name).sum() for name in self._counted}}

    @cached_property
    def output_schema(self) -> dict[str, pl.DataType]:
        marks = {"pane": pl.String(), "revision": pl.Int32(), **({"change": pl.String()} if self._has_change else {})}
        window = {"window": WINDOW, **dict.fromkeys(self.moments, MOMENT)}
        results = self.aggregation.results
        if self.aggregation.ranked is not None:
            results = {**results, self.aggregation.ranked: pl.Int32()}
        return {**self._own, **window, **self.aggregation.ranked_rows, **results, **marks}

    @property
    def _own(self) -> dict[str, pl.DataType]:
        """The columns that results have from rows."""
        return self.aggregation.keys

    @property
    def _has_change(self) -> bool:
        return self.accumulation.kind == "retracting"

    @cached_property
    def _no_output(self) -> pl.DataFrame:
        return pl.DataFrame(schema=self.output_schema)

    @property
    @abstractmethod
    def _window(self) -> tuple[pl.Expr, pl.Expr]:
        """When the window of partial results starts and ends."""

    @property
    def _computed_from(self) -> dict[str, pl.DataType]:
        """The columns that results are computed from."""
        return {**dict.fromkeys(self.moved, pl.Int64()), **self.aggregation.states, SHOWN_AS: pl.String()}

    @cached_property
    def _given(self) -> dict[str, str]:
        """The same, each with the column of the state that keeps its value for a retraction."""
        return {name: f"{name}{GIVEN}" for name in self._computed_from if self._has_change}

    @cached_property
    def _ledger(self) -> dict[str, pl.DataType]:
        """The columns of the state that record what was emitted of a window."""
        return {REVISION: pl.Int32(), **{given: self._computed_from[name] for name, given in self._given.items()}}

    def _as_given(self, windows: pl.DataFrame) -> pl.DataFrame:
        return windows.with_columns(pl.col(given).alias(name) for name, given in self._given.items())

    def _computed(self, totals: pl.DataFrame) -> list[pl.Expr]:
        return self.aggregation.result(totals)

    def _results(self, totals: pl.DataFrame, change: pl.Expr = INSERT_OR_UPDATE) -> pl.DataFrame:
        start, end = (bound.cast(MOMENT) for bound in self._window)
        window = pl.struct(start.alias("start"), end.alias("end"))
        marks = {"window": window, "pane": pl.col(SHOWN_AS), "revision": pl.col(REVISION), "change": change}
        moments = {name: moment.cast(MOMENT) for name, moment in self.moments.items()}
        shown = totals.with_columns(*self._computed(totals), **marks, **moments)
        if (rank := self.aggregation.ranked) is not None:
            shown = self._by_row(shown, rank)
        return shown.select(*self.output_schema, *self.order)

    def _by_row(self, results: pl.DataFrame, rank: str) -> pl.DataFrame:
        """Results of several rows, each as a row of its own."""
        ranks = pl.int_ranges(1, pl.col(rank).list.len() + 1, dtype=pl.Int32)
        rows = results.with_columns(ranks.alias(rank), pl.col(rank).alias(ROW))
        each = rows.explode(rank, ROW, empty_as_null=False, keep_nulls=False)
        columns = (pl.col(ROW).struct.field(name) for name in self.aggregation.ranked_rows)
        return each.with_columns(columns).drop(ROW)

    def _revisions(self, totals: pl.DataFrame) -> list[pl.DataFrame]:
        """The next revision of results; before it the one before is taken back, in all its columns."""
        outputs = [self._results(totals.with_columns(NEXT_REVISION))]
        if self.accumulation.kind == "retracting":
            given = self._as_given(totals.filter(pl.col(REVISION).is_not_null()))
            outputs.insert(0, self._results(given, pl.lit("update_before")))
        return outputs

    def _show(self, windows: pl.DataFrame, shown: pl.Expr, *, pane: str) -> tuple[pl.DataFrame, list[pl.DataFrame]]:
        """Emit windows, and record that in the state."""
        chosen = windows.select(shown).to_series()
        if not chosen.any():
            return windows, []
        emitted = windows.filter(chosen).with_columns(pl.lit(pane).alias(SHOWN_AS))
        recorded = emitted.with_columns(
            NEXT_REVISION,
            pl.lit(0, pl.Int64).alias(UNSEEN),
            pl.lit(None, pl.Int64).alias(PREVIEW_AT),
            **self.marks,
            **{given: pl.col(name) for name, given in self._given.items()},
        )
        if self.accumulation.kind == "discarding":
            recorded = recorded.with_columns(*self._emitted_in_all(emitted), **self.aggregation.nothing)
        return pl.concat([windows.filter(~chosen), recorded.drop(SHOWN_AS)]), self._revisions(emitted)

    def _emitted_in_all(self, windows: pl.DataFrame) -> list[pl.Series]:
        """Where discarded results are retracted: the total of what windows emit now and have emitted before."""
        return []

    def _sorted(self, outputs: list[pl.DataFrame], *by: str) -> pl.DataFrame:
        """Everything that a batch emits; if it runs again, in the same order, whatever the order of the state."""
        if not outputs:
            return self._no_output
        # Windows in the order of their ends: whole structs take many times as long.
        order = [pl.col(name).struct.field("end") if name == "window" else pl.col(name) for name in by]
        return pl.concat(outputs).sort(order, maintain_order=True).select(self.output_schema.keys())
