"""The table aggregate at run time: groups of a table whose aggregates follow every change of a row."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from headrace.changelog import CHANGE, CHANGELOG, DELETE, INSERT, POSITION, UPDATE_AFTER, UPDATE_BEFORE, sortable
from headrace.event_time.record import TimeBounds
from headrace.operators.rows import KEY_NUMBER, ROW_NUMBER, join_by_key, with_key_numbers
from headrace.operators.tables.changelog_input import (
    CHANGED_AT,
    IS_UPSERT,
    LACKS_BEFORE,
    LAST_CHANGE,
    TIME,
    ChangelogOperator,
    ordered_changes,
)
from headrace.operators.tables.group_state import GROUP, KIND, ROW, ROWS, VALUE, GroupState
from headrace.operators.tables.retractable_aggregates import WEIGHT
from headrace.schemas import MOMENT
from headrace.wheel.operator import Applied, Due


@dataclass(frozen=True)
class TableAggregateOperator(ChangelogOperator):
    """Retracts rows from their groups and adds rows to them, as the changes of the table say."""

    layout: GroupState
    output_time = CHANGED_AT
    """The event time of a group's latest change in the batch."""

    @property
    def identity(self) -> tuple[str, ...]:
        """A group, one of its values, or one of its rows."""
        return self.layout.identity

    @property
    def state_schema(self) -> dict[str, pl.DataType]:
        return self.layout.schema

    @cached_property
    def output_schema(self) -> dict[str, pl.DataType]:
        aggregation = self.layout.aggregation
        return {**aggregation.keys, **aggregation.results, **CHANGELOG, CHANGED_AT: MOMENT}

    def apply(self, state: pl.DataFrame, partials: pl.DataFrame, bounds: TimeBounds) -> Applied:
        """Apply the changes, emit the groups that changed, and drop expired tombstones."""
        touched, changes = self._with_group_numbers(state, partials.drop(LACKS_BEFORE))
        ordered = last = None
        if self.changelog.row_key:
            stored = self._stored_rows(touched)
            ordered = ordered_changes(changes, stored, self._row_identity)
            last = ordered.last(self._row_identity)
            rows = self._weighted(stored, last)
        else:
            rows = changes.with_columns(pl.when(IS_UPSERT).then(1).otherwise(-1).cast(pl.Int64).alias(WEIGHT))
        keys = changes.select(KEY_NUMBER, *self.key).unique(KEY_NUMBER, maintain_order=True)
        totals, values = self.layout.totals(keys, touched, rows)
        changed = [self.layout.state_rows(GROUP, totals)]
        changed += [self.layout.state_rows(VALUE, each.join(keys, on=KEY_NUMBER)) for each in values]
        if last is not None:
            changed.append(self.layout.state_rows(ROW, last.rename(self.layout.row_columns)))
        news = pl.concat(changed)
        rest = state.join(news, on=list(self.identity), how="anti", nulls_equal=True)
        over = self.layout.is_empty
        if self.changelog.row_key:
            over |= self.tombstones.expired(bounds).fill_null(False)
        upserts = news.filter(~over)
        return Applied(
            pl.concat([rest.filter(~over), upserts]),
            upserts,
            pl.concat([news.filter(over), rest.filter(over)]).select(self.identity),
            self._output(touched.filter(pl.col(KIND) == GROUP), totals, rows, bounds),
            dropped=0 if ordered is None else ordered.dropped,
            counters={
                **({} if ordered is None else {"stale": ordered.stale, "duplicates": ordered.duplicates}),
                "updates_without_before": int(partials[LACKS_BEFORE].sum()),
            },
        )

    def due(self, state: pl.DataFrame, bounds: TimeBounds) -> Due:
        return super().due(state, bounds) if self.changelog.row_key else Due()

    @cached_property
    def _row_identity(self) -> list[str]:
        return [KEY_NUMBER, *(name for name in self.changelog.row_key if name not in self.key)]

    def _with_group_numbers(self, state: pl.DataFrame, changes: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The state of the groups that changes touch, and the changes, both with group numbers."""
        row_numbers = pl.int_range(state.height + changes.height, eager=True, dtype=pl.UInt32).alias(ROW_NUMBER)
        keys = pl.concat([state.select(self.key), changes.select(self.key)])
        rows = keys.with_columns(row_numbers) if self.key else row_numbers.to_frame()
        numbered = with_key_numbers(rows, self.key, of=changes)
        stored = numbered.filter(pl.col(ROW_NUMBER) < state.height)
        new = numbered.filter(pl.col(ROW_NUMBER) >= state.height).sort(ROW_NUMBER)
        return state[stored[ROW_NUMBER]].with_columns(stored[KEY_NUMBER]), changes.with_columns(new[KEY_NUMBER])

    def _stored_rows(self, touched: pl.DataFrame) -> pl.DataFrame:
        """The stored rows of the table, under their own column names."""
        names = {state: name for name, state in self.layout.row_columns.items()}
        rows = touched.filter(pl.col(KIND) == ROW).rename(names)
        return rows.select(*self.changelog.columns, *LAST_CHANGE, KEY_NUMBER)

    def _weighted(self, stored: pl.DataFrame, last: pl.DataFrame) -> pl.DataFrame:
        """Rows to add and rows to retract, by the last change of every row."""
        by = self._row_identity
        live = stored.filter(IS_UPSERT).drop(TIME)
        retracted = join_by_key(live, last.select(*by, TIME), by, nulls_equal=True).select(last.columns)
        weights = ((retracted, -1), (last.filter(IS_UPSERT), 1))
        return pl.concat([rows.with_columns(pl.lit(weight, pl.Int64).alias(WEIGHT)) for rows, weight in weights])

    def _output(
        self, groups: pl.DataFrame, totals: pl.DataFrame, rows: pl.DataFrame, bounds: TimeBounds
    ) -> pl.DataFrame:
        """The changes of groups, all retractions first."""
        results = self.layout.results
        before = groups.filter(pl.col(ROWS) > 0).select(KEY_NUMBER, *self.key, *results)
        after = totals.filter(pl.col(ROWS) > 0).select(KEY_NUMBER, *self.key, *results)
        both = before.join(after.drop(*self.key), on=KEY_NUMBER, suffix=".new")
        different = pl.any_horizontal(pl.col(name).ne_missing(pl.col(f"{name}.new")) for name in results)
        same = both.filter(~different).select(KEY_NUMBER)
        time = rows.group_by(KEY_NUMBER).agg(pl.col(TIME).max())
        changes = []
        for ours, others, update, otherwise in (
            (before, after, UPDATE_BEFORE, DELETE),
            (after, before, UPDATE_AFTER, INSERT),
        ):
            updated = others.select(KEY_NUMBER, pl.lit(update).alias(CHANGE))
            changed = ours.join(same, on=KEY_NUMBER, how="anti").join(updated, on=KEY_NUMBER, how="left")
            changes.append(changed.with_columns(pl.col(CHANGE).fill_null(otherwise)).sort(KEY_NUMBER))
        names = zip(results, self.layout.aggregation.results, strict=True)
        return (
            pl.concat(changes)
            .join(time, on=KEY_NUMBER, maintain_order="left")
            .select(
                *self.key,
                *(pl.col(state).alias(name) for state, name in names),
                CHANGE,
                sortable(pl.lit(bounds.batch)).alias(POSITION),
                pl.col(TIME).cast(MOMENT).alias(CHANGED_AT),
            )
        )
