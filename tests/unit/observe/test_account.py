"""The account: every row that came in is somewhere."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.connectors.base.sink import Written
from headrace.errors import HeadraceError
from headrace.observe.account import account_of

NO_WAITING = {"failed": 0, "waited": 0, "waiting": 0}


def reports(**changed: int) -> dict[str, dict[int, dict[str, Any]]]:
    source = {"read": 6, "handed_on": 5, "dead": 1}
    step = {"in": 5, "accepted": 3, "late": 2, "partly_late": 1, "dropped": 0, "failed": 0}
    for name, value in changed.items():
        target = source if name in source else step
        target["in" if name == "taken" else name] = value
    other = {"read": 1, "handed_on": 1, "dead": 0}
    return {
        "source.payments": {0: source, 1: other},
        "step.hourly": {0: step},
        "state.hourly": {
            7: {"due": None, "rows": 1, "bytes": 9, "late": 0, "dropped": 0, "failed": 0, "holding": None}
        },
    }


def test_the_reports_of_all_parts_of_a_node_are_added_up() -> None:
    account = account_of(reports(), {"main": Written(4, 3, already_marked=1)})
    assert account.to_json() == {
        "sources": {"payments": {"read": 7, "handed_on": 6, "dead": 1}},
        "steps": {"hourly": {"in": 5, "accepted": 3, "late": 2, "partly_late": 1, "dropped": 0, **NO_WAITING}},
        "sinks": {"main": {"out": 4, "written": 3, "already_marked": 1, "superseded": 0, "refused": 0}},
    }
    account.check(flow="spend", batch=3)


def test_rows_that_only_the_state_finds_late_or_repeated_are_taken_from_the_accepted() -> None:
    told = reports()
    told["state.hourly"][7] |= {"late": 1, "dropped": 2}
    account = account_of(told, {})
    assert account.steps["hourly"] == {"in": 5, "accepted": 0, "late": 3, "partly_late": 1, "dropped": 2, **NO_WAITING}
    account.check(flow="spend", batch=3)
    told["state.hourly"][7] |= {"late": 2}
    with pytest.raises(HeadraceError, match=r"in 5 != accepted -1 \+ late 4 \+ failed 0 \+ dropped 2"):
        account_of(told, {}).check(flow="spend", batch=3)


def test_rows_that_wait_are_counted_until_they_are_handled_or_fail() -> None:
    told = reports(late=0, accepted=5)
    told["state.hourly"] = {
        7: {"late": 0, "dropped": 0, "failed": 1, "holding": {"before": 4, "handled": 6, "after": 1}},
        9: {"late": 0, "dropped": 0, "failed": 0, "holding": {"before": 0, "handled": 0, "after": 1}},
    }
    account = account_of(told, {})
    step = {"in": 5, "accepted": 6, "late": 0, "partly_late": 1, "dropped": 0, "failed": 1, "waited": 4, "waiting": 2}
    assert account.steps["hourly"] == step
    account.check(flow="spend", batch=3)
    told["state.hourly"][9]["holding"]["after"] = 0
    with pytest.raises(
        HeadraceError, match=r"waited 4 \+ in 5 != accepted 6 \+ late 0 \+ failed 1 \+ dropped 0 \+ waiting 1"
    ):
        account_of(told, {}).check(flow="spend", batch=3)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"read": 8}, r"source payments: read 9 != handed on 6 \+ dead 1"),
        ({"dead": 0}, r"source payments: read 7 != handed on 6 \+ dead 0"),
        ({"taken": 4}, r"step hourly: waited 0 \+ in 4 != accepted 3 \+ late 2 \+ failed 0 \+ dropped 0 \+ waiting 0"),
        ({"late": 3}, r"step hourly: waited 0 \+ in 5 != accepted 3 \+ late 3 \+ failed 0 \+ dropped 0 \+ waiting 0"),
    ],
)
def test_one_row_too_many_or_too_few_breaks_the_account_with_its_numbers(changed: dict[str, int], said: str) -> None:
    with pytest.raises(HeadraceError, match=rf"\[ACCOUNT_BROKEN\] flow 'spend', batch 3: {said}\. Spark has not"):
        account_of(reports(**changed), {}).check(flow="spend", batch=3)


def test_a_sink_that_loses_a_row_breaks_the_account() -> None:
    with pytest.raises(HeadraceError, match=r"sink of main: out 4 != written 3 \+ already marked 0"):
        account_of(reports(), {"main": Written(4, 3)}).check(flow="spend", batch=3)


def test_everything_that_is_broken_is_said_at_once() -> None:
    with pytest.raises(HeadraceError, match=r"source payments: .*; step hourly: .*; sink of late: "):
        account_of(reports(read=9, late=9), {"late": Written(1, 0)}).check(flow="spend", batch=3)
