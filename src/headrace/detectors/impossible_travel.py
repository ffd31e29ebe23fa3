"""Two logins of one user that are farther apart than anybody travels in the time between."""

from __future__ import annotations

from collections.abc import Iterator
from math import asin, cos, isfinite, radians, sin, sqrt
from typing import Any

from headrace.detectors.one_column import check_one_column
from headrace.event_time.lateness import side_output
from headrace.operators.process.declarations import value_state
from headrace.operators.process.keyed_process import KeyedProcess
from headrace.operators.process.process import Process, process

EARTH_KILOMETRES = 6371.0088
SECONDS_OF_AN_HOUR = 3600.0


class ImpossibleTravel(KeyedProcess):
    """Compares each login with the one before it."""

    last = value_state("STRUCT<at: TIMESTAMP, latitude: DOUBLE, longitude: DOUBLE>", ttl="1 day")

    def __init__(self, key: str, fastest: float) -> None:
        self.key = key
        self.fastest = fastest

    def on_row(self, row: Any, context: Any) -> Iterator[dict[str, Any]]:
        """A login; one without a place says nothing."""
        if not _is_place(row.latitude, row.longitude):
            return
        latitude, longitude = float(row.latitude), float(row.longitude)
        last = self.last.get()
        self.last.set({"at": context.time, "latitude": latitude, "longitude": longitude})
        if last is None:
            return
        distance = kilometres(last["latitude"], last["longitude"], latitude, longitude)
        hours = (context.time - last["at"]).total_seconds() / SECONDS_OF_AN_HOUR
        if distance > self.fastest * hours:
            seconds = hours * SECONDS_OF_AN_HOUR
            yield {self.key: context.key, "kilometres": distance, "seconds": seconds, "last_login": last["at"]}


def impossible_travel(name: str, *, key: str, key_type: str = "STRING", fastest: float = 900.0) -> Process:
    """Logins that are farther from the one before than ``fastest`` kilometres an hour would allow.

    Rows need ``latitude`` and ``longitude`` in degrees; those without are passed over. A login is compared with the
    one before it for a day.

    >>> impossible_travel("travel", key="user").name
    'travel'
    """
    check_one_column(name, key)
    output = f"`{key}` {key_type}, kilometres DOUBLE, seconds DOUBLE, last_login TIMESTAMP"
    return process(name, ImpossibleTravel(key, fastest), key=key, output=output).late(side_output())


def _is_place(*degrees: float | None) -> bool:
    return all(each is not None and isfinite(each) for each in degrees)


def kilometres(latitude: float, longitude: float, other_latitude: float, other_longitude: float) -> float:
    """The distance of two places along the surface of the earth.

    >>> round(kilometres(52.52, 13.405, 48.1372, 11.5755))
    504
    """
    north, south = radians(latitude), radians(other_latitude)
    rise = sin((south - north) / 2) ** 2
    run = cos(north) * cos(south) * sin(radians(other_longitude - longitude) / 2) ** 2
    return 2 * EARTH_KILOMETRES * asin(min(1.0, sqrt(rise + run)))
