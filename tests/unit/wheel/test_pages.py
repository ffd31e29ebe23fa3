"""The state of a key group in its map: base, deltas, directory."""

from __future__ import annotations

import json
from typing import Any

import polars as pl
import pytest

import headrace as hr
from headrace.errors import HeadraceError
from headrace.testing.inline import MapInMemory
from headrace.wheel import pages as module
from headrace.wheel.operator import Applied, Operator
from headrace.wheel.pages import BASE, DELTA, DIRECTORY, MOST_DELTAS, Directory, Pages, Place, StateCache

SCHEMA = {"key": pl.String(), "level": pl.Float64(), "at": pl.Datetime("us", "UTC")}
OPERATOR: Operator = (
    hr.tumbling("n", size="1 hour", key=["key", "level"]).agg(n="count(*)").late(hr.side_output()).bind(SCHEMA, "at")
)
Key = tuple[str | None, float | None]


class Stored:
    """A key group whose state is changed turn by turn, as an operator would, in workers that remember nothing."""

    def __init__(self, group: int = 0) -> None:
        self.entries = MapInMemory()
        self.group = group
        self.state = self.frame({})

    @staticmethod
    def frame(rows: dict[Key, int]) -> pl.DataFrame:
        values = [{"key": key, "level": level, "__end": 0, "n.count": n} for (key, level), n in rows.items()]
        return pl.DataFrame(values, schema=OPERATOR.state_schema)

    def pages(self, cache: StateCache | None = None) -> Pages:
        return Pages(self.entries, OPERATOR, cache or StateCache(), ("flow", "n", self.group))

    def change(self, rows: dict[Key, int], removed: tuple[Key, ...] = (), cache: StateCache | None = None) -> None:
        pages = self.pages(cache)
        stored = {row[:2]: row[3] for row in pages.load().rows()}
        # NaN is not equal to itself, so it is named.
        kept = {name(key): (key, n) for key, n in stored.items()} | {name(key): (key, n) for key, n in rows.items()}
        for key in removed:
            del kept[name(key)]
        upserts = self.frame(rows)
        gone = self.frame(dict.fromkeys(removed, 0)).select(OPERATOR.identity)
        pages.store(Applied(self.frame(dict(kept.values())), upserts, gone, pl.DataFrame()))

    def content(self, cache: StateCache | None = None) -> dict[str, int]:
        rows = self.pages(cache).load().rows()
        found = {name(row[:2]): row[3] for row in rows}
        assert len(found) == len(rows)
        return found

    def numbers(self) -> list[int]:
        return sorted(key[0] for key, _ in self.entries.iterator())

    def directory(self) -> Directory:
        stored = self.entries.getValue((DIRECTORY,))
        assert stored is not None
        return Directory.from_bytes(stored[0])


def name(key: Any) -> str:
    return f"{key[0]}/{key[1]}"


def some(count: int) -> dict[Key, int]:
    return {(f"k{number}", 1.0): number for number in range(count)}


def named(rows: dict[Key, int]) -> dict[str, int]:
    return {name(key): n for key, n in rows.items()}


def test_a_group_that_was_never_stored_is_empty_with_the_columns_of_the_state() -> None:
    loaded = Stored().pages().load()
    assert loaded.is_empty()
    assert dict(loaded.schema) == OPERATOR.state_schema


def test_the_first_state_is_a_base() -> None:
    stored = Stored()
    stored.change(some(10))
    assert stored.numbers() == [DIRECTORY, BASE]
    assert stored.content() == named(some(10))


def test_a_small_change_is_one_small_delta() -> None:
    stored = Stored()
    stored.change(some(1000))
    base = stored.entries.getValue((BASE,))
    stored.change({("k7", 1.0): -7, ("new", 1.0): 1})
    assert stored.numbers() == [DIRECTORY, BASE, DELTA]
    assert stored.entries.getValue((BASE,)) is base
    delta = stored.entries.getValue((DELTA,))
    assert base is not None
    assert delta is not None
    assert len(delta[0]) < len(base[0]) / 5
    assert stored.content() == {**named(some(1000)), "k7/1.0": -7, "new/1.0": 1}


def test_the_newest_of_several_deltas_stands() -> None:
    stored = Stored()
    stored.change(some(100))
    for turn in range(12):
        stored.change({("k7", 1.0): turn})
    assert stored.directory().deltas == 12
    assert stored.content()["k7/1.0"] == 11


def test_a_row_removed_in_a_delta_is_gone_and_may_come_again() -> None:
    stored = Stored()
    stored.change(some(100))
    stored.change({}, removed=(("k7", 1.0),))
    assert "k7/1.0" not in stored.content()
    assert len(stored.content()) == 99
    stored.change({("k7", 1.0): 70})
    assert stored.content()["k7/1.0"] == 70
    assert stored.directory().deltas == 2


def test_null_and_nan_keys_are_found_again_in_base_and_deltas() -> None:
    stored = Stored()
    odd: list[Key] = [(None, 1.0), ("a", None), (None, None), ("a", float("nan"))]
    stored.change({**some(50), **dict.fromkeys(odd, 1)})
    stored.change(dict.fromkeys(odd, 2))
    stored.change(dict.fromkeys(odd, 3))
    assert stored.content() == {**named(some(50)), **{name(key): 3 for key in odd}}
    stored.change({}, removed=tuple(odd))
    assert stored.content() == named(some(50))


@pytest.mark.parametrize("group", [0, 3, 7, 8])
def test_deltas_are_folded_into_the_base_staggered_over_the_groups(group: int) -> None:
    stored = Stored(group)
    stored.change(some(100))
    deltas = []
    for turn in range(40):
        stored.change({("k7", 1.0): turn})
        deltas.append(stored.directory().deltas)
    most = MOST_DELTAS + group % 8
    assert deltas == [*range(1, most + 1), *range(40 - most)]
    assert stored.numbers() == [DIRECTORY, BASE, *range(DELTA, DELTA + 39 - most)]
    assert stored.content() == {**named(some(100)), "k7/1.0": 39}


def test_a_change_of_half_the_state_is_a_new_base() -> None:
    stored = Stored()
    stored.change(some(100))
    stored.change({("k7", 1.0): 1})
    stored.change(dict.fromkeys(some(50), 5))
    assert stored.numbers() == [DIRECTORY, BASE]
    assert stored.content() == {**named(some(100)), **dict.fromkeys(named(some(50)), 5)}


def test_a_large_base_is_split_into_pages_and_old_pages_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAGE_ROWS", 10)
    stored = Stored()
    stored.change(some(35))
    assert stored.numbers() == [DIRECTORY, BASE, BASE + 1, BASE + 2, BASE + 3]
    assert stored.content() == named(some(35))
    stored.change({}, removed=tuple(list(some(35))[12:]))
    assert stored.numbers() == [DIRECTORY, BASE, BASE + 1]
    assert stored.content() == named(some(12))


def test_nothing_is_left_of_a_state_that_became_empty() -> None:
    stored = Stored()
    stored.change(some(100))
    stored.change({("k7", 1.0): 1})
    stored.change({}, removed=tuple(some(100)))
    assert stored.numbers() == []
    assert stored.content() == {}


def test_a_batch_that_changes_nothing_writes_nothing() -> None:
    stored = Stored()
    stored.change(some(3))
    before = dict(stored.entries.iterator())
    stored.change({})
    assert dict(stored.entries.iterator()) == before


def test_every_store_has_a_stamp_of_its_own() -> None:
    stored = Stored()
    stamps = set()
    for turn in range(5):
        stored.change({("a", 1.0): turn})
        stamps.add(stored.directory().stamp)
    assert len(stamps) == 5


def test_a_worker_that_holds_an_older_state_reads_the_store() -> None:
    stored, here, elsewhere = Stored(), StateCache(), StateCache()
    stored.change(some(10), cache=here)
    stored.change({("k7", 1.0): -1}, cache=elsewhere)
    assert stored.content(here)["k7/1.0"] == -1


def test_a_worker_that_was_away_reads_only_the_deltas_it_has_missed() -> None:
    stored, here, elsewhere = Stored(), StateCache(), StateCache()
    stored.change(some(20), cache=elsewhere)
    stored.change({("k1", 1.0): -1}, cache=here)
    stored.change({("k2", 1.0): -2}, cache=elsewhere)
    stored.change({("new", 1.0): 1}, removed=(("k3", 1.0),), cache=elsewhere)
    expected = {**named(some(20)), "k1/1.0": -1, "k2/1.0": -2, "new/1.0": 1}
    del expected["k3/1.0"]
    assert stored.content() == expected
    stored.entries.removeKey((BASE,))
    stored.entries.removeKey((DELTA,))
    assert stored.content(here) == expected


def test_a_worker_that_was_away_while_deltas_were_folded_reads_the_new_base() -> None:
    stored, here, elsewhere = Stored(), StateCache(), StateCache()
    stored.change(some(20), cache=elsewhere)
    stored.change({("k1", 1.0): -1}, cache=here)
    stored.change(dict.fromkeys(some(20), 5), cache=elsewhere)
    stored.change({("k2", 1.0): -2}, cache=elsewhere)
    assert stored.directory().deltas == 1
    assert stored.content(here) == {**dict.fromkeys(named(some(20)), 5), "k2/1.0": -2}


def test_a_state_that_a_crash_took_back_is_not_caught_up_from() -> None:
    stored, here = Stored(), StateCache()
    stored.change(some(20), cache=StateCache())
    before = MapInMemory(stored.entries)
    stored.change({("k1", 1.0): -1}, cache=here)
    stored.entries = before
    stored.change({("k2", 1.0): -2}, cache=StateCache())
    stored.change({("k3", 1.0): -3}, cache=StateCache())
    assert stored.content(here) == {**named(some(20)), "k2/1.0": -2, "k3/1.0": -3}


def test_a_worker_that_holds_the_stored_state_does_not_read_the_store() -> None:
    stored, cache = Stored(), StateCache()
    stored.change(some(10), cache=cache)
    stored.entries.removeKey((BASE,))
    assert stored.content(cache) == named(some(10))


def test_a_worker_forgets_a_group_whose_state_is_gone() -> None:
    stored, cache = Stored(), StateCache()
    stored.change(some(10), cache=cache)
    stored.entries = MapInMemory()
    assert stored.content(cache) == {}


def test_the_size_in_the_directory_is_that_of_all_entries() -> None:
    stored = Stored()
    stored.change(some(100))
    stored.change({("k7", 1.0): 1})
    stored.change({("k8", 1.0): 1})
    sizes = [len(value[0]) for key, value in stored.entries.iterator() if key[0] != DIRECTORY]
    assert stored.directory().size == sum(sizes)


def test_a_state_of_another_format_is_refused() -> None:
    stored = Stored()
    stored.change(some(3))
    later = {**json.loads(stored.directory().to_bytes()), "format": 2}
    stored.entries.updateValue((DIRECTORY,), (json.dumps(later).encode(),))
    with pytest.raises(
        HeadraceError, match=r"\[STATE_FORMAT_UNKNOWN\] the checkpoint's state has format 2, .* format 1"
    ):
        stored.content()


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
