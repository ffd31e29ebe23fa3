"""The log of a flow: numbered entries, each created at the next number and never changed. It alone says what is true.

Every entry names the token of the one before it and carries a checksum, so a part that is missing, damaged or older is
found when the log is read. docs/design/2026-11-18-the-protocol.md has the rules and why each is needed.
"""

from __future__ import annotations

import json
import uuid
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from headrace.checkpoint.storage import Storage
from headrace.errors import HeadraceError
from headrace.json_codec import to_text

FORMAT = 2
FOLDER = "log"
Kind = Literal["takeover", "record", "outcome"]
"""A driver begins; what a batch will do; what a batch did."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the log."""

    number: int
    kind: Kind
    token: str
    previous: str | None
    """The token of the entry before it; None in the first one."""
    is_base: bool
    """Whether of those before it only its takeover is needed to know the flow: an outcome with a full manifest."""
    epoch: int
    """The number of the takeover of its driver: its own in a takeover, 0 when nobody has taken over."""
    driver: str
    """The token of that takeover."""
    body: Any
    """What the entry says, in JSON values or, before it is written, in what they are made of."""

    def to_bytes(self) -> bytes:
        """The entry as JSON, followed by its checksum."""
        text = to_text(self, format=FORMAT).encode()
        return text + _checksum(text)

    @classmethod
    def from_bytes(cls, content: bytes, *, name: str) -> Entry:
        """The entry from its file; a file that was truncated or changed is an error that names it."""
        text = content[: -len(_checksum(b""))]
        if content != text + _checksum(text):
            raise _damaged(f"{name!r} was truncated or changed: its checksum does not match")
        raw = json.loads(text)
        if raw.pop("format") != FORMAT:
            raise HeadraceError(
                "LOG_FORMAT_UNKNOWN",
                f"the log's entry {name!r} has an unknown format; this version of Headrace reads format {FORMAT}. "
                "Use the version that wrote it.",
            )
        return cls(**raw)


class Log:
    """The log of a flow, as one driver reads and continues it."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._number = 0
        self._token: str | None = None
        self._newest = 0
        """The epoch of the newest driver that was read of."""
        self.epoch = 0
        """The number of the entry with which this driver took over."""
        self.driver = ""
        """The token of that entry."""

    def read(self) -> list[Entry]:
        """The last base (or the first entry), the takeover of its driver before it, and all that comes after it.

        The next entry is appended after the newest of them.
        """
        entries = self._read()
        self._number = entries[-1].number if entries else 0
        self._token = entries[-1].token if entries else None
        self._newest = max((entry.epoch for entry in entries), default=0)
        return entries

    @property
    def next_number(self) -> int:
        """The number of the entry that comes next, as far as was read."""
        return self._number + 1

    def check_driver(self) -> None:
        """Fail when another driver has taken over, as far as this one has read."""
        if self._newest > self.epoch:
            raise self._lost(self._newest)

    def retained(self) -> Iterator[Entry]:
        """All entries that are still there, the oldest first, for people to read."""
        for number in sorted(self._storage.numbers(FOLDER)):
            with suppress(FileNotFoundError):  # trimmed meanwhile
                yield self._entry(number)

    def append(self, kind: Kind, body: Any, *, is_base: bool = False) -> Entry:
        """Write the next entry; [LEASE_LOST] when another driver has taken over."""
        number, token = self.next_number, uuid.uuid4().hex
        driver = (number, token) if kind == "takeover" else (self.epoch, self.driver)
        entry = Entry(number, kind, token, self._token, is_base, *driver, body)
        if not self._storage.claim(self._name(entry.number), entry.to_bytes()):
            raise self._lost(entry.number)
        # The number may be one that trimming has freed long after others went on.
        newer = [number for number in self._storage.numbers(FOLDER) if number > entry.number]
        if newer:
            raise self._lost(max(newer))
        self._number, self._token = entry.number, entry.token
        self.epoch, self.driver = driver
        return entry

    def trim(self, first: int) -> None:
        """Remove all entries before one that is not behind the newest base, the oldest first, but not our takeover.

        What is left can be read wherever this stops.
        """
        for number in sorted(number for number in self._storage.numbers(FOLDER) if number < first):
            if number != self.epoch:
                self._storage.delete(self._name(number))

    def _read(self) -> list[Entry]:
        while True:
            numbers = sorted(self._storage.numbers(FOLDER), reverse=True)
            try:
                return self._chain(numbers)
            except FileNotFoundError as problem:
                # Another driver may have trimmed what was listed; then there are newer entries.
                if not numbers or max(self._storage.numbers(FOLDER), default=0) == numbers[0]:
                    raise _damaged(f"{problem} is missing") from problem

    def _chain(self, numbers: list[int]) -> list[Entry]:
        """The entries from the newest back to a base, each named by the one after it, and the base's takeover."""
        chain: list[Entry] = []
        for number in range(numbers[0] if numbers else 0, 0, -1):
            entry = self._entry(number)
            if entry.number != number or (chain and chain[-1].previous != entry.token):
                raise _damaged(f"{self._name(number)!r} is not the entry that the next one follows")
            chain.append(entry)
            if entry.is_base:
                break
        if chain and not chain[-1].is_base and chain[-1].previous is not None:
            raise _damaged(f"no entry comes before {self._name(chain[-1].number)!r}, which is not the first entry")
        if chain and 0 < chain[-1].epoch < chain[-1].number:
            takeover, base = self._entry(chain[-1].epoch), self._name(chain[-1].number)
            if (takeover.number, takeover.token) != (chain[-1].epoch, chain[-1].driver):
                raise _damaged(f"{self._name(chain[-1].epoch)!r} is not the takeover that {base!r} names")
            chain.append(takeover)
        return chain[::-1]

    def _entry(self, number: int) -> Entry:
        name = self._name(number)
        return Entry.from_bytes(self._storage.open(name).to_pybytes(), name=name)

    def _name(self, number: int) -> str:
        return f"{FOLDER}/{number:012d}.json"

    def _lost(self, number: int) -> HeadraceError:
        return HeadraceError(
            "LEASE_LOST",
            f"another driver has written entry {number} of the log {FOLDER!r}, so it has taken over this flow. "
            "This driver writes nothing more.",
        )


def _checksum(text: bytes) -> bytes:
    return b"\n%08x\n" % zlib.crc32(text)


def _damaged(what: str) -> HeadraceError:
    return HeadraceError(
        "LOG_DAMAGED",
        f"the checkpoint's log cannot be trusted: {what}. Put that file back from any copy of the checkpoint that has "
        "it, because entries never change, or start with a new checkpoint.",
    )
