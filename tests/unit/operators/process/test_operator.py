"""The operator of a process on plain frames: what the state holds, what is written of it, and when it is due."""

from __future__ import annotations

from typing import Any, cast

import polars as pl
import pytest
from pyspark import cloudpickle

import headrace as hr
from headrace.event_time.record import TimeBounds
from headrace.event_time.strategy import BEGINNING, END
from headrace.operators.event_time_buffer import OF_KEY
from headrace.operators.rows import ARRIVAL
from headrace.reports import WaitingRows
from headrace.wheel.codec import decode, encode
from headrace.wheel.operator import Applied, Operator
from tests.unit.operators.stored import next_due, stored

MOMENT = pl.Datetime("us", "UTC")
SCHEMA: dict[str, pl.DataType] = {"user": pl.String(), "n": pl.Int64(), "at": MOMENT}
SECOND = 1_000_000


class Counting(hr.KeyedProcess):
    """Counts the rows of a user; a negative number only asks, zero clears, and hundreds set a timer."""

    count = hr.value_state("INT", ttl="10 seconds")
    numbers = hr.list_state("BIGINT", ttl="20 seconds")

    def on_row(self, row: Any, context: Any) -> Any:
        if row.n == 0:
            self.count.clear()
            self.numbers.clear()
        elif row.n > 0:
            self.count.set((self.count.get() or 0) + 1)
            self.numbers.add(row.n)
        if row.n >= 100:
            context.set_timer("t", after="5 seconds")
            context.set_clock_timer("c", after="7 seconds")
        yield {"said": f"{self.count.get()} {self.numbers.get()}"}

    def on_timer(self, timer: Any, context: Any) -> Any:
        yield {"said": timer.name}


def bound(**more: Any) -> Operator:
    step = hr.process("counting", Counting, key="user", output="said STRING", **more).late(hr.drop())
    return cast(Operator, step.bind(SCHEMA, "at"))


def rows(*given: tuple[str, int, int]) -> pl.DataFrame:
    """Rows of user, second and number."""
    users, times, numbers = zip(*given, strict=True) if given else ((), (), ())
    columns = {"user": users, "n": numbers, "at": [time * SECOND for time in times]}
    return pl.DataFrame(columns, schema={**SCHEMA, "at": pl.Int64()}).cast({"at": MOMENT})


class Slot:
    """A slot, batch after batch, with everything encoded in between as on the wheel."""

    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        self.state = pl.DataFrame(schema=dict(operator.state_schema))
        self.fired = BEGINNING
        self.batch = 0

    def run(self, *given: tuple[str, int, int], fire: float, clock: int = 0) -> Applied:
        until = END if fire == float("inf") else int(fire * SECOND)
        bounds = TimeBounds(BEGINNING, until, self.fired, clock * SECOND, batch=self.batch)
        self.batch += 1
        partials = self.operator.combine(rows(*given), bounds).partials
        assert dict(partials.schema) == dict(self.operator.partial_schema)
        applied = self.operator.apply(decode([encode(self.state)]), decode([encode(partials)]), bounds)
        assert dict(applied.output.schema) == dict(self.operator.output_schema)
        self.state, self.fired = stored(self.operator, self.state, applied, bounds), until
        self.bounds = bounds
        return applied

    def due(self) -> tuple[int | None, int | None]:
        return next_due(self.operator, self.state, self.bounds)

    @property
    def keys(self) -> int:
        return self.state.filter(pl.col(ARRIVAL) == OF_KEY).height


def said(applied: Applied) -> list[str]:
    return applied.output["said"].to_list()


def test_the_state_stays_flat_over_fifty_batches_of_ever_new_keys() -> None:
    slot = Slot(bound())
    sizes = []
    for number in range(50):
        given = [(f"user-{number}-{each}", number * 5 + each % 5, 1) for each in range(100)]
        slot.run(*given, fire=number * 5 + 5)
        sizes.append((slot.state.height, slot.state.estimated_size()))
    # Four batches live, but for those of the first second of the oldest one.
    assert {height for height, _ in sizes[10:]} == {380}
    assert max(size for _, size in sizes[10:]) < 1.5 * min(size for _, size in sizes[10:])


def test_values_leave_the_state_exactly_when_event_time_is_so_far_and_the_key_when_nothing_is_left() -> None:
    slot = Slot(bound())
    slot.run(("a", 1, 7), fire=2)
    assert slot.due() == (11 * SECOND, None)
    applied = slot.run(fire=10.999999)
    assert (applied.upserts.height, applied.removed.height) == (0, 0)
    slot.run(fire=11)
    assert slot.state.select("state.count", "state.numbers").rows() == [(None, [{"value": 7, "written": SECOND}])]
    assert slot.due() == (21 * SECOND, None)
    applied = slot.run(fire=21)
    assert (slot.state.height, applied.removed.rows()) == (0, [("a", OF_KEY)])
    assert slot.due() == (None, None)


def test_a_time_to_live_that_has_become_longer_holds_and_does_not_wake_the_slot_again_and_again() -> None:
    class Longer(Counting):
        count = hr.value_state("INT", ttl="30 seconds")

    slot = Slot(bound())
    slot.run(("a", 1, 7), fire=2)
    step = hr.process("counting", Longer, key="user", output="said STRING").late(hr.drop())
    slot.operator = cast(Operator, step.bind(SCHEMA, "at"))
    assert slot.due() == (11 * SECOND, None)
    slot.run(fire=12)
    assert slot.due() == (21 * SECOND, None)
    assert said(slot.run(("a", 25, -1), fire=26)) == ["1 []"]
    assert slot.due() == (31 * SECOND, None)


def test_only_keys_that_have_changed_are_written() -> None:
    slot = Slot(bound())
    slot.run(("a", 1, 1), ("b", 1, 1), ("c", 1, 1), fire=2)
    applied = slot.run(("a", 3, -1), ("b", 3, 1), ("d", 3, -1), fire=4)
    assert said(applied) == ["1 [1]", "2 [1, 1]", "None []"]
    assert applied.upserts["user"].to_list() == ["b"]
    assert applied.removed.height == 0
    assert slot.keys == 3


def test_a_key_that_clears_everything_leaves_the_state() -> None:
    slot = Slot(bound())
    slot.run(("a", 1, 1), ("b", 1, 1), fire=2)
    applied = slot.run(("a", 3, 0), fire=4)
    assert applied.removed.rows() == [("a", OF_KEY)]
    assert slot.state["user"].to_list() == ["b"]
    assert slot.run(("c", 5, 0), fire=6).removed.height == 0


def test_rows_wait_with_numbers_and_are_counted() -> None:
    slot = Slot(bound())
    applied = slot.run(("a", 5, 5), ("a", 3, 3), ("b", 1, 1), fire=2)
    assert applied.waiting == WaitingRows(0, 1, 2)
    assert slot.due() == (3 * SECOND + 1, None)
    applied = slot.run(("a", 4, 4), ("a", 9, 9), fire=5)
    assert said(applied) == ["1 [3]", "2 [3, 4]"]
    assert applied.waiting == WaitingRows(2, 2, 2)
    assert slot.state.filter(pl.col(ARRIVAL) > OF_KEY)[ARRIVAL].n_unique() == 2
    assert slot.run(fire=float("inf")).waiting == WaitingRows(2, 2, 0)


def test_due_is_the_earliest_of_waiting_rows_timers_and_values_by_each_clock() -> None:
    slot = Slot(bound())
    slot.run(("a", 1, 100), ("b", 30, 1), fire=2, clock=50)
    assert slot.due() == (6 * SECOND, 57 * SECOND)
    assert said(slot.run(fire=6, clock=56)) == ["t"]
    assert slot.due() == (11 * SECOND, 57 * SECOND)
    assert said(slot.run(fire=6, clock=57)) == ["c"]
    assert slot.due() == (11 * SECOND, None)


def test_the_end_of_time_handles_all_rows_fires_all_timers_and_forgets_all_that_lives_by_event_time() -> None:
    slot = Slot(bound())
    slot.run(("a", 1, 100), ("b", 30, 100), fire=2, clock=50)
    applied = slot.run(fire=float("inf"), clock=51)
    assert said(applied) == ["t", "1 [100]", "t"]
    assert applied.output["at"].cast(pl.Int64).to_list() == [6 * SECOND, 30 * SECOND, 35 * SECOND]
    # Timers of the clock stay, for a clock goes on.
    assert slot.state.select("user", "state.count").sort("user").rows() == [("a", None), ("b", None)]
    assert slot.due() == (None, 57 * SECOND)


def test_a_batch_with_nothing_to_do_writes_nothing() -> None:
    slot = Slot(bound())
    slot.run(("a", 1, 1), ("b", 9, 1), fire=2)
    applied = slot.run(fire=3)
    assert (applied.upserts.height, applied.removed.height, applied.output.height) == (0, 0, 0)


@pytest.mark.parametrize("ordered", [True, False])
def test_the_operator_travels_to_workers(ordered: bool) -> None:
    operator = bound(ordered=ordered)
    there = cloudpickle.loads(cloudpickle.dumps(operator))
    bounds = TimeBounds(BEGINNING, 10 * SECOND, BEGINNING, 0)
    partials = operator.combine(rows(("a", 1, 5)), bounds).partials
    empty = pl.DataFrame(schema=dict(operator.state_schema))
    assert said(there.apply(empty, partials, bounds)) == ["1 [5]"]
    assert said(operator.apply(empty, partials, bounds)) == ["1 [5]"]
