"""A process over frames in plain Python, slow and obviously right: one account at a time, row by row."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.models.rows import Event

SECOND = 1_000_000
LAST_TTL, QUIET, EXACT, AGAIN = 120 * SECOND, 90 * SECOND, 60 * SECOND, 45 * SECOND


@dataclass
class Account:
    """What is known of an account: its last amount with the time at which it was written, a total, and timers."""

    last: tuple[int, int] | None = None
    total: int | None = None
    timers: dict[str, int] = field(default_factory=dict)
    said: list[tuple[int, str]] = field(default_factory=list)

    def row(self, time: int, amount: int) -> None:
        """Tell what is known, unless the amount is divisible by three; add, put off a timer, set or cancel another."""
        if amount % 3:
            self.said.append((time, f"row {amount} {self._last(time)} {self.total or 0}"))
        self.last = (amount, time)
        self.total = (self.total or 0) + amount
        self.timers["quiet"] = time + QUIET
        if amount % 5 == 0:
            self.timers["exact"] = time + EXACT
        if amount % 7 == 0:
            self.timers.pop("exact", None)

    def fire(self, until: float) -> None:
        """All timers up to a time, the earliest first; silence ends a total, and is told once more."""
        while due := sorted((time, name) for name, time in self.timers.items() if time <= until):
            time, name = due[0]
            del self.timers[name]
            self.said.append((time, f"{name} {self._last(time)} {self.total or 0}"))
            if name == "quiet":
                if self.total is not None:
                    self.timers["quiet"] = time + AGAIN
                self.total = None

    def _last(self, time: int) -> int | None:
        return None if self.last is None or time >= self.last[1] + LAST_TTL else self.last[0]


def processed(events: list[Event]) -> dict[str, list[tuple[int, str]]]:
    """Everything that is told of each account once event time has passed all of it."""
    accounts: dict[str, Account] = {}
    for event in sorted(events, key=lambda event: event.time):
        account = accounts.setdefault(event.account, Account())
        account.fire(event.time)
        account.row(event.time, event.amount or 0)
    for account in accounts.values():
        account.fire(float("inf"))
    return {name: account.said for name, account in accounts.items() if account.said}
