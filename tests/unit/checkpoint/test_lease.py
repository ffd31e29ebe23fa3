from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.checkpoint.lease import EXPIRES_SECONDS, KEPT_LEASES, Lease, LeaseHolder, Renewal, take_lease
from headrace.checkpoint.storage import LocalStorage, MemoryStorage, Storage
from headrace.errors import HeadraceError

TAKE = """
import sys
from pathlib import Path
from headrace.checkpoint.lease import take_lease
from headrace.checkpoint.storage import LocalStorage
from headrace.errors import HeadraceError
print("ready", flush=True)
sys.stdin.readline()
try:
    print(take_lease(LocalStorage(Path(sys.argv[1]))).epoch, flush=True)
except HeadraceError as problem:
    print(problem.id, flush=True)
sys.stdin.readline()
"""


@pytest.fixture(params=["local", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return LocalStorage(tmp_path) if request.param == "local" else MemoryStorage()


class Driver:
    """A process that takes the lease when it is told to, and holds it until it is killed."""

    def __init__(self, checkpoint: Path) -> None:
        command = [sys.executable, "-c", TAKE, str(checkpoint)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.said() == "ready"

    def take(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def said(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def driver(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Driver]:
    def start() -> Driver:
        started = Driver(tmp_path)
        request.addfinalizer(started.kill)
        return started

    return start


def _hold(storage: Storage, epoch: int, **changed: object) -> None:
    holder = replace(LeaseHolder.this_process({}), **changed)  # type: ignore[arg-type]
    storage.replace(Lease(storage, epoch).file, holder.to_bytes())


def test_a_second_driver_is_refused_at_once_with_the_name_of_the_first(
    tmp_path: Path, driver: Callable[[], Driver]
) -> None:
    first = driver()
    first.take()
    assert first.said() == "1"
    with pytest.raises(HeadraceError, match=rf"\[CHECKPOINT_IN_USE\] checkpoint .*process {first.process.pid} on "):
        take_lease(LocalStorage(tmp_path))


def test_a_driver_that_was_killed_is_replaced_at_once(tmp_path: Path, driver: Callable[[], Driver]) -> None:
    first = driver()
    first.take()
    assert first.said() == "1"
    first.kill()
    began = time.monotonic()
    assert take_lease(LocalStorage(tmp_path)).epoch == 2
    assert time.monotonic() - began < EXPIRES_SECONDS / 2


def test_of_two_processes_that_replace_a_dead_driver_at_once_one_is_refused(
    tmp_path: Path, driver: Callable[[], Driver]
) -> None:
    _hold(LocalStorage(tmp_path), 1, started=0.0)
    both = [driver(), driver()]
    for each in both:
        each.take()
    assert sorted(each.said() for each in both) == ["2", "CHECKPOINT_IN_USE"]


def test_of_many_drivers_that_start_at_once_one_gets_the_lease(storage: Storage) -> None:
    said: list[str] = []
    together = threading.Barrier(4)

    def start() -> None:
        together.wait()
        try:
            said.append(str(take_lease(storage).epoch))
        except HeadraceError as error:
            said.append(error.id)

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(said) == ["1", *["CHECKPOINT_IN_USE"] * 3]


@pytest.mark.parametrize(("moved", "taken"), [(-1.0, False), (1.0, False), (5.0, True)])
def test_a_process_is_the_same_after_the_clock_was_set_and_another_when_it_began_later(
    storage: Storage, moved: float, taken: bool
) -> None:
    _hold(storage, 1, started=LeaseHolder.this_process({}).started - moved)
    if taken:
        assert take_lease(storage).epoch == 2
    else:
        with pytest.raises(HeadraceError, match="CHECKPOINT_IN_USE"):
            take_lease(storage)


def test_a_driver_that_hangs_is_replaced_and_writes_nothing_when_it_wakes(storage: Storage) -> None:
    first = take_lease(storage)
    first.check()
    _hold(storage, 1, renewed=time.monotonic() - EXPIRES_SECONDS)

    second = take_lease(storage)
    first.renew()

    second.check()
    with pytest.raises(HeadraceError, match=rf"\[LEASE_LOST\] process {os.getpid()} on .*epoch 2"):
        first.check()
    with pytest.raises(HeadraceError, match="CHECKPOINT_IN_USE"):
        take_lease(storage)


def test_a_released_lease_is_free(storage: Storage) -> None:
    Renewal(take_lease(storage)).release()
    assert take_lease(storage).epoch == 2


def test_renewing_keeps_a_lease(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.checkpoint.lease.RENEWED_SECONDS", 0.02)
    lease = take_lease(storage)
    past = time.monotonic() - EXPIRES_SECONDS
    _hold(storage, 1, renewed=past)
    renewal = Renewal(lease)
    deadline = time.monotonic() + 60
    while lease.holder.renewed == past and time.monotonic() < deadline:
        time.sleep(0.01)
    with pytest.raises(HeadraceError, match="CHECKPOINT_IN_USE"):
        take_lease(storage)
    renewal.release()


@pytest.mark.parametrize("renewed", [0.0, 1e12])
def test_a_driver_elsewhere_that_renews_nothing_for_its_time_is_replaced_whatever_its_clock_says(
    storage: Storage, renewed: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.checkpoint.lease.WATCH_SECONDS", 0.01)
    _hold(storage, 4, host="elsewhere", pid=1, renewed=renewed, expires=0.2)
    began = time.monotonic()
    assert take_lease(storage).epoch == 5
    assert time.monotonic() - began >= 0.2


@pytest.mark.parametrize("renewed", [0.0, 1e12])
def test_a_driver_elsewhere_that_renews_its_lease_keeps_it_whatever_its_clock_says(
    storage: Storage, renewed: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    _hold(storage, 4, host="elsewhere", pid=1, renewed=renewed)

    def renew(_: float) -> None:
        _hold(storage, 4, host="elsewhere", pid=1, renewed=renewed + 2.0)

    monkeypatch.setattr("headrace.checkpoint.lease.time.sleep", renew)
    with pytest.raises(HeadraceError, match=r"\[CHECKPOINT_IN_USE\].*process 1 on elsewhere"):
        take_lease(storage)


class Sleeping(MemoryStorage):
    """Something happens before a file is created."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: list[Callable[[], object]] = []

    def create(self, name: str, content: bytes) -> bool:
        if self.meanwhile:
            self.meanwhile.pop()()
        return super().create(name, content)


def test_a_driver_that_slept_before_it_took_a_number_that_was_freed_since_has_lost() -> None:
    storage = Sleeping()

    def others() -> None:
        for _ in range(KEPT_LEASES + 2):
            take_lease(storage).renew(released=True)

    storage.meanwhile = [others]
    with pytest.raises(HeadraceError, match=rf"\[LEASE_LOST\].*epoch {KEPT_LEASES + 2}\)"):
        take_lease(storage)


def test_a_lease_of_a_checkpoint_that_was_removed_is_not_written_again(tmp_path: Path) -> None:
    lease = take_lease(LocalStorage(tmp_path / "checkpoint"))
    shutil.rmtree(tmp_path / "checkpoint")
    with pytest.raises(FileNotFoundError):
        lease.renew()
    assert not (tmp_path / "checkpoint").exists()
