"""Dataclasses as JSON and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from headrace.errors import HeadraceError
from headrace.json_codec import decode, encode, from_text, to_text


@dataclass(frozen=True)
class Part:
    """A part of a whole."""

    in_: int
    name: str | None = None


@dataclass(frozen=True)
class Whole:
    """Every kind of field that facts have."""

    parts: Mapping[str, tuple[Part, ...]]
    groups: Mapping[int, Part]
    pair: tuple[str, int]
    last: Part | None = None
    renamed: float = field(default=0.5, metadata={"json": "before"})
    flag: bool = False


WHOLE = Whole({"a": (Part(1), Part(2, "x")), "b": ()}, {7: Part(3)}, ("k", 9), Part(4), 1.5, True)
RAW: dict[str, Any] = {
    "parts": {"a": [{"in": 1, "name": None}, {"in": 2, "name": "x"}], "b": []},
    "groups": {"7": {"in": 3, "name": None}},
    "pair": ["k", 9],
    "last": {"in": 4, "name": None},
    "before": 1.5,
    "flag": True,
}


def test_every_kind_of_field_is_written_under_its_name_and_read_back() -> None:
    assert encode(WHOLE) == RAW
    assert decode(Whole, RAW) == WHOLE
    assert from_text(Whole, to_text(WHOLE, format=3), format=3) == WHOLE


def test_what_is_not_there_has_its_default_and_what_is_not_known_is_left_out() -> None:
    raw = {"parts": {}, "groups": {}, "pair": ["k", 9], "of a later version": [1]}
    assert decode(Whole, raw) == Whole({}, {}, ("k", 9))


def test_a_field_without_a_default_must_be_there() -> None:
    with pytest.raises(TypeError, match="in_"):
        decode(Part, {"name": "x"})


@pytest.mark.parametrize(("text", "found"), [('{"format":2,"in":1}', 2), ('{"format":"x","in":1}', "x")])
def test_text_of_another_format_is_refused(text: str, found: object) -> None:
    with pytest.raises(HeadraceError, match=rf"\[RECORD_FORMAT_UNKNOWN\] the checkpoint's Part has format {found}, "):
        from_text(Part, text, format=1)


def test_text_without_a_format_has_the_first() -> None:
    assert from_text(Part, '{"in":1}', format=1) == Part(1)
