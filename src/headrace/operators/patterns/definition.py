"""What a pattern matches: its elements, time, skip strategy and measures, and the checks of them as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Literal

from headrace.durations import spoken
from headrace.errors import DefinitionError
from headrace.operators.patterns.match_conditions import StepCondition, parse_step_condition
from headrace.operators.patterns.skip import Skip

Contiguity = Literal["begin", "next", "followed_by", "followed_by_any", "not_next", "not_followed_by"]
Inner = Literal["relaxed", "consecutive", "combinations"]
MOST_CONDITIONS = 62
MOST_STATES = 10_000
Problems = Iterator[tuple[str, str]]
"""Error id and message of what is wrong."""


@dataclass(frozen=True, slots=True)
class Quantifier:
    """How often an element comes: from ``least`` to ``most`` times (None: without an end), or perhaps not at all."""

    least: int = 1
    most: int | None = 1
    given: bool = False
    """Whether the user has given a number, even if it is one."""
    optional: bool = False
    greedy: bool = False
    inner: Inner = "relaxed"
    until: str | None = None

    def __repr__(self) -> str:
        calls = ""
        if self.given and self.most is None:
            calls = ".one_or_more()" if self.least == 1 else f".times_or_more({self.least})"
        elif self.given:
            calls = f".times({self.least})" if self.least == self.most else f".times({self.least}, {self.most})"
        calls += {"relaxed": "", "consecutive": ".consecutive()", "combinations": ".allow_combinations()"}[self.inner]
        calls += "" if self.until is None else f".until({self.until!r})"
        return calls + (".optional()" if self.optional else "") + (".greedy()" if self.greedy else "")


@dataclass(frozen=True, slots=True)
class Element:
    """A step with its condition or a group of elements, how it follows the element before, and how often it comes."""

    contiguity: Contiguity
    step: str | None = None
    where: str | None = None
    group: tuple[Element, ...] = ()
    quantifier: Quantifier = Quantifier()
    since_previous: int | None = None
    """The row must come less than this many microseconds after the row before it in the match."""

    @property
    def negated(self) -> bool:
        return self.contiguity.startswith("not_")

    @property
    def shortest(self) -> int:
        """The least number of rows that the element takes."""
        if self.negated or self.quantifier.optional:
            return 0
        return self.quantifier.least * (sum(element.shortest for element in self.group) if self.group else 1)

    @property
    def states(self) -> int:
        """About how many states the element becomes: those of one time for each time it may come."""
        quantifier = self.quantifier
        times = quantifier.least + 1 if quantifier.most is None else quantifier.most
        return times * (sum(element.states for element in self.group) if self.group else 1)

    @property
    def last(self) -> Element:
        """The element itself, or the last step of the group."""
        return self.group[-1].last if self.group else self

    @property
    def sees_every_row(self) -> bool:
        """Whether something in it must follow directly, so that rows that meet no condition matter."""
        strict = self.contiguity in ("next", "not_next") or self.quantifier.inner == "consecutive"
        return strict or any(element.sees_every_row for element in self.group)

    @property
    def until_name(self) -> str:
        """The name of the condition that ends the loop: ``until b``, or ``until group b`` of a group that begins so."""
        return f"until {self.step}" if not self.group else f"until group {self.group[0].until_name[6:]}"

    def steps(self) -> Iterator[Element]:
        """The element itself, or the steps of the group and of the groups in it."""
        if not self.group:
            yield self
        for element in self.group:
            yield from element.steps()

    def __repr__(self) -> str:
        what = repr(self.step) if not self.group else f"hr.group(){''.join(map(repr, self.group))}"
        where = "" if self.where is None else f", {self.where!r}"
        within = "" if self.since_previous is None else f".within({spoken(self.since_previous)!r}, since='previous')"
        return f".{self.contiguity}({what}{where}){self.quantifier!r}{within}"


def conditions_of(elements: Sequence[Element]) -> list[tuple[str, str | None]]:
    """Every condition by the name of its step, in the automaton's order."""
    found: list[tuple[str, str | None]] = []
    for element in elements:
        if element.quantifier.until is not None:
            found.append((element.until_name, element.quantifier.until))
        found += conditions_of(element.group) if element.group else [(str(element.step), element.where)]
    return found


@dataclass(frozen=True, slots=True)
class PatternDefinition:
    """A whole pattern, whether it was built in code or came as a rule."""

    elements: tuple[Element, ...]
    within: int | None
    skip: Skip
    measures: tuple[tuple[str, str], ...]

    @property
    def steps(self) -> tuple[str, ...]:
        """The steps that take rows, in the order of the pattern."""
        return tuple(str(step.step) for step in self._all_steps() if not step.negated)

    @property
    def conditions(self) -> list[StepCondition]:
        return [parse_step_condition(text, self.steps) for _, text in conditions_of(self.elements)]

    @property
    def sees_every_row(self) -> bool:
        """Whether rows that meet no condition matter, because something must follow directly."""
        return any(element.sees_every_row for element in self.elements)

    def check(self, label: str) -> None:
        """Refuse a pattern that makes no sense as a whole; the builder has refused what a single call can show."""
        checks = (self._check_whole, self._check_greedy, self._check_times, self._check_skip, self._check_references)
        for id, message in chain.from_iterable(check() for check in checks):
            raise DefinitionError(id, f"{label}: {message}")

    def _check_whole(self) -> Problems:
        if not self.elements:
            yield "PATTERN_NOT_BEGUN", "it has no steps. Add .begin(...)."
        names = [step.step for step in self._all_steps()]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            yield "STEP_NAME_TWICE", f"two steps are named {twice[0]!r}. Rename one of them."
        if len(conditions_of(self.elements)) > MOST_CONDITIONS:
            yield "PATTERN_TOO_LONG", f"it has more than {MOST_CONDITIONS} conditions. Divide it."
        if sum(element.states for element in self.elements) > MOST_STATES:
            yield (
                "PATTERN_TOO_LONG",
                f"its steps are repeated so often that it has more than {MOST_STATES} states. Use smaller numbers, or "
                ".one_or_more() and a condition as in 'count(a.*) >= 20000' on the next step.",
            )
        last = self.elements[-1]
        if last.contiguity == "not_followed_by" and self.within is None and last.since_previous is None:
            yield "NEGATION_WITHOUT_END", f"negation {last.step!r} at its end has no time limit. Add .within(...)."

    def _all_steps(self) -> Iterator[Element]:
        return (step for element in self.elements for step in element.steps())

    def _check_greedy(self) -> Problems:
        """A greedy step ends with the row that the next step takes, so one must come next."""
        if self.elements[-1].last.quantifier.greedy:
            yield (
                "GREEDY_LAST",
                f"nothing follows the greedy step {self.elements[-1].last.step!r}, so nothing could end it. Leave out "
                ".greedy(), or add the step that ends it.",
            )
        for element, following in _neighbours(self.elements):
            if element.last.quantifier.greedy and following.contiguity == "not_next":
                yield (
                    "GREEDY_BEFORE_NOT_NEXT",
                    f"step {following.step!r} checks the row right after the greedy step {element.last.step!r}, which "
                    "ends only with a row of the next step. Use .not_followed_by, or leave out .greedy().",
                )
        waiting = list(self.elements)
        for element in waiting:
            waiting += element.group
            if element.quantifier.given and element.group and element.last.quantifier.greedy:
                yield (
                    "GREEDY_ENDS_GROUP",
                    f"the greedy step {element.last.step!r} ends a group that is repeated, so it is ambiguous what "
                    "follows it. Leave out .greedy(), or add a step to the group.",
                )

    def _check_times(self) -> Problems:
        limited = ((step, step.since_previous) for step in self._all_steps() if step.since_previous is not None)
        for step, limit in limited:
            if step.negated and step is not self.elements[-1]:
                yield "WITHIN_NEGATED", f"step {step.step!r} has no row. Put .within(...) after the next step."
            if self.within is not None and limit > self.within:
                yield (
                    "WITHIN_TOO_LONG",
                    f"step {step.step!r} may come {spoken(limit)} after the row before it, but the whole match may "
                    f"take only {spoken(self.within)}. Use a shorter time for the step.",
                )

    def _check_skip(self) -> Problems:
        if self.skip.step is None:
            return
        if self.skip.step not in self.steps:
            steps = ", ".join(self.steps)
            yield "STEP_UNKNOWN", f"{self.skip!r}: no step of this name takes rows. Steps: {steps}."
        first = self.elements[0]
        if first.step == self.skip.step and not first.quantifier.optional and first.quantifier.most == 1:
            yield (
                "SKIP_LOOPS",
                f"{self.skip!r} leads to the first row of the same match again, so nothing would ever be skipped. "
                "Use hr.skip.none(), or skip to a later step.",
            )

    def _check_references(self) -> Problems:
        """A condition reads steps that may have rows by then: its own, earlier ones, and those of its group."""
        readable: set[str] = set()
        for element in self.elements:
            readable |= {str(step.step) for step in element.steps()}
            for name, text in conditions_of([element]):
                for step in sorted(parse_step_condition(text, self.steps).steps() - readable):
                    yield (
                        "STEP_NOT_EARLIER",
                        f"the condition of {name!r}, '{text}', reads step {step!r}, which has no rows by then. Move "
                        f"the condition to {step!r}.",
                    )


def _neighbours(elements: tuple[Element, ...]) -> Iterator[tuple[Element, Element]]:
    """Elements that follow each other, also inside groups."""
    yield from pairwise(elements)
    for element in elements:
        yield from _neighbours(element.group)
