"""The session step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.durations import Duration, positive_microseconds, spoken
from headrace.errors import DefinitionError
from headrace.event_time.lateness import Lateness
from headrace.keys import Key, key_argument, key_columns
from headrace.operators.windows.aggregation import Aggregation
from headrace.operators.windows.emission import ACCUMULATING
from headrace.operators.windows.session_combiner import Gap
from headrace.operators.windows.session_operator import FinalSessionOperator, RevisedSessionOperator
from headrace.operators.windows.window_step import TAKEN, WindowStep
from headrace.stability import stable
from headrace.wheel.operator import Operator


@dataclass(frozen=True, kw_only=True, repr=False)
class Session(WindowStep):
    """Session windows."""

    kind = "session"
    result_columns = TAKEN

    gap: Gap
    max_length: int | None

    def _operator(self, aggregation: Aggregation, lateness: Lateness) -> Operator:
        self.gap.check(self.name, aggregation.schema)
        if self.max_length is not None and (self.retracts or self.accumulation != ACCUMULATING):
            raise DefinitionError(
                "SESSION_LENGTH_EMITTED_ONCE",
                f"window {self.name!r}: with max_length a late row may move every cut behind it, so a session is "
                "emitted once. Leave max_length out, or use hr.on_close(), hr.accumulating(), and hr.side_output() or "
                "hr.drop().",
            )
        given = (self.name, aggregation, self.gap, lateness, self.max_length)
        if self.retracts:
            return RevisedSessionOperator(*given, self.emission, self.accumulation)
        return FinalSessionOperator(*given)

    @property
    def retracts(self) -> bool:
        """Sessions that may be emitted again may also merge, and then all but one are retracted."""
        return super().retracts or self.emission.previews or self.corrects

    @property
    def state_description(self) -> str:
        more = "" if self.max_length is None else ", and one for each key and time that the watermark has not passed"
        return f"a row for each key and open session, {self._until('the session')}{more}"

    @property
    def combines(self) -> bool:
        """Rows of a key that are close to each other are combined before the shuffle, unless sessions may be cut."""
        return self.max_length is None

    @property
    def horizon(self) -> int:
        return self.max_length or self.gap.longest

    @property
    def _shape(self) -> Mapping[str, object]:
        return {
            "gap": self.gap.longest,
            "gap_column": self.gap.column,
            "max_length": self.max_length,
            "state": "revised" if self.retracts else "once",
        }

    @property
    def _arguments(self) -> Mapping[str, object]:
        column = {} if self.gap.column is None else {"gap_column": self.gap.column}
        longest = {} if self.max_length is None else {"max_length": spoken(self.max_length)}
        return {"gap": spoken(self.gap.longest), **column, "key": key_argument(self.key), **longest}


@stable
def session(
    name: str, *, gap: Duration, key: Key, gap_column: str | None = None, max_length: Duration | None = None
) -> Session:
    """Windows of rows of a key that are less than a gap apart; rows exactly a gap apart are in two sessions.

    With ``gap_column`` each row has its own gap; ``gap`` is then the upper limit, and the gap of rows that have null.
    With ``max_length`` a row that is at least this long after the first row of a session begins another one.

    >>> session("visits", gap="30 minutes", key="visitor").agg(clicks="count(*)")
    hr.session('visits', gap='30 minutes', key='visitor').agg(clicks='count(*)').emit(hr.on_close())
    """
    silence = positive_microseconds(gap, argument="gap")
    longest = None if max_length is None else positive_microseconds(max_length, argument="max_length")
    if longest is not None and longest <= silence:
        raise DefinitionError(
            "SESSION_LENGTH_WITHIN_GAP",
            f"window {name!r}: max_length={max_length!r} is not longer than gap={gap!r}. Make it longer.",
        )
    if longest is not None and gap_column is not None:
        raise DefinitionError(
            "SESSION_LENGTH_AND_GAP_COLUMN",
            f"window {name!r}: max_length={max_length!r}, gap_column={gap_column!r} exclude each other. Leave out one.",
        )
    return Session(name=name, key=key_columns(key), gap=Gap(silence, gap_column), max_length=longest)
