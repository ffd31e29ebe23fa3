"""Global windows in plain Python, slow and obviously right: one account at a time, one row after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.models.beam_triggers import Machine
from tests.models.counting import Results, aggregated, by_account
from tests.models.rows import Event


@dataclass
class Trigger:
    """One of: after so many rows, at rows that meet a condition, at multiples of a duration, as a machine says."""

    rows: int | None = None
    condition: Callable[[Event], bool] | None = None
    every: int | None = None
    machine: Callable[[], Machine] | None = None


@dataclass
class Life:
    """What is known of an account since its first row, or since it was forgotten."""

    trigger: Trigger
    ttl: int
    panes: str
    rows: list[Event] = field(default_factory=list)
    unseen: list[Event] = field(default_factory=list)
    results: list[tuple[Any, ...]] = field(default_factory=list)
    revision: int = 0
    given: tuple[Any, ...] | None = None
    machine: Machine | None = None
    now: float = 0

    def take(self, event: Event) -> None:
        """A row."""
        self.rows.append(event)
        self.unseen.append(event)
        if self.trigger.machine is not None:
            self.machine = self.machine or self.trigger.machine()
            if not self.machine.finished:
                self.machine.element(event)
            self.fire_at(event.time, event.time + 1)
        by_rows = self.trigger.rows is not None and len(self.unseen) == self.trigger.rows
        by_condition = self.trigger.condition is not None and self.trigger.condition(event)
        if by_rows or by_condition:
            self.emit(event.time + 1, "early")

    def pass_time(self, until: float) -> None:
        """Event time moves up to a row, or to the end of everything: what is due before that happens."""
        if not self.rows:
            return
        over = self.rows[-1].time + self.ttl
        if self.trigger.every is not None and self.unseen:
            multiple = (self.rows[-1].time // self.trigger.every + 1) * self.trigger.every
            if multiple <= until and multiple < over:
                self.emit(multiple, "early")
        while self.machine is not None and not self.machine.finished:
            ahead = [time for time in self.machine.deadlines() if self.now < time <= until and time < over]
            if not ahead:
                break
            self.fire_at(min(ahead), min(ahead))
        if over <= until:
            if self.panes != "discarding" or self.unseen:
                self.emit(over, "on_time")
            self.rows, self.unseen, self.revision, self.given, self.machine = [], [], 0, None, None

    def fire_at(self, now: int, end: int) -> None:
        """Time has come so far: emit if the machine is ready."""
        self.now = now
        if self.machine is not None and not self.machine.finished and self.machine.should_fire(now):
            self.machine.fire(now)
            self.emit(end, "early")

    def emit(self, end: int, pane: str) -> None:
        """A result, behind the one that is taken back for it."""
        shown = self.unseen if self.panes == "discarding" else self.rows
        result = (shown[0].time, end, *aggregated(shown))
        if self.panes != "retracting":
            self.results.append((*result, pane, self.revision))
        else:
            if self.given is not None:
                self.results.append((*self.given, "update_before"))
            change = "insert" if self.given is None else "update_after"
            self.results.append((*result, pane, self.revision, change))
        self.given = (*result, pane, self.revision)
        self.revision += 1
        self.unseen = []


def global_window(
    events: Iterable[Event], *, trigger: Trigger, ttl: int, panes: str = "accumulating", keyed: bool = True
) -> Results:
    """Everything that leaves for each account once event time has passed all rows and more than ``ttl``."""
    results: Results = {}
    for account, own in by_account(events, keyed=keyed).items():
        life = Life(trigger, ttl, panes)
        for event in own:
            life.pass_time(event.time)
            life.take(event)
        life.pass_time(float("inf"))
        results[account] = life.results
    return results
