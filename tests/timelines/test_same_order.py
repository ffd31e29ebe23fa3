"""A batch that runs again gives its rows in the same order, whatever the keys: what follows may depend on it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

import headrace as hr
from headrace.testing import at, batch, play, watermark
from headrace.testing.elements import Side

KEYS = [f"u{number}" for number in range(40)]
CHANGELOGS = ("materialize", "table aggregate", "table join")


class Numbers(hr.KeyedProcess):
    """Numbers the rows of a user, and says so again in the end."""

    seen = hr.value_state("INT", keep_forever=True)

    def on_row(self, row: Any, context: Any) -> Iterator[Any]:
        self.seen.set((self.seen.get() or 0) + 1)
        context.set_timer("end", after="1 minute")
        yield {"user": context.key, "n": self.seen.get()}

    def on_timer(self, timer: Any, context: Any) -> Iterator[Any]:
        yield {"user": context.key, "n": 0}


def one_after_the_other() -> Any:
    found = hr.pattern("s", key="user").begin("a", where="n < 10").followed_by("b", where="n < 10").within("1 hour")
    return found.select(first="a.n", then="b.n").late(hr.drop())


ONE_INPUT = {
    "tumbling": hr.tumbling("s", size="1 minute", key="user").agg(k="count(*)").late(hr.drop()),
    "previews": hr.tumbling("s", size="1 hour", key="user").agg(k="count(*)").emit(hr.on_update()).late(hr.drop()),
    "hopping": hr.hopping("s", size="2 minutes", every="1 minute", key="user").agg(k="count(*)").late(hr.drop()),
    "session": hr.session("s", gap="30 seconds", key="user").agg(k="count(*)").late(hr.drop()),
    "revised session": hr.session("s", gap="5 minutes", key="user")
    .agg(k="count(*)")
    .emit(hr.on_update())
    .late(hr.drop()),
    "sliding": hr.sliding("s", size="2 minutes", key="user").agg(k="count(*)").late(hr.drop()),
    "counting": hr.counting("s", rows=2, key="user", ttl="1 day").agg(k="count(*)").late(hr.drop()),
    "deduplicate": hr.deduplicate("s", key="user", within="30 seconds").late(hr.drop()),
    "pattern": one_after_the_other(),
    "process": hr.process("s", Numbers, key="user", output="user STRING, n INT").late(hr.drop()),
    "materialize": hr.materialize("s", key="user"),
    "table aggregate": hr.table_aggregate("s", key="n").agg(k="count(*)"),
}
TWO_INPUTS = {
    "interval join": hr.interval_join("s", on="user", between=("0 minutes", "1 hour"), how="full").late(hr.drop()),
    "regular join": hr.regular_join("s", on="user", ttl="1 hour", how="full").late(hr.drop()),
    "window join": hr.window_join("s", on="user", window="1 minute", how="full").late(hr.drop()),
    "temporal join": hr.temporal_join("s", on="user", how="left", ttl="1 day", versions_late=hr.drop()).late(hr.drop()),
    "table join": hr.table_join("s", on="n", left_key="user", right_key="user", how="full"),
}


def rows(*, two: bool, changes: bool) -> Iterator[Any]:
    chance = random.Random(7)
    for minute in range(2):
        for number, user in enumerate(chance.sample(KEYS, 30)):
            side: Side = "right" if two and number % 2 else "left"
            changelog: dict[str, Any] = (
                {"change": "update_after", "position": f"{minute}-{number:02d}"} if changes else {}
            )
            yield at(f"10:0{minute}", side=side, user=user, n=chance.randrange(10), **changelog)
        yield batch()
    yield watermark("23:00")


@pytest.mark.parametrize("name", [*ONE_INPUT, *TWO_INPUTS])
def test_run_after_run_rows_leave_in_one_order(name: str) -> None:
    step = ONE_INPUT[name] if name in ONE_INPUT else TWO_INPUTS[name]
    elements = list(rows(two=name in TWO_INPUTS, changes=name in CHANGELOGS))
    runs = [play(step, *elements).main for _ in range(3)]
    assert len(runs[0]) > 5
    assert runs[1] == runs[0]
    assert runs[2] == runs[0]
