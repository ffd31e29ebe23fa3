"""Many failures in a row, then a success: a password that was guessed."""

from __future__ import annotations

from headrace.durations import Duration
from headrace.event_time.lateness import side_output
from headrace.operators.patterns import skip
from headrace.operators.patterns.pattern import Pattern, pattern


def failed_logins(
    name: str,
    *,
    key: str,
    succeeded: str = "succeeded",
    times: int = 5,
    within: Duration = "10 minutes",
    time: str = "at",
) -> Pattern:
    """At least so many failures directly behind each other and then a success, in less than ``within``.

    ``succeeded`` is a condition over the row, ``time`` the column of its event time.

    >>> step = failed_logins("guessed", key="user")
    >>> step.name, step.key
    ('guessed', ('user',))
    """
    return (
        pattern(name, key=key)
        .begin("failure", f"NOT ({succeeded})")
        .times_or_more(times)
        .consecutive()
        .next("success", succeeded)
        .within(within)
        .after_match(skip.past_last())
        .select(failures="count(failure.*)", first_failure=f"first(failure.{time})", success=f"success.{time}")
        .late(side_output())
    )
