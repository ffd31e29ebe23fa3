"""A disk that is full is known by its error, wherever that comes from, and lets the lease go."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from headrace.checkpoint.lease import Renewal, take_lease
from headrace.checkpoint.room import ROOM, has_room, is_full, needing_room
from headrace.checkpoint.storage import LocalStorage
from headrace.errors import HeadraceError

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "log/7.json")


@pytest.mark.parametrize(
    ("problem", "full"),
    [
        (FULL, True),
        (OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)), True),
        (HeadraceError("BATCH_FAILED", f"a task failed: {FULL}"), True),
        (RuntimeError("java.io.IOException: No space left on device"), True),
        (PermissionError("not yours"), False),
        (HeadraceError("FENCED", "no"), False),
    ],
)
def test_a_full_disk_is_known_here_in_a_task_and_in_spark(problem: Exception, full: bool) -> None:
    assert is_full(problem) is full
    wrapped = ValueError("what came of it")
    wrapped.__cause__ = problem
    assert is_full(wrapped) is full


class Disk:
    """A disk that may be full: then nothing more is written to it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = False
        self.written = 0
        write = LocalStorage._write

        def writing(storage: LocalStorage, file: Path, content: bytes) -> None:
            if self.full:
                raise FULL
            self.written += len(content)
            write(storage, file, content)

        monkeypatch.setattr(LocalStorage, "_write", writing)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def test_there_is_room_when_something_can_be_written_of_which_nothing_stays(disk: Disk, tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    assert has_room(storage)
    assert (disk.written, list(tmp_path.iterdir())) == (ROOM, [])
    disk.full = True
    assert not has_room(storage)


def test_a_file_that_does_not_fit_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def sync(descriptor: int) -> None:
        raise FULL

    monkeypatch.setattr(os, "fsync", sync)
    for write in (LocalStorage.write, LocalStorage.create, LocalStorage.replace):
        with pytest.raises(OSError, match="No space left"):
            write(LocalStorage(tmp_path), "a", b"content")
    assert list(tmp_path.iterdir()) == []


def test_a_start_on_a_full_disk_is_an_error_with_an_id(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    said = rf"\[DISK_FULL\] checkpoint '{tmp_path}' cannot be written"
    with pytest.raises(HeadraceError, match=said), needing_room(storage):
        raise FULL
    with pytest.raises(PermissionError), needing_room(storage):
        raise PermissionError("not yours")


def test_a_lease_is_released_on_a_full_disk_so_that_the_same_process_can_take_it_again(
    disk: Disk, tmp_path: Path
) -> None:
    storage = LocalStorage(tmp_path)
    renewal = Renewal(take_lease(storage))
    renewal.name_flows({"spend": "spend-1"})
    disk.full = True
    renewal.release()
    with pytest.raises(OSError, match="No space left"):
        take_lease(storage)
    disk.full = False
    assert take_lease(storage).epoch == 1
