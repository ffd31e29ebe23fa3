"""Only what an object itself holds is left of it."""

from __future__ import annotations

import json
import re
from typing import Any

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from headrace.connectors.debezium.message_layout import outermost
from tests.models.examples import examples

TEXTS = st.text(st.characters(codec="utf-8") | st.sampled_from('{}[]":,\\'), max_size=5)
VALUES = st.recursive(
    st.none() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


def _written(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _without_insides(given: dict[str, Any]) -> str:
    ends: dict[type[Any], str] = {dict: "}", list: "]"}
    parts = (f"{_written(name)}: {ends.get(type(value)) or _written(value)}" for name, value in given.items())
    return re.sub(r"\\.", "__", "{" + ", ".join(parts) + "}")


@examples(100)
@given(st.lists(st.dictionaries(TEXTS, VALUES, max_size=4)))
def test_of_objects_and_lists_inside_only_the_end_is_left(objects: list[dict[str, Any]]) -> None:
    texts = pl.Series("payload", [_written(each) for each in objects], dtype=pl.String)
    assert outermost(texts).to_list() == [_without_insides(each) for each in objects]


def test_what_is_broken_leaves_the_others_alone() -> None:
    whole = '{"a": {"b": 1}}'
    broken = ["", '{"a": "', "]]", "[[[", '{"a": {', "\\", "ü"]
    texts = pl.Series([text for each in broken for text in (each, whole)])
    assert outermost(texts).gather_every(2, 1).to_list() == ['{"a": }}'] * len(broken)
