"""A key that has fallen silent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace.detectors.one_column import check_one_column
from headrace.durations import Duration
from headrace.event_time.lateness import side_output
from headrace.operators.process.declarations import value_state
from headrace.operators.process.keyed_process import KeyedProcess
from headrace.operators.process.process import Process, process


class MissingHeartbeat(KeyedProcess):
    """Sets a timer with every row; a timer that is reached was not set anew in time."""

    last = value_state("TIMESTAMP", keep_forever=True)

    def __init__(self, key: str, gap: Duration) -> None:
        self.key = key
        self.gap = gap

    def on_row(self, row: Any, context: Any) -> None:
        """A heartbeat."""
        self.last.set(context.time)
        context.set_timer("silence", after=self.gap)

    def on_timer(self, timer: Any, context: Any) -> Iterator[dict[str, Any]]:
        """Nothing was heard for the whole gap; the state goes, so that silent keys cost nothing."""
        yield {self.key: context.key, "last_heard": self.last.get()}
        self.last.clear()


def missing_heartbeat(name: str, *, key: str, gap: Duration, key_type: str = "STRING") -> Process:
    """Keys of which no row came for ``gap``, said once for each silence.

    >>> missing_heartbeat("silent", key="device", gap="5 minutes").name
    'silent'
    """
    check_one_column(name, key)
    output = f"`{key}` {key_type}, last_heard TIMESTAMP"
    return process(name, MissingHeartbeat(key, gap), key=key, output=output).late(side_output())
