"""One turn of a slot: which rows of its state an operator sees, and what the slot is afterwards."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import headrace as hr
from headrace.checkpoint.storage import MemoryStorage
from headrace.event_time.record import BatchRecord, TimeBounds
from headrace.event_time.strategy import BEGINNING, END
from headrace.key_hash import hashes_of
from headrace.reports import ReportKey, SlotSummary, StateReport, WaitingRows
from headrace.state.group_range import GroupRange
from headrace.state.order_ranges import OrderRanges
from headrace.state.segment import SegmentFiles
from headrace.wheel.codec import encode
from headrace.wheel.operator import AnyOperator, Applied, Combined, Due, Operator, Uncombined
from headrace.wheel.pack import Blob, Input, pack
from headrace.wheel.task import Task
from headrace.wheel.turn import turn
from tests.tasks import state_in_memory

ROW = {"key": pl.String(), **{name: pl.Int64() for name in ("value", "event", "clock", "dead_at")}}
TIMES = Due(pl.col("event"), pl.col("clock"), pl.col("dead_at"))


class Given(Uncombined):
    """An input whose rows arrive as they are."""

    partial_schema = ROW

    def __init__(self, name: str, key: tuple[str, ...]) -> None:
        self.name = name
        self.key = key

    def combine(self, rows: pl.DataFrame, bounds: TimeBounds) -> Combined:
        """All of them."""
        return Combined(rows, rows.clear(), rows.height)


class Noting(Given):
    """Stores each row it is given, removes it when it has no value, and notes what it was shown of its state."""

    state_schema = output_schema = ROW
    output_time = "event"
    side_schemas: Mapping[str, Mapping[str, pl.DataType]] = {}

    def __init__(
        self, times: Due = TIMES, waiting: WaitingRows | None = None, identity: tuple[str, ...] = ("key",)
    ) -> None:
        super().__init__("noting", ("key",))
        self.identity = identity
        self.times = times
        self.waiting = waiting
        self.shown: list[pl.DataFrame] = []

    def due(self, bounds: TimeBounds) -> Due:
        """What the test has chosen."""
        return self.times

    def apply(self, state: pl.DataFrame, partials: pl.DataFrame, bounds: TimeBounds) -> Applied:
        """Store the rows, emit nothing."""
        self.shown.append(state)
        gone = pl.col("value").is_null()
        return Applied(
            partials.filter(~gone), partials.filter(gone).select(self.identity), state.clear(), waiting=self.waiting
        )


class Ruled(Noting):
    """The same, with rows of no key that come by a broadcast."""

    def __init__(self) -> None:
        super().__init__()
        self.second = Broadcast("rules", ())

    def apply_both(
        self, state: pl.DataFrame, partials: pl.DataFrame, second: pl.DataFrame, bounds: TimeBounds
    ) -> Applied:
        """What is broadcast changes the shared rows."""
        changed = self.apply(state, second, bounds)
        return replace(self.apply_rows(partials), shared=(changed.upserts, changed.removed))

    def apply_rows(self, partials: pl.DataFrame) -> Applied:
        """Rows of keys."""
        return Applied(partials, partials.clear().select("key"), partials.clear())


class Broadcast(Given):
    """An input that every slot gets."""

    broadcast = True
    late_output = "late_rules"


def row(key: str, value: int | None = 0, **times: int) -> dict[str, Any]:
    return {"key": key, "value": value, **times}


@dataclass
class Turns:
    """Batches of one step; each starts from what the slots were after the last, and no segment is open."""

    operator: AnyOperator
    folder: Path
    slots: int = 1
    storage: MemoryStorage = field(default_factory=MemoryStorage)
    held: dict[int, SlotSummary] = field(default_factory=dict)
    batch: int = 0
    bounds: TimeBounds = field(default_factory=lambda: TimeBounds(BEGINNING, BEGINNING))

    def task(self) -> Task:
        name = self.operator.name
        record = BatchRecord(self.batch, self.bounds.clock, {}, {name: self.bounds}, {}, drain=False, slots=self.slots)
        state = state_in_memory({name: dict(self.held)}, self.storage)
        return Task(record, "flow", 0, self.report, state)

    def report(self, key: ReportKey, said: Any) -> None:
        if isinstance(said, StateReport):
            self.held[key[3]] = said.slot

    def blobs(self, rows: Sequence[Mapping[str, Any]]) -> list[Blob]:
        frame = pl.DataFrame(rows, schema=ROW)
        hashes, task = hashes_of(frame, ["key"]), self.task()
        parts = [frame.filter(pl.Series(task.groups(slot).holds(hashes))) for slot in range(self.slots)]
        return [Blob(slot, 0, 0, encode(part)) for slot, part in enumerate(parts) if part.height]

    def run(self, *rows: Mapping[str, Any], fire: int | None = None, clock: int | None = None) -> set[str]:
        """Run a batch in all slots; the keys of the rows of the state that they were shown."""
        return {key for frame in self.shown(self.blobs(rows), fire=fire, clock=clock) for key in frame["key"]}

    def shown(self, blobs: Iterable[Blob], *, fire: int | None = None, clock: int | None = None) -> list[pl.DataFrame]:
        """Run a batch in all slots; what each was shown."""
        assert isinstance(self.operator, Noting)
        last, given = self.bounds, list(blobs)
        now = last.fire if fire is None else fire, last.clock if clock is None else clock
        self.bounds = TimeBounds(now[0], now[0], last.fire, now[1], last.clock)
        self.batch += 1
        self.operator.shown.clear()
        task = self.task()
        for slot in range(self.slots):
            of_slot = [blob for blob in given if blob.slot == slot] or [Blob(slot, -1, 0, b"")]
            assert list(turn(self.operator, task, slot, of_slot)) == []
        return self.operator.shown


@pytest.fixture
def turns(tmp_path: Path) -> Turns:
    """Batches of a step that has all three times."""
    return Turns(Noting(), tmp_path, bounds=TimeBounds(0, 0, 0, 0, 0))


@pytest.mark.parametrize("slots", [1, 3])
def test_an_operator_sees_the_state_of_the_keys_that_bring_rows_and_of_no_other(tmp_path: Path, slots: int) -> None:
    turns = Turns(Noting(), tmp_path, slots)
    assert turns.run(*(row(f"k{number}") for number in range(50))) == set()
    assert turns.run(row("k7", 1), row("k9", 1), row("new", 1)) == {"k7", "k9"}
    assert turns.run(row("new", 2), row("another")) == {"new"}
    assert turns.run() == set()


def test_an_operator_sees_the_newest_version_of_a_row(turns: Turns) -> None:
    for value in range(1, 4):
        turns.run(row("a", value), row("b", value))
    (state,) = turns.shown(turns.blobs([row("a", 4)]))
    assert state.rows() == [("a", 3, None, None, None)]


def test_a_row_that_was_removed_is_not_seen_and_may_come_again(turns: Turns) -> None:
    turns.run(row("a", 1), row("b", 1))
    turns.run(row("a", None))
    assert turns.run(row("a", 2), row("b", 2)) == {"b"}
    assert turns.run(row("a", 3)) == {"a"}


def test_a_key_is_seen_without_a_row_when_something_of_it_is_due_by_event_time(turns: Turns) -> None:
    turns.run(row("a", event=5), row("b", event=6), row("c"), fire=1)
    assert turns.held[0].due == 5
    assert turns.run(fire=4) == set()
    assert turns.run(fire=5) == {"a"}
    assert turns.held[0].due == 6
    assert turns.run(row("c"), fire=20) == {"b", "c"}
    assert turns.held[0].due is None
    assert turns.run(fire=30) == set()


def test_a_key_is_seen_without_a_row_when_something_of_it_is_due_by_the_clock(turns: Turns) -> None:
    turns.run(row("a", clock=5), row("b", clock=6), row("c", event=5), clock=1)
    assert (turns.held[0].due, turns.held[0].due_clock) == (5, 5)
    assert turns.run(clock=4) == set()
    assert turns.run(clock=5) == {"a"}
    assert turns.held[0].due_clock == 6
    assert turns.run(fire=5) == {"c"}
    assert turns.run(clock=20) == {"b"}
    assert turns.held[0].due_clock is None


def test_a_row_is_due_at_its_new_time_once_it_is_replaced(turns: Turns) -> None:
    turns.run(row("a", event=5), fire=1)
    turns.run(row("a", event=9), fire=2)
    turns.run(fire=8)
    assert turns.held[0].due == 9
    assert turns.run(fire=9) == {"a"}


def test_a_slot_looks_only_for_what_is_due_in_its_own_key_groups(tmp_path: Path) -> None:
    turns = Turns(Noting(), tmp_path, slots=4, bounds=TimeBounds(0, 0, 0, 0, 0))
    rows = [row(f"k{number}", event=number + 1) for number in range(20)]
    turns.run(*rows)
    due = {slot: min(each["event"] for each in rows if slot_of(turns, each["key"]) == slot) for slot in range(4)}
    assert {slot: held.due for slot, held in turns.held.items()} == due
    by_slot = turns.shown([], fire=10)
    for slot, state in enumerate(by_slot):
        assert set(state["key"]) == {f"k{number}" for number in range(10) if slot_of(turns, f"k{number}") == slot}


def slot_of(turns: Turns, key: str) -> int:
    (blob,) = turns.blobs([row(key)])
    return blob.slot


def test_rows_within_reach_are_seen_when_something_follows_and_only_then(tmp_path: Path) -> None:
    """Panes of five, in windows of ten that close every five: each is needed at two closes."""
    times = Due(pl.col("event"), reach=10, following=lambda time: (time // 5 + 1) * 5)
    turns = Turns(Noting(times), tmp_path, bounds=TimeBounds(0, 0, 0))
    turns.run(row("a", event=5), row("b", event=10), row("c", event=20), row("never"))
    assert turns.held[0].due == 5
    seen = {}
    for fire in (4, 7, 9, 10, 12, 16, 20, 26, 35):
        seen[fire] = turns.run(fire=fire)
    assert seen == {
        4: set(),
        7: {"a"},
        9: set(),
        10: {"a", "b"},
        12: set(),
        16: {"a", "b"},
        20: {"b", "c"},
        26: {"c"},
        35: {"c"},
    }
    assert turns.held[0].due is None


def test_a_slot_with_rows_within_reach_is_due_at_the_next_moment_that_follows(tmp_path: Path) -> None:
    times = Due(pl.col("event"), reach=10, following=lambda time: (time // 5 + 1) * 5)
    turns = Turns(Noting(times), tmp_path, bounds=TimeBounds(0, 0, 0))
    turns.run(row("a", event=5), row("z", event=40))
    due = []
    for fire in (4, 7, 12, 16, 36, 40):
        turns.run(fire=fire)
        due.append(turns.held[0].due)
    assert due == [5, 10, 15, 40, 40, 45]


def test_a_row_whose_time_is_over_is_not_seen_though_nothing_removed_it(turns: Turns) -> None:
    turns.run(row("a", dead_at=5), row("b", dead_at=6), row("c"))
    assert turns.run(row("a"), row("b"), row("c"), fire=5) == {"a", "b", "c"}
    turns.run(row("a", dead_at=5), row("b", dead_at=6), row("c"))
    assert turns.run(row("a", dead_at=5), row("b", dead_at=6), row("c")) == {"b", "c"}


def test_at_the_end_of_time_everything_is_seen(turns: Turns) -> None:
    turns.run(row("a", event=5), row("b", clock=7), row("c"))
    assert turns.run(fire=END) == {"a", "b", "c"}


def test_a_slot_whose_batch_changes_nothing_writes_nothing(turns: Turns) -> None:
    turns.run(row("a"), row("b"))
    before, files = turns.held[0], set(turns.storage.list("state"))
    turns.run(fire=1)
    assert turns.held[0] == before
    assert set(turns.storage.list("state")) == files


def test_a_slot_opens_no_file_when_nothing_concerns_it(turns: Turns, monkeypatch: pytest.MonkeyPatch) -> None:
    turns.run(row("a"))
    monkeypatch.setattr(SegmentFiles, "open", lambda files, segment: pytest.fail(f"{segment.file} was opened"))
    assert turns.run(fire=1, clock=1) == set()


def test_a_batch_of_very_many_rows_goes_through_a_slot_in_ranges_that_see_only_their_own_keys(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns.run(*(row(f"k{number}", event=7) for number in range(40)))
    monkeypatch.setattr("headrace.wheel.turn.PASS_ROWS", 10)
    seen = turns.shown(turns.blobs([row(f"k{number}", 1) for number in range(20)]), fire=6)
    assert len(seen) > 1
    assert sorted(key for state in seen for key in state["key"]) == sorted(f"k{number}" for number in range(20))
    due = turns.shown([], fire=7)
    assert len(due) > 1
    assert {key for state in due for key in state["key"]} >= {f"k{number}" for number in range(20, 40)}
    everything = turns.shown([], fire=END)
    assert sorted(key for state in everything for key in state["key"]) == sorted(f"k{number}" for number in range(40))


def test_of_a_key_with_many_rows_only_those_in_the_ranges_of_the_batch_are_seen(tmp_path: Path) -> None:
    def around(frames: Sequence[pl.DataFrame]) -> OrderRanges:
        values = frames[0]["value"].to_numpy()
        return OrderRanges.covering((values - 1, values + 1))

    turns = Turns(Noting(Due(order=pl.col("value"), ranges=around), identity=("key", "value")), tmp_path)
    turns.run(*(row("a", value) for value in range(100)), *(row("b", value) for value in range(50, 60)))
    (seen,) = turns.shown(turns.blobs([row("a", 7), row("b", 50)]))
    assert sorted(seen.select("key", "value").rows()) == [
        ("a", 6),
        ("a", 7),
        ("a", 8),
        ("a", 49),
        ("a", 50),
        ("a", 51),
        ("b", 50),
        ("b", 51),
    ]
    everything = turns.shown([], fire=END)
    assert sum(state.height for state in everything) == 110


def test_rows_that_wait_are_added_up_from_batch_to_batch(tmp_path: Path) -> None:
    operator = Noting()
    turns = Turns(operator, tmp_path)
    waiting = []
    for before, after in ((0, 3), (1, 5), (5, 0)):
        operator.waiting = WaitingRows(before, 0, after)
        turns.run(row("a"))
        waiting.append(turns.held[0].waiting)
    assert waiting == [3, 7, 2]
    operator.waiting = None
    turns.run(row("a"))
    assert turns.held[0].waiting == 2


def broadcast(turns: Turns, *rows: Mapping[str, Any]) -> list[Blob]:
    blob = encode(pl.DataFrame(rows, schema=ROW))
    return [Blob(slot, 0, 0, blob, second=True) for slot in range(turns.slots)]


def test_shared_rows_are_written_by_the_first_slot_and_seen_by_all(tmp_path: Path) -> None:
    turns = Turns(Ruled(), tmp_path, slots=3)
    assert [state.height for state in turns.shown(broadcast(turns, row("r1", 1), row("r2", 2)))] == [0, 0, 0]
    assert [len(turns.held[slot].shared) for slot in range(3)] == [1, 0, 0]
    assert all(not held.segments for held in turns.held.values())
    assert len(list(turns.storage.list("state"))) == 1
    for _ in range(2):
        for state in turns.shown([]):
            assert sorted(state["key"]) == ["r1", "r2"]
        assert [len(turns.held[slot].shared) for slot in range(3)] == [1, 0, 0]


def test_shared_rows_change_for_all_slots_with_the_batch(tmp_path: Path) -> None:
    turns = Turns(Ruled(), tmp_path, slots=3)
    turns.shown(broadcast(turns, row("r1", 1), row("r2", 2)))
    # In the batch itself every slot sees what was before it.
    for state in turns.shown(broadcast(turns, row("r1", None), row("r2", 3))):
        assert sorted(state["key"]) == ["r1", "r2"]
    for state in turns.shown([]):
        assert state.select("key", "value").rows() == [("r2", 3)]


def test_shared_rows_lie_beside_those_of_keys_and_are_never_looked_up_by_key(tmp_path: Path) -> None:
    turns = Turns(Ruled(), tmp_path, slots=3)
    turns.shown([*broadcast(turns, row("rule", 1)), *turns.blobs([row(f"k{number}") for number in range(9)])])
    by_slot = turns.shown(turns.blobs([row("k4", 1)]))
    of_k4 = slot_of(turns, "k4")
    assert [sorted(state["key"]) for state in by_slot] == [
        ["k4", "rule"] if slot == of_k4 else ["rule"] for slot in range(3)
    ]
    (shared,) = turns.held[0].shared
    assert shared.groups == GroupRange(0, 128, 128)


def test_the_first_slot_is_due_when_a_shared_row_is(tmp_path: Path) -> None:
    turns = Turns(Ruled(), tmp_path, slots=2, bounds=TimeBounds(0, 0, 0))
    turns.shown(broadcast(turns, row("rule", 1, event=7, clock=8)))
    assert (turns.held[0].due, turns.held[0].due_clock) == (7, 8)


SCHEMA = {"key": pl.String(), "level": pl.Float64(), "x": pl.Float64(), "at": pl.Datetime("us", "UTC")}


def tens(*key: str) -> Operator:
    step = hr.tumbling("tens", size="10 microseconds", key=list(key)).agg(n="count(*)", total="sum(x)")
    return step.late(hr.side_output()).bind(SCHEMA, "at")


def payments(*given: tuple[str | None, float | None, float, int]) -> pl.DataFrame:
    frame = pl.DataFrame(given, schema={**SCHEMA, "at": pl.Int64()}, orient="row")
    return frame.cast({"at": SCHEMA["at"]})


def closed(turns: Turns, rows: pl.DataFrame | None, *, fire: int = BEGINNING) -> list[dict[str, Any]]:
    """The windows that close in a batch of one slot."""
    turns.batch += 1
    turns.bounds = TimeBounds(fire, fire, turns.bounds.fire)
    task = turns.task()
    assert not isinstance(turns.operator, Noting)
    blobs = [] if rows is None else list(pack([rows], [Input(turns.operator)], task))
    results = turn(turns.operator, task, 0, blobs or [Blob(0, -1, 0, b"")])
    return [row for frame in results for row in frame.rows(named=True)]


def test_blobs_are_taken_in_the_order_of_origin_and_sequence_whatever_order_they_come_in(tmp_path: Path) -> None:
    """Sums of floats depend on the order: these four give 2.0 in the right one and other totals in most others."""
    numbers = [(0, 0, 1e16), (0, 1, 1.0), (1, 0, -1e16), (1, 1, 2.0)]
    turns = Turns(tens("key"), tmp_path, bounds=TimeBounds(BEGINNING, END))
    blobs = []
    for origin, sequence, number in numbers:
        (blob, *_) = pack([payments(("a", 0.0, number, 3))], [Input(tens("key"))], turns.task())
        blobs.append(Blob(0, origin, sequence, blob.blob))
    totals = set()
    for order in itertools.permutations(blobs):
        (result,) = turn(tens("key"), turns.task(), 0, order)
        totals.add(result["total"].item())
        turns.held.clear()
    assert totals == {1e16 + 1.0 - 1e16 + 2.0}


def test_a_woken_slot_closes_its_windows_without_rows(tmp_path: Path) -> None:
    turns = Turns(tens("key"), tmp_path)
    assert closed(turns, payments(("a", 0.0, 1.0, 3))) == []
    held = turns.held[0]
    assert (held.due, held.rows) == (10, 1)
    assert held.bytes > 0
    (window,) = closed(turns, None, fire=10)
    assert (window["key"], window["n"], window["pane"]) == ("a", 1, "on_time")
    assert turns.held[0].due is None
    assert closed(turns, None, fire=20) == []
    assert turns.held[0] == SlotSummary()


def test_keys_that_are_null_nan_or_zero_are_found_again(tmp_path: Path) -> None:
    turns = Turns(tens("key", "level"), tmp_path)
    nan = float("nan")
    for level, zero in ((nan, 0.0), (-nan, -0.0), (nan, -0.0)):
        keys = [(None, 1.0), ("a", None), (None, None), ("a", level), ("a", zero), ("a", 1.0)]
        assert closed(turns, payments(*((key, level, 1.0, 3) for key, level in keys))) == []
    found = {(window["key"], str(window["level"])): window["n"] for window in closed(turns, None, fire=10)}
    keys_shown = [(None, "1.0"), ("a", "None"), (None, "None"), ("a", "nan"), ("a", "0.0"), ("a", "1.0")]
    assert found == dict.fromkeys(keys_shown, 3)


def test_the_state_of_an_attempt_that_was_not_committed_is_not_used(tmp_path: Path) -> None:
    turns = Turns(tens("key"), tmp_path)
    closed(turns, payments(("a", 0.0, 1.0, 3)))
    committed, batch = dict(turns.held), turns.batch
    for number in (10.0, 100.0):
        closed(turns, payments(("a", 0.0, number, 3)))
    # Its files are still there, but nothing names them.
    turns.held, turns.batch = committed, batch
    closed(turns, payments(("a", 0.0, 10.0, 3)))
    (window,) = closed(turns, None, fire=10)
    assert (window["n"], window["total"]) == (2, 11.0)
