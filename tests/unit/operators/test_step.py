"""What every step shares: policies for late rows, and which results of other steps it takes."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

import headrace as hr
from headrace.event_time.lateness import Lateness
from headrace.operators.placement import check_input
from headrace.operators.step import LateRows


def test_corrections_are_refused_with_the_reason_and_what_to_use() -> None:
    with pytest.raises(hr.DefinitionError) as raised:
        LateRows("hr.drop()", uncorrectable="rows are not retracted").check("step 'once'", hr.update_for("1 hour"))
    assert str(raised.value).startswith(
        "[CORRECTIONS_IMPOSSIBLE] step 'once': .late(hr.update_for('1 hour')) is not possible, because rows are not "
        "retracted. Use hr.drop()."
    )


@pytest.mark.parametrize("lateness", [hr.drop(), hr.side_output()])
def test_every_other_answer_to_late_rows_is_taken(lateness: Lateness) -> None:
    LateRows(uncorrectable="rows are not retracted").check("step 'once'", lateness)


STEPS = [
    hr.tumbling("once", size="1 hour", key="a"),
    hr.counting("once", rows=3, key="a", ttl="1 day"),
    hr.deduplicate("once", key="a", within="1 hour"),
    hr.pattern("once", key="a").begin("x", "n > 1"),
    hr.interval_join("once", on="a", between=("0 seconds", "1 hour")),
    hr.temporal_join("once", on="a", ttl="1 day", versions_late=hr.drop()),
]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: type(step).__name__)
@pytest.mark.parametrize("answer", ["drop", None, hr.deliver()], ids=repr)
def test_what_is_no_answer_to_late_rows_is_refused_where_it_is_said(step: Any, answer: object) -> None:
    with pytest.raises(hr.DefinitionError, match=r"\[LATE_UNKNOWN\] .*'once'.*: \.late\(.*Use hr\.drop\(\)"):
        step.late(answer)


@pytest.mark.parametrize(
    "step",
    [
        hr.table_join("once", on="a", left_key="a", right_key="a"),
        hr.broadcast_join("once", hr.file_table("rates.csv", schema="a INT"), on="a"),
        hr.temporal_join("once", on="a", as_of="arrival", keep_forever=True),
    ],
    ids=lambda step: type(step).__name__,
)
def test_a_step_without_late_rows_says_that_there_is_nothing_to_choose(step: Any) -> None:
    with pytest.raises(hr.DefinitionError, match=r"\[LATE_WITHOUT_MEANING\] step 'once': .*Remove \.late\(hr\.drop"):
        step.late(hr.drop())


def test_a_column_of_late_rows_is_not_overwritten() -> None:
    schema = {"a": pl.Int64(), "at": pl.Datetime("us", "UTC"), "late_by": pl.Int64()}
    step = hr.tumbling("once", size="1 hour", key="a").agg(n="count(*)")
    _ = step.late(hr.drop()).bind(schema, "at").side_schemas
    with pytest.raises(hr.DefinitionError, match=r"\[COLUMN_RESERVED\] step 'once': the rows have a column 'late_by'"):
        _ = step.late(hr.side_output()).bind(schema, "at").side_schemas


def test_columns_named_as_headrace_names_its_own_are_refused() -> None:
    schema = {"a": pl.Int64(), "at": pl.Datetime("us", "UTC"), "__time": pl.Int64()}
    joined = hr.interval_join("once", on="a", between=("0 seconds", "1 hour")).late(hr.drop())
    with pytest.raises(hr.DefinitionError, match=r"\[COLUMN_RESERVED\] step 'once': column '__time' begins with '__'"):
        joined.bind(schema, "at", schema, "at")


def test_a_step_that_cannot_tell_corrections_from_first_results_is_refused() -> None:
    hourly = hr.tumbling("hourly", size="1 hour", key="account").agg(spent="sum(amount)")
    corrected = hourly.late(hr.update_for("1 hour"))
    check_input("daily", corrected, ["account", "window", "spent", "pane"])
    check_input("daily", hourly.late(hr.side_output()), ["account", "window", "spent"])
    with pytest.raises(hr.DefinitionError, match=r"\[PANE_MISSING\] step 'daily' reads step 'hourly' without"):
        check_input("daily", corrected, ["account", "window", "spent"])
