"""Small payments that probe a stolen card, then a large one."""

from __future__ import annotations

from headrace.durations import Duration
from headrace.event_time.lateness import side_output
from headrace.operators.patterns import skip
from headrace.operators.patterns.pattern import Pattern, pattern


def card_testing(
    name: str,
    *,
    key: str,
    amount: str = "amount",
    probes: int = 3,
    small: float = 2.0,
    factor: float = 10.0,
    within: Duration = "10 minutes",
    time: str = "at",
) -> Pattern:
    """At least so many payments below ``small``, then one above ``factor`` times their average.

    >>> step = card_testing("probed", key="card")
    >>> step.name, step.key
    ('probed', ('card',))
    """
    return (
        pattern(name, key=key)
        .begin("probe", f"{amount} < {small!r}")
        .times_or_more(probes)
        .followed_by("strike", f"{amount} >= {small!r} AND {amount} > {factor!r} * avg(probe.{amount})")
        .within(within)
        .after_match(skip.past_last())
        .select(
            probes="count(probe.*)",
            average=f"avg(probe.{amount})",
            struck=f"strike.{amount}",
            struck_at=f"strike.{time}",
        )
        .late(side_output())
    )
