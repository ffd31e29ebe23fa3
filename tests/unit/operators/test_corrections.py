"""Steps whose results stand refuse corrections, each with its reason and a way out."""

from __future__ import annotations

import pytest

import headrace as hr
from headrace.event_time.lateness import Lateness
from headrace.operators.corrections import check_final
from headrace.operators.process.late import Deliver, deliver
from headrace.operators.step import check_input


def test_corrections_are_refused_with_the_reason_and_what_to_use() -> None:
    with pytest.raises(hr.DefinitionError) as raised:
        check_final("step 'once'", hr.update_for("1 hour"), "rows are not taken back", instead="hr.drop()")
    assert str(raised.value).startswith(
        "[CORRECTIONS_IMPOSSIBLE] step 'once': .late(hr.update_for('1 hour')) cannot be kept, because rows are not "
        "taken back. Use hr.drop()."
    )


@pytest.mark.parametrize("lateness", [hr.drop(), hr.side_output(), deliver()])
def test_every_other_answer_to_late_rows_is_taken(lateness: Lateness | Deliver) -> None:
    check_final("step 'once'", lateness, "rows are not taken back")


def test_a_step_that_cannot_tell_corrections_from_first_results_is_refused() -> None:
    hourly = hr.tumbling("hourly", size="1 hour", key="account").agg(spent="sum(amount)")
    corrected = hourly.late(hr.update_for("1 hour"))
    check_input("daily", corrected, ["account", "window", "spent", "pane"])
    check_input("daily", hourly.late(hr.side_output()), ["account", "window", "spent"])
    with pytest.raises(hr.DefinitionError, match=r"\[PANE_MISSING\] step 'daily' reads step 'hourly' without"):
        check_input("daily", corrected, ["account", "window", "spent"])
