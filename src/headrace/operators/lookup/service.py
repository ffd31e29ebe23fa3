"""What a lookup asks of a service: questions for keys, and answers to many of them at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import polars as pl


class LookupFailure(Exception):
    """A key without an answer: why, and whether asking again could help."""

    def __init__(self, reason: str, detail: str, *, again: bool = True) -> None:
        # What a service says may be long, and need not be valid text.
        self.reason = reason
        self.detail = detail[:500].encode(errors="replace").decode()
        super().__init__(f"{reason}: {self.detail}")
        self.again = again


Answer = Mapping[str, Any] | LookupFailure | None
"""The columns of one key by name, None when the service does not know it, or why there is no answer."""

LARGEST_ANSWER = 1 << 20
"""Bytes of one answer; a larger one is nonsense."""


class Connection(Protocol):
    """A process's way to a service; it lives in one event loop."""

    async def ask(self, questions: Sequence[Any]) -> Sequence[Answer]:
        """The answers in the order of the questions; raises when the whole call has failed."""

    async def close(self) -> None:
        """Let go of the service."""


@runtime_checkable
class Service(Protocol):
    """A service as its author names it."""

    @property
    def at_once(self) -> int:
        """How many keys one call asks for."""

    @property
    def together(self) -> int:
        """How many calls the service itself allows at the same time."""

    @property
    def in_text(self) -> bool:
        """Whether answers are text, in which numbers and times are written out."""

    def check(self, keys: Mapping[str, pl.DataType], *, step: str) -> None:
        """Fail when keys of these columns cannot be asked for."""

    def questions(self, keys: pl.DataFrame) -> list[Any]:
        """What is asked for each key."""

    def connect(self, in_flight: int) -> Connection:
        """A new way to the service, for at most so many calls at the same time."""
