"""How long a value of state lives."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from headrace.durations import Duration, positive_microseconds, spoken
from headrace.errors import DefinitionError

Clock = Literal["event", "clock"]
Refresh = Literal["write", "read_and_write"]


@dataclass(frozen=True, slots=True)
class Life:
    """How long a value lives, measured by which time, and whether reading it begins anew."""

    ttl: int | None
    time: Clock = "event"
    refresh: Refresh = "write"

    @property
    def arguments(self) -> dict[str, object]:
        """The arguments that make it."""
        if self.ttl is None:
            return {"keep_forever": True}
        time = {} if self.time == "event" else {"ttl_time": self.time}
        refresh = {} if self.refresh == "write" else {"refresh": self.refresh}
        return {"ttl": spoken(self.ttl), **time, **refresh}

    @property
    def text(self) -> str:
        """The code of the arguments."""
        return ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())


def life_of(ttl: Duration | None, keep_forever: bool, time: Clock, refresh: Refresh) -> Life:
    """The life that an author declares; how long must be said.

    >>> life_of("1 day", False, "event", "write").text
    "ttl='1 day'"
    """
    if ttl is None and not keep_forever:
        raise DefinitionError(
            "TTL_MISSING",
            "a state without a time to live grows with every new key. Say how long a value is of use, as in "
            "ttl='1 day', or keep_forever=True.",
        )
    if ttl is not None and keep_forever:
        raise DefinitionError(
            "TTL_TWICE", f"a state has ttl={ttl!r} and keep_forever=True, which contradict each other. Take one away."
        )
    if time not in ("event", "clock") or refresh not in ("write", "read_and_write"):
        raise DefinitionError(
            "TTL_UNKNOWN",
            f"ttl_time={time!r}, refresh={refresh!r} is not known. ttl_time is 'event' or 'clock', refresh is 'write' "
            "or 'read_and_write'.",
        )
    if not isinstance(ttl, str | timedelta | None):
        raise DefinitionError(
            "DURATION_UNREADABLE", f"ttl={ttl!r} is not a duration. Write a number and a unit, as in ttl='5 minutes'."
        )
    return Life(None if ttl is None else positive_microseconds(ttl, argument="ttl"), time, refresh)
