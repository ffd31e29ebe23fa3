"""Services that a lookup calls: the protocol, a user's async def as a service, and answers as typed columns."""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from functools import partial
from types import FunctionType, MethodType
from typing import Any, Protocol, runtime_checkable
from uuid import UUID

import polars as pl

from headrace.errors import DefinitionError
from headrace.operators.process.value_types import Converter, converter_for
from headrace.redaction import beginning
from headrace.rendering import Template


class LookupFailure(Exception):
    """A key without an answer: why, and whether a retry could help."""

    def __init__(self, reason: str, detail: str, *, retryable: bool = True) -> None:
        # What a service says may be long, and need not be valid text.
        self.reason = reason
        self.detail = beginning(detail, 500).encode(errors="replace").decode()
        super().__init__(f"{reason}: {self.detail}")
        self.retryable = retryable


Answer = Mapping[str, Any] | LookupFailure | None
"""The columns of one key by name, None when the service does not know the key, or why there is no answer."""

LARGEST_ANSWER = 1 << 20
"""The most bytes of one answer."""


class LookupConnection(Protocol):
    """A process's connection to a service; it belongs to one event loop."""

    async def fetch(self, requests: Sequence[Any]) -> Sequence[Answer]:
        """The answers in the order of the requests; raises when the whole call has failed."""

    async def close(self) -> None: ...


@runtime_checkable
class LookupService(Protocol):
    """A service as the user declares it."""

    @property
    def keys_per_call(self) -> int: ...

    @property
    def max_calls(self) -> int:
        """How many concurrent calls the service allows."""

    @property
    def as_text(self) -> bool:
        """Whether answers are text, with numbers and times written out."""

    def check(self, keys: Mapping[str, pl.DataType], *, step: str) -> None:
        """Fail when keys of these columns cannot be requested."""

    def requests(self, keys: pl.DataFrame) -> list[Any]:
        """The request for each key."""

    def connect(self, in_flight: int) -> LookupConnection:
        """A new connection, for at most this many concurrent calls."""


@dataclass(frozen=True, slots=True, repr=False)
class FunctionLookup:
    """A user's function, which is called with one key at a time."""

    function: Callable[[Any], Awaitable[Mapping[str, Any] | None]]
    keys_per_call: int = 1
    max_calls: int = 1000
    as_text: bool = False

    def check(self, keys: Mapping[str, pl.DataType], *, step: str) -> None:
        """A function takes any key."""

    def requests(self, keys: pl.DataFrame) -> list[Any]:
        return keys.to_series().to_list() if keys.width == 1 else keys.rows()

    def connect(self, in_flight: int) -> LookupConnection:
        """The function keeps its own connections."""
        return self

    async def fetch(self, requests: Sequence[Any]) -> Sequence[Answer]:
        try:
            return [await self.function(request) for request in requests]
        except (SystemExit, KeyboardInterrupt) as error:
            # It would stop the event loop that all lookups of this worker share.
            raise LookupFailure("LOOKUP_FAILED", f"{type(error).__name__}: {error}") from error

    async def close(self) -> None:
        """Nothing is kept here."""

    def __repr__(self) -> str:
        return self.function.__name__ if isinstance(self.function, FunctionType | MethodType) else repr(self.function)


def check_key_named(template: Template, keys: Mapping[str, pl.DataType], *, step: str) -> None:
    """A template names all columns of the key and no others, so that a key is requested once."""
    template.check(keys)
    missing = [name for name in keys if name not in template.columns]
    if missing:
        raise DefinitionError(
            "KEY_NOT_ASKED",
            f"step {step!r}: {str(template)!r} does not name {missing[0]!r}. Name it, or leave it out of on=.",
        )


Values = tuple[Any, ...]
"""The values of one key in the order of the declared columns."""
Outcome = Values | LookupFailure


def json_object(text: bytes) -> Answer:
    """The object in JSON text; null stands for an unknown key.

    >>> json_object(b'{"tier": 3}')
    {'tier': 3}
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        shown = beginning(text.decode(errors="replace"), 100)
        raise LookupFailure("ANSWER_NOT_JSON", f"the answer begins with {shown!r}") from None
    if value is not None and not isinstance(value, dict):
        raise LookupFailure("ANSWER_WRONG_TYPE", f"the answer is JSON, but not an object: {beginning(str(value), 100)}")
    return value


def answer_reader(columns: Mapping[str, pl.DataType], *, as_text: bool) -> Callable[[Answer], Outcome]:
    """A function that converts an answer to the values of the declared columns; a missing column is null.

    >>> read = answer_reader({"name": pl.String(), "tier": pl.Int32()}, as_text=True)
    >>> read({"name": "Ann", "tier": "3"}), read(None)
    (('Ann', 3), (None, None))
    >>> read({"tier": "gold"})
    LookupFailure("ANSWER_WRONG_TYPE: column tier: 'gold' is not INT")
    """
    fits = {name: _reader(dtype, as_text=as_text) for name, dtype in columns.items()}
    unknown = (None,) * len(fits)

    def read(answer: Answer) -> Outcome:
        if answer is None:
            return unknown
        if isinstance(answer, LookupFailure):
            return answer
        if not isinstance(answer, Mapping):
            said = repr(answer)
            shown = said if len(said) <= 100 else f"{beginning(said, 100)}..."
            detail = f"the answer is {shown}, not an object with columns or nothing"
            return LookupFailure("ANSWER_WRONG_TYPE", detail, retryable=False)
        values = []
        for name, fit in fits.items():
            try:
                values.append(fit(answer.get(name)))
            except (ValueError, ArithmeticError) as problem:
                return LookupFailure("ANSWER_WRONG_TYPE", f"column {name}: {problem}", retryable=False)
        return tuple(values)

    return read


def _reader(dtype: pl.DataType, *, as_text: bool) -> Converter:
    convert = converter_for(dtype)
    parse = int if dtype.is_integer() else float if dtype.is_float() else _PARSERS.get(dtype.base_type())

    def read(value: Any) -> Any:
        if as_text and parse is not None and isinstance(value, str):
            # What cannot be parsed is refused below, unchanged.
            with suppress(ValueError, InvalidOperation):
                value = parse(value)
        elif isinstance(value, Decimal) and dtype.is_float():
            value = float(value)
        elif isinstance(value, UUID) and dtype == pl.String():
            value = str(value)
        elif as_text and isinstance(value, float) and isinstance(dtype, pl.Decimal):
            value = Decimal(str(value))
        return convert(value)

    return read


_PARSERS: Mapping[Any, Callable[[str], Any]] = {
    pl.Decimal: Decimal,
    pl.Datetime: datetime.fromisoformat,
    pl.Date: date.fromisoformat,
    pl.Binary: partial(base64.b64decode, validate=True),
    pl.Boolean: lambda text: {"true": True, "false": False}.get(text.lower(), text),
}
"""How a value of a type is parsed from text, beside numbers."""
