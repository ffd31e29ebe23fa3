"""Patterns as JSON: any text is a pattern or is refused with the reason, and nothing wrong is accepted."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from headrace.errors import DefinitionError
from headrace.operators.patterns import skip
from headrace.operators.patterns.chain import group
from headrace.operators.patterns.pattern import pattern
from headrace.operators.patterns.pattern_json import pattern_from_json, pattern_to_json

WRITTEN = (
    pattern("p", key="k")
    .begin("a", "n > 1")
    .times(2, 4)
    .consecutive()
    .followed_by(group().begin("b").next("c", "n > 2").one_or_more().until("n < 0"))
    .optional()
    .within("1 minute")
    .followed_by("d", "n > a.n")
    .within("5 seconds", since="previous")
    .after_match(skip.to_last("d"))
    .select(n="count(a.*)")
    .to_json()
)


def changed(change: Callable[[Any], object]) -> str:
    raw = json.loads(WRITTEN)
    change(raw)
    return json.dumps(raw)


def first(**said: Any) -> str:
    return changed(lambda raw: raw["elements"][0].update(said))


def quantified(**said: Any) -> str:
    return first(quantifier=said)


UNREADABLE = {
    "deep": "[" * 100_000,
    "deep groups": '{"elements": [{"contiguity": "begin", "group": ' * 2_000,
    "nothing": "null",
    "a number of many digits": "9" * 10_000,
    "unknown part": changed(lambda raw: raw.update(whithin=5)),
    "unknown part of a step": first(wher="n > 1"),
    "within 1e30": changed(lambda raw: raw.update(within=1e30)),
    "within beyond time": changed(lambda raw: raw.update(within=10**25)),
    "within less than ever": changed(lambda raw: raw.update(within=-(10**25))),
    "within infinite": WRITTEN.replace('"within": 60000000', '"within": 1e400'),
    "within true": changed(lambda raw: raw.update(within=True)),
    "within half a microsecond": changed(lambda raw: raw.update(within=0.5)),
    "within text": changed(lambda raw: raw.update(within="1 minute")),
    "since 1e30": first(since_previous=1e30),
    "since beyond time": first(since_previous=10**25),
    "no step": first(step=None),
    "step 5": first(step=5),
    "step and group": first(group=[{"contiguity": "begin", "step": "z"}]),
    "where 5": first(where=5),
    "elements object": changed(lambda raw: raw.update(elements={"a": 1})),
    "contiguity list": first(contiguity=[]),
    "quantifier list": first(quantifier=[]),
    "most 3.0": quantified(given=True, least=1, most=3.0),
    "least 1.5": quantified(given=True, least=1.5, most=3),
    "least true": quantified(given=True, least=True, most=3),
    "least text": quantified(given=True, least="1", most=3),
    "times not given": quantified(least=3, most=3),
    "given 1": quantified(given=1, least=3, most=3),
    "optional null": quantified(optional=None),
    "inner unknown": quantified(given=True, least=1, most=3, inner="xyz"),
    "until 4": quantified(given=True, most=None, until=4),
    "skip null": changed(lambda raw: raw.update(skip=None)),
    "skip of a list": changed(lambda raw: raw.update(skip={"kind": []})),
    "skip to 5": changed(lambda raw: raw.update(skip={"kind": "to_last", "step": 5})),
    "measures list": changed(lambda raw: raw.update(measures=[["n", "count(a.*)"]])),
    "measure 5": changed(lambda raw: raw.update(measures={"n": 5})),
    "half a character": first(where='s = "\ud800"'),
}


@pytest.mark.parametrize("text", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_what_is_not_the_json_of_a_pattern_is_refused(text: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        pattern_from_json(text)
    assert refused.value.id == "PATTERN_UNREADABLE"
    str(refused.value).encode()


@pytest.mark.parametrize(
    ("id", "text"),
    [
        ("PATTERN_BEGUN_TWICE", changed(lambda raw: raw["elements"][2].update(contiguity="begin"))),
        ("PATTERN_TOO_LONG", quantified(given=True, least=10**9, most=10**9)),
        ("PATTERN_TOO_LONG", quantified(given=True, least=1, most=10**30)),
        ("GROUP_EMPTY", first(step=None, where=None, group=[])),
    ],
)
def test_what_the_builder_refuses_is_refused_of_json_too(id: str, text: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        pattern_from_json(text).check("the rule")
    assert refused.value.id == id


anything = st.recursive(
    st.sampled_from([None, True, 0, 3, 3.0, 1.5, 10**25, 1e30, "a", "begin", "n > 1"])
    | st.integers()
    | st.floats()
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def places(raw: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every part of a JSON value."""
    inside = raw.items() if isinstance(raw, dict) else enumerate(raw) if isinstance(raw, list) else ()
    return [path, *(found for name, value in inside for found in places(value, (*path, name)))]


@st.composite
def nearly_patterns(draw: st.DrawFn) -> str:
    """The JSON of a pattern in which some parts are something else, or gone."""
    raw: Any = json.loads(WRITTEN)
    for _ in range(draw(st.integers(1, 3))):
        *path, last = draw(st.sampled_from(places(raw)[1:] or [()])) or [None]
        if last is None:
            break
        part = raw
        for name in path:
            part = part[name]
        if draw(st.booleans()):
            part[last] = draw(anything)
        else:
            del part[last]
    return json.dumps(raw)


@settings(deadline=None, max_examples=500)
@given(text=anything.map(json.dumps) | nearly_patterns() | st.text())
def test_any_text_is_a_pattern_or_is_refused(text: str) -> None:
    try:
        read = pattern_from_json(text)
    except DefinitionError:
        return
    assert pattern_from_json(pattern_to_json(read)) == read
    assume('"least": 0' not in text)  # is read as one time, optional
    assert json.dumps(said(json.loads(pattern_to_json(read))), sort_keys=True) == json.dumps(
        said(json.loads(text)), sort_keys=True
    )


UNSAID: dict[str, Any] = {"least": 1, "most": 1, "given": False, "optional": False, "greedy": False, "inner": "relaxed"}


def said(raw: Any) -> Any:
    """A JSON value without what may as well be left out."""
    if isinstance(raw, list):
        return [said(each) for each in raw]
    if not isinstance(raw, dict):
        return raw
    inside = {name: said(value) for name, value in raw.items() if value is not None and value != {"kind": "none"}}
    return {
        name: value
        for name, value in inside.items()
        if value != {} and json.dumps(value) != json.dumps(UNSAID.get(name))
    }
