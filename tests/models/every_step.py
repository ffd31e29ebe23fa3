"""One of every step with a key, and rows on which each has something unfinished between any two batches."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import headrace as hr
from headrace.operators.patterns.pattern import pattern_rules
from headrace.testing import at, batch, watermark
from headrace.testing.elements import Element, Side

USERS = [f"u{number}" for number in range(25)]
BATCHES = 12
LATE = hr.side_output()


class Counts(hr.KeyedProcess):
    """Counts the rows of a user; each sets a timer, which tells the count of then."""

    seen = hr.value_state("INT", keep_forever=True)
    last = hr.value_state("INT", ttl="3 minutes")

    def on_row(self, row: Any, context: Any) -> Iterator[Any]:
        self.seen.set((self.seen.get() or 0) + 1)
        self.last.set(row.n)
        context.set_timer(f"after {row.n}", after="2 minutes")
        yield {"user": context.key, "n": self.seen.get(), "said": "row"}

    def on_timer(self, timer: Any, context: Any) -> Iterator[Any]:
        yield {"user": context.key, "n": self.seen.get(), "said": f"{timer.name}, {self.last.get()}"}


class Limits(hr.KeyedProcess):
    """Tells above which limits a row is."""

    def on_row(self, row: Any, context: Any) -> Iterator[Any]:
        above = sorted(name for name, rule in context.rules.items() if row.n > rule.most)
        yield {"user": context.key, "id": row.id, "above": " ".join(above)}


def _pair(first: int, then: int) -> Any:
    return (
        hr.pattern("s", key="user")
        .begin("a", where=f"n = {first}")
        .followed_by_any("b", where=f"n = {then}")
        .within("5 minutes")
        .select(first="a.id", then="b.id")
    )


ONE_INPUT = {
    "tumbling": hr.tumbling("s", size="3 minutes", key="user").agg(k="count(*)", ids="sum(id)"),
    "keyless": hr.tumbling("s", size="30 seconds", key=None).agg(k="count(*)", ids="sum(id)"),
    "previews": hr.tumbling("s", size="1 hour", key="user").agg(k="count(*)").emit(hr.on_update()),
    "hopping": hr.hopping("s", size="4 minutes", every="1 minute", key="user").agg(k="count(*)"),
    "cumulating": hr.cumulating("s", step="1 minute", size="4 minutes", key="user").agg(k="count(*)", ids="sum(id)"),
    "calendar": hr.tumbling("s", size="1 day", key="user", time_zone="Asia/Kolkata").agg(k="count(*)", ids="sum(id)"),
    "session": hr.session("s", gap="3 minutes", key="user").agg(k="count(*)", ids="sum(id)"),
    "revised session": hr.session("s", gap="3 minutes", key="user").agg(k="count(*)").emit(hr.on_update()),
    "sliding": hr.sliding("s", size="3 minutes", key="user").agg(k="count(*)"),
    "counting": hr.counting("s", rows=3, key="user", ttl="1 day").agg(k="count(*)", ids="sum(id)"),
    "global window": hr.global_window("s", key="user", ttl="3 minutes")
    .agg(k="count(*)", ids="sum(id)")
    .emit(hr.after_rows(2))
    .panes(hr.discarding()),
    "deduplicate": hr.deduplicate("s", key="user", within="3 minutes"),
    "deduplicate, last": hr.deduplicate("s", key="user", within="3 minutes", keep="last"),
    "pattern": _pair(1, 2),
    "process": hr.process("s", Counts, key="user", output="user STRING, n INT, said STRING"),
}
CHANGELOGS = {
    "materialize": hr.materialize("s", key="user"),
    "table aggregate": hr.table_aggregate("s", key="n").agg(k="count(*)"),
}
WITHOUT_STATE = {"outbox": hr.outbox("s", key="user", payload="text")}
TWO_INPUTS = {
    "interval join": hr.interval_join("s", on="user", between=("-2 minutes", "3 minutes"), how="full"),
    "interval join without key": hr.interval_join("s", on=None, between=("0 seconds", "1 minute"), how="left"),
    "best match": hr.interval_join(
        "s", on="user", between=("-2 minutes", "3 minutes"), how="left", match="lowest", by="id"
    ),
    "regular join": hr.regular_join("s", on="user", ttl="10 minutes", how="full"),
    "window join": hr.window_join("s", on="user", window="3 minutes", how="full"),
    "temporal join": hr.temporal_join("s", on="user", how="left", ttl="1 day", versions_late=hr.drop()),
}
JOINED_CHANGELOGS = {"table join": hr.table_join("s", on="n", left_key="user", right_key="user", how="full")}
BY_RULES = {
    "pattern rules": pattern_rules("s", key="user", output="first BIGINT, then BIGINT", rules=hr.rules(key="rule")),
    "process with rules": hr.process(
        "s", Limits, key="user", output="user STRING, id BIGINT, above STRING", rules=hr.rules(key="rule")
    ),
}
STEPS: dict[str, Any] = {
    **{name: step.late(LATE) for name, step in {**ONE_INPUT, **TWO_INPUTS, **BY_RULES}.items()},
    **CHANGELOGS,
    **JOINED_CHANGELOGS,
    **WITHOUT_STATE,
}
NAMES = [*(name for name in STEPS if name not in WITHOUT_STATE), "chain"]
"""Those that have state."""


def step_of(name: str) -> Any:
    """The step of a name, or two of them in a chain."""
    if name != "chain":
        return STEPS[name]
    first = hr.tumbling("first", size="1 minute", key="user").agg(k="count(*)").late(LATE)
    return first, hr.session("s", gap="3 minutes", key="user").agg(spans="count(*)", k="sum(k)").late(LATE)


def elements_of(name: str, *, between: Sequence[Element] = ()) -> Iterator[Element]:
    """Rows in batches, something after each of them, and what completes everything."""
    chance = random.Random(11)
    is_changelog = name in {**CHANGELOGS, **JOINED_CHANGELOGS, **WITHOUT_STATE}
    for number in range(BATCHES):
        if name in BY_RULES and number in (0, 5):
            pattern = {"pattern": _pair(number % 3, 4).to_json()}
            rule: dict[str, Any] = pattern if name == "pattern rules" else {"most": number % 3}
            yield at(f"10:{number:02d}", side="right", rule=f"r{number}", deleted=False, **rule)
        for place, user in enumerate(chance.sample(USERS, 15)):
            given: dict[str, Any] = {"user": user, "n": chance.randrange(5), "id": 100 * number + place}
            if is_changelog:
                change = "insert" if name in WITHOUT_STATE else "update_after"
                given |= {"change": change, "position": f"{number:02d}-{place:02d}", "text": f"{number}"}
            side: Side = "right" if name in (*TWO_INPUTS, *JOINED_CHANGELOGS) and place % 2 else "left"
            minute = max(0, number - chance.choice((0, 0, 0, 1, 4)))
            yield at(f"10:{minute:02d}:{chance.randrange(60):02d}", side=side, **given)
        yield batch()
        yield from between
        if number % 3 == 2:
            yield watermark(f"10:{number - 2:02d}:30")
            yield from between
    yield watermark("23:00")
