"""Patterns written as JSON, read back: each part is checked for its type, then said again as an author says it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from reprlib import repr as shown
from typing import Any, get_args

from headrace.durations import LONGEST, positive_microseconds
from headrace.operators.patterns.chain import Group
from headrace.operators.patterns.element import Contiguity, Element
from headrace.operators.patterns.skip import KINDS, Skip

_ELEMENT = ("contiguity", "step", "where", "group", "quantifier", "since_previous")
_QUANTIFIER = ("least", "most", "given", "optional", "greedy", "inner", "until")


def elements_of(raw: object) -> tuple[Element, ...]:
    """Elements from their dictionaries, said one by one, so that what is refused of an author is refused here.

    >>> elements_of([{"contiguity": "begin", "step": "a", "quantifier": {"least": 2, "most": 2, "given": True}}])
    (.begin('a').times(2),)
    """
    chain = Group()
    for each in _list(raw, "elements"):
        said = parts(each, "an element", _ELEMENT)
        contiguity = _text(said.get("contiguity"), "contiguity")
        if contiguity not in get_args(Contiguity):
            raise ValueError(f"there is no contiguity {shown(contiguity)}")
        if said.get("group") is None:
            step: str | Group = _text(said.get("step"), "step")
        elif said.get("step") is None:
            step = Group(elements=elements_of(_list(said["group"], "group")))
        else:
            raise ValueError(f"an element is step {shown(said['step'])} and a group at once")
        where = said.get("where")
        chain = getattr(chain, contiguity)(step, *(() if where is None else (_text(where, "where"),)))
        chain = _quantified(chain, parts(said.get("quantifier", {}), "quantifier", _QUANTIFIER))
        since = length_of(said.get("since_previous"), "since_previous")
        if since is not None:
            chain = chain.within(timedelta(microseconds=since), since="previous")
    return chain.elements


def _quantified(chain: Group, said: Mapping[str, Any]) -> Group:
    given, optional, greedy = (_flag(said.get(name, False), name) for name in ("given", "optional", "greedy"))
    if given:
        least, most = _whole(said.get("least", 1), "least"), said.get("most", 1)
        chain = chain.times_or_more(least) if most is None else chain.times(least, _whole(most, "most"))
    elif said.keys() & {"least", "most"}:
        raise ValueError("least and most count only with given true")
    inner = said.get("inner", "relaxed")
    if inner not in ("relaxed", "consecutive", "combinations"):
        raise ValueError(f"there is no inner {shown(inner)}")
    if inner != "relaxed":
        chain = chain.consecutive() if inner == "consecutive" else chain.allow_combinations()
    if said.get("until") is not None:
        chain = chain.until(_text(said["until"], "until"))
    chain = chain.optional() if optional else chain
    return chain.greedy() if greedy else chain


def skip_of(raw: object) -> Skip:
    """A skip strategy.

    >>> skip_of({"kind": "to_last", "step": "b"})
    hr.skip.to_last('b')
    """
    said = parts(raw, "skip", ("kind", "step"))
    kind: Any = _text(said.get("kind"), "kind")
    step = said.get("step")
    if kind not in KINDS or (step is None) == (kind in ("to_first", "to_last")):
        raise ValueError(f"there is no skip {shown(said)}")
    return Skip(kind, None if step is None else _text(step, "step"))


def measures_of(raw: object) -> tuple[tuple[str, str], ...]:
    """What a match says, by name."""
    return tuple((name, _text(text, f"measure {shown(name)}")) for name, text in _object(raw, "measures").items())


def length_of(raw: object, name: str) -> int | None:
    """A time in microseconds, or none."""
    if raw is None:
        return None
    length = _whole(raw, name)
    if abs(length) > LONGEST:
        raise ValueError(f"{name} is longer than the calendar, {shown(length)}")
    return positive_microseconds(timedelta(microseconds=length), argument=name)


def parts(raw: object, name: str, known: tuple[str, ...]) -> Mapping[str, Any]:
    """A JSON object that has only known parts."""
    said = _object(raw, name)
    for part in said:
        if part not in known:
            raise ValueError(f"{name} has {shown(part)}, which is none of {', '.join(known)}")
    return said


def _object(raw: object, name: str) -> Mapping[str, Any]:
    if not isinstance(raw, dict):
        raise ValueError(f"{name} is {shown(raw)}, not an object")
    return raw


def _list(raw: object, name: str) -> list[Any]:
    if not isinstance(raw, list):
        raise ValueError(f"{name} is {shown(raw)}, not a list")
    return raw


def _text(raw: object, name: str) -> str:
    if not isinstance(raw, str):
        raise ValueError(f"{name} is {shown(raw)}, not text")
    return raw


def _whole(raw: object, name: str) -> int:
    if not isinstance(raw, int) or isinstance(raw, bool):
        raise ValueError(f"{name} is {shown(raw)}, not a whole number")
    return raw


def _flag(raw: object, name: str) -> bool:
    if not isinstance(raw, bool):
        raise ValueError(f"{name} is {shown(raw)}, neither true nor false")
    return raw
