"""Dataclasses as JSON: one codec for everything that a checkpoint stores in text, with the format it was written in."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from headrace.errors import HeadraceError

T = TypeVar("T")


def to_text(value: object, *, format: int) -> str:
    """A dataclass as one line of JSON with its format."""
    return json.dumps({"format": format, **encode(value)}, separators=(",", ":"))


def from_text(kind: type[T], text: str | bytes, *, format: int) -> T:
    """A dataclass from its JSON; text in another format is refused, text without one has the first."""
    raw = json.loads(text)
    found = raw.get("format", 1)
    if found != format:
        raise HeadraceError(
            "RECORD_FORMAT_UNKNOWN",
            f"the checkpoint's {kind.__name__} has format {found}, not {format}. Use the version that wrote it.",
        )
    return decode(kind, raw)


def encode(value: object) -> Any:
    """A value of dataclasses, mappings, tuples and scalars as JSON values.

    A field has its own name, without a trailing _, or the one that its metadata say.
    """
    if is_dataclass(value):
        kind: Any = type(value)
        return {name: encode(getattr(value, field)) for field, (name, _) in _fields(kind).items()}
    if isinstance(value, Mapping):
        return {str(key): encode(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [encode(each) for each in value]
    return value


def decode(kind: type[T], raw: Any) -> T:
    """The value that JSON values stand for. Missing fields have their defaults; unknown ones are left out."""
    typed: Any = kind
    return cast(T, _decoder(typed)(raw))


@cache
def _decoder(kind: Any) -> Callable[[Any], Any]:
    """The function that decodes a type, made once: a history has many lines."""
    if isinstance(kind, type) and is_dataclass(kind):
        known = {name: (field, _decoder(hint)) for field, (name, hint) in _fields(kind).items()}
        return lambda raw: kind(**{field: read(raw[name]) for name, (field, read) in known.items() if name in raw})
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        inner = _decoder(next(each for each in arguments if each is not NoneType))
        return lambda raw: None if raw is None else inner(raw)
    if origin is tuple and arguments[-1] is Ellipsis:
        each = _decoder(arguments[0])
        return lambda raw: tuple(map(each, raw))
    if origin is tuple:
        parts = tuple(map(_decoder, arguments))
        return lambda raw: tuple(part(value) for part, value in zip(parts, raw, strict=True))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        key, value = arguments[0], _decoder(arguments[1])
        return lambda raw: {key(name): value(each) for name, each in raw.items()}
    return lambda raw: raw


@cache
def _fields(kind: Any) -> dict[str, tuple[str, Any]]:
    """Of each field its name in JSON and its type."""
    hints = get_type_hints(kind)
    return {
        field.name: (field.metadata.get("json", field.name.rstrip("_")), hints[field.name]) for field in fields(kind)
    }
