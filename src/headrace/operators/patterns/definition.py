"""A pattern without its place in a pipeline: elements, time, skipping and measures, checked as a whole."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from headrace.durations import spoken
from headrace.errors import DefinitionError
from headrace.operators.patterns.compiler import conditions_of
from headrace.operators.patterns.element import Element
from headrace.operators.patterns.match_conditions import StepCondition, parse_step_condition
from headrace.operators.patterns.skip import Skip
from headrace.operators.patterns.written import elements_of, length_of, measures_of, parts, skip_of

MOST_CONDITIONS = 62
MOST_STATES = 10_000
_WRITTEN = ("elements", "within", "skip", "measures")
_Wrong = Callable[[str, str], DefinitionError]


@dataclass(frozen=True, slots=True)
class Definition:
    """What is matched and what a match says."""

    elements: tuple[Element, ...]
    within: int | None
    skip: Skip
    measures: tuple[tuple[str, str], ...]

    @property
    def steps(self) -> tuple[str, ...]:
        """The steps that take rows, in the order of the pattern."""
        return tuple(str(step.step) for step in self._all_steps() if not step.negated)

    def _all_steps(self) -> Iterator[Element]:
        return (step for element in self.elements for step in element.steps())

    def _all_elements(self) -> Iterator[Element]:
        waiting = list(self.elements)
        while waiting:
            element = waiting.pop(0)
            yield element
            waiting += element.group

    def conditions(self) -> list[StepCondition]:
        """The conditions in the automaton's order."""
        return [parse_step_condition(text, self.steps) for _, text in conditions_of(self.elements)]

    @property
    def sees_every_row(self) -> bool:
        """Whether rows that meet no condition matter, because something must follow directly."""
        return any(_is_strict(element) for element in self.elements)

    def to_json(self) -> str:
        """The definition as one line of JSON, which a rule of ``hr.pattern_rules`` holds."""
        skip = {"kind": self.skip.kind, **({} if self.skip.step is None else {"step": self.skip.step})}
        elements = [element.to_json() for element in self.elements]
        return json.dumps({"elements": elements, "within": self.within, "skip": skip, "measures": dict(self.measures)})

    @classmethod
    def from_json(cls, text: str) -> Definition:
        """The definition from its JSON; what is wrong with it is a definition error."""
        try:
            raw = parts(json.loads(text), "the pattern", _WRITTEN)
            json.dumps(raw, ensure_ascii=False).encode()  # half a character, which JSON can write, is in no text
            return cls(
                elements_of(raw.get("elements")),
                length_of(raw.get("within"), "within"),
                skip_of(raw.get("skip", {"kind": "none"})),
                measures_of(raw.get("measures")),
            )
        except (ValueError, RecursionError) as error:
            raise DefinitionError(
                "PATTERN_UNREADABLE",
                f"not the JSON of a pattern ({type(error).__name__}: {error}). Make it with hr.pattern(...).to_json().",
            ) from error

    def check(self, called: str) -> None:
        """Refuse what means nothing as a whole; what a single method can tell has been refused there."""

        def wrong(id: str, message: str) -> DefinitionError:
            return DefinitionError(id, f"{called}: {message}")

        if not self.elements:
            raise wrong("PATTERN_NOT_BEGUN", "it has no steps. Add .begin(...).")
        names = [step.step for step in self._all_steps()]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise wrong("STEP_NAME_TWICE", f"two steps are named {twice[0]!r}. Rename one of them.")
        if len(conditions_of(self.elements)) > MOST_CONDITIONS:
            raise wrong("PATTERN_TOO_LONG", f"it has more than {MOST_CONDITIONS} conditions. Divide it.")
        if sum(element.states for element in self.elements) > MOST_STATES:
            raise wrong(
                "PATTERN_TOO_LONG",
                f"its steps come so often that it has more than {MOST_STATES} states. Use smaller numbers, or "
                ".one_or_more() and a condition as in 'count(a.*) >= 20000' of the next step.",
            )
        last = self.elements[-1]
        if last.contiguity == "not_followed_by" and self.within is None and last.since_previous is None:
            raise wrong(
                "NEGATION_WITHOUT_END",
                f"nothing tells how long {last.step!r} must not come. Add .within(...).",
            )
        self._check_greedy(wrong)
        self._check_times(wrong)
        self._check_skip(wrong)
        self._check_references(wrong)

    def _check_greedy(self, wrong: _Wrong) -> None:
        """A greedy step is left with the row that the next step takes, so one must come next."""
        if self.elements[-1].last.quantifier.greedy:
            raise wrong(
                "GREEDY_LAST",
                f"nothing follows the greedy step {self.elements[-1].last.step!r}, so nothing could end it. Leave out "
                ".greedy(), or add the step that ends it.",
            )
        for element, following in _neighbours(self.elements):
            if element.last.quantifier.greedy and following.contiguity == "not_next":
                raise wrong(
                    "GREEDY_BEFORE_NOT_NEXT",
                    f"step {following.step!r} looks at the row behind the greedy step {element.last.step!r}, which "
                    "ends only with a row of the next step. Use .not_followed_by, or leave out .greedy().",
                )
        for element in self._all_elements():
            if element.quantifier.given and element.group and element.last.quantifier.greedy:
                raise wrong(
                    "GREEDY_ENDS_GROUP",
                    f"the greedy step {element.last.step!r} ends a group that is repeated, so it is open what follows "
                    "it. Leave out .greedy(), or add a step to the group.",
                )

    def _check_times(self, wrong: _Wrong) -> None:
        for step in self._all_steps():
            limit = step.since_previous
            if limit is None:
                continue
            if step.negated and step is not self.elements[-1]:
                raise wrong("WITHIN_NEGATED", f"step {step.step!r} has no row. Put .within(...) behind the next step.")
            if self.within is not None and limit > self.within:
                raise wrong(
                    "WITHIN_TOO_LONG",
                    f"step {step.step!r} may come {spoken(limit)} behind the row before it, but the whole match may "
                    f"take only {spoken(self.within)}. Use a shorter one.",
                )

    def _check_skip(self, wrong: _Wrong) -> None:
        if self.skip.step is None:
            return
        if self.skip.step not in self.steps:
            raise wrong(
                "STEP_UNKNOWN",
                f"{self.skip!r}: no step of this name takes rows. Steps: {', '.join(self.steps)}.",
            )
        first = self.elements[0]
        if first.step == self.skip.step and not first.quantifier.optional and first.quantifier.most == 1:
            raise wrong(
                "SKIP_LOOPS",
                f"{self.skip!r} leads to the first row of the same match again, so nothing would ever be skipped. "
                "Use hr.skip.none(), or skip to a later step.",
            )

    def _check_references(self, wrong: _Wrong) -> None:
        """A condition reads steps that may have rows by then: its own, earlier ones, and those of its group."""
        order = {name: number for number, name in enumerate(self.steps)}
        names = [name for name, _ in conditions_of(self.elements)]
        negated = {step.step for step in self._all_steps() if step.negated}
        for name, condition in zip(names, self.conditions(), strict=True):
            own = name.rsplit(" ")[-1]
            if own in negated:
                before = [step.step for step in self._all_steps()]
                limit = max((order[str(each)] for each in before[: before.index(own)] if each in order), default=-1)
            else:
                limit = order[own]
            together = self._together(own)
            for step in sorted(condition.steps()):
                if order[step] > limit and step not in together:
                    raise wrong(
                        "STEP_NOT_EARLIER",
                        f"the condition of {name!r}, '{condition.text}', reads step {step!r}, which has no rows by "
                        f"then. Move the condition to {step!r}.",
                    )

    def _together(self, step: str) -> set[str]:
        """The steps that share a group with a step."""
        for element in self.elements:
            names = {str(each.step) for each in element.steps()}
            if element.group and step in names:
                return names
        return set()


def _neighbours(elements: tuple[Element, ...]) -> Iterator[tuple[Element, Element]]:
    """Elements that follow each other, also inside groups."""
    yield from pairwise(elements)
    for element in elements:
        yield from _neighbours(element.group)


def _is_strict(element: Element) -> bool:
    strict = element.contiguity in ("next", "not_next") or element.quantifier.inner == "consecutive"
    return strict or any(map(_is_strict, element.group))
