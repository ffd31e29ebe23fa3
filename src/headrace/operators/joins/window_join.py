"""The window join step, and the window shapes that it takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from headrace.durations import Duration, spoken
from headrace.errors import DefinitionError
from headrace.event_time.lateness import Lateness
from headrace.graph import check_name
from headrace.operators.joins.join_columns import JoinedColumns, OnColumns, join_key
from headrace.operators.joins.matching import AllMatches, JoinHow
from headrace.operators.joins.stream_join import StreamJoin, check_choice
from headrace.operators.joins.stream_join_operator import LATE, LATE_RIGHT
from headrace.operators.joins.window_join_operator import WindowJoinInput, WindowJoinOperator
from headrace.operators.rows import Rows
from headrace.operators.windows.assigners import CumulatingWindows, HoppingWindows, Windows
from headrace.operators.windows.fixed_windows import cumulating, hopping, tumbling
from headrace.stability import stable

_STORED_KINDS = {"tumbling_window": "tumbles", "hopping_window": "hops", "cumulating_window": "cumulates"}
"""The names under which checkpoints know the shapes."""


@dataclass(frozen=True, slots=True)
class WindowShape:
    """A kind of windows and their lengths, without key and aggregates."""

    kind: str
    arguments: Mapping[str, object]
    longest: int
    """The length of the longest window."""
    windows: Windows = field(compare=False)

    def __repr__(self) -> str:
        named = {name: value for name, value in self.arguments.items() if value is not None and name != "size"}
        more = "".join(f", {name}={value!r}" for name, value in named.items())
        return f"hr.{self.kind}({self.arguments['size']!r}{more})"


@stable
def tumbling_window(size: Duration, *, offset: Duration | None = None, time_zone: str | None = None) -> WindowShape:
    """Windows of one length without overlap; with a time zone, days, weeks and months of its calendar.

    >>> tumbling_window("10 minutes")
    hr.tumbling_window('10 minutes')
    """
    step = tumbling("window", size=size, key=None, offset=offset, time_zone=time_zone)
    arguments = {"size": step.size, "offset": _offset(step.offset), "time_zone": time_zone}
    return WindowShape("tumbling_window", arguments, step.longest, step.windows)


@stable
def hopping_window(size: Duration, *, every: Duration, offset: Duration | None = None) -> WindowShape:
    """Overlapping windows of one length: a new one starts ``every`` so often.

    >>> hopping_window("1 hour", every="10 minutes")
    hr.hopping_window('1 hour', every='10 minutes')
    """
    step = hopping("window", size=size, every=every, key=None, offset=offset)
    arguments = {"size": spoken(step.size), "every": spoken(step.every), "offset": _offset(step.offset)}
    return WindowShape("hopping_window", arguments, step.size, HoppingWindows(step.size, step.every, step.offset))


@stable
def cumulating_window(size: Duration, *, step: Duration, offset: Duration | None = None) -> WindowShape:
    """Windows that start together and grow by ``step`` up to ``size``.

    >>> cumulating_window("1 day", step="1 hour")
    hr.cumulating_window('1 day', step='1 hour')
    """
    grown = cumulating("window", step=step, size=size, key=None, offset=offset)
    arguments = {"size": spoken(grown.size), "step": spoken(grown.step), "offset": _offset(grown.offset)}
    windows = CumulatingWindows(grown.step, grown.size, grown.offset)
    return WindowShape("cumulating_window", arguments, grown.size, windows)


def _offset(offset: int) -> str | None:
    return spoken(offset) if offset else None


@dataclass(frozen=True, kw_only=True, repr=False)
class WindowJoin(StreamJoin):
    """A join of rows in the same window; call ``.late()`` before use."""

    kind = "window_join"

    window: WindowShape

    def _operator(self, left: Rows, right: Rows, columns: JoinedColumns, lateness: Lateness) -> WindowJoinOperator:
        emits_left, emits_right = self._emits_unmatched
        windows = self.window.windows
        return WindowJoinOperator(
            self.name,
            WindowJoinInput(self.name, left, columns.left, lateness, emits_left, LATE, windows),
            WindowJoinInput("right", right, columns.right, lateness, emits_right, LATE_RIGHT, windows),
            columns,
            lateness,
            self.retracts,
            AllMatches(self.how, 0, 0, lateness.correctable),
            windows,
        )

    @property
    def _own_columns(self) -> tuple[str, ...]:
        return ("window",)

    @property
    def retracts(self) -> bool:
        return self.retention > 0 and self.how in ("left", "right", "full", "anti")

    @property
    def _identity(self) -> Mapping[str, object]:
        return {
            "on": [list(pair) for pair in self.on.pairs],
            "window": {"kind": _STORED_KINDS[self.window.kind], **self.window.arguments},
            "how": self.how,
        }

    @property
    def horizon(self) -> int:
        return self.window.longest

    @property
    def state_description(self) -> str:
        kept = self.window.longest + self.retention
        longer = f" and {spoken(self.retention)} longer" if self.retention else ""
        return (
            f"rows of both sides until their last window closes{longer}; at most (left rate + right rate) x "
            f"({spoken(kept)} + lag) rows, where lag is how far the slower input's watermark is behind the newest row; "
            f"with 1,000 rows/s on each side and no lag {2 * kept // 1_000:,} rows"
        )

    @property
    def _arguments(self) -> Mapping[str, object]:
        return {"on": self.on.as_written, "window": self.window, "how": self.how}


@stable
def window_join(name: str, *, on: OnColumns, window: WindowShape | Duration, how: JoinHow = "inner") -> WindowJoin:
    """Join rows of two frames with equal ``on`` in the same window; a duration means tumbling windows.

    >>> window_join("seen", on="user", window="10 minutes")
    hr.window_join('seen', on='user', window=hr.tumbling_window('10 minutes'), how='inner')
    """
    check_name("step", name)
    check_choice(name, "how", how, JoinHow)
    shape = tumbling_window(window) if isinstance(window, str | timedelta) else window
    if not isinstance(shape, WindowShape):
        raise DefinitionError(
            "JOIN_WINDOW",
            f"step {name!r}: window={window!r} is not a window. Give a duration, as in window='10 minutes', or "
            "hr.tumbling_window(...), hr.hopping_window(...) or hr.cumulating_window(...).",
        )
    key = join_key(on, step=name)
    return WindowJoin(name=name, key=key.left, on=key, window=shape, how=how)
