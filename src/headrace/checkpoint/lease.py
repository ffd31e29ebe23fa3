"""The lease of a checkpoint: one driver holds it and renews it, and the next one takes it over.

The log alone decides who may write. The lease tells a second driver early, and in words, that it is not needed.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import psutil

from headrace.checkpoint.storage import LocalStorage, Storage
from headrace.errors import HeadraceError
from headrace.json_codec import from_text, to_text

FOLDER = "lease"
RENEWED_SECONDS = 2.0
EXPIRES_SECONDS = 10.0
WATCH_SECONDS = 0.5
KEPT_LEASES = 10
FORMAT = 1
# When the clock of the machine is set, all its processes seem to have started a little earlier or later.
CLOCK_SET_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """The process that holds a lease, as the lease file describes it."""

    host: str
    pid: int
    started: float
    renewed: float = 0.0
    """When it renewed the lease, by the monotonic clock of its host; on other hosts only a number that changes."""
    expires: float = EXPIRES_SECONDS
    """How many seconds after its last renewal the lease may be taken over."""
    released: bool = False
    flows: Mapping[str, str] = field(default_factory=dict)
    """The flows of the checkpoint, each with its id: their folders belong to it as much as the lease does."""

    @classmethod
    def this_process(cls, flows: Mapping[str, str], *, released: bool = False) -> LeaseHolder:
        me = psutil.Process()
        moment = me.create_time(), time.monotonic()
        return cls(socket.gethostname(), me.pid, *moment, released=released, flows=flows)

    @property
    def is_here(self) -> bool:
        """Whether it runs, or ran, on this host."""
        return self.host == socket.gethostname()

    @property
    def has_ended(self) -> bool:
        """Whether the process is certainly gone; about a process on another host nothing is certain."""
        if not self.is_here:
            return False
        try:
            process = psutil.Process(self.pid)
            another = abs(process.create_time() - self.started) > CLOCK_SET_SECONDS
            return another or bool(process.status() == psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return True

    def to_bytes(self) -> bytes:
        return to_text(self, format=FORMAT).encode()

    def __str__(self) -> str:
        since = datetime.fromtimestamp(self.started, UTC)
        return f"process {self.pid} on {self.host} (started {since:%Y-%m-%d %H:%M:%S} UTC)"


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write a checkpoint, until another driver takes a higher epoch."""

    storage: Storage
    epoch: int
    flows: Mapping[str, str] = field(default_factory=dict, compare=False)
    """The flows that the checkpoint had when the lease was taken, each with its id."""

    @property
    def file(self) -> str:
        return f"{FOLDER}/{self.epoch:010d}.json"

    @property
    def holder(self) -> LeaseHolder:
        try:
            return from_text(LeaseHolder, self.storage.open(self.file).to_pybytes(), format=FORMAT)
        except (ValueError, TypeError) as problem:
            raise HeadraceError(
                "LEASE_DAMAGED",
                f"{self.file!r} of checkpoint {str(self.storage)!r} was truncated or changed ({problem}), so nobody "
                "knows who writes the checkpoint. When no driver does, remove the file and start again.",
            ) from None

    def check(self) -> None:
        """Fail when another driver has taken over."""
        newest = max(self.storage.numbers(FOLDER), default=0)
        if newest > self.epoch:
            raise HeadraceError(
                "LEASE_LOST",
                f"{Lease(self.storage, newest).holder} has taken over checkpoint {str(self.storage)!r} "
                f"(epoch {newest}) while this driver (epoch {self.epoch}) did not renew its lease. "
                "This driver writes nothing more.",
            )

    def renew(self, *, released: bool = False) -> None:
        """Show that this process holds the lease, or gives it up; FileNotFoundError when the checkpoint is gone."""
        self.storage.size(self.file)
        self.storage.replace(self.file, LeaseHolder.this_process(self.flows, released=released).to_bytes())


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
                self.lease.renew()
            except FileNotFoundError:
                return  # the checkpoint is gone, and with it what the lease protects
            except OSError:
                continue  # the storage may answer next time; if it does not, the next entry of the log fails

    def name_flows(self, flows: Mapping[str, str]) -> None:
        """Write down the flows that the checkpoint has now."""
        self.lease = replace(self.lease, flows=flows)
        self.lease.renew()

    def release(self) -> None:
        """Let the next driver start at once."""
        if self._released.is_set():
            return
        self._released.set()
        self._thread.join()
        try:
            self.lease.renew(released=True)
        except FileNotFoundError:
            pass  # the checkpoint is gone
        except OSError:
            # A full disk takes nothing new, but it lets go.
            self.lease.storage.delete(self.lease.file)


@dataclass(frozen=True, slots=True)
class LastDriver:
    """The driver that has or had the lease of a checkpoint last."""

    flows: tuple[str, ...] = ()
    stopped: float | None = None
    """When it was last seen, in seconds since 1970; None while it holds the lease."""


def last_driver(checkpoint: Path) -> LastDriver | None:
    """Who runs a checkpoint, or ran it last; None if nobody did."""
    storage = LocalStorage(checkpoint)
    newest = Lease(storage, max(storage.numbers(FOLDER), default=0))
    try:
        seen, holder = (checkpoint / newest.file).stat().st_mtime, newest.holder
    except FileNotFoundError:
        return None
    silent = not holder.is_here and time.time() - seen > holder.expires
    gone = holder.released or holder.has_ended or silent
    return LastDriver(tuple(holder.flows), seen if gone else None)


def take_lease(storage: Storage) -> Lease:
    """Become the one driver of a checkpoint; refused while another one is alive."""
    while True:
        newest = max(storage.numbers(FOLDER), default=0)
        flows = _wait_until_free(Lease(storage, newest)).flows if newest else {}
        lease = Lease(storage, newest + 1, flows)
        # Of two drivers that start at once, the first to create its file gets the lease.
        if storage.claim(lease.file, LeaseHolder.this_process(flows).to_bytes()):
            # The number may be one that was freed long after others went on.
            lease.check()
            for old in sorted(storage.numbers(FOLDER))[:-KEPT_LEASES]:
                storage.delete(Lease(storage, old).file)
            return lease


def last_holder(storage: Storage) -> LeaseHolder | None:
    """Who holds the checkpoint, or held it last; None if nobody ever did."""
    newest = max(storage.numbers(FOLDER), default=0)
    return Lease(storage, newest).holder if newest else None


def _wait_until_free(lease: Lease) -> LeaseHolder:
    """Wait until a lease may be taken over; refuse as soon as its holder is known to be alive. Returns the holder.

    A holder on this host is judged at once. For one elsewhere only changes of its file count, by this host's clock.
    """
    first = holder = lease.holder
    since = first.renewed if first.is_here else time.monotonic()
    while not (holder.released or holder.has_ended or time.monotonic() - since >= first.expires):
        if holder.is_here or holder.renewed != first.renewed:
            age = time.monotonic() - holder.renewed if holder.is_here else 0.0
            raise HeadraceError(
                "CHECKPOINT_IN_USE",
                f"checkpoint {str(lease.storage)!r} is being written by {holder}, which renewed its lease "
                f"{age:.0f} s ago. Stop it first; a driver that hangs is replaced once its lease is "
                f"{holder.expires:.0f} s old.",
            )
        time.sleep(WATCH_SECONDS)
        holder = lease.holder
    return holder
