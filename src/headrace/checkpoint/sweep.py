"""Which files of a checkpoint nobody needs any more, and the pins by which readers keep those that they do."""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from headrace.checkpoint.storage import Storage

PINS = "pins"


@dataclass(frozen=True, slots=True)
class FileName:
    """The name of a segment, which tells who wrote it: ``folder/epoch-batch-slot-random.arrow``.

    >>> FileName.parse(str(FileName("state/hourly", 7, 41, 0, "9f2c"))).batch
    41
    """

    folder: str
    epoch: int
    batch: int
    slot: int
    random: str

    @classmethod
    def new(cls, folder: str, *, epoch: int, batch: int, slot: int) -> FileName:
        """A name that nobody has used or will use."""
        return cls(folder, epoch, batch, slot, uuid.uuid4().hex)

    @classmethod
    def parse(cls, name: str) -> FileName:
        """The parts of a name."""
        folder, _, file = name.rpartition("/")
        epoch, batch, slot, random = file.removesuffix(".arrow").split("-")
        return cls(folder, int(epoch), int(batch), int(slot), random)

    def __str__(self) -> str:
        return f"{self.folder}/{self.epoch}-{self.batch}-{self.slot}-{self.random}.arrow"


def sweep(storage: Storage, folder: str, *, kept: Collection[str], epoch: int, done: int, now: int) -> int:
    """Remove the files of a folder that neither a retained manifest nor a pin names; returns how many there were.

    Call it only once one's own takeover or outcome is in the log. Files of a newer epoch, and those of one's own epoch
    that belong to a batch behind ``done``, the last one concluded, are somebody's work and stay.
    """
    # Pins first: a reader pins only what the log still retained when it looked again, after it had written its pin.
    pinned = {file for pin in _pins(storage, now) for file in pin}
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


@contextmanager
def pin(storage: Storage, files: Collection[str], *, until: int) -> Iterator[None]:
    """Keep files from being swept until a time (in microseconds). Look again whether the log still retains them."""
    name = f"{PINS}/{until}-{uuid.uuid4().hex}.json"
    storage.create(name, json.dumps(sorted(files)).encode())
    try:
        yield
    finally:
        storage.delete(name)


def _pins(storage: Storage, now: int) -> Iterator[list[str]]:
    """The files of every pin; one that has expired is removed."""
    for name in storage.list(PINS):
        if int(name.removeprefix(f"{PINS}/").partition("-")[0]) <= now:
            storage.delete(name)
            continue
        try:
            yield json.loads(storage.open(name).to_pybytes())
        except FileNotFoundError:
            continue  # its reader has just let go
