"""Beam's triggers in plain Python, from their definitions: each is told of elements and time, and says when it fires.

``AfterPane``, ``AfterAll``, ``AfterFirst``, ``AfterEach`` and ``Repeatedly`` are Beam's; ``Matches`` and
``AfterBoundary`` stand for Headrace's ``hr.when`` and ``hr.every``, once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence

from tests.models.rows import Event


class Machine(ABC):
    """A trigger of one window."""

    finished = False

    @abstractmethod
    def element(self, event: Event) -> None:
        """An element has come."""

    @abstractmethod
    def should_fire(self, now: float) -> bool:
        """Whether it is ready."""

    @abstractmethod
    def clear(self) -> None:
        """Begin anew."""

    def fire(self, now: float) -> None:
        """It has fired: most triggers do so once."""
        self.finished = True

    def deadlines(self) -> Iterator[int]:
        """The moments at which time may make it ready."""
        yield from ()


class AfterCount(Machine):
    """``AfterPane.elementCountAtLeast(n)``."""

    def __init__(self, count: int) -> None:
        self.count, self.seen = count, 0

    def element(self, event: Event) -> None:
        """One more."""
        self.seen += 1

    def should_fire(self, now: float) -> bool:
        """At least so many."""
        return self.seen >= self.count

    def clear(self) -> None:
        """None seen."""
        self.seen, self.finished = 0, False


class Matches(Machine):
    """Ready when an element has met a condition."""

    def __init__(self, condition: Callable[[Event], bool]) -> None:
        self.condition, self.met = condition, False

    def element(self, event: Event) -> None:
        """Remember that one did."""
        self.met |= self.condition(event)

    def should_fire(self, now: float) -> bool:
        """One did."""
        return self.met

    def clear(self) -> None:
        """None did."""
        self.met = self.finished = False


class AfterBoundary(Machine):
    """Ready at the next multiple of a duration after the first element."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.deadline: int | None = None

    def element(self, event: Event) -> None:
        """The first one sets the deadline."""
        if self.deadline is None:
            self.deadline = (event.time // self.length + 1) * self.length

    def should_fire(self, now: float) -> bool:
        """Time has come so far."""
        return self.deadline is not None and now >= self.deadline

    def clear(self) -> None:
        """No deadline."""
        self.deadline, self.finished = None, False

    def deadlines(self) -> Iterator[int]:
        """Its own."""
        if self.deadline is not None:
            yield self.deadline


class Composite(Machine):
    """What triggers of triggers share: all of them see every element."""

    def __init__(self, *parts: Machine) -> None:
        self.parts = parts

    def element(self, event: Event) -> None:
        """Tell those that are not finished."""
        for part in self.unfinished:
            part.element(event)

    @property
    def unfinished(self) -> Sequence[Machine]:
        """Those that may still fire."""
        return [part for part in self.parts if not part.finished]

    def clear(self) -> None:
        """All begin anew."""
        self.finished = False
        for part in self.parts:
            part.clear()

    def deadlines(self) -> Iterator[int]:
        """Those of the parts."""
        for part in self.unfinished:
            yield from part.deadlines()


class AfterAll(Composite):
    """Fires when every part is ready, and is finished."""

    def should_fire(self, now: float) -> bool:
        """All of them."""
        return all(part.should_fire(now) for part in self.unfinished)


class AfterFirst(Composite):
    """Fires when one part is ready, and is finished."""

    def should_fire(self, now: float) -> bool:
        """Any of them."""
        return any(part.should_fire(now) for part in self.unfinished)


class Repeatedly(Composite):
    """Fires whenever its part does, which then begins anew."""

    def should_fire(self, now: float) -> bool:
        """As the part."""
        return self.parts[0].should_fire(now)

    def fire(self, now: float) -> None:
        """Never finished."""
        self.parts[0].fire(now)
        if self.parts[0].finished:
            self.parts[0].clear()


class AfterEach(Composite):
    """``AfterEach.inOrder``: fires as its first unfinished part does, and is finished when all are."""

    @property
    def unfinished(self) -> Sequence[Machine]:
        """Only the first of them is told anything."""
        return [part for part in self.parts if not part.finished][:1]

    def should_fire(self, now: float) -> bool:
        """As the current part."""
        return any(part.should_fire(now) for part in self.unfinished)

    def fire(self, now: float) -> None:
        """The current part has fired."""
        self.unfinished[0].fire(now)
        self.finished = not self.unfinished
