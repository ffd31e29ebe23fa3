"""Which files of a checkpoint nobody needs any more, and the pins by which readers keep those that they do."""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from headrace.checkpoint.storage import Storage, incomplete

PINS = "pins"
LISTED_BATCHES = 100
"""How many batches pass from one listing of the folder to the next."""


@dataclass(frozen=True, slots=True)
class FileName:
    """The name of a segment, which tells who wrote it: ``folder/epoch-batch-slot-random.arrow``.

    >>> FileName.parse(str(FileName("state/hourly", epoch=7, batch=41, slot=0))).batch
    41
    """

    folder: str
    epoch: int
    batch: int
    slot: int
    random: str = field(default_factory=lambda: uuid.uuid4().hex)
    """So that nobody else has used the name or will."""

    @classmethod
    def parse(cls, name: str) -> FileName:
        folder, _, file = name.rpartition("/")
        epoch, batch, slot, random = file.removesuffix(".arrow").split("-")
        return cls(folder, int(epoch), int(batch), int(slot), random)

    def __str__(self) -> str:
        return f"{self.folder}/{self.epoch}-{self.batch}-{self.slot}-{self.random}.arrow"


def sweep(storage: Storage, folder: str, *, kept: Collection[str], epoch: int, done: int, now: int) -> int:
    """Remove the files of a folder that neither a retained manifest nor a pin names; returns how many there were.

    Call it only once one's own takeover or outcome is in the log. Files of a newer epoch, and those of one's own epoch
    that belong to a batch after ``done``, the last one concluded, are somebody's work and stay.
    """
    # Pins first: a reader pins only what the log still retained when it looked again, after it had written its pin.
    pinned = _pinned(storage, now)
    orphans = [
        name
        for name in storage.list(folder)
        if name not in kept
        and name not in pinned
        and ((file := FileName.parse(name)).epoch < epoch or (file.epoch == epoch and file.batch <= done))
    ]
    for name in orphans:
        storage.delete(name)
    return len(orphans)


class Sweeper:
    """Removes the files of a folder that the newest manifest no longer needs, batch after batch."""

    def __init__(self, storage: Storage, folder: str, *, epoch: int) -> None:
        self._storage = storage
        self._folder = folder
        self._epoch = epoch
        self._named: Collection[str] = ()

    def check(self, named: Collection[str]) -> None:
        """Fail when a file that the manifest names is not there."""
        missing = sorted(set(named).difference(self._storage.list(self._folder)))
        if missing:
            more = f" and {len(missing) - 1} more files" if missing[1:] else ""
            raise incomplete(self._storage, f"{missing[0]}{more} of the state {'are' if more else 'is'} missing")

    def all(self, named: Collection[str], *, done: int, now: int) -> None:
        """Remove every file that the manifest of the last batch done does not name."""
        self._named = named
        sweep(self._storage, self._folder, kept=named, epoch=self._epoch, done=done, now=now)

    def batch(self, named: Collection[str], *, done: int, now: int) -> None:
        """Remove what the manifest of the batch before still named; now and then look for orphans of failed tasks."""
        if done % LISTED_BATCHES == 0:
            self.all(named, done=done, now=now)
            return
        gone = [name for name in self._named if name not in named]
        pinned = _pinned(self._storage, now) if gone else ()
        for name in gone:
            if name not in pinned:
                self._storage.delete(name)
        self._named = named


@contextmanager
def pin(storage: Storage, files: Collection[str], *, until: int) -> Iterator[None]:
    """Keep files from being swept until a time (in microseconds). Look again whether the log still retains them."""
    name = f"{PINS}/{until}-{uuid.uuid4().hex}.json"
    storage.create(name, json.dumps(sorted(files)).encode())
    try:
        yield
    finally:
        storage.delete(name)


def _pinned(storage: Storage, now: int) -> set[str]:
    """The files that pins keep; a pin that has expired is removed."""
    pinned: set[str] = set()
    for name in storage.list(PINS):
        if int(name.removeprefix(f"{PINS}/").partition("-")[0]) <= now:
            storage.delete(name)
            continue
        try:
            pinned.update(json.loads(storage.open(name).to_pybytes()))
        except FileNotFoundError:
            continue  # its reader has just let go
    return pinned
