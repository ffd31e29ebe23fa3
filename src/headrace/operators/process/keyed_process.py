"""The class that authors extend: code that runs for every row and timer of a key."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from copy import copy
from typing import Any, Self

from headrace.errors import DefinitionError
from headrace.operators.process.context import Context
from headrace.operators.process.declarations import Declared
from headrace.operators.process.handles import Journal, State, StateError, Timeline
from headrace.operators.process.life import Clock
from headrace.operators.process.timers import Timer

Emitted = Iterable[Any] | None
"""Rows that a call gives: dicts, or ``hr.output(...)`` for a side output; as a generator, a list, or nothing."""


class KeyedProcess(ABC):
    """State and timers of each key, programmed: declare states in the class, use them in ``on_row`` and ``on_timer``.

    >>> from headrace.operators.process.declarations import value_state
    >>> class FailedLogins(KeyedProcess):
    ...     failures = value_state("INT", ttl="15 minutes")
    ...     def on_row(self, row, context):
    ...         count = (self.failures.get() or 0) + 1
    ...         self.failures.set(count)
    ...         if count == 5:
    ...             yield {"user": context.key, "failures": count}
    >>> list(states_of(FailedLogins()))
    ['failures']
    """

    @abstractmethod
    def on_row(self, row: Any, context: Context) -> Emitted:
        """Take a row of the key."""

    def on_timer(self, timer: Timer, context: Context) -> Emitted:
        """Take a timer of the key that fires; a process that sets timers must have it."""
        raise TypeError(
            f"[TIMER_UNHANDLED] timer {timer.name!r} fires, but {type(self).__name__} has no on_timer(self, timer, "
            "context). Write it."
        )

    def __setattr__(self, name: str, value: Any) -> None:
        declared = getattr(type(self), name, None)
        # A dataclass assigns what its class declares to each instance that it makes.
        if isinstance(declared, Declared) and value is not declared:
            raise _assigned(self, name, declared)
        if not isinstance(value, Declared):
            super().__setattr__(name, value)
        elif declared is None:
            raise DefinitionError(
                "STATE_NOT_IN_CLASS",
                f"state {name!r} is declared for one {type(self).__name__} only, so no key would have it. Declare "
                f"states in the class: write {name} = hr.{value.kind}_state(...) above its methods.",
            )

    def at_work(self, times: dict[Clock, Timeline], journal: Journal) -> tuple[Self, list[State]]:
        """A copy whose declared states are those of the key at hand, and these states."""
        working = copy(self)
        handles = {name: declared.bind(name, times, journal) for name, declared in states_of(self).items()}
        # Beside the declarations, which give way to what an instance has itself.
        vars(working).update(handles)
        return working, list(handles.values())


def _assigned(process: KeyedProcess, name: str, declared: Declared[Any]) -> Exception:
    said = (
        f"state {name!r} was assigned a value, which would hide the state and be stored for no key. Write "
        f"self.{name}.{declared.change} in on_row and on_timer, or choose another name for a setting."
    )
    # Where there is a handle, this is a call for a key; elsewhere the process is still being defined.
    at_work = name in vars(process)
    return StateError(f"[STATE_ASSIGNED] {said}") if at_work else DefinitionError("STATE_ASSIGNED", said)


def states_of(process: KeyedProcess) -> dict[str, Declared[Any]]:
    """The states that a process declares, by name: a class that travels to a worker may forget their order."""
    found: dict[str, Declared[Any]] = {}
    for owner in reversed(type(process).__mro__):
        found |= {name: value for name, value in vars(owner).items() if isinstance(value, Declared)}
    return dict(sorted(found.items()))
