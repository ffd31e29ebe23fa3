"""Things that must happen one after the other, each not long behind the one before."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.durations import Duration
from headrace.errors import DefinitionError
from headrace.event_time.lateness import side_output
from headrace.operators.patterns import skip
from headrace.operators.patterns.pattern import Pattern, pattern


def sequence(
    name: str, *, key: str, steps: Mapping[str, str], gap: Duration, within: Duration, time: str = "at"
) -> Pattern:
    """Rows that meet the conditions in their order, each less than ``gap`` behind the one before.

    Rows in between that meet no waiting condition are passed over. A sequence that stops leaves by ``timed_out``.

    >>> order = {"ordered": "status = 'ordered'", "paid": "status = 'paid'", "sent": "status = 'sent'"}
    >>> sequence("delivery", key="order_id", steps=order, gap="2 days", within="7 days").name
    'delivery'
    """
    if not steps:
        raise DefinitionError("SEQUENCE_EMPTY", f"sequence {name!r} has no steps. Give steps={{'name': 'condition'}}.")
    names = list(steps)
    found = pattern(name, key=key).begin(names[0], steps[names[0]])
    for step in names[1:]:
        found = found.followed_by(step, steps[step]).within(gap, since="previous")
    times = {f"{step}_at": f"{step}.{time}" for step in names}
    return found.within(within).after_match(skip.past_last()).select(**times).late(side_output())
