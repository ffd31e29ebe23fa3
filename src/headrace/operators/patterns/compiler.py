"""From the elements of a pattern to its automaton."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from headrace.operators.patterns.automaton import FINAL, START, Automaton, Edge, State
from headrace.operators.patterns.element import Contiguity, Element, Inner
from headrace.operators.patterns.requirement import ALWAYS, NEVER, Requirement, both, negated

_Entry = Callable[[int, int], int]
_INNER: dict[Inner, Contiguity] = {
    "relaxed": "followed_by",
    "consecutive": "next",
    "combinations": "followed_by_any",
}


def conditions_of(elements: Sequence[Element]) -> list[tuple[str, str | None]]:
    """Every condition by the name of its step, in the automaton's order.

    ``until b`` is the end of a loop over ``b``, ``until group b`` that of a loop over a group that begins with it.
    """
    found: list[tuple[str, str | None]] = []
    for element in elements:
        if element.quantifier.until is not None:
            found.append((_until(element), element.quantifier.until))
        found += conditions_of(element.group) if element.group else [(str(element.step), element.where)]
    return found


def automaton_of(elements: tuple[Element, ...]) -> Automaton:
    """Compile a pattern's elements.

    >>> print(automaton_of((Element("begin", "a"), Element("followed_by", "b"))))
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
    """The state behind the element, by the negations that still count there: none, or those `_left_open` finds."""
    skip: int | None
    """The state to proceed to without the element, if it may be left out."""
    contiguity: Contiguity
    stops: int
    """Negations that count while the element's first row is awaited."""
    stops_inside: int
    """Negations behind the element, which count as soon as it has a row."""
    gate: int
    """Ends of the loops around the element: a row that meets one goes nowhere inside."""
    following: Requirement
    """What takes a row behind the element."""
    leaving: Contiguity
    """How that follows."""


@dataclass(slots=True)
class _Compiler:
    elements: tuple[Element, ...]
    states: list[State] = field(default_factory=list)

    def compiled(self) -> Automaton:
        names = [name for name, _ in conditions_of(self.elements)]
        taking = [step for element in self.elements for step in element.steps() if not step.negated]
        whole = _Place(
            dict.fromkeys(self._left_open(self.elements), FINAL), None, "begin", 0, 0, 0, NEVER, "followed_by_any"
        )
        entry = self._sequence(self.elements, whole)
        states = self._reordered(entry)
        limits = [
            (self._mask(step), step.since_previous)
            for element in self.elements
            for step in element.steps()
            if step.since_previous is not None
        ]
        return Automaton(
            states,
            tuple(names),
            tuple(str(step.step) for step in taking),
            tuple(self._mask(step) for step in taking),
            tuple(limits),
        )

    def _reordered(self, entry: int) -> tuple[State, ...]:
        """States numbered from the entry on, in the order in which a match reaches them."""
        order, seen = [entry], {entry, FINAL}
        for number in order:
            for edge in self.states[number].edges:
                if edge.target not in seen:
                    seen.add(edge.target)
                    order.append(edge.target)
        numbers = {old: new for new, old in enumerate(order, START)} | {FINAL: FINAL}
        return tuple(
            replace(
                self.states[old],
                edges=tuple(replace(edge, target=numbers[edge.target]) for edge in self.states[old].edges),
            )
            for old in order
        )

    def _new(self, state: State) -> int:
        self.states.append(state)
        return len(self.states) - 1

    def _mask(self, element: Element, *, until: bool = False) -> int:
        wanted = _until(element) if until else str(element.step)
        names = [name for name, _ in conditions_of(self.elements)]
        return 1 << names.index(wanted)

    def _until(self, element: Element) -> int:
        return 0 if element.quantifier.until is None else self._mask(element, until=True)

    def _take(self, element: Element, gate: int) -> Requirement:
        """When the element's first step takes a row."""
        while element.group:
            gate |= self._until(element)
            element = element.group[0]
        return ((self._mask(element), gate | self._until(element)),)

    def _following(self, elements: tuple[Element, ...], gate: int, behind: Requirement) -> Requirement:
        """What may take a row at the beginning of some elements, or behind them."""
        if not elements:
            return behind
        rest = self._following(elements[1:], gate, behind)
        if elements[0].negated:
            return rest
        take = self._take(elements[0], gate)
        return (*take, *rest) if elements[0].quantifier.optional else take

    def _sequence(self, elements: tuple[Element, ...], place: _Place) -> int:
        """Elements one after the other; what the place says of contiguity, skipping and negations is for the first."""
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
            pending = self._new(State(name, (), stops | mask, "pending"))
            self.states[pending] = replace(self.states[pending], edges=(Edge("ignore", pending, ((0, mask),)),))
            return pending
        if element.contiguity == "not_next":
            mask = self._mask(element)
            onward = Edge("proceed", entry(number + 1, stops), ((0, mask),))
            return self._new(State(name, (onward,), mask, "not_next"))
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
        again = replace(
            place,
            contiguity=_INNER[quantifier.inner],
            stops=place.stops_inside,
            skip=None,
        )
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
        name = str(element.first.step)
        junctions = {left: self._new(State(name, (), kind="junction")) for left in leaving}
        heads = self._again(element, replace(place, sinks=junctions), leaving)
        for left, junction in junctions.items():
            self.states[junction] = replace(self.states[junction], edges=(Edge("proceed", heads[left], ALWAYS),))
        return junctions

    def _left_open(self, elements: tuple[Element, ...]) -> set[int]:
        """The negations that may still count behind elements: those before steps that are left out at the end."""
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
        take: Requirement = ((mask, until | place.gate),)
        blocked = place.gate | (0 if first else until)
        ignores: dict[Contiguity, Requirement] = {
            "followed_by": ((0, mask | blocked),),
            "followed_by_any": ((0, blocked),),
        }
        ignore = ignores.get(place.contiguity, NEVER)
        greedy = element.quantifier.greedy
        taking = Edge("take", place.sinks[0], take)
        onward = () if place.skip is None else self._onward(place, take, ignore, greedy=greedy)
        name = str(element.step)
        state = self._new(State(name, (taking, *onward), place.stops))
        if ignore == NEVER:
            return state
        if not onward:
            return self._ignoring(state, Edge("ignore", state, ignore))
        # Whoever has ignored a row here may still take one, but the way past the step was gone with that row.
        closed = self._new(State(name, (taking,), place.stops))
        self._ignoring(closed, Edge("ignore", closed, ignore))
        staying = both(both(negated(take), ignore), self._staying(place)) if greedy else NEVER
        return self._ignoring(
            state,
            *(() if staying == NEVER else (Edge("ignore", state, staying),)),
            Edge("ignore", closed, both(ignore, negated(staying))),
        )

    def _ignoring(self, state: int, *edges: Edge) -> int:
        self.states[state] = replace(self.states[state], edges=(*self.states[state].edges, *edges))
        return state

    @staticmethod
    def _staying(place: _Place) -> Requirement:
        """When the way past a greedy step stays open though a row is ignored, since it leaves only with a row."""
        if place.leaving == "next":
            return NEVER
        return ALWAYS if place.leaving == "followed_by_any" else negated(place.following)

    def _onward(self, place: _Place, take: Requirement, ignore: Requirement, *, greedy: bool) -> tuple[Edge, ...]:
        """The way past a step: open, or for a greedy one only with a row that it cannot take itself."""
        assert place.skip is not None  # for the type checker: the caller has looked
        if not greedy:
            return (Edge("proceed", place.skip, ALWAYS),)
        untaken = negated(take)
        passing = both(both(untaken, ignore), place.following)
        leaving = both(untaken, negated(ignore))
        edges = (Edge("proceed", place.skip, passing, only_takes=True), Edge("proceed", place.skip, leaving))
        return tuple(edge for edge in edges if edge.when != NEVER) or (Edge("proceed", place.skip, NEVER),)


def _until(element: Element) -> str:
    """The name of the condition that ends a loop."""
    levels, inner = 0, element
    while inner.group:
        levels, inner = levels + 1, inner.group[0]
    return f"until {'group ' * levels}{inner.step}"
