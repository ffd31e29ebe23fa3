"""Lateness policies as values."""

from __future__ import annotations

import pytest

import headrace as hr
from headrace.errors import DefinitionError


def test_only_dropping_keeps_no_rows() -> None:
    assert [policy.keeps_rows for policy in (hr.drop(), hr.side_output(), hr.update_for("1 minute"))] == [
        False,
        True,
        True,
    ]


def test_only_update_for_takes_corrections() -> None:
    assert [policy.correctable for policy in (hr.drop(), hr.side_output(), hr.update_for("1 minute"))] == [
        0,
        0,
        60_000_000,
    ]


def test_corrections_for_no_time_are_refused() -> None:
    with pytest.raises(DefinitionError, match=r"\[DURATION_NOT_POSITIVE\] update_for="):
        hr.update_for("0 seconds")


@pytest.mark.parametrize("policy", [hr.drop(), hr.side_output(), hr.update_for("1 hour 5 minutes")])
def test_a_policy_is_printed_as_it_is_written(policy: object) -> None:
    assert eval(repr(policy), {"hr": hr}) == policy
