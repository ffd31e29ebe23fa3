"""A table in groups: aggregates of a changelog that follow every change of a row."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from headrace.changelog import CHANGE, CHANGELOG, DELETE, INSERT, POSITION, UPDATE_AFTER, UPDATE_BEFORE, sortable
from headrace.event_time.record import TimeBounds
from headrace.operators.rows import KEY_NUMBER, join_by_key, with_key_numbers
from headrace.operators.tables.changelog_input import (
    ALONE,
    CHANGED_AT,
    ORDERED,
    SETS,
    TIME,
    ChangelogInput,
    OrderedChanges,
    TombstoneRetention,
    ordered_changes,
)
from headrace.operators.tables.group_state import GROUP, KIND, ROW, ROWS, VALUE, GroupState
from headrace.operators.tables.retractable_aggregates import WEIGHT
from headrace.schemas import MOMENT
from headrace.wheel.operator import Applied, Combined, Due

_PLACE = "__place"


@dataclass(frozen=True)
class TableAggregateOperator:
    """Takes rows out of their groups and puts rows in, as the changes of the table say."""

    name: str
    layout: GroupState
    intake: ChangelogInput
    deleted: TombstoneRetention

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that make a group."""
        return self.intake.key

    @property
    def partial_schema(self) -> dict[str, pl.DataType]:
        """Changes travel one by one."""
        return self.intake.partial_schema

    @property
    def identity(self) -> tuple[str, ...]:
        """A group, a value of one, or a row of one."""
        return self.layout.identity

    @property
    def state_schema(self) -> dict[str, pl.DataType]:
        """Groups, values and rows."""
        return self.layout.schema

    @cached_property
    def output_schema(self) -> dict[str, pl.DataType]:
        """A changelog of the groups."""
        aggregation = self.layout.aggregation
        return {**aggregation.keys, **aggregation.results, **CHANGELOG, CHANGED_AT: MOMENT}

    @property
    def output_time(self) -> str:
        """The event time of a group's latest change in the batch."""
        return CHANGED_AT

    @property
    def side_schemas(self) -> dict[str, dict[str, pl.DataType]]:
        """No change is late."""
        return {}

    def combine(self, rows: pl.DataFrame, bounds: TimeBounds) -> Combined:
        """Changes travel one by one."""
        return self.intake.combine(rows, bounds)

    def merge(self, partials: pl.DataFrame) -> pl.DataFrame:
        """Changes stay as they are."""
        return self.intake.merge(partials)

    def apply(self, state: pl.DataFrame, partials: pl.DataFrame, bounds: TimeBounds) -> Applied:
        """Follow the changes, say which groups became others, and forget old deletions."""
        touched, changes = self._numbered(state, partials.drop(ALONE))
        ordered = self._ordered(touched, changes)
        rows = self._weighted(touched, changes, ordered)
        keys = changes.select(KEY_NUMBER, *self.key).unique(KEY_NUMBER, maintain_order=True)
        groups = touched.filter(pl.col(KIND) == GROUP)
        totals, values = self.layout.totals(keys, touched, rows)
        found = [self.layout.state_rows(GROUP, totals)]
        found += [self.layout.state_rows(VALUE, each.join(keys, on=KEY_NUMBER)) for each in values]
        if ordered is not None:
            last = ordered.last(self._row_identity).rename(self.layout.row_columns)
            found.append(self.layout.state_rows(ROW, last))
        news = pl.concat(found)
        rest = state.join(news, on=list(self.identity), how="anti", nulls_equal=True)
        over = self.layout.is_empty | self._is_forgotten(bounds)
        upserts = news.filter(~over)
        return Applied(
            pl.concat([rest.filter(~over), upserts]),
            upserts,
            pl.concat([news.filter(over), rest.filter(over)]).select(self.identity),
            self._output(groups, totals, rows, bounds),
            dropped=0 if ordered is None else ordered.dropped,
            counters={
                **({} if ordered is None else {"stale": ordered.stale, "duplicates": ordered.duplicates}),
                "updates_without_before": int(partials[ALONE].sum()),
            },
        )

    def due(self, state: pl.DataFrame, bounds: TimeBounds) -> Due:
        """The earliest moment at which a deletion is forgotten."""
        return self.deleted.due(state) if self.intake.row_key else Due()

    def _is_forgotten(self, bounds: TimeBounds) -> pl.Expr:
        return self.deleted.over(bounds).fill_null(False) if self.intake.row_key else pl.lit(False)

    @cached_property
    def _row_identity(self) -> list[str]:
        return [KEY_NUMBER, *(name for name in self.intake.row_key if name not in self.key)]

    def _numbered(self, state: pl.DataFrame, partials: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The state of the groups that changes touch, and the changes, both with the number of their group."""
        places = pl.int_range(state.height + partials.height, eager=True, dtype=pl.UInt32).alias(_PLACE)
        keys = pl.concat([state.select(self.key), partials.select(self.key)])
        numbers = with_key_numbers(keys.with_columns(places) if self.key else places.to_frame(), self.key, of=partials)
        known = numbers.filter(pl.col(_PLACE) < state.height)
        brought = numbers.filter(pl.col(_PLACE) >= state.height).sort(_PLACE)
        return state[known[_PLACE]].with_columns(known[KEY_NUMBER]), partials.with_columns(brought[KEY_NUMBER])

    def _ordered(self, touched: pl.DataFrame, changes: pl.DataFrame) -> OrderedChanges | None:
        """The changes that count, where rows are told apart."""
        if not self.intake.row_key:
            return None
        return ordered_changes(changes, self._known_rows(touched), self._row_identity)

    def _known_rows(self, touched: pl.DataFrame) -> pl.DataFrame:
        named = {state: name for name, state in self.layout.row_columns.items()}
        return touched.filter(pl.col(KIND) == ROW).rename(named).select(*self.intake.columns, *ORDERED, KEY_NUMBER)

    def _weighted(self, touched: pl.DataFrame, changes: pl.DataFrame, ordered: OrderedChanges | None) -> pl.DataFrame:
        """Rows that come and rows that go."""
        if ordered is None:
            return changes.with_columns(pl.when(SETS).then(1).otherwise(-1).cast(pl.Int64).alias(WEIGHT))
        by, last = self._row_identity, ordered.last(self._row_identity)
        there = self._known_rows(touched).filter(SETS).drop(TIME)
        gone = join_by_key(there, last.select(*by, TIME), by, nulls_equal=True).select(last.columns)
        weights = ((gone, -1), (last.filter(SETS), 1))
        return pl.concat([rows.with_columns(pl.lit(weight, pl.Int64).alias(WEIGHT)) for rows, weight in weights])

    def _output(
        self, groups: pl.DataFrame, totals: pl.DataFrame, rows: pl.DataFrame, bounds: TimeBounds
    ) -> pl.DataFrame:
        """The changes of groups: what was said before it is taken back first."""
        results = self.layout.results
        before = groups.filter(pl.col(ROWS) > 0).select(KEY_NUMBER, *self.key, *results)
        after = totals.filter(pl.col(ROWS) > 0).select(KEY_NUMBER, *self.key, *results)
        both = before.join(after.drop(*self.key), on=KEY_NUMBER, suffix=".new")
        different = pl.any_horizontal(pl.col(name).ne_missing(pl.col(f"{name}.new")) for name in results)
        same = both.filter(~different).select(KEY_NUMBER)
        time = rows.group_by(KEY_NUMBER).agg(pl.col(TIME).max())
        said = []
        for ours, others, updated, otherwise in (
            (before, after, UPDATE_BEFORE, DELETE),
            (after, before, UPDATE_AFTER, INSERT),
        ):
            known = others.select(KEY_NUMBER, pl.lit(updated).alias(CHANGE))
            changed = ours.join(same, on=KEY_NUMBER, how="anti").join(known, on=KEY_NUMBER, how="left")
            said.append(changed.with_columns(pl.col(CHANGE).fill_null(otherwise)).sort(KEY_NUMBER))
        plain = [
            pl.col(state).alias(name) for state, name in zip(results, self.layout.aggregation.results, strict=True)
        ]
        return (
            pl.concat(said)
            .join(time, on=KEY_NUMBER, maintain_order="left")
            .select(
                *self.key,
                *plain,
                CHANGE,
                sortable(pl.lit(bounds.batch)).alias(POSITION),
                pl.col(TIME).cast(MOMENT).alias(CHANGED_AT),
            )
        )
