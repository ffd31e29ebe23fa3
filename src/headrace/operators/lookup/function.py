"""An author's own ``async def`` as a service."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from headrace.operators.lookup.service import Answer, LookupFailure


@dataclass(frozen=True, slots=True, repr=False)
class FunctionLookup:
    """Asks for one key in one call."""

    function: Callable[[Any], Awaitable[Mapping[str, Any] | None]]
    at_once: int = 1
    together: int = 1000
    in_text: bool = False

    def check(self, keys: Mapping[str, pl.DataType], *, step: str) -> None:
        """Any key can be handed to a function."""

    def questions(self, keys: pl.DataFrame) -> list[Any]:
        """The key itself; of several columns a tuple."""
        return keys.to_series().to_list() if keys.width == 1 else keys.rows()

    def connect(self, in_flight: int) -> FunctionCalls:
        """The function keeps what it needs."""
        return FunctionCalls(self.function)

    def __repr__(self) -> str:
        return getattr(self.function, "__name__", repr(self.function))


@dataclass(frozen=True, slots=True)
class FunctionCalls:
    """Calls of an author's function."""

    function: Callable[[Any], Awaitable[Mapping[str, Any] | None]]

    async def ask(self, questions: Sequence[Any]) -> Sequence[Answer]:
        """What the function says of each key."""
        try:
            return [await self.function(question) for question in questions]
        except (SystemExit, KeyboardInterrupt) as error:
            # It would end the loop in which the calls of all lookups of this worker run.
            raise LookupFailure("LOOKUP_FAILED", f"{type(error).__name__}: {error}") from error

    async def close(self) -> None:
        """Nothing is kept here."""
