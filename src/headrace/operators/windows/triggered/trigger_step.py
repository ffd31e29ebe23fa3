"""What counting and global windows have in common as an author says them: a time to live, and no corrections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.durations import Duration, positive_microseconds, spoken
from headrace.errors import DefinitionError
from headrace.keys import said_key
from headrace.operators.step import FINAL, LateRows
from headrace.operators.windows.window_step import WindowStep


@dataclass(frozen=True, kw_only=True, repr=False)
class TriggeredWindowStep(WindowStep):
    """A kind of windows whose rows are taken in the order of event time, until a key falls silent."""

    late_rows = LateRows(
        f"{FINAL}, and give hr.event_time(...) an out_of_order that is long enough",
        uncorrectable="a late row would move every row behind it into another window or firing",
    )

    ttl: int | None
    """None for keys that are kept for ever."""

    @property
    def state_description(self) -> str:
        """What the state holds and how long, in words."""
        kept = "for ever" if self.ttl is None else f"until it has had no row for {spoken(self.ttl)}"
        return f"rows until event time has passed them, and a row for each key {kept}"

    @property
    def _emits(self) -> str:
        """How the author says when results leave."""
        return ""

    @property
    def horizon(self) -> int:
        """How far apart in event time rows of one result may be."""
        return self.ttl or 0

    @property
    def _arguments(self) -> Mapping[str, object]:
        life: dict[str, object] = {"keep_forever": True} if self.ttl is None else {"ttl": spoken(self.ttl)}
        return {"key": said_key(self.key), **life}


def time_to_live(name: str, ttl: Duration | None, keep_forever: bool) -> int | None:
    """How long a silent key is kept; None for ever, which an author has to say.

    >>> time_to_live("tens", "1 second", False)
    1000000
    """
    if ttl is None and not keep_forever:
        raise DefinitionError(
            "TTL_MISSING",
            f"window {name!r} does not say how long a key without rows is kept, so its state would grow without end. "
            "Give ttl='1 day', or say keep_forever=True if the keys are few.",
        )
    if ttl is None:
        return None
    if keep_forever:
        raise DefinitionError(
            "TTL_CONTRADICTION",
            f"window {name!r}: ttl={ttl!r} with keep_forever={keep_forever}. Give one of them alone.",
        )
    return positive_microseconds(ttl, argument="ttl")
