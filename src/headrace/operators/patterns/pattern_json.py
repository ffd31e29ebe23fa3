"""Patterns as JSON, for rules: written from a definition, and read back part by part with the checks of the builder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import timedelta
from reprlib import repr as shown
from typing import Any, TypeVar, get_args

from headrace.durations import LONGEST, positive_microseconds
from headrace.errors import DefinitionError
from headrace.operators.patterns.chain import Group
from headrace.operators.patterns.definition import Contiguity, Element, PatternDefinition, Quantifier
from headrace.operators.patterns.skip import KINDS, Skip

_KINDS = {dict: "an object", list: "a list", str: "text", int: "a whole number", bool: "true or false"}
_T = TypeVar("_T")


def pattern_to_json(definition: PatternDefinition) -> str:
    """The definition as one line of JSON, which a rule of ``hr.pattern_rules`` holds."""
    return json.dumps({**_stated(definition), "measures": dict(definition.measures)})


def _stated(value: Any) -> Any:
    """A value as JSON, without the parts that have their default."""
    if isinstance(value, tuple):
        return list(map(_stated, value))
    if not is_dataclass(value):
        return value
    parts = ((part, getattr(value, part.name)) for part in fields(value))
    return {part.name: _stated(given) for part, given in parts if given != part.default}


def pattern_from_json(text: str) -> PatternDefinition:
    """The definition in a JSON text, or a definition error that says what is wrong with it."""
    try:
        raw = _parts(json.loads(text), "the pattern", PatternDefinition)
        json.dumps(raw, ensure_ascii=False).encode()  # JSON can hold half a character, which no text can
        return PatternDefinition(
            _elements(raw.get("elements")),
            _length(raw, "within"),
            _skip(raw.get("skip", {"kind": "none"})),
            tuple(
                (name, _expect(measure, str, f"measure {shown(name)}"))
                for name, measure in _expect(raw.get("measures"), dict, "measures").items()
            ),
        )
    except (ValueError, RecursionError) as error:
        raise DefinitionError(
            "PATTERN_UNREADABLE",
            f"not the JSON of a pattern ({type(error).__name__}: {error}). Make it with hr.pattern(...).to_json().",
        ) from error


def _elements(raw: object) -> tuple[Element, ...]:
    """Elements, built with the methods of patterns, so that what those refuse is refused here too."""
    chain = Group()
    for each in _expect(raw, list, "elements"):
        parts = _parts(each, "an element", Element)
        contiguity: Any = _expect(parts.get("contiguity"), str, "contiguity")
        if contiguity not in get_args(Contiguity):
            raise ValueError(f"there is no contiguity {shown(contiguity)}")
        if parts.get("group") is None:
            step: str | Group = _expect(parts.get("step"), str, "step")
        elif parts.get("step") is None:
            step = Group(elements=_elements(_expect(parts["group"], list, "group")))
        else:
            raise ValueError(f"an element is both step {shown(parts['step'])} and a group")
        chain = chain.add(contiguity, step, _optional(parts, "where", str))
        chain = _quantified(chain, _parts(parts.get("quantifier", {}), "quantifier", Quantifier))
        since = _length(parts, "since_previous")
        if since is not None:
            chain = chain.within(timedelta(microseconds=since), since="previous")
    return chain.elements


def _quantified(chain: Group, parts: Mapping[str, Any]) -> Group:
    given, optional, greedy = (_expect(parts.get(name, False), bool, name) for name in ("given", "optional", "greedy"))
    if given:
        least, most = _expect(parts.get("least", 1), int, "least"), parts.get("most", 1)
        chain = chain.times_or_more(least) if most is None else chain.times(least, _expect(most, int, "most"))
    elif parts.keys() & {"least", "most"}:
        raise ValueError("least and most need given true")
    inner = parts.get("inner", "relaxed")
    if inner not in ("relaxed", "consecutive", "combinations"):
        raise ValueError(f"there is no inner {shown(inner)}")
    if inner != "relaxed":
        chain = chain.consecutive() if inner == "consecutive" else chain.allow_combinations()
    until = _optional(parts, "until", str)
    chain = chain if until is None else chain.until(until)
    chain = chain.optional() if optional else chain
    return chain.greedy() if greedy else chain


def _skip(raw: object) -> Skip:
    parts = _parts(raw, "skip", Skip)
    kind: Any = _expect(parts.get("kind"), str, "kind")
    if kind not in KINDS or (parts.get("step") is None) == (kind in ("to_first", "to_last")):
        raise ValueError(f"there is no skip {shown(parts)}")
    return Skip(kind, _optional(parts, "step", str))


def _length(parts: Mapping[str, Any], name: str) -> int | None:
    length = _optional(parts, name, int)
    if length is None:
        return None
    if abs(length) > LONGEST:
        raise ValueError(f"{name} is out of range, {shown(length)}")
    return positive_microseconds(timedelta(microseconds=length), argument=name)


def _optional(parts: Mapping[str, Any], name: str, kind: type[_T]) -> _T | None:
    return None if parts.get(name) is None else _expect(parts[name], kind, name)


def _parts(raw: object, name: str, kind: type[Any]) -> Mapping[str, Any]:
    """A JSON object whose parts are fields of a dataclass."""
    parts, known = _expect(raw, dict, name), [field.name for field in fields(kind)]
    for part in parts:
        if part not in known:
            raise ValueError(f"{name} has {shown(part)}, which is none of {', '.join(known)}")
    return parts


def _expect(raw: object, kind: type[_T], name: str) -> _T:
    """A JSON value that must be of one type; true and false are no numbers."""
    if type(raw) is not kind:
        raise ValueError(f"{name} is {shown(raw)}, not {_KINDS[kind]}")
    return raw
