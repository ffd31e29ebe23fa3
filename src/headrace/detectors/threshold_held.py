"""A value that stays above a limit for too long."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace.detectors.one_column import check_one_column
from headrace.durations import Duration
from headrace.event_time.lateness import side_output
from headrace.operators.process.declarations import value_state
from headrace.operators.process.keyed_process import KeyedProcess
from headrace.operators.process.process import Process, process


class ThresholdHeld(KeyedProcess):
    """Sets a timer when the value rises above the limit and cancels it when the value falls to it."""

    since = value_state("TIMESTAMP", keep_forever=True)

    def __init__(self, key: str, value: str, above: float, held: Duration) -> None:
        self.key = key
        self.value = value
        self.above = above
        self.held = held

    def on_row(self, row: Any, context: Any) -> None:
        """A measurement; one that is null or not a number says nothing."""
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
        """The value has been above the limit all the time."""
        yield {self.key: context.key, "since": self.since.get()}


def threshold_held(
    name: str, *, key: str, value: str, above: float, held: Duration, key_type: str = "STRING"
) -> Process:
    """Keys whose value has been above a limit for ``held``, said once until it falls again.

    >>> threshold_held("hot", key="device", value="celsius", above=80.0, held="10 minutes").name
    'hot'
    """
    check_one_column(name, key)
    output = f"`{key}` {key_type}, since TIMESTAMP"
    return process(name, ThresholdHeld(key, value, above, held), key=key, output=output).late(side_output())
