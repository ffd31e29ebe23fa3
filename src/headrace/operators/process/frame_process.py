"""The class that users extend to process all rows of many keys as one frame, with states and timers as columns."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import polars as pl

from headrace.errors import DefinitionError
from headrace.operators.process.context import BatchContext
from headrace.operators.process.keyed_process import StatefulProcess, declared_states
from headrace.operators.process.state import ValueState
from headrace.stability import stable

EMIT = "emit"
"""The column that says which rows are emitted."""
TIMER, FIRED_AT = "timer", "fired_at"
"""The columns of timers that fire."""


@dataclass(frozen=True, slots=True)
class TimerDescriptor:
    """A timer that a frame process declares: a column with the time at which it fires, or null."""


@stable
def timer() -> TimerDescriptor:
    """An event-time timer of an ``hr.FrameProcess``: its column holds when it fires; null is no timer.

    >>> class Quiet(FrameProcess):
    ...     silent = timer()
    ...     def on_rows(self, frame, context):
    ...         return frame.with_columns(silent=pl.col("at").dt.offset_by("15m"), emit=False)
    >>> declared_timers(Quiet())
    ['silent']
    """
    return TimerDescriptor()


@stable
class FrameProcess(StatefulProcess):
    """Code that gets the rows of many keys as one Polars frame, in which states and timers are columns.

    A row of the returned frame says what its key knows after that row: the frame has the same rows in the same order.

    >>> import headrace as hr
    >>> class Counts(hr.FrameProcess):
    ...     seen = hr.value_state("BIGINT", keep_forever=True)
    ...     def on_rows(self, frame, context):
    ...         number = pl.int_range(1, pl.len() + 1).over("user")
    ...         counted = frame.with_columns(seen=pl.col("seen").fill_null(0) + number)
    ...         return counted.with_columns(emit=pl.col("seen") % 100 == 0)
    """

    access: ClassVar[str] = "Read and write it as a column of the frame"

    @abstractmethod
    def on_rows(self, frame: pl.DataFrame, context: BatchContext) -> pl.DataFrame:
        """Process rows, each key's together and in the order of event time.

        States and timers are as they were before the first of these rows of the key. What is returned of a row may
        depend on earlier rows of its key and not on later ones: of a key for which a timer fires in between, the rows
        behind it are given again.
        """

    def on_timers(self, frame: pl.DataFrame, context: BatchContext) -> pl.DataFrame:
        """Process timers that fire, one of a key: the key's columns, states, timers, ``timer`` and ``fired_at``."""
        raise TypeError(
            f"[TIMER_UNHANDLED] timers fire, but {type(self).__name__} has no on_timers(self, frame, context). "
            "Define it."
        )


def declared_timers(process: FrameProcess) -> list[str]:
    """The names of the timers that a process declares, in order."""
    owners = type(process).__mro__
    return sorted({name for owner in owners for name, value in vars(owner).items() if type(value) is TimerDescriptor})


def check_columns(step: str, process: FrameProcess, key: tuple[str, ...], columns: list[str]) -> None:
    """What a process declares can be columns beside those of the rows."""
    states, timers = declared_states(process), declared_timers(process)
    for name, declared in states.items():
        if declared.handle is not ValueState:
            raise DefinitionError(
                "STATE_NOT_A_COLUMN",
                f"step {step!r}: state {name!r} is a {declared.handle.kind} state, which is no column of a frame. Use "
                "hr.value_state, of an ARRAY or STRUCT if it holds several values.",
            )
    taken = sorted({*states, *timers, EMIT} & set(columns)) or sorted({TIMER, FIRED_AT} & {*key, *states, *timers})
    if taken:
        raise DefinitionError(
            "COLUMN_RESERVED",
            f"step {step!r}: column {taken[0]!r} of the rows has the name of a state, a timer or a column that frames "
            "of a process have. Rename one of the two.",
        )
