from __future__ import annotations

import threading
import zlib
from pathlib import Path

import pytest

from headrace.checkpoint.storage import LocalStorage, MemoryStorage, Storage
from headrace.checkpoint.sweep import LISTED_BATCHES, FileName, Sweeper, pin, sweep


@pytest.fixture(params=["local", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return LocalStorage(tmp_path) if request.param == "local" else MemoryStorage()


def test_files_are_written_read_listed_and_removed(storage: Storage) -> None:
    storage.write("state/hourly/a", b"one")
    storage.write("state/b", b"")
    assert storage.open("state/hourly/a").to_pybytes() == b"one"
    assert storage.open("state/b").size == 0
    assert sorted(storage.list("state")) == ["state/b", "state/hourly/a"]
    assert list(storage.list("log")) == []
    storage.delete("state/b")
    storage.delete("state/b")
    with pytest.raises(FileNotFoundError):
        storage.open("state/b")


def test_a_name_is_written_once(storage: Storage) -> None:
    storage.write("a", b"one")
    with pytest.raises(FileExistsError):
        storage.write("a", b"two")
    assert not storage.create("a", b"two")
    assert storage.open("a").to_pybytes() == b"one"


def test_a_folder_is_cleared_of_all_its_files_and_of_no_others(storage: Storage) -> None:
    for name in ("side/a/1", "side/2", "state/3"):
        storage.write(name, b"")
    storage.clear("side")
    storage.clear("nowhere")
    assert (list(storage.list("side")), list(storage.list("state"))) == ([], ["state/3"])


def test_a_file_is_replaced_as_a_whole(storage: Storage) -> None:
    storage.replace("a/b", b"one")
    before = storage.open("a/b")
    storage.replace("a/b", b"two and more")
    assert (before.to_pybytes(), storage.open("a/b").to_pybytes()) == (b"one", b"two and more")
    assert list(storage.list("a")) == ["a/b"]


def test_parts_of_a_file_are_read_and_its_size_and_checksum_known(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.checkpoint.storage._CHUNK", 4)
    storage.write("a", b"0123456789")
    assert storage.read_range("a", 3, 4) == b"3456"
    assert storage.read_range("a", 8, 4) == b"89"
    assert storage.size("a") == 10
    assert storage.checksum("a") == (10, zlib.crc32(b"0123456789"))
    for ask in (storage.size, storage.checksum, lambda name: storage.read_range(name, 0, 1)):
        with pytest.raises(FileNotFoundError):
            ask("b")


def test_what_is_claimed_belongs_to_the_one_whose_content_it_has(storage: Storage) -> None:
    assert storage.claim("a", b"mine")
    assert storage.claim("a", b"mine")
    assert not storage.claim("a", b"yours")


def test_of_many_who_create_a_file_one_wins(tmp_path: Path) -> None:
    storage, won = LocalStorage(tmp_path), list[int]()
    start = threading.Barrier(8)

    def create(number: int) -> None:
        start.wait()
        if storage.create("log/1", b"%d" % number):
            won.append(number)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert storage.open("log/1").to_pybytes() == b"%d" % won[0]
    assert (len(won), list(storage.list("log"))) == (1, ["log/1"])


def test_a_sweep_leaves_what_is_named_pinned_running_or_newer(storage: Storage) -> None:
    files = {
        (epoch, batch): str(FileName("state", epoch=epoch, batch=batch, slot=0))
        for epoch in (1, 2, 3)
        for batch in (4, 5, 6)
    }
    for file in files.values():
        storage.write(file, b"")
    with pin(storage, [files[1, 5]], until=100):
        swept = sweep(storage, "state", kept=[files[2, 4]], epoch=2, done=5, now=99)
        assert swept == 3
        left = {files[1, 5], files[2, 4], files[2, 6], files[3, 4], files[3, 5], files[3, 6]}
        assert set(storage.list("state")) == left
    assert sweep(storage, "state", kept=[files[2, 4]], epoch=2, done=5, now=99) == 1


def test_a_pin_that_has_expired_keeps_nothing(storage: Storage) -> None:
    file = str(FileName("state", epoch=1, batch=1, slot=0))
    storage.write(file, b"")
    with pin(storage, [file], until=100):
        assert sweep(storage, "state", kept=[], epoch=2, done=1, now=100) == 1
        assert list(storage.list("pins")) == []


def test_a_batch_sweeps_what_the_manifest_before_it_named_and_now_and_then_all_orphans(storage: Storage) -> None:
    old, kept, pinned, orphan = (str(FileName("state", epoch=1, batch=1, slot=slot)) for slot in range(4))
    for file in (old, kept, pinned, orphan):
        storage.write(file, b"")
    sweeper = Sweeper(storage, "state", epoch=1)
    sweeper.all({old, kept, pinned, orphan}, done=1, now=0)
    sweeper.batch({old, kept, pinned}, done=LISTED_BATCHES, now=0)
    assert set(storage.list("state")) == {old, kept, pinned}
    storage.write(orphan, b"")
    with pin(storage, [pinned], until=100):
        sweeper.batch({kept}, done=LISTED_BATCHES + 1, now=0)
    assert set(storage.list("state")) == {kept, pinned, orphan}
    sweeper.batch({kept}, done=2 * LISTED_BATCHES, now=0)
    assert set(storage.list("state")) == {kept}
