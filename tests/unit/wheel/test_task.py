"""What a task knows of its batch, and what it says about it."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import HeadraceError
from headrace.event_time.record import BatchRecord, TimeBounds
from headrace.wheel.reports import Replacing, take
from headrace.wheel.task import Task, _read_property, current_task, property_text

RECORD = BatchRecord(4, 99, {"payments": 5}, {"tens": TimeBounds(3, 5)}, {"tens": (1, 2)}, False)


def test_the_property_hands_over_the_whole_record() -> None:
    text = property_text(RECORD, flow="spend", side_folder="in/side")
    assert _read_property(text) == (RECORD, "spend", "in/side")


def test_outside_a_batch_there_is_no_time_and_no_default() -> None:
    with pytest.raises(HeadraceError, match=r"\[BATCH_UNKNOWN\]"):
        current_task(None)  # type: ignore[arg-type]


def test_a_step_without_time_bounds_in_the_record_has_no_time() -> None:
    task = Task(RECORD, "spend", "side", 0, 0, lambda key, values: None)
    assert task.time_bounds("tens") == TimeBounds(3, 5)
    with pytest.raises(KeyError):
        task.time_bounds("another")


def test_a_task_that_runs_again_replaces_what_it_said() -> None:
    said: dict[Any, Any] = {}
    for attempt, count in ((0, 7), (1, 5)):
        task = Task(RECORD, "spend", "side", 2, attempt, lambda key, values: said.update({key: values}))
        task.report("step.tens", {"in": count})
        task.report("state.tens", {"rows": count}, part=33)
    assert said == {("spend", 4, "step.tens", 2): {"in": 5}, ("spend", 4, "state.tens", 33): {"rows": 5}}


def test_reports_are_merged_by_replacing() -> None:
    merged = Replacing().addInPlace({("a", 0): {"in": 1}}, {("a", 0): {"in": 1}, ("a", 1): {"in": 2}})
    assert merged == {("a", 0): {"in": 1}, ("a", 1): {"in": 2}}


def test_a_batch_takes_its_own_reports_and_clears_those_of_older_ones() -> None:
    reports: dict[Any, dict[str, Any]] = {
        ("spend", 3, "step.tens", 0): {"in": 1},
        ("spend", 4, "step.tens", 0): {"in": 2},
        ("spend", 4, "step.tens", 1): {"in": 3},
        ("spend", 5, "step.tens", 0): {"in": 4},
        ("other", 4, "step.tens", 0): {"in": 5},
    }
    assert take(reports, flow="spend", batch=4) == {"step.tens": {0: {"in": 2}, 1: {"in": 3}}}
    assert list(reports) == [("spend", 5, "step.tens", 0), ("other", 4, "step.tens", 0)]
