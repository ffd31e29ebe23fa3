"""The steps over changelogs: printing, refused arguments, and what they declare."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from headrace.errors import DefinitionError
from headrace.operators.tables.changelog_input import known_changes
from headrace.operators.tables.materialize import materialize
from headrace.operators.tables.table_aggregate import table_aggregate
from headrace.operators.tables.table_join import table_join
from headrace.schemas import MOMENT

TEXT, NUMBER = pl.String(), pl.Int64()
CHANGES: dict[str, pl.DataType] = {"id": NUMBER, "shop": TEXT, "change": TEXT, "position": TEXT, "at": MOMENT}


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (
            materialize("t", key=["a", "b"], before_images=True, keep_deleted="1 day"),
            "hr.materialize('t', key=['a', 'b'], before_images=True, keep_deleted='1 day')",
        ),
        (materialize("t", key="a", keep_deleted=None), "hr.materialize('t', key='a', keep_deleted=None)"),
        (
            table_join("t", on=["a", "b"], left_key="a", right_key=["a", "c"], how="full", keep_deleted="2 hours"),
            "hr.table_join('t', on=['a', 'b'], how='full', left_key='a', right_key=['a', 'c'], keep_deleted='2 hours')",
        ),
        (
            table_aggregate("t", key=None, row_key="a").agg(n="count(*)", most="max(a)"),
            "hr.table_aggregate('t', key=None, row_key='a').agg(n='count(*)', most='max(a)')",
        ),
        (table_aggregate("t", key="a"), "hr.table_aggregate('t', key='a')"),
    ],
)
def test_a_step_prints_itself_as_the_code_that_makes_it(step: Any, text: str) -> None:
    assert repr(step) == text


@pytest.mark.parametrize(
    ("step", "schema", "id"),
    [
        (materialize("t", key="nobody"), CHANGES, "COLUMN_UNKNOWN"),
        (materialize("t", key="position"), CHANGES, "COLUMN_RESERVED"),
        (materialize("t", key="id"), {**CHANGES, "unchanged": TEXT}, "COLUMN_RESERVED"),
        (materialize("t", key="id"), {"id": NUMBER, "at": MOMENT}, "CHANGELOG_EXPECTED"),
        (table_aggregate("t", key="shop"), CHANGES, "AGGREGATES_MISSING"),
        (table_aggregate("t", key="shop").agg(n="sum(nobody)"), CHANGES, "COLUMN_UNKNOWN"),
        (table_aggregate("t", key="shop").agg(n="sum(shop)"), CHANGES, "AGGREGATE_TYPE"),
        (table_aggregate("t", key="change").agg(n="count(*)"), CHANGES, "COLUMN_RESERVED"),
        (
            table_aggregate("t", key="shop").agg(n="count(*)"),
            {**CHANGES, "unchanged": pl.List(TEXT)},
            "VALUES_NOT_SENT",
        ),
    ],
)
def test_a_step_that_does_not_fit_its_rows_is_refused(step: Any, schema: dict[str, pl.DataType], id: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        step.bind(schema, "at")
    assert refused.value.id == id


def test_a_table_needs_a_primary_key() -> None:
    with pytest.raises(DefinitionError, match=r"\[KEY_MISSING\] step 't'"):
        materialize("t", key=[])


@pytest.mark.parametrize(
    ("changed", "right", "id"),
    [
        ({"on": "nobody"}, CHANGES, "COLUMN_UNKNOWN"),
        ({"on": {"shop": "id"}}, CHANGES, "JOIN_KEY_TYPES"),
        ({"on": "position"}, CHANGES, "COLUMN_RESERVED"),
        ({"right_key": []}, CHANGES, "KEY_MISSING"),
        ({}, {"shop": TEXT, "id": NUMBER, "at": MOMENT}, "CHANGELOG_EXPECTED"),
        ({}, {**CHANGES, "unchanged": pl.List(TEXT)}, "VALUES_NOT_SENT"),
    ],
)
def test_a_join_that_does_not_fit_its_rows_is_refused(
    changed: dict[str, Any], right: dict[str, pl.DataType], id: str
) -> None:
    given: dict[str, Any] = {"on": "shop", "left_key": "id", "right_key": "id", **changed}
    with pytest.raises(DefinitionError) as refused:
        table_join("t", **given).bind(CHANGES, "at", right, "at")
    assert refused.value.id == id


def test_a_join_that_tables_do_not_have_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"\[HOW_UNKNOWN\] step 't': how='semi' .* 'inner', 'left' or 'full'"):
        table_join("t", on="a", left_key="a", right_key="a", how="semi")  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["first(a)", "stddev(a)", "approx_count_distinct(a)", "max_by(a, b)"])
def test_an_aggregate_that_cannot_take_rows_back_is_refused(text: str) -> None:
    with pytest.raises(DefinitionError, match=r"\[AGGREGATE_CANNOT_RETRACT\] step 't': n = "):
        table_aggregate("t", key="a").agg(n=text)


@pytest.mark.parametrize("name", ["shop", "change", "position", "changed_at"])
def test_a_result_cannot_have_the_name_of_another_column(name: str) -> None:
    with pytest.raises(DefinitionError, match=r"\[RESULT_NAME_TAKEN\]"):
        table_aggregate("t", key="shop").agg(**{name: "count(*)"})


def test_a_join_says_when_it_needs_old_rows() -> None:
    foreign = table_join("t", on={"shop": "id"}, left_key="order", right_key="id")
    assert (
        "left updates must come with update_before, which removes a row from its old shop" in foreign.state_description
    )
    assert "right updates" not in foreign.state_description
    assert "update_before" not in table_join("t", on="id", left_key="id", right_key="id").state_description


def test_steps_that_hold_tables_say_how_many_rows_at_the_most() -> None:
    join = table_join("t", on="id", left_key="id", right_key="id")
    assert "at most rows + deletions a second x (1 week + lag)" in join.state_description
    assert join.state_description.endswith(
        "with 2,000,000 rows in the tables, 10 deletions/s and no lag 8,048,000 rows"
    )
    assert materialize("t", key="id", keep_deleted=None).state_description.endswith(
        "at most rows + deletions; with 1,000,000 rows in the table and 1,000,000 deletions 2,000,000 rows"
    )


def test_where_rows_may_move_to_another_key_the_bound_says_so() -> None:
    join = table_join("t", on={"shop": "id"}, left_key="order", right_key="id")
    assert "at most rows + deletions and moves a second x (1 week + lag)" in join.state_description
    totals = table_aggregate("t", key="shop", row_key="order").agg(n="count(*)", top="max(amount)")
    assert (
        "beside groups and values at most rows + deletions and moves a second x (1 week + lag)"
        in totals.state_description
    )
    assert (
        "at most groups; with 10,000 groups 10,000 rows"
        in table_aggregate("t", key="shop").agg(n="count(*)").state_description
    )


def test_a_row_whose_change_is_unknown_is_a_dead_letter_with_all_its_values() -> None:
    rows = pl.DataFrame({"id": [1, 2], "ratio": [1.5, float("nan")], "seal": [b"", b"\xff"], "change": ["insert", "?"]})
    good, bad = known_changes(rows)
    assert good["id"].to_list() == [1]
    assert bad is not None
    assert bad["row"].to_list() == [b'{"id":2,"ratio":"NaN","seal":"/w==","change":"?"}']
