"""Windows as a join takes them: only their shape, since key and results belong to the join."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.durations import Duration, spoken
from headrace.operators.windows.fixed.assigners import CumulatingWindows, HoppingWindows, Windows
from headrace.operators.windows.fixed.cumulating import cumulating
from headrace.operators.windows.fixed.hopping import hopping
from headrace.operators.windows.fixed.tumbling import tumbling


@dataclass(frozen=True, slots=True)
class WindowShape:
    """A kind of windows with its lengths."""

    kind: str
    said: Mapping[str, object]
    """The author's own arguments."""
    longest: int
    """How long a window is at most."""
    windows: Windows = field(compare=False)

    def __repr__(self) -> str:
        given = {name: value for name, value in self.said.items() if value is not None and name != "size"}
        more = "".join(f", {name}={value!r}" for name, value in given.items())
        return f"hr.{self.kind}({self.said['size']!r}{more})"


def tumbles(size: Duration, *, offset: Duration | None = None, time_zone: str | None = None) -> WindowShape:
    """Fixed windows without overlap; with a time zone days, weeks and months of its calendar.

    >>> tumbles("10 minutes")
    hr.tumbles('10 minutes')
    """
    step = tumbling("window", size=size, key=None, offset=offset, time_zone=time_zone)
    said = {"size": step.size, "offset": _said(step.offset), "time_zone": time_zone}
    return WindowShape("tumbles", said, step.longest, step.windows)


def hops(size: Duration, *, every: Duration, offset: Duration | None = None) -> WindowShape:
    """Windows of one length that begin every so often and overlap.

    >>> hops("1 hour", every="10 minutes")
    hr.hops('1 hour', every='10 minutes')
    """
    step = hopping("window", size=size, every=every, key=None, offset=offset)
    said = {"size": spoken(step.size), "every": spoken(step.every), "offset": _said(step.offset)}
    return WindowShape("hops", said, step.size, HoppingWindows(step.size, step.every, step.offset))


def cumulates(size: Duration, *, step: Duration, offset: Duration | None = None) -> WindowShape:
    """Windows that begin together and grow by a step up to a full size.

    >>> cumulates("1 day", step="1 hour")
    hr.cumulates('1 day', step='1 hour')
    """
    grown = cumulating("window", step=step, size=size, key=None, offset=offset)
    said = {"size": spoken(grown.size), "step": spoken(grown.step), "offset": _said(grown.offset)}
    return WindowShape("cumulates", said, grown.size, CumulatingWindows(grown.step, grown.size, grown.offset))


def _said(offset: int) -> str | None:
    return spoken(offset) if offset else None
