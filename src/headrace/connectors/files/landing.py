"""A landing log: numbered files of messages that a feed has taken over from a system which forgets them."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from headrace.storage import open_binary, sync_folder

FOLDER = "landing"
SCHEMA = pa.schema([("topic", pa.string()), ("payload", pa.binary()), ("arrived", pa.int64())])


@dataclass(frozen=True, slots=True)
class Message:
    """One message as it came, and when, in microseconds."""

    topic: str
    payload: bytes
    arrived: int


@dataclass(slots=True)
class LandingLog:
    """The files of one folder; a new log goes on after the last number of an earlier one.

    A number says when a file came; the random part of a name keeps a second feed, of a driver that does not yet know
    that it was replaced, from overwriting what is there.
    """

    folder: Path
    next: int = 0

    def open(self) -> None:
        """Make the folder and find where to go on."""
        self.folder.mkdir(parents=True, exist_ok=True)
        numbers = (int(file.name.split("-")[0]) for file in self.folder.glob("[0-9]*.arrow"))
        self.next = max(numbers, default=-1) + 1

    def append(self, messages: Sequence[Message]) -> Path:
        """Make a file of messages appear whole and stay there after a crash of the machine."""
        table = pa.table(
            {
                "topic": [message.topic for message in messages],
                "payload": [message.payload for message in messages],
                "arrived": [message.arrived for message in messages],
            },
            schema=SCHEMA,
        )
        file = self.folder / f"{self.next:08d}-{uuid.uuid4().hex[:8]}.arrow"
        unfinished = file.with_name(f".{file.name}")
        with unfinished.open("wb") as stream:
            with pa.ipc.new_file(stream, SCHEMA) as writer:
                writer.write_table(table)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(unfinished, file)
        sync_folder(self.folder)
        self.next += 1
        return file


def landed(path: str) -> pa.Table:
    """The messages of one file."""
    with open_binary(path) as stream:
        return pa.ipc.open_file(stream).read_all()
