"""The checkpoint folder of a pipeline and its lease, which one driver holds."""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import psutil

from headrace.errors import HeadraceError
from headrace.json_codec import from_text, to_text
from headrace.storage import named_first, write_durably


def open_checkpoint(path: str | os.PathLike[str]) -> Path:
    """Create the folder and check that it is writable, before anything runs."""
    folder = Path(path).absolute()
    probe = folder / f".writable-{uuid.uuid4().hex}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as problem:
        raise HeadraceError(
            "CHECKPOINT_NOT_WRITABLE",
            f"checkpoint {str(folder)!r} cannot be written ({problem.strerror}), so nothing would survive a restart. "
            "Choose a folder this user may write to.",
        ) from problem
    return folder


FOLDER = "lease"
RENEWED_SECONDS = 2.0
EXPIRES_SECONDS = 10.0
KEPT_LEASES = 10
LEASE_FORMAT = 1
# When the clock of the machine is set, all its processes seem to have started a little earlier or later.
CLOCK_SET_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write a checkpoint, until another driver takes a higher epoch."""

    folder: str
    epoch: int

    def check(self) -> None:
        """Fail when another driver has taken over."""
        folder = Path(self.folder)
        newest = _newest(folder)
        if newest > self.epoch:
            raise HeadraceError(
                "LEASE_LOST",
                f"{Lease(self.folder, newest).holder} has taken over checkpoint {str(folder.parent)!r} "
                f"(epoch {newest}) while this driver (epoch {self.epoch}) did not renew its lease. "
                "This driver writes nothing more.",
            )

    @property
    def file(self) -> Path:
        """The lease's own file; its time of modification is when it was last renewed."""
        return Path(self.folder) / f"{self.epoch:010d}.json"

    @property
    def holder(self) -> LeaseHolder:
        return from_text(LeaseHolder, self.file.read_text(encoding="utf-8"), format=LEASE_FORMAT)


class Renewal:
    """Keeps a lease fresh in the background, until it is released."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self._released = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="headrace-lease", daemon=True)
        self._thread.start()

    def _renew(self) -> None:
        while not self._released.wait(RENEWED_SECONDS):
            try:
                os.utime(self.lease.file)
            except FileNotFoundError:
                return  # the checkpoint is gone, and with it what the lease protects

    def release(self) -> None:
        """Let the next driver start at once."""
        if self._released.is_set():
            return
        self._released.set()
        self._thread.join()
        if self.lease.file.exists():
            write_durably(self.lease.file, to_text(LeaseHolder.this_process(released=True), format=LEASE_FORMAT))


def take_lease(checkpoint: Path) -> Lease:
    """Become the one driver of a checkpoint; refused while another one lives."""
    folder = checkpoint / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    while True:
        newest = _newest(folder)
        if newest:
            _refuse_if_held(Lease(str(folder), newest))
        lease = Lease(str(folder), newest + 1)
        unfinished = lease.file.with_name(f".{uuid.uuid4().hex}")
        write_durably(unfinished, to_text(LeaseHolder.this_process(), format=LEASE_FORMAT))
        # Of two drivers that start at once, the first to name its file gets the lease.
        if named_first(unfinished, lease.file):
            for old in sorted(folder.glob("*.json"))[:-KEPT_LEASES]:
                old.unlink(missing_ok=True)
            return lease


def _refuse_if_held(lease: Lease) -> None:
    holder = lease.holder
    if holder.released or holder.has_ended:
        return
    age = time.time() - lease.file.stat().st_mtime
    if age < EXPIRES_SECONDS:
        raise HeadraceError(
            "CHECKPOINT_IN_USE",
            f"checkpoint {str(Path(lease.folder).parent)!r} is being written by {holder}, which renewed its lease "
            f"{age:.0f} s ago. Stop it first; a driver that hangs is replaced once its lease is "
            f"{EXPIRES_SECONDS:.0f} s old.",
        )


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """The process that took a lease."""

    host: str
    pid: int
    started: float
    released: bool = False

    @classmethod
    def this_process(cls, *, released: bool = False) -> LeaseHolder:
        me = psutil.Process()
        return cls(socket.gethostname(), me.pid, me.create_time(), released)

    @property
    def has_ended(self) -> bool:
        """Whether the process is certainly gone; of another machine's processes nothing is certain."""
        if self.host != socket.gethostname():
            return False
        try:
            process = psutil.Process(self.pid)
            another = abs(process.create_time() - self.started) > CLOCK_SET_SECONDS
            return another or bool(process.status() == psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return True

    def __str__(self) -> str:
        since = datetime.fromtimestamp(self.started, UTC)
        return f"process {self.pid} on {self.host} (started {since:%Y-%m-%d %H:%M:%S} UTC)"


def _newest(folder: Path) -> int:
    """The newest epoch, 0 when there is none."""
    return max((int(file.stem) for file in folder.glob("[0-9]*.json")), default=0)
