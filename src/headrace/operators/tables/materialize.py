"""Values that a database did not send because they stayed the same, taken from the row before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from headrace.changelog import (
    CHANGE,
    CHANGELOG,
    DELETE,
    INSERT,
    POSITION,
    UNCHANGED,
    UPDATE_AFTER,
    UPDATE_BEFORE,
    check_changelog,
)
from headrace.durations import Duration
from headrace.errors import DefinitionError
from headrace.event_time.record import TimeBounds
from headrace.graph import check_name
from headrace.keys import key_columns, said_key
from headrace.operators.rows import Rows, join_by_key
from headrace.operators.step import LateRows, Step, check_key
from headrace.operators.tables.changelog_input import (
    ORDERED,
    PLACE,
    SETS,
    TIME,
    WEEK,
    ChangelogInput,
    TombstoneRetention,
    ordered_changes,
    table_columns,
    tombstone_retention,
)
from headrace.wheel.operator import Applied, Combined, Due, Operator

_SOURCE, _ROW, _LIFE = "__source", "__row", "__life"


def fill_unchanged(
    changes: pl.DataFrame, known: pl.DataFrame, *, key: Sequence[str], columns: Sequence[str]
) -> tuple[pl.DataFrame, int]:
    """The last change of every key with all its values, and how many values nobody knows: those are null.

    ``changes`` are in order, and ``known`` are the rows before them. What is deleted gives nothing to what comes after
    it; the old row of an update has the position of the new one, and gives it what was not sent.

    >>> placed = {"id": [1], "__sets": [True]}
    >>> known = pl.DataFrame({**placed, "__position": ["1"], "text": ["long"]})
    >>> changes = pl.DataFrame({**placed, "__position": ["2"], "text": [None], "unchanged": [["text"]]})
    >>> last, unknown = fill_unchanged(changes, known, key=["id"], columns=["text"])
    >>> last["text"].to_list(), unknown
    (['long'], 0)
    """
    begins = ~pl.col(SETS).shift() & (pl.col(PLACE) != pl.col(PLACE).shift())
    life = begins.fill_null(False).cum_sum().over(list(key)).alias(_LIFE)
    rows = pl.concat([known, changes], how="diagonal_relaxed").with_row_index(_ROW).with_columns(life)
    unknown = 0
    for name in columns:
        missing = pl.col(UNCHANGED).list.contains(name).fill_null(False)
        source = pl.when(missing).then(None).otherwise(pl.col(_ROW)).forward_fill().over(*key, _LIFE)
        found = rows.select(source.alias(_SOURCE), pl.col(SETS))
        rows = rows.with_columns(rows[name].gather(found[_SOURCE]).alias(name))
        unknown += found.slice(known.height).select((pl.col(_SOURCE).is_null() & pl.col(SETS)).sum()).item()
    last = rows.slice(known.height).unique(list(key), keep="last", maintain_order=True)
    return last.drop(_ROW, _LIFE, UNCHANGED), unknown


_WAS = "__was"


@dataclass(frozen=True)
class MaterializeOperator:
    """Keeps the last position of each key, with the row itself where changes do not bring whole rows."""

    name: str
    rows: Rows
    deleted: TombstoneRetention
    before_images: bool

    @property
    def key(self) -> tuple[str, ...]:
        """The table's primary key."""
        return self.rows.key

    @property
    def identity(self) -> tuple[str, ...]:
        """A state row for each key."""
        return self.key

    @property
    def output_time(self) -> str:
        """Changes keep their time."""
        return self.rows.time

    @cached_property
    def _fills(self) -> bool:
        return UNCHANGED in self.rows.schema

    @cached_property
    def _table(self) -> dict[str, pl.DataType]:
        return table_columns(self.rows.schema)

    @cached_property
    def _values(self) -> dict[str, pl.DataType]:
        return {name: dtype for name, dtype in self._table.items() if name not in self.key}

    @cached_property
    def _intake(self) -> ChangelogInput:
        unchanged = {UNCHANGED: self.rows.schema[UNCHANGED]} if self._fills else {}
        return ChangelogInput(self.rows, self.key, {**self._table, **unchanged})

    @property
    def partial_schema(self) -> dict[str, pl.DataType]:
        """Changes travel whole."""
        return self._intake.partial_schema

    @cached_property
    def state_schema(self) -> dict[str, pl.DataType]:
        """Key and last change; the row too where a later change may need it."""
        return {**self.rows.keys, **ORDERED, **(self._values if self.before_images or self._fills else {})}

    @cached_property
    def output_schema(self) -> dict[str, pl.DataType]:
        """A changelog of the same table."""
        return {**self._table, **CHANGELOG}

    @property
    def side_schemas(self) -> dict[str, dict[str, pl.DataType]]:
        """No change is late."""
        return {}

    def combine(self, rows: pl.DataFrame, bounds: TimeBounds) -> Combined:
        """Changes travel one by one."""
        return self._intake.combine(rows, bounds)

    def merge(self, partials: pl.DataFrame) -> pl.DataFrame:
        """Changes stay as they are."""
        return self._intake.merge(partials)

    def apply(self, state: pl.DataFrame, partials: pl.DataFrame, bounds: TimeBounds) -> Applied:
        """Take the last change of every key, say what it did to the table, and forget old deletions."""
        key = list(self.key)
        known = state.join(partials.select(key).unique(), on=key, how="semi", nulls_equal=True)
        ordered = ordered_changes(partials, known, key)
        counters = {"stale": ordered.stale, "duplicates": ordered.duplicates}
        last = ordered.last(key)
        if self._fills:
            last, unknown = fill_unchanged(ordered.changes, known, key=key, columns=list(self._values))
            counters["unknown_values"] = unknown
        rest = state.join(last, on=key, how="anti", nulls_equal=True) if last.height else state
        kept = pl.concat([rest, last.select(self.state_schema.keys())])
        over = kept.select(self.deleted.over(bounds)).to_series()
        return Applied(
            kept.filter(~over) if over.any() else kept,
            last.select(self.state_schema.keys()).filter(~self.deleted.over(bounds)),
            kept.filter(over).select(self.identity),
            self._output(known, last),
            dropped=ordered.dropped,
            counters=counters,
        )

    def due(self, state: pl.DataFrame, bounds: TimeBounds) -> Due:
        """The earliest moment at which a deletion is forgotten."""
        return self.deleted.due(state)

    def _output(self, known: pl.DataFrame, last: pl.DataFrame) -> pl.DataFrame:
        """What a batch did to the table, one change of every key, or two where the old row is asked for too."""
        there = known.filter(SETS)
        was = there.select(*self.key, pl.lit(True).alias(_WAS))
        beside = join_by_key(last, was, self.key, how="left", nulls_equal=True, maintain_order="left")
        changed = beside.filter(pl.col(SETS) | pl.col(_WAS).fill_null(False))
        change = (
            pl.when(~pl.col(SETS))
            .then(pl.lit(DELETE))
            .when(pl.col(_WAS).fill_null(False))
            .then(pl.lit(UPDATE_AFTER))
            .otherwise(pl.lit(INSERT))
        )
        news = changed.select(*self._table, change.alias(CHANGE), pl.col(PLACE).alias(POSITION))
        if not self.before_images:
            return news
        told = news.select(*self.key, CHANGE, POSITION)
        old = join_by_key(there.drop(PLACE, SETS, TIME), told, self.key, nulls_equal=True, maintain_order="left")
        before = pl.when(pl.col(CHANGE) == DELETE).then(pl.lit(DELETE)).otherwise(pl.lit(UPDATE_BEFORE))
        taken = old.select(*self._table, before.alias(CHANGE), POSITION)
        # An old row first, then what takes its place; a deletion is the old row alone.
        return pl.concat([taken, news.filter(pl.col(CHANGE) != DELETE)])


@dataclass(frozen=True, kw_only=True, repr=False)
class Materialize(Step):
    """The current table of a changelog."""

    kind = "materialize"
    changelogs = (0,)
    late_rows = LateRows(never="changes are ordered by their positions, so none is late")

    deleted: TombstoneRetention
    before_images: bool = False

    def bind(self, schema: Mapping[str, pl.DataType], time: str) -> Operator:
        """The operator that runs over changes of this schema."""
        check_changelog(self.name, schema)
        check_key(self.name, self.key, schema)
        check_row_key(self.name, self.key)
        check_unchanged(self.name, schema)
        return MaterializeOperator(
            self.name, Rows(self.name, self.key, time, dict(schema)), self.deleted, self.before_images
        )

    @property
    def _identity(self) -> Mapping[str, object]:
        return {"key": list(self.key), "before_images": self.before_images}

    @property
    def retracts(self) -> bool:
        """Updates and deletes retract rows."""
        return True

    @property
    def state_description(self) -> str:
        """What the state holds and how long, in words and as a bound."""
        row = "the row itself" if self.before_images else "the row itself where changes name unchanged columns"
        return f"the last position of each key in the table, and {row}; {self.deleted}; {self.deleted.most(tables=1)}"

    @property
    def _arguments(self) -> Mapping[str, object]:
        images = {"before_images": True} if self.before_images else {}
        return {"key": said_key(self.key), **images, **self.deleted.arguments}


def materialize(
    name: str, *, key: str | Sequence[str], before_images: bool = False, keep_deleted: Duration | None = WEEK
) -> Materialize:
    """The current table of a changelog, as changes for a sink with ``upsert_on=key``: stale and repeated ones are gone.

    With ``before_images`` an update comes with the old row before it and a deletion has all columns, whatever the
    source told. A deleted key is remembered for ``keep_deleted`` of event time (None: for ever).

    >>> materialize("customers", key="customer_id")
    hr.materialize('customers', key='customer_id')
    """
    check_name("step", name)
    return Materialize(
        name=name, key=key_columns(key), deleted=tombstone_retention(keep_deleted), before_images=before_images
    )


def check_row_key(step: str, key: Sequence[str]) -> None:
    """A primary key has columns, and they are the table's own."""
    if not key:
        raise DefinitionError(
            "KEY_MISSING", f"step {step!r}: rows of a table are told apart by its primary key. Name its columns."
        )
    own = [name for name in key if name in (*CHANGELOG, UNCHANGED)]
    if own:
        raise DefinitionError(
            "COLUMN_RESERVED",
            f"step {step!r}: column {own[0]!r} says what a row of the changelog does, so it cannot be a key.",
        )


def check_unchanged(step: str, schema: Mapping[str, pl.DataType]) -> None:
    """The column of unchanged columns holds their names."""
    if UNCHANGED in schema and schema[UNCHANGED] != pl.List(pl.String()):
        raise DefinitionError(
            "COLUMN_RESERVED",
            f"step {step!r}: column {UNCHANGED!r} of a changelog is ARRAY<STRING> and names the columns whose values "
            f"were not sent, but here it is {schema[UNCHANGED]}. Rename the column.",
        )
