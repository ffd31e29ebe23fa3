"""A join of rows that fall into the same window, as an author says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import get_args

from headrace.durations import Duration, spoken
from headrace.errors import DefinitionError
from headrace.event_time.lateness import Lateness
from headrace.graph import check_name
from headrace.operators.joins.by_shared_window import WindowIntake, WindowJoining
from headrace.operators.joins.columns import JoinedColumns
from headrace.operators.joins.every_match import EveryMatch, How
from headrace.operators.joins.intake import LATE, LATE_RIGHT
from headrace.operators.joins.join_by_time import JoinByTime
from headrace.operators.joins.on import OnColumns, on_columns
from headrace.operators.joins.window_shapes import WindowShape, tumbles
from headrace.operators.rows import Rows


@dataclass(frozen=True, kw_only=True, repr=False)
class WindowJoin(JoinByTime):
    """A value that becomes an operator once ``late`` is chosen."""

    window: WindowShape

    def _joining(self, left: Rows, right: Rows, columns: JoinedColumns, lateness: Lateness) -> WindowJoining:
        alone_left, alone_right = self._leave_alone
        windows = self.window.windows
        return WindowJoining(
            self.name,
            WindowIntake(self.name, left, columns.left, lateness, alone_left, LATE, windows),
            WindowIntake("right", right, columns.right, lateness, alone_right, LATE_RIGHT, windows),
            columns,
            lateness,
            self.takes_back,
            EveryMatch(self.how, 0, 0, lateness.correctable),
            windows,
        )

    @property
    def _own(self) -> tuple[str, ...]:
        return ("window",)

    @property
    def takes_back(self) -> bool:
        """Whether a row may be taken back because a late one belongs to it, so that rows carry a ``change``."""
        return self.retention > 0 and self.how in ("left", "right", "full", "anti")

    @property
    def fingerprint(self) -> Mapping[str, object]:
        """What must stay the same for the state to stay valid; ``late`` may only become longer."""
        return {
            "kind": "window_join",
            "on": [list(pair) for pair in self.on.pairs],
            "window": {"kind": self.window.kind, **self.window.said},
            "how": self.how,
        }

    @property
    def horizon(self) -> int:
        """How far apart in event time two rows may be that meet."""
        return self.window.longest

    @property
    def holds(self) -> str:
        """What the state holds and how long, in words and as a bound."""
        kept = self.window.longest + self.retention
        longer = f" and {spoken(self.retention)} longer" if self.retention else ""
        return (
            f"rows of both sides until the last window that holds them closes{longer}; at most (left rate + right "
            f"rate) x ({spoken(kept)} + lag) rows, where lag is how far the slower input's watermark is behind the "
            f"newest row; with 1,000 rows/s on each side and no lag {2 * kept // 1_000:,} rows"
        )

    def __repr__(self) -> str:
        late = "" if self.lateness is None else f".late({self.lateness!r})"
        return f"hr.window_join({self.name!r}, on={self.on.said!r}, window={self.window!r}, how={self.how!r}){late}"


def window_join(name: str, *, on: OnColumns, window: WindowShape | Duration, how: How = "inner") -> WindowJoin:
    """Rows of two frames with equal ``on`` in the same window; a duration means tumbling windows of that size.

    >>> window_join("seen", on="user", window="10 minutes")
    hr.window_join('seen', on='user', window=hr.tumbles('10 minutes'), how='inner')
    """
    check_name("step", name)
    if how not in get_args(How):
        choices = ", ".join(map(repr, get_args(How)))
        raise DefinitionError("JOIN_ARGUMENT", f"step {name!r}: how={how!r} is not known. Use one of {choices}.")
    shape = tumbles(window) if isinstance(window, str | timedelta) else window
    if not isinstance(shape, WindowShape):
        raise DefinitionError(
            "JOIN_WINDOW",
            f"step {name!r}: window={window!r} is no shape of windows. Give a duration, as in window='10 minutes', or "
            "hr.tumbles(...), hr.hops(...) or hr.cumulates(...).",
        )
    return WindowJoin(name=name, on=on_columns(on, step=name), window=shape, how=how)
