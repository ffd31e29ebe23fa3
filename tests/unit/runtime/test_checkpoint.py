from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from headrace.errors import HeadraceError
from headrace.runtime.checkpoint import EXPIRES_SECONDS, Lease, Renewal, brings_rows, take_lease

HOLD = """
import sys, time
from pathlib import Path
from headrace.runtime.checkpoint import take_lease
print(take_lease(Path(sys.argv[1])).epoch, flush=True)
time.sleep(60)
"""


def _holder(checkpoint: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(checkpoint)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "1\n"
    return process


def test_a_second_driver_is_refused_with_the_name_of_the_first(tmp_path: Path) -> None:
    holder = _holder(tmp_path)
    with holder:
        try:
            with pytest.raises(HeadraceError, match=rf"\[CHECKPOINT_IN_USE\].*process {holder.pid} on "):
                take_lease(tmp_path)
        finally:
            holder.kill()


def test_the_lease_of_a_driver_that_was_killed_is_taken_over_at_once(tmp_path: Path) -> None:
    with _holder(tmp_path) as holder:
        holder.kill()
    assert take_lease(tmp_path).epoch == 2


@pytest.mark.parametrize(("moved", "taken"), [(-1.0, False), (1.0, False), (5.0, True)])
def test_a_process_is_the_same_after_the_clock_was_set_and_another_when_it_began_later(
    tmp_path: Path, moved: float, taken: bool
) -> None:
    held = take_lease(tmp_path)
    holder = json.loads(held.file.read_text())
    held.file.write_text(json.dumps({**holder, "started": holder["started"] - moved}))
    if taken:
        assert take_lease(tmp_path).epoch == 2
    else:
        with pytest.raises(HeadraceError, match="CHECKPOINT_IN_USE"):
            take_lease(tmp_path)


def test_a_driver_that_does_not_renew_its_lease_loses_it(tmp_path: Path) -> None:
    first = take_lease(tmp_path)
    first.check()
    past = time.time() - EXPIRES_SECONDS - 1
    os.utime(first.file, (past, past))

    second = take_lease(tmp_path)

    second.check()
    with pytest.raises(HeadraceError, match=rf"\[LEASE_LOST\] process {os.getpid()} on .*epoch 2"):
        first.check()


def test_a_released_lease_is_free(tmp_path: Path) -> None:
    renewal = Renewal(take_lease(tmp_path))
    renewal.release()
    assert take_lease(tmp_path).epoch == 2


def test_renewing_keeps_a_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.runtime.checkpoint.RENEWED_SECONDS", 0.02)
    lease = take_lease(tmp_path)
    past = time.time() - EXPIRES_SECONDS - 1
    os.utime(lease.file, (past, past))
    renewal = Renewal(lease)
    deadline = time.monotonic() + 60
    while lease.file.stat().st_mtime == past and time.monotonic() < deadline:
        time.sleep(0.01)
    with pytest.raises(HeadraceError, match="CHECKPOINT_IN_USE"):
        take_lease(tmp_path)
    renewal.release()


def test_a_driver_on_another_machine_is_believed_as_long_as_it_renews(tmp_path: Path) -> None:
    folder = tmp_path / "lease"
    folder.mkdir()
    elsewhere = {"host": "elsewhere", "pid": 1, "started": 0.0}
    Lease(str(folder), 4).file.write_text(json.dumps(elsewhere))
    with pytest.raises(HeadraceError, match="process 1 on elsewhere"):
        take_lease(tmp_path)


def test_of_two_drivers_that_start_at_once_one_is_refused(tmp_path: Path) -> None:
    taken: list[int] = []
    refused: list[str] = []
    together = threading.Barrier(4)

    def start() -> None:
        together.wait()
        try:
            taken.append(take_lease(tmp_path).epoch)
        except HeadraceError as error:
            refused.append(error.id)

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert taken == [1]
    assert refused == ["CHECKPOINT_IN_USE"] * 3


def _log(checkpoint: Path, batch: int, *offsets: str) -> None:
    (checkpoint / "offsets").mkdir(exist_ok=True)
    (checkpoint / "offsets" / str(batch)).write_text("\n".join(["v1", "{}", *offsets]))


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (None, ("0", "-"), True),
        (None, ("-", "0"), False),
        (("0", "0"), ("0", "1"), False),
        (("0", "0"), ("1", "0"), True),
        (("0", "0", "4", "0"), ("0", "1", "4", "1"), False),
        (("0", "0", "-", "0"), ("0", "1", "4", "1"), True),
    ],
    ids=["first rows", "a tick before any row", "a tick", "rows", "ticks of two sources", "rows of the second source"],
)
def test_only_the_streams_of_rows_count(
    before: tuple[str, ...] | None, now: tuple[str, ...], expected: bool, tmp_path: Path
) -> None:
    if before is not None:
        _log(tmp_path, 6, *before)
    _log(tmp_path, 7, *now)
    assert brings_rows(tmp_path, 7) is expected
