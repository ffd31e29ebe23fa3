"""The account: every row that came in is somewhere."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.connectors.base.sink import Written
from headrace.errors import HeadraceError
from headrace.json_codec import encode
from headrace.nodes import NodeId
from headrace.observe.account import Account, StepCounts, account_of, step_counters
from headrace.reports import BatchReports, SlotSummary, SourceReport, StateReport, StepReport, WaitingRows

HELD = SlotSummary(due=10)
BROKEN_STEP = r"step hourly: waited 0 \+ in {taken} != accepted 3 \+ late {late} \+ failed 0 \+ dropped 0 \+ waiting 0"
NO_WAITING = {"failed": 0, "waited": 0, "waiting": 0}
NOTHING_LEFT_OUT = {"superseded": 0, "refused": 0, "skipped": 0}


def reports(
    source: dict[str, int] | None = None,
    step: dict[str, int] | None = None,
    states: dict[int, StateReport] | None = None,
) -> BatchReports:
    read: dict[str, Any] = {"read": 6, "handed_on": 5, "dead": 1} | (source or {})
    made = BatchReports()
    made.add(NodeId("source", "payments"), 0, SourceReport(**read))
    made.add(NodeId("source", "payments"), 1, SourceReport(read=1, handed_on=1))
    counts: dict[str, Any] = {"in_": 5, "accepted": 3, "late": 2, "partly_late": 1} | (step or {})
    made.add(NodeId("step", "hourly"), 0, StepReport(**counts))
    for slot, state in (states or {7: StateReport(HELD)}).items():
        made.add(NodeId("state", "hourly"), slot, state)
    return made


def test_the_reports_of_all_parts_of_a_node_are_added_up() -> None:
    account = account_of(reports(), {"main": Written(4, 3, already_marked=1)})
    assert encode(account) == {
        "sources": {"payments": {"read": 7, "handed_on": 6, "dead": 1}},
        "steps": {"hourly": {"in": 5, "accepted": 3, "late": 2, "partly_late": 1, "dropped": 0, **NO_WAITING}},
        "sinks": {"main": {"out": 4, "written": 3, "already_marked": 1, **NOTHING_LEFT_OUT}},
        "read_once": {},
    }
    account.check(flow="spend", batch=3)


def test_a_source_is_read_once_if_each_of_its_tasks_was_read_in_one_place() -> None:
    made = reports()
    made.add(NodeId("source", "once"), 0, SourceReport(readings=frozenset({(4, 0)})))
    made.add(NodeId("source", "once"), 1, SourceReport(readings=frozenset({(5, 0)})))
    made.add(NodeId("source", "twice"), 0, SourceReport(readings=frozenset({(4, 0)})))
    made.add(NodeId("source", "twice"), 1, SourceReport(readings=frozenset({(4, 1), (6, 1)})))
    account = account_of(made, {})
    account.check(flow="spend", batch=3)
    # Spark reads the payments.
    assert account.read_once == {"once": True, "twice": False}
    assert (account + Account(read_once={"once": True, "twice": True})).read_once == account.read_once


def test_rows_that_only_the_state_finds_late_or_repeated_are_taken_from_the_accepted() -> None:
    account = account_of(reports(states={7: StateReport(HELD, late=1, dropped=2)}), {})
    assert account.steps["hourly"] == StepCounts(in_=5, accepted=0, late=3, partly_late=1, dropped=2)
    account.check(flow="spend", batch=3)
    broken = reports(states={7: StateReport(HELD, late=2, dropped=2)})
    with pytest.raises(HeadraceError, match=r"in 5 != accepted -1 \+ late 4 \+ failed 0 \+ dropped 2"):
        account_of(broken, {}).check(flow="spend", batch=3)


def test_rows_that_wait_are_counted_until_they_are_handled_or_fail() -> None:
    step = {"late": 0, "accepted": 5}
    states = {
        7: StateReport(HELD, failed=1, waiting=WaitingRows(before=4, handled=6, after=1)),
        9: StateReport(HELD, waiting=WaitingRows(before=0, handled=0, after=1)),
    }
    account = account_of(reports(step=step, states=states), {})
    assert account.steps["hourly"] == StepCounts(5, 6, 0, 1, failed=1, waited=4, waiting=2)
    account.check(flow="spend", batch=3)
    states[9] = StateReport(HELD, waiting=WaitingRows(before=0, handled=0, after=0))
    with pytest.raises(
        HeadraceError, match=r"waited 4 \+ in 5 != accepted 6 \+ late 0 \+ failed 1 \+ dropped 0 \+ waiting 1"
    ):
        account_of(reports(step=step, states=states), {}).check(flow="spend", batch=3)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"source": {"read": 8}}, r"source payments: read 9 != handed on 6 \+ dead 1"),
        ({"source": {"dead": 0}}, r"source payments: read 7 != handed on 6 \+ dead 0"),
        (
            {"step": {"in_": 4}},
            r"step hourly: waited 0 \+ in 4 != accepted 3 \+ late 2 \+ failed 0 \+ dropped 0 \+ waiting 0",
        ),
        (
            {"step": {"late": 3}},
            r"step hourly: waited 0 \+ in 5 != accepted 3 \+ late 3 \+ failed 0 \+ dropped 0 \+ waiting 0",
        ),
    ],
)
def test_one_row_too_many_or_too_few_breaks_the_account_with_its_numbers(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(HeadraceError, match=rf"\[ACCOUNT_BROKEN\] flow 'spend', batch 3: {said}\. The batch is not"):
        account_of(reports(**changed), {}).check(flow="spend", batch=3)


def test_a_sink_that_loses_a_row_breaks_the_account() -> None:
    with pytest.raises(HeadraceError, match=r"sink of main: out 4 != written 3 \+ already marked 0"):
        account_of(reports(), {"main": Written(4, 3)}).check(flow="spend", batch=3)


def test_a_row_that_a_sink_skips_is_accounted_for() -> None:
    account = account_of(reports(), {"main": Written(4, 3, skipped=1)})
    account.check(flow="spend", batch=3)
    assert account.sinks["main"].skipped == 1


def test_everything_that_is_broken_is_said_at_once() -> None:
    with pytest.raises(HeadraceError, match=r"source payments: .*; step hourly: .*; sink of late: "):
        account_of(reports({"read": 9}, {"late": 9}), {"late": Written(1, 0)}).check(flow="spend", batch=3)


def test_the_counters_of_a_step_are_added_up_over_its_tasks_and_slots() -> None:
    made = reports(
        states={1: StateReport(HELD, counters={"overflow": 2}), 7: StateReport(HELD, counters={"overflow": 1})}
    )
    made.add(NodeId("step", "names"), 0, StepReport(counters={"calls": 4}))
    assert step_counters(made) == {"names": {"calls": 4}, "hourly": {"overflow": 3}}
