"""Compiles the elements of a pattern to its automaton."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from headrace.operators.patterns.automaton import (
    ALWAYS,
    FINAL,
    NEVER,
    START,
    Automaton,
    AutomatonState,
    Guard,
    Transition,
    both,
    negated,
)
from headrace.operators.patterns.definition import Contiguity, Element, Inner, conditions_of

_Entry = Callable[[int, int], int]
_INNER: dict[Inner, Contiguity] = {
    "relaxed": "followed_by",
    "consecutive": "next",
    "combinations": "followed_by_any",
}


def compile_automaton(elements: tuple[Element, ...]) -> Automaton:
    """Compile a pattern's elements.

    >>> print(compile_automaton((Element("begin", "a"), Element("followed_by", "b"))))
    0 a
        take if a -> 1
    1 b
        take if b -> match
        ignore if not b -> 1
    """
    return _Compiler(elements).compiled()


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an element stands: what comes after it, and what holds around it."""

    sinks: Mapping[int, int]
    """The state after the element, by the negations that still count there: none, or those `_left_open` finds."""
    skip: int | None
    """The state to proceed to without the element, if it may be left out."""
    contiguity: Contiguity
    stops: int
    """Negations that count while the element's first row is awaited."""
    stops_inside: int
    """Negations after the element, which count as soon as it has a row."""
    gate: int
    """Ends of the loops around the element: a row that meets one goes nowhere inside."""
    following: Guard
    """What takes a row after the element."""
    leaving: Contiguity
    """How that follows."""


@dataclass(slots=True)
class _Compiler:
    elements: tuple[Element, ...]
    states: list[AutomatonState] = field(default_factory=list)
    masks: dict[str, int] = field(init=False)
    """The bit of each condition, by its name."""

    def __post_init__(self) -> None:
        self.masks = {name: 1 << number for number, (name, _) in enumerate(conditions_of(self.elements))}

    def compiled(self) -> Automaton:
        steps = [step for element in self.elements for step in element.steps()]
        whole = _Place(
            dict.fromkeys(self._left_open(self.elements), FINAL), None, "begin", 0, 0, 0, NEVER, "followed_by_any"
        )
        entry = self._sequence(self.elements, whole)
        return Automaton(
            self._reordered(entry),
            tuple(self.masks),
            tuple(str(step.step) for step in steps if not step.negated),
            tuple((self._mask(step), step.since_previous) for step in steps if step.since_previous is not None),
        )

    def _reordered(self, entry: int) -> tuple[AutomatonState, ...]:
        """States numbered from the entry on, in the order in which a match reaches them."""
        order, seen = [entry], {entry, FINAL}
        for number in order:
            for each in self.states[number].transitions:
                if each.target not in seen:
                    seen.add(each.target)
                    order.append(each.target)
        numbers = {old: new for new, old in enumerate(order, START)} | {FINAL: FINAL}
        return tuple(
            replace(
                self.states[old],
                transitions=tuple(replace(each, target=numbers[each.target]) for each in self.states[old].transitions),
            )
            for old in order
        )

    def _new(self, state: AutomatonState) -> int:
        self.states.append(state)
        return len(self.states) - 1

    def _connect(self, state: int, *transitions: Transition) -> int:
        self.states[state] = replace(self.states[state], transitions=(*self.states[state].transitions, *transitions))
        return state

    def _mask(self, element: Element) -> int:
        return self.masks[str(element.step)]

    def _until(self, element: Element) -> int:
        return 0 if element.quantifier.until is None else self.masks[element.until_name]

    def _take(self, element: Element, gate: int) -> Guard:
        """When the element's first step takes a row."""
        while element.group:
            gate |= self._until(element)
            element = element.group[0]
        return ((self._mask(element), gate | self._until(element)),)

    def _following(self, elements: tuple[Element, ...], gate: int, behind: Guard) -> Guard:
        """What may take a row at the beginning of some elements, or after them."""
        if not elements:
            return behind
        rest = self._following(elements[1:], gate, behind)
        if elements[0].negated:
            return rest
        take = self._take(elements[0], gate)
        return (*take, *rest) if elements[0].quantifier.optional else take

    def _sequence(self, elements: tuple[Element, ...], place: _Place) -> int:
        """Elements one after the other; contiguity, skipping and negations of the place are those of the first."""
        built: dict[tuple[int, int], int] = {}

        def entry(number: int, stops: int) -> int:
            if number == len(elements):
                return place.sinks[stops]
            if (number, stops) not in built:
                built[number, stops] = self._at(elements, number, stops, place, entry)
            return built[number, stops]

        return entry(0, place.stops)

    def _at(self, elements: tuple[Element, ...], number: int, stops: int, place: _Place, entry: _Entry) -> int:
        element, rest = elements[number], elements[number + 1 :]
        name = str(element.step)
        if element.contiguity == "not_followed_by":
            mask = self._mask(element)
            if rest:
                return entry(number + 1, stops | mask)
            pending = self._new(AutomatonState(name, (), stops | mask, "pending"))
            return self._connect(pending, Transition("ignore", pending, ((0, mask),)))
        if element.contiguity == "not_next":
            mask = self._mask(element)
            onward = Transition("proceed", entry(number + 1, stops), ((0, mask),))
            return self._new(AutomatonState(name, (onward,), mask, "not_next"))
        first = number == 0
        inside = 0
        for following in rest:
            if following.contiguity != "not_followed_by":
                break
            inside |= self._mask(following)
        skip = place.skip if first else None
        if element.quantifier.optional:
            # A row taken by an optional step ends the negations before it; without one they go on to the next step.
            skip = entry(number + 1, stops)
        return self._element(
            element,
            _Place(
                {left: entry(number + 1, left) for left in self._left_open(element.group)},
                skip,
                place.contiguity if first else element.contiguity,
                stops,
                inside,
                place.gate,
                self._following(rest, place.gate, place.following),
                next((each.contiguity for each in rest if not each.negated), place.leaving),
            ),
        )

    def _element(self, element: Element, place: _Place) -> int:
        """An element as often as its quantifier says, built from its last time back to its first."""
        quantifier = element.quantifier
        again = replace(place, contiguity=_INNER[quantifier.inner], stops=place.stops_inside, skip=None)
        once_more = self._take(element, place.gate) if element.group else NEVER
        sinks, following = place.sinks, place.following
        if quantifier.most is None:
            following = (*once_more, *following)
            sinks = self._loop(element, replace(again, following=following), place.sinks)
        else:
            for _ in range(quantifier.least, quantifier.most):
                sinks = self._again(element, replace(again, sinks=sinks, following=following), place.sinks)
                following = (*once_more, *place.following)
        for _ in range(quantifier.least - 1):
            sinks = self._again(element, replace(again, sinks=sinks, following=following), {})
            following = once_more or place.following
        return self._once(element, replace(place, sinks=sinks, following=following), first=True)

    def _again(self, element: Element, place: _Place, leaving: Mapping[int, int]) -> dict[int, int]:
        """An element once more, for each way in which the time before may have ended."""
        return {
            left: self._once(element, replace(place, skip=leaving.get(left), stops=place.stops | left))
            for left in place.sinks
        }

    def _loop(self, element: Element, place: _Place, leaving: Mapping[int, int]) -> dict[int, int]:
        """An element whose end leads to its own beginning."""
        name = str(next(element.steps()).step)
        junctions = {left: self._new(AutomatonState(name, (), kind="junction")) for left in leaving}
        heads = self._again(element, replace(place, sinks=junctions), leaving)
        for left, junction in junctions.items():
            self._connect(junction, Transition("proceed", heads[left], ALWAYS))
        return junctions

    def _left_open(self, elements: tuple[Element, ...]) -> set[int]:
        """The negations that may still count after elements: those before steps that are left out at the end."""
        left = {0}
        for element in elements:
            if element.contiguity == "not_followed_by":
                left = {stops | self._mask(element) for stops in left}
            elif not element.negated:
                ended = self._left_open(element.group)
                left = left | ended if element.quantifier.optional else ended
        return left

    def _once(self, element: Element, place: _Place, *, first: bool = False) -> int:
        """An element one time; ``first`` when none of its rows has been taken yet."""
        if element.group:
            return self._sequence(element.group, replace(place, gate=place.gate | self._until(element)))
        mask, until = self._mask(element), self._until(element)
        take: Guard = ((mask, until | place.gate),)
        blocked = place.gate | (0 if first else until)
        ignores: dict[Contiguity, Guard] = {
            "followed_by": ((0, mask | blocked),),
            "followed_by_any": ((0, blocked),),
        }
        ignore = ignores.get(place.contiguity, NEVER)
        greedy = element.quantifier.greedy
        taking = Transition("take", place.sinks[0], take)
        onward = () if place.skip is None else self._onward(place, take, ignore, greedy=greedy)
        name = str(element.step)
        state = self._new(AutomatonState(name, (taking, *onward), place.stops))
        if ignore == NEVER:
            return state
        if not onward:
            return self._connect(state, Transition("ignore", state, ignore))
        # Whoever has ignored a row here may still take one, but the way past the step was gone with that row.
        closed = self._new(AutomatonState(name, (taking,), place.stops))
        self._connect(closed, Transition("ignore", closed, ignore))
        staying = both(both(negated(take), ignore), self._staying(place)) if greedy else NEVER
        return self._connect(
            state,
            *(() if staying == NEVER else (Transition("ignore", state, staying),)),
            Transition("ignore", closed, both(ignore, negated(staying))),
        )

    @staticmethod
    def _staying(place: _Place) -> Guard:
        """When the way past a greedy step stays open though a row is ignored, since it leaves only with a row."""
        if place.leaving == "next":
            return NEVER
        return ALWAYS if place.leaving == "followed_by_any" else negated(place.following)

    def _onward(self, place: _Place, take: Guard, ignore: Guard, *, greedy: bool) -> tuple[Transition, ...]:
        """The way past a step: open, or for a greedy one only with a row that it cannot take itself."""
        assert place.skip is not None  # for the type checker: the caller has looked
        if not greedy:
            return (Transition("proceed", place.skip, ALWAYS),)
        untaken = negated(take)
        passing = both(both(untaken, ignore), place.following)
        leaving = both(untaken, negated(ignore))
        ways = (Transition("proceed", place.skip, passing, only_takes=True), Transition("proceed", place.skip, leaving))
        return tuple(each for each in ways if each.guard != NEVER) or (Transition("proceed", place.skip, NEVER),)
