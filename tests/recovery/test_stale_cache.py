"""State kept in a worker is used only when the store holds the very same state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import polars as pl
import pytest

import headrace as hr
from headrace.event_time.record import BatchRecord, TimeBounds
from headrace.event_time.strategy import BEGINNING
from headrace.wheel.codec import decode
from headrace.wheel.pack import Blob, pack
from headrace.wheel.pages import Place, StateCache
from headrace.wheel.task import Task
from headrace.wheel.turn import turn

MOMENT = pl.Datetime("us", "UTC")
HOUR = 3_600_000_000
SCHEMA: dict[str, pl.DataType] = {"account": pl.String(), "amount": pl.Int64(), "at": MOMENT}
OPERATOR = (
    hr.tumbling("hourly", size="1 hour", key="account")
    .agg(spent="sum(amount)", n="count(*)")
    .late(hr.drop())
    .bind(SCHEMA, "at")
)


class Entries:
    """A map state in memory, which a test can put back to an earlier version as Spark does."""

    def __init__(self, held: dict[int, bytes] | None = None) -> None:
        self.held = held or {}

    def getValue(self, key: tuple[int]) -> tuple[bytes] | None:  # noqa: N802
        return (self.held[key[0]],) if key[0] in self.held else None

    def updateValue(self, key: tuple[int], value: tuple[bytes]) -> None:  # noqa: N802
        self.held[key[0]] = value[0]

    def removeKey(self, key: tuple[int]) -> None:  # noqa: N802
        self.held.pop(key[0], None)

    def iterator(self) -> Iterator[tuple[tuple[int], tuple[bytes]]]:
        return iter([((key,), (value,)) for key, value in self.held.items()])

    def copy(self) -> Entries:
        return Entries(dict(self.held))


def _task(batch: int, fire: int) -> Task:
    record = BatchRecord(batch, 0, {}, {"hourly": TimeBounds(BEGINNING, fire)}, {}, False)
    return Task(record, "flow", "", 0, 0, lambda key, values: None)


def _blobs(amounts: list[int], batch: int) -> list[Blob]:
    """Payments of one account, so of one key group, in one hour."""
    rows = pl.DataFrame(
        {"account": ["a"] * len(amounts), "amount": amounts, "at": [1] * len(amounts)},
        schema=SCHEMA,
    )
    return list(pack([rows], OPERATOR, _task(batch, BEGINNING)))


def _run(worker: StateCache, entries: Entries, batch: int, amounts: list[int]) -> None:
    turn(OPERATOR, entries, worker, _task(batch, BEGINNING), _blobs(amounts, batch))


def _close(worker: StateCache, entries: Entries, batch: int) -> tuple[int, int]:
    """Sum and count of the window when it closes in a batch without rows."""
    [blob] = _blobs([0], batch)
    result = turn(OPERATOR, entries, worker, _task(batch, HOUR), [Blob(blob.key_group, -1, 0, b"")])
    assert result is not None
    return decode([result]).select("spent", "n").row(0)


def a_failed_task_is_tried_again() -> tuple[int, int]:
    """Its batch had reached the worker's memory, but not the store."""
    worker, store = StateCache(), Entries()
    _run(worker, store, 0, [1])
    _run(worker, store.copy(), 1, [10])
    _run(worker, store, 1, [10])
    return _close(worker, store, 2)


def a_query_is_started_again_in_the_same_process() -> tuple[int, int]:
    """The last batch of the first query was never committed, and its rows come in another split now."""
    worker, store = StateCache(), Entries()
    _run(worker, store, 0, [1])
    lost = store.copy()
    _run(worker, lost, 1, [10])
    _run(worker, lost, 2, [100])
    _run(worker, store, 1, [10])
    return _close(worker, store, 2)


def a_partition_moves_to_another_worker_and_back() -> tuple[int, int]:
    """The first worker still holds the state as it was before the second worker changed it."""
    first, second, store = StateCache(), StateCache(), Entries()
    _run(first, store, 0, [1])
    _run(second, store, 1, [10])
    _run(first, store, 2, [100])
    return _close(second, store, 3)


def a_checkpoint_is_deleted_and_begun_anew() -> tuple[int, int]:
    """The worker holds the state of the old checkpoint under the same place."""
    worker = StateCache()
    _run(worker, Entries(), 0, [1000])
    store = Entries()
    _run(worker, store, 0, [1])
    _run(worker, store, 1, [10])
    return _close(worker, store, 2)


SCENARIOS: list[tuple[Callable[[], tuple[int, int]], tuple[int, int]]] = [
    (a_failed_task_is_tried_again, (11, 2)),
    (a_query_is_started_again_in_the_same_process, (11, 2)),
    (a_partition_moves_to_another_worker_and_back, (111, 3)),
    (a_checkpoint_is_deleted_and_begun_anew, (11, 2)),
]
STALE = SCENARIOS[:3]
"""The scenarios in which the store holds a directory, so that only its stamp protects the state."""


def _names(scenarios: list[tuple[Callable[[], tuple[int, int]], tuple[int, int]]]) -> list[str]:
    return [scenario.__name__ for scenario, _ in scenarios]


@pytest.mark.parametrize(("scenario", "expected"), SCENARIOS, ids=_names(SCENARIOS))
def test_a_stale_state_in_a_worker_is_never_used(
    scenario: Callable[[], tuple[int, int]], expected: tuple[int, int]
) -> None:
    assert scenario() == expected


@pytest.mark.parametrize(("scenario", "expected"), STALE, ids=_names(STALE))
def test_without_the_stamp_the_same_scenario_gives_a_wrong_answer(
    scenario: Callable[[], tuple[int, int]], expected: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def whatever_is_there(cache: StateCache, place: Place, stamp: str) -> pl.DataFrame | None:
        held: Any = cache._held.get(place)
        return None if held is None else held[1]

    monkeypatch.setattr(StateCache, "get", whatever_is_there)
    assert scenario() != expected


def test_state_in_a_worker_is_used_when_its_stamp_is_the_stored_one(monkeypatch: pytest.MonkeyPatch) -> None:
    worker, store = StateCache(), Entries()
    _run(worker, store, 0, [1])
    monkeypatch.setattr(Entries, "iterator", lambda entries: pytest.fail("the store was read"))
    _run(worker, store, 1, [10])
    assert _close(worker, store, 2) == (11, 2)


def test_a_worker_that_has_nothing_reads_the_same_state_from_the_store() -> None:
    store = Entries()
    for batch, amount in enumerate((1, 10, 100)):
        _run(StateCache(), store, batch, [amount])
    assert _close(StateCache(), store, 3) == (111, 3)
