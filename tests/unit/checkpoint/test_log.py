from __future__ import annotations

import random
from pathlib import Path

import pytest

from headrace.checkpoint.log import Log
from headrace.checkpoint.storage import LocalStorage, MemoryStorage
from headrace.errors import HeadraceError


def filled(storage: MemoryStorage | LocalStorage, entries: int = 6, base: int | None = None) -> Log:
    log = Log(storage)
    log.read()
    for number in range(1, entries + 1):
        log.append("outcome" if number % 2 else "record", {"n": number}, is_base=number == base)
    return log


def test_entries_are_read_in_order_and_continued() -> None:
    storage = MemoryStorage()
    filled(storage)
    again = Log(storage)
    assert [entry.body["n"] for entry in again.read()] == [1, 2, 3, 4, 5, 6]
    assert again.append("record", {}).number == 7


def test_reading_begins_at_the_last_base() -> None:
    storage = MemoryStorage()
    filled(storage, base=4)
    assert [entry.number for entry in Log(storage).read()] == [4, 5, 6]


def test_a_second_driver_is_refused_at_its_next_entry() -> None:
    storage = MemoryStorage()
    first, second = filled(storage), Log(storage)
    second.read()
    second.append("takeover", None)
    with pytest.raises(HeadraceError, match=r"\[LEASE_LOST\].*entry 7"):
        first.append("outcome", {})


def test_a_number_that_was_freed_long_ago_is_not_the_next() -> None:
    storage = MemoryStorage()
    asleep, other = filled(storage), Log(storage)
    other.read()
    for _ in range(5):
        base = other.append("outcome", {}, is_base=True)
    other.trim(base.number)
    with pytest.raises(HeadraceError, match=r"\[LEASE_LOST\].*entry 11"):
        asleep.append("outcome", {})
    assert [entry.number for entry in Log(storage).read()] == [11]


def test_a_trim_that_stops_anywhere_leaves_a_log_that_can_be_read() -> None:
    for stops_after in range(4):
        storage = MemoryStorage()
        filled(storage, base=4)
        for name in sorted(storage.list("log"))[:stops_after]:
            storage.delete(name)
        assert [entry.number for entry in Log(storage).read()] == [4, 5, 6]


class Unclear(MemoryStorage):
    """An answer gets lost, before or after the file was written."""

    def __init__(self, *, written: bool) -> None:
        super().__init__()
        self.breaks = False
        self._written = written

    def create(self, name: str, content: bytes) -> bool:
        if not self.breaks:
            return super().create(name, content)
        self.breaks = False
        if self._written:
            super().create(name, content)
        raise TimeoutError("no answer")


def test_an_entry_whose_answer_was_lost_is_known_by_reading_it_back() -> None:
    storage = Unclear(written=True)
    log = filled(storage)
    storage.breaks = True
    assert log.append("record", {}).number == 7
    assert log.append("outcome", {}).number == 8


def test_an_entry_that_was_not_written_is_a_failure() -> None:
    storage = Unclear(written=False)
    log = filled(storage)
    storage.breaks = True
    with pytest.raises(TimeoutError):
        log.append("record", {})


@pytest.mark.parametrize("seed", range(60))
def test_damage_is_found_and_named(seed: int, tmp_path: Path) -> None:
    storage, chance = LocalStorage(tmp_path), random.Random(seed)
    filled(storage)
    file = tmp_path / "log" / f"{chance.randint(1, 5):012d}.json"
    content = bytearray(file.read_bytes())
    match chance.randrange(4):
        case 0:
            file.unlink()
        case 1:
            file.write_bytes(content[: chance.randrange(len(content))])
        case 2:
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
            file.write_bytes(content)
        case _:
            file.write_bytes((tmp_path / "log" / "000000000006.json").read_bytes())
    with pytest.raises(HeadraceError, match=rf"\[LOG_DAMAGED\].*{file.name}"):
        Log(storage).read()


def test_a_damaged_newest_entry_is_found_too(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    filled(storage)
    (tmp_path / "log" / "000000000006.json").write_bytes(b"")
    with pytest.raises(HeadraceError, match=r"\[LOG_DAMAGED\].*000000000006"):
        Log(storage).read()
