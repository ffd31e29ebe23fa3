"""A keyed process in plain Python, slow and obviously right: one account at a time, everything in one list."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.models.rows import Event

SECOND = 1_000_000
LAST_TTL, RECENT_TTL, SHOPS_TTL = 120 * SECOND, 300 * SECOND, 200 * SECOND
QUIET, EXACT, AGAIN = 90 * SECOND, 60 * SECOND, 45 * SECOND
Results = list[tuple[Any, ...]]


@dataclass
class Account:
    """What is known of an account: values with the time at which each was written, and timers."""

    last: tuple[int, int] | None = None
    recent: list[tuple[int, int]] = field(default_factory=list)
    shops: dict[int, tuple[int, int]] = field(default_factory=dict)
    timers: dict[str, tuple[int, int]] = field(default_factory=dict)
    results: Results = field(default_factory=list)
    failed: list[int] = field(default_factory=list)

    def row(self, time: int, amount: int) -> None:
        """A row: it tells what it finds; every eleventh amount fails and leaves nothing behind."""
        if amount % 11 == 0:
            self.failed.append(amount)
            return
        last = None if self.last is None or time >= self.last[1] + LAST_TTL else self.last[0]
        recent = [value for value, written in self.recent if time < written + RECENT_TTL]
        shops = [shop for shop, (_, written) in self.shops.items() if time < written + SHOPS_TTL]
        self.results.append((time, "row", amount, last, sum(recent), sorted(shops)))
        self.last = (amount, time)
        self.recent.append((amount, time))
        self.shops[amount % 4] = (amount, time)
        self.timers["quiet"] = (time + QUIET, 0)
        if amount % 5 == 0:
            self.timers["exact"] = (time + EXACT, amount)
        if amount % 7 == 0:
            self.timers.pop("exact", None)

    def fire(self, until: float) -> None:
        """All timers up to a time, the earliest first, those at the same time by name."""
        while due := sorted((time, name) for name, (time, _) in self.timers.items() if time <= until):
            time, name = due[0]
            payload = self.timers.pop(name)[1]
            recent = [value for value, written in self.recent if time < written + RECENT_TTL]
            self.results.append((time, name, payload, None, sum(recent), []))
            if name == "quiet" and payload < 2:
                self.timers["quiet"] = (time + AGAIN, payload + 1)


def processed(events: list[Event]) -> tuple[dict[str, Results], list[int]]:
    """Everything that is told of each account once event time has passed all of it; and the amounts that failed."""
    accounts: dict[str, Account] = {}
    for event in sorted(events, key=lambda event: event.time):
        account = accounts.setdefault(event.account, Account())
        account.fire(event.time)
        account.row(event.time, event.amount or 0)
    for account in accounts.values():
        account.fire(float("inf"))
    failed = [amount for account in accounts.values() for amount in account.failed]
    return {name: account.results for name, account in accounts.items()}, sorted(failed)
