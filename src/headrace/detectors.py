"""Ready-made detectors: steps for what most people watch for, and examples of how to write your own."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from math import asin, cos, isfinite, radians, sin, sqrt
from typing import Any

from headrace.durations import Duration
from headrace.errors import DefinitionError
from headrace.event_time.lateness import side_output
from headrace.operators.patterns import skip
from headrace.operators.patterns.pattern import Pattern, pattern
from headrace.operators.process.keyed_process import KeyedProcess, value_state
from headrace.operators.process.process import Process, process
from headrace.stability import experimental

experimental(sys.modules[__name__])


def _process(step: str, detector: KeyedProcess, key: Any, key_type: str, columns: str) -> Process:
    """A step whose alerts hold the key, in one column, and these columns."""
    if not isinstance(key, str):
        raise DefinitionError(
            "KEY_NOT_ONE",
            f"step {step!r}: key={key!r} must be one column, as in key='device'. Combine them first, "
            "as in withColumn('place', concat_ws('/', 'room', 'device')).",
        )
    return process(step, detector, key=key, output=f"`{key}` {key_type}, {columns}").late(side_output())


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
    """At least ``probes`` payments below ``small``, then one above ``factor`` times their average.

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


def sequence(
    name: str, *, key: str, steps: Mapping[str, str], gap: Duration, within: Duration, time: str = "at"
) -> Pattern:
    """Rows that meet the conditions in their order, each less than ``gap`` after the one before.

    Rows in between that meet no waiting condition are skipped. A sequence that stops leaves by ``timed_out``.

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


EARTH_KILOMETRES = 6371.0088
SECONDS_OF_AN_HOUR = 3600.0


class ImpossibleTravel(KeyedProcess):
    """Compares each login with the one before it."""

    last = value_state("STRUCT<at: TIMESTAMP, latitude: DOUBLE, longitude: DOUBLE>", ttl="1 day")

    def __init__(self, key: str, fastest: float) -> None:
        self.key = key
        self.fastest = fastest

    def on_row(self, row: Any, context: Any) -> Iterator[dict[str, Any]]:
        """A login; one without a place is ignored."""
        if not all(degrees is not None and isfinite(degrees) for degrees in (row.latitude, row.longitude)):
            return
        latitude, longitude = float(row.latitude), float(row.longitude)
        last = self.last.get()
        self.last.set({"at": context.time, "latitude": latitude, "longitude": longitude})
        if last is None:
            return
        distance = _kilometres(last["latitude"], last["longitude"], latitude, longitude)
        hours = (context.time - last["at"]).total_seconds() / SECONDS_OF_AN_HOUR
        if distance > self.fastest * hours:
            seconds = hours * SECONDS_OF_AN_HOUR
            yield {self.key: context.key, "kilometres": distance, "seconds": seconds, "last_login": last["at"]}


def impossible_travel(name: str, *, key: str, key_type: str = "STRING", fastest: float = 900.0) -> Process:
    """Logins that are farther from the one before than ``fastest`` kilometres an hour would allow.

    Rows need ``latitude`` and ``longitude`` in degrees; those without are ignored. A login is compared with the
    one before it for a day.

    >>> impossible_travel("travel", key="user").name
    'travel'
    """
    columns = "kilometres DOUBLE, seconds DOUBLE, last_login TIMESTAMP"
    return _process(name, ImpossibleTravel(key, fastest), key, key_type, columns)


def _kilometres(latitude: float, longitude: float, other_latitude: float, other_longitude: float) -> float:
    """The distance of two places along the surface of the earth.

    >>> round(_kilometres(52.52, 13.405, 48.1372, 11.5755))
    504
    """
    north, south = radians(latitude), radians(other_latitude)
    rise = sin((south - north) / 2) ** 2
    run = cos(north) * cos(south) * sin(radians(other_longitude - longitude) / 2) ** 2
    return 2 * EARTH_KILOMETRES * asin(min(1.0, sqrt(rise + run)))


class MissingHeartbeat(KeyedProcess):
    """Sets a timer with every row; a timer that fires was not renewed in time."""

    last = value_state("TIMESTAMP", keep_forever=True)

    def __init__(self, key: str, gap: Duration) -> None:
        self.key = key
        self.gap = gap

    def on_row(self, row: Any, context: Any) -> None:
        self.last.set(context.time)
        context.set_timer("silence", after=self.gap)

    def on_timer(self, timer: Any, context: Any) -> Iterator[dict[str, Any]]:
        """Nothing was heard for the whole gap; the state goes, so that silent keys cost nothing."""
        yield {self.key: context.key, "last_heard": self.last.get()}
        self.last.clear()


def missing_heartbeat(name: str, *, key: str, gap: Duration, key_type: str = "STRING") -> Process:
    """Keys without a row for ``gap``, reported once for each silence.

    >>> missing_heartbeat("silent", key="device", gap="5 minutes").name
    'silent'
    """
    return _process(name, MissingHeartbeat(key, gap), key, key_type, "last_heard TIMESTAMP")


class ThresholdHeld(KeyedProcess):
    """Sets a timer when the value rises above the limit and cancels it when the value falls to it."""

    since = value_state("TIMESTAMP", keep_forever=True)

    def __init__(self, key: str, value: str, above: float, held: Duration) -> None:
        self.key = key
        self.value = value
        self.above = above
        self.held = held

    def on_row(self, row: Any, context: Any) -> None:
        """A measurement; one that is null or not a number is ignored."""
        measured = getattr(row, self.value)
        if measured is None or measured != measured:
            return
        if measured <= self.above:
            self.since.clear()
            context.cancel_timer("held")
        elif self.since.get() is None:
            self.since.set(context.time)
            context.set_timer("held", after=self.held)

    def on_timer(self, timer: Any, context: Any) -> Iterator[dict[str, Any]]:
        yield {self.key: context.key, "since": self.since.get()}


def threshold_held(
    name: str, *, key: str, value: str, above: float, held: Duration, key_type: str = "STRING"
) -> Process:
    """Keys whose value has been above a limit for ``held``, reported once until it falls again.

    >>> threshold_held("hot", key="device", value="celsius", above=80.0, held="10 minutes").name
    'hot'
    """
    return _process(name, ThresholdHeld(key, value, above, held), key, key_type, "since TIMESTAMP")
