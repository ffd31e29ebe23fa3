"""State kept in the worker."""

from __future__ import annotations

import polars as pl

from headrace.wheel.pages import Place, StateCache


def place(group: int) -> Place:
    return ("flow", "step", group)


def frame(rows: int) -> pl.DataFrame:
    """Eight bytes a row."""
    return pl.DataFrame({"n": range(rows)}, schema={"n": pl.Int64})


def test_a_frame_is_trusted_only_under_the_stamp_it_was_stored_with() -> None:
    cache = StateCache()
    cache.put(place(1), "old", frame(1))
    assert cache.get(place(1), "new") is None
    assert cache.get(place(2), "old") is None
    cache.put(place(1), "new", frame(2))
    assert cache.get(place(1), "old") is None
    kept = cache.get(place(1), "new")
    assert kept is not None
    assert kept.height == 2


def test_flows_and_steps_do_not_share_places() -> None:
    cache = StateCache()
    cache.put(("flow", "step", 1), "stamp", frame(1))
    assert cache.get(("flow", "other", 1), "stamp") is None
    assert cache.get(("other", "step", 1), "stamp") is None


def test_the_least_used_leave_when_memory_runs_out() -> None:
    cache = StateCache(most_bytes=3 * 80)
    for group in (1, 2, 3):
        cache.put(place(group), "s", frame(10))
    cache.get(place(1), "s")
    cache.put(place(4), "s", frame(10))
    assert [group for group in (1, 2, 3, 4) if cache.get(place(group), "s") is not None] == [1, 3, 4]


def test_memory_is_bounded_by_bytes_not_by_number() -> None:
    cache = StateCache(most_bytes=1000)
    for group in range(100):
        cache.put(place(group), "s", frame(1))
    cache.put(place(200), "s", frame(100))
    held = [group for group in range(201) if cache.get(place(group), "s") is not None]
    assert held[-1] == 200
    assert len(held) == 1 + (1000 - 800) // 8


def test_a_frame_larger_than_all_memory_is_not_kept() -> None:
    cache = StateCache(most_bytes=100)
    cache.put(place(1), "s", frame(1000))
    assert cache.get(place(1), "s") is None
    cache.put(place(2), "s", frame(1))
    assert cache.get(place(2), "s") is not None


def test_a_frame_put_again_is_not_counted_twice() -> None:
    cache = StateCache(most_bytes=200)
    for turn in range(50):
        cache.put(place(1), str(turn), frame(10))
    cache.put(place(2), "s", frame(10))
    assert cache.get(place(1), "49") is not None


def test_a_dropped_place_frees_its_memory() -> None:
    cache = StateCache(most_bytes=100)
    cache.put(place(1), "s", frame(10))
    cache.drop(place(1))
    cache.drop(place(1))
    cache.put(place(2), "s", frame(10))
    assert cache.get(place(1), "s") is None
    assert cache.get(place(2), "s") is not None
