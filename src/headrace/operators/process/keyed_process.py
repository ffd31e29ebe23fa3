"""The class that users extend: code that runs for every row and timer of a key."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from headrace.errors import DefinitionError
from headrace.operators.process.context import Context, Timer
from headrace.operators.process.state import StateError
from headrace.operators.process.state_descriptors import StateDescriptor
from headrace.stability import stable

Emitted = Iterable[Any] | None
"""What a call emits: dicts, or ``hr.output(...)`` for a side output; as a generator, a list, or None."""


@stable
class KeyedProcess(ABC):
    """Code with state and timers for each key: declare states in the class, use them in ``on_row`` and ``on_timer``.

    >>> from headrace.operators.process.state_descriptors import value_state
    >>> class FailedLogins(KeyedProcess):
    ...     failures = value_state("INT", ttl="15 minutes")
    ...     def on_row(self, row, context):
    ...         count = (self.failures.get() or 0) + 1
    ...         self.failures.set(count)
    ...         if count == 5:
    ...             yield {"user": context.key, "failures": count}
    >>> list(declared_states(FailedLogins()))
    ['failures']
    """

    @abstractmethod
    def on_row(self, row: Any, context: Context) -> Emitted:
        """Process a row of the key."""

    def on_timer(self, timer: Timer, context: Context) -> Emitted:
        """Process a timer of the key that fires; required if the process sets timers."""
        raise TypeError(
            f"[TIMER_UNHANDLED] timer {timer.name!r} fires, but {type(self).__name__} has no on_timer(self, timer, "
            "context). Define it."
        )

    def __setattr__(self, name: str, value: Any) -> None:
        declared = getattr(type(self), name, None)
        # A dataclass assigns what its class declares to each new instance.
        if isinstance(declared, StateDescriptor) and value is not declared:
            text = (
                f"state {name!r} was assigned a value, which would hide the state and not be stored for any key. Write "
                f"self.{name}.{declared.handle.change} in on_row and on_timer, or choose another name for a setting."
            )
            # Where there is a handle, this is a call for a key; elsewhere the process is still being defined.
            is_bound = name in vars(self)
            raise StateError(f"[STATE_ASSIGNED] {text}") if is_bound else DefinitionError("STATE_ASSIGNED", text)
        if not isinstance(value, StateDescriptor):
            super().__setattr__(name, value)
        elif declared is None:
            raise DefinitionError(
                "STATE_NOT_IN_CLASS",
                f"state {name!r} is declared on one instance of {type(self).__name__}, so no key has it. Declare "
                f"states in the class: write {name} = hr.{value.handle.kind}_state(...) above its methods.",
            )


def declared_states(process: KeyedProcess) -> dict[str, StateDescriptor[Any]]:
    """The states that a process declares, sorted by name: a class that is pickled may lose their order."""
    found: dict[str, StateDescriptor[Any]] = {}
    for owner in reversed(type(process).__mro__):
        found |= {name: value for name, value in vars(owner).items() if isinstance(value, StateDescriptor)}
    return dict(sorted(found.items()))
