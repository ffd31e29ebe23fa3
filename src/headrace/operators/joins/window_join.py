"""Windows as a join takes them: only their shape, since key and results belong to the join."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import get_args

from headrace.durations import Duration, spoken
from headrace.errors import DefinitionError
from headrace.event_time.lateness import Lateness
from headrace.graph import check_name
from headrace.operators.joins.join_columns import JoinedColumns, OnColumns, join_key
from headrace.operators.joins.matching import AllMatches, JoinHow
from headrace.operators.joins.stream_join import StreamJoin
from headrace.operators.joins.stream_join_operator import LATE, LATE_RIGHT
from headrace.operators.joins.window_join_operator import WindowJoinInput, WindowJoinOperator
from headrace.operators.rows import Rows
from headrace.operators.windows.fixed.assigners import CumulatingWindows, HoppingWindows, Windows
from headrace.operators.windows.fixed.cumulating import cumulating
from headrace.operators.windows.fixed.hopping import hopping
from headrace.operators.windows.fixed.tumbling import tumbling

_STORED_KINDS = {"tumbling_window": "tumbles", "hopping_window": "hops", "cumulating_window": "cumulates"}
"""The names under which checkpoints know the shapes."""


@dataclass(frozen=True, slots=True)
class WindowShape:
    """A kind of windows with its lengths."""

    kind: str
    said: Mapping[str, object]
    """The author's own arguments."""
    longest: int
    """JoinHow long a window is at most."""
    windows: Windows = field(compare=False)

    def __repr__(self) -> str:
        given = {name: value for name, value in self.said.items() if value is not None and name != "size"}
        more = "".join(f", {name}={value!r}" for name, value in given.items())
        return f"hr.{self.kind}({self.said['size']!r}{more})"


def tumbling_window(size: Duration, *, offset: Duration | None = None, time_zone: str | None = None) -> WindowShape:
    """Fixed windows without overlap; with a time zone days, weeks and months of its calendar.

    >>> tumbling_window("10 minutes")
    hr.tumbling_window('10 minutes')
    """
    step = tumbling("window", size=size, key=None, offset=offset, time_zone=time_zone)
    said = {"size": step.size, "offset": _said(step.offset), "time_zone": time_zone}
    return WindowShape("tumbling_window", said, step.longest, step.windows)


def hopping_window(size: Duration, *, every: Duration, offset: Duration | None = None) -> WindowShape:
    """Windows of one length that begin every so often and overlap.

    >>> hopping_window("1 hour", every="10 minutes")
    hr.hopping_window('1 hour', every='10 minutes')
    """
    step = hopping("window", size=size, every=every, key=None, offset=offset)
    said = {"size": spoken(step.size), "every": spoken(step.every), "offset": _said(step.offset)}
    return WindowShape("hopping_window", said, step.size, HoppingWindows(step.size, step.every, step.offset))


def cumulating_window(size: Duration, *, step: Duration, offset: Duration | None = None) -> WindowShape:
    """Windows that begin together and grow by a step up to a full size.

    >>> cumulating_window("1 day", step="1 hour")
    hr.cumulating_window('1 day', step='1 hour')
    """
    grown = cumulating("window", step=step, size=size, key=None, offset=offset)
    said = {"size": spoken(grown.size), "step": spoken(grown.step), "offset": _said(grown.offset)}
    return WindowShape("cumulating_window", said, grown.size, CumulatingWindows(grown.step, grown.size, grown.offset))


def _said(offset: int) -> str | None:
    return spoken(offset) if offset else None


@dataclass(frozen=True, kw_only=True, repr=False)
class WindowJoin(StreamJoin):
    """A join of rows in the same window; call ``.late()`` before use."""

    kind = "window_join"

    window: WindowShape

    def _joining(self, left: Rows, right: Rows, columns: JoinedColumns, lateness: Lateness) -> WindowJoinOperator:
        alone_left, alone_right = self._leave_alone
        windows = self.window.windows
        return WindowJoinOperator(
            self.name,
            WindowJoinInput(self.name, left, columns.left, lateness, alone_left, LATE, windows),
            WindowJoinInput("right", right, columns.right, lateness, alone_right, LATE_RIGHT, windows),
            columns,
            lateness,
            self.retracts,
            AllMatches(self.how, 0, 0, lateness.correctable),
            windows,
        )

    @property
    def _own(self) -> tuple[str, ...]:
        return ("window",)

    @property
    def retracts(self) -> bool:
        """Whether a row may be retracted because a late one belongs to it, so that rows carry a ``change``."""
        return self.retention > 0 and self.how in ("left", "right", "full", "anti")

    @property
    def _identity(self) -> Mapping[str, object]:
        return {
            "on": [list(pair) for pair in self.on.pairs],
            "window": {"kind": _STORED_KINDS[self.window.kind], **self.window.said},
            "how": self.how,
        }

    @property
    def horizon(self) -> int:
        """JoinHow far apart in event time two rows may be that meet."""
        return self.window.longest

    @property
    def state_description(self) -> str:
        """What the state holds and how long, in words and as a bound."""
        kept = self.window.longest + self.retention
        longer = f" and {spoken(self.retention)} longer" if self.retention else ""
        return (
            f"rows of both sides until the last window that holds them closes{longer}; at most (left rate + right "
            f"rate) x ({spoken(kept)} + lag) rows, where lag is how far the slower input's watermark is behind the "
            f"newest row; with 1,000 rows/s on each side and no lag {2 * kept // 1_000:,} rows"
        )

    @property
    def _arguments(self) -> Mapping[str, object]:
        return {"on": self.on.as_written, "window": self.window, "how": self.how}


def window_join(name: str, *, on: OnColumns, window: WindowShape | Duration, how: JoinHow = "inner") -> WindowJoin:
    """Rows of two frames with equal ``on`` in the same window; a duration means tumbling windows of that size.

    >>> window_join("seen", on="user", window="10 minutes")
    hr.window_join('seen', on='user', window=hr.tumbling_window('10 minutes'), how='inner')
    """
    check_name("step", name)
    if how not in get_args(JoinHow):
        choices = ", ".join(map(repr, get_args(JoinHow)))
        raise DefinitionError("JOIN_ARGUMENT", f"step {name!r}: how={how!r} is not known. Use one of {choices}.")
    shape = tumbling_window(window) if isinstance(window, str | timedelta) else window
    if not isinstance(shape, WindowShape):
        raise DefinitionError(
            "JOIN_WINDOW",
            f"step {name!r}: window={window!r} is no shape of windows. Give a duration, as in window='10 minutes', or "
            "hr.tumbling_window(...), hr.hopping_window(...) or hr.cumulating_window(...).",
        )
    columns = join_key(on, step=name)
    return WindowJoin(name=name, key=columns.left, on=columns, window=shape, how=how)
