"""What operators over changelogs count, and what they write to the state."""

from __future__ import annotations

from math import copysign
from typing import Any

import polars as pl
import pytest

from headrace.event_time.record import TimeBounds
from headrace.event_time.strategy import BEGINNING
from headrace.operators.tables.materialize import materialize
from headrace.operators.tables.table_aggregate import table_aggregate
from headrace.operators.tables.table_join import table_join
from headrace.schemas import MOMENT
from tests.unit.operators.stored import stored

EDGE = TimeBounds(BEGINNING, BEGINNING)
SCHEMA: dict[str, pl.DataType] = {
    "id": pl.Int64(),
    "shop": pl.String(),
    "change": pl.String(),
    "position": pl.String(),
    "at": MOMENT,
}


def changes(*rows: tuple[Any, ...]) -> pl.DataFrame:
    frame = pl.DataFrame(
        rows, schema={name: SCHEMA[name] for name in ("id", "shop", "change", "position")}, orient="row"
    )
    return frame.with_columns(pl.lit(0).cast(MOMENT).alias("at"))


def joined(*rows: tuple[Any, ...]) -> Any:
    operator: Any = table_join("t", on="shop", left_key="id", right_key="shop").bind(SCHEMA, "at", SCHEMA, "at")
    state = pl.DataFrame(schema=operator.state_schema)
    right = operator.second.combine(changes((1, "s", "update_after", "1")), EDGE).partials
    return operator.apply_both(state, operator.combine(changes(*rows), EDGE).partials, right, EDGE)


def test_a_join_counts_what_was_taken_away_though_it_was_not_there() -> None:
    counters = joined((1, "s", "insert", "1"), (1, "s", "delete", "2"), (2, None, "delete", "3")).counters
    assert counters["removed_unknown"] == 1


def test_a_join_counts_updates_without_the_old_row_where_it_needs_one() -> None:
    counters = joined(
        (1, "s", "update_before", "2"), (1, "t", "update_after", "2"), (2, "s", "update_after", "3")
    ).counters
    assert counters["updates_without_before"] == 1


def test_stale_and_repeated_changes_are_dropped_on_their_own_side() -> None:
    applied = joined((1, "s", "insert", "1"), (1, "s", "insert", "1"))
    assert (applied.dropped, applied.dropped_second) == (1, 0)
    assert (applied.counters["stale"], applied.counters["duplicates"]) == (0, 1)


def test_sums_count_updates_without_the_old_row() -> None:
    for row_key, without in (("id", 1), ((), 1), (["id", "shop"], 0)):
        step = table_aggregate("t", key="shop", row_key=row_key).agg(n="count(*)")
        operator: Any = step.bind(SCHEMA, "at")
        brought = operator.combine(changes((1, "s", "update_after", "1")), EDGE).partials
        applied = operator.apply(pl.DataFrame(schema=operator.state_schema), brought, EDGE)
        assert applied.counters["updates_without_before"] == without


def test_only_what_changed_of_the_state_is_written() -> None:
    operator: Any = table_join("t", on="shop", left_key="id", right_key="shop").bind(SCHEMA, "at", SCHEMA, "at")
    nothing = operator.second.combine(changes(), EDGE).partials
    state = pl.DataFrame(schema=operator.state_schema)
    rows = [(number, f"s{number}", "insert", "1") for number in range(9)]
    first = operator.apply_both(state, operator.combine(changes(*rows), EDGE).partials, nothing, EDGE)
    assert first.upserts.height == 9
    again = changes((1, "s1", "insert", "1"), (2, "s2", "update_after", "2"))
    state = stored(operator, state, first, EDGE)
    second = operator.apply_both(state, operator.combine(again, EDGE).partials, nothing, EDGE)
    assert (second.upserts["id"].to_list(), second.removed.height) == ([2], 0)
    assert stored(operator, state, second, EDGE).height == 9


UNSENT = {**SCHEMA, "text": pl.String(), "unchanged": pl.List(pl.String())}


def test_a_table_counts_values_that_nobody_knows_those_of_a_deleted_row_too() -> None:
    operator: Any = materialize("t", key="id").bind(UNSENT, "at")
    state = pl.DataFrame(schema=operator.state_schema)
    unknown = []
    for kind, position, text, unsent in (
        ("insert", "1", "long", []),
        ("update_after", "2", None, ["text"]),
        ("delete", "3", "long", []),
        ("insert", "4", None, ["text"]),
        ("update_after", "5", None, ["text"]),
    ):
        given = changes((1, "s", kind, position)).with_columns(
            pl.lit(text, pl.String).alias("text"), pl.Series("unchanged", [unsent], pl.List(pl.String()))
        )
        applied = operator.apply(state, operator.combine(given, EDGE).partials, EDGE)
        state = stored(operator, state, applied, EDGE)
        unknown.append(applied.counters["unknown_values"])
    assert (unknown, state["text"].to_list()) == ([0, 0, 0, 1, 0], [None])


DOUBLES = {**SCHEMA, "id": pl.Float64(), "amount": pl.Float64()}


def doubles(*rows: tuple[Any, ...]) -> pl.DataFrame:
    names = ("id", "shop", "change", "position", "amount")
    frame = pl.DataFrame(rows, schema={name: DOUBLES[name] for name in names}, orient="row")
    return frame.with_columns(pl.lit(0).cast(MOMENT).alias("at")).select(*DOUBLES)


@pytest.mark.parametrize("row_key", ["id", ()])
def test_a_sum_beyond_doubles_leaves_nothing_when_its_rows_have_gone(row_key: Any) -> None:
    step = table_aggregate("t", key="shop", row_key=row_key).agg(total="sum(amount)", mean="avg(amount)")
    operator: Any = step.bind(DOUBLES, "at")
    state = pl.DataFrame(schema=operator.state_schema)
    said = []
    far = TimeBounds(10**15, 10**15)  # deletions are forgotten at once
    for kind, number in (("insert", 1.0), ("insert", 2.0), ("delete", 1.0), ("delete", 2.0)):
        position = f"{number:.0f}{kind == 'delete':d}"
        brought = operator.combine(doubles((number, "s", kind, position, 1e308)), far).partials
        applied = operator.apply(state, brought, far)
        state = stored(operator, state, applied, far)
        said.append(applied.output["total"].to_list())
    assert said[:2] == [[1e308], [1e308, float("inf")]]
    assert state.is_empty()


@pytest.mark.parametrize(("one", "same"), [(-0.0, 0.0), (0.0, -0.0), (float("nan"), -float("nan"))])
def test_an_aggregate_and_a_view_lose_a_row_that_is_deleted_by_the_same_number(one: float, same: float) -> None:
    aggregate: Any = table_aggregate("t", key="shop", row_key="id").agg(n="count(*)").bind(DOUBLES, "at")
    view: Any = table_join("t", on="shop", left_key="id", right_key="shop", how="left").bind(
        DOUBLES, "at", SCHEMA, "at"
    )
    nothing = view.second.combine(changes(), EDGE).partials
    grouped, joined = (pl.DataFrame(schema=operator.state_schema) for operator in (aggregate, view))
    for number, kind, position in ((one, "insert", "1"), (same, "delete", "2")):
        brought = doubles((number, "s", kind, position, 1.0))
        of_groups = aggregate.apply(grouped, aggregate.combine(brought, EDGE).partials, EDGE)
        of_view = view.apply_both(joined, view.combine(brought, EDGE).partials, nothing, EDGE)
        grouped = stored(aggregate, grouped, of_groups, EDGE)
        joined = stored(view, joined, of_view, EDGE)
    assert (of_groups.output["change"].to_list(), of_view.output["change"].to_list()) == (["delete"], ["delete"])
    assert joined["__sets"].to_list() == [False]
    # The store knows a row of state by its bytes, in which the two zeros differ.
    assert [copysign(1, number) for number in joined["id"].to_list()] == [1]
