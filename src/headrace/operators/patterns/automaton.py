"""The automaton of a pattern: states whose transitions take a row, ignore it, or proceed to another state with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import reduce
from itertools import chain, product
from operator import or_
from typing import Literal

FINAL = -1
"""Where a match is complete."""
START = 0
IGNORE = -1
"""In place of a step in a move: no step takes the row."""

Guard = tuple[tuple[int, int], ...]
"""When a transition applies: alternatives, each (conditions that must hold, conditions that must not) as masks."""
Move = tuple[int, int, bool]
"""(step that takes the row or ``IGNORE``, state afterwards or ``FINAL``, whether a match is complete)."""
Outcome = tuple[Move, ...] | None
"""All that becomes of a partial match; None: it stays as it is."""

ALWAYS: Guard = ((0, 0),)
NEVER: Guard = ()


def both(left: Guard, right: Guard) -> Guard:
    """Both guards.

    >>> both(((1, 0),), ((0, 2), (0, 1)))
    ((1, 2),)
    """
    pairs = ((a | c, b | d) for (a, b), (c, d) in product(left, right))
    return tuple(dict.fromkeys(pair for pair in pairs if not pair[0] & pair[1]))


def negated(guard: Guard) -> Guard:
    """The opposite of a guard.

    >>> negated(((1, 2),))
    ((0, 1), (2, 0))
    """
    result = ALWAYS
    for wanted, unwanted in guard:
        result = both(result, (*((0, bit) for bit in bits(wanted)), *((bit, 0) for bit in bits(unwanted))))
    return result


def bits(mask: int) -> Iterator[int]:
    """The single bits of a mask.

    >>> list(bits(0b101))
    [1, 4]
    """
    while mask:
        lowest = mask & -mask
        yield lowest
        mask ^= lowest


@dataclass(frozen=True, slots=True)
class Transition:
    """What happens to a partial match in a state when a row passes the guard."""

    action: Literal["take", "ignore", "proceed"]
    target: int
    guard: Guard
    only_takes: bool = False
    """Whether proceeding counts only for what takes the row, because the state left can itself ignore it."""


@dataclass(frozen=True, slots=True)
class AutomatonState:
    """What a partial match waits for."""

    step: str
    """The step that would take a row here."""
    transitions: tuple[Transition, ...]
    stops: int = 0
    """Negated conditions: a row that meets one discards the partial match."""
    kind: Literal["step", "not_next", "pending", "junction"] = "step"
    """``pending`` is a match once its time is over; ``not_next`` looks at one row; a ``junction`` only proceeds."""

    @property
    def onward(self) -> list[int]:
        return [each.target for each in self.transitions if each.action == "proceed"]


@dataclass(frozen=True, slots=True)
class Automaton:
    """States by number; the first waits for the row that begins a match."""

    states: tuple[AutomatonState, ...]
    names: tuple[str, ...]
    """The name of each condition, in the order of their bits."""
    steps: tuple[str, ...]
    """The steps that take rows, in the order of the pattern."""
    limits: tuple[tuple[int, int], ...] = ()
    """(condition of a step, how long after the row before it a row of the step may come)."""

    def proceeds(self, state: int, *, over_next: bool = False) -> Iterator[int]:
        """The state and all that it proceeds to without looking at a further row, or also with a look at one."""
        waiting, seen = [state], {FINAL}
        while waiting:
            number = waiting.pop()
            if number in seen:
                continue
            seen.add(number)
            yield number
            if over_next or self.states[number].kind != "not_next":
                waiting += self.states[number].onward

    def looks_last(self, state: int) -> bool:
        """Whether it looks at one more row, and the match can be complete with that."""
        return self.states[state].kind == "not_next" and any(
            FINAL in self.states[reached].onward for reached in self.proceeds(state, over_next=True)
        )

    def waits_for(self, state: int) -> str | None:
        """The step that must come next, after a loop or an optional step the one after it; None if any row will do."""
        seen = set()
        while state not in seen:
            seen.add(state)
            onward = self.states[state].onward
            if not onward or onward[-1] == FINAL:
                break
            state = onward[-1]
        return None if self.states[state].kind == "not_next" else self.states[state].step

    def __str__(self) -> str:
        lines = []
        for number, state in enumerate(self.states):
            lines.append(f"{number} {self._state_text(state)}")
            for each in state.transitions:
                lines.append(f"    {self._text(each)} -> {'match' if each.target == FINAL else each.target}")
        return "\n".join(lines)

    def draw(self) -> str:
        """The automaton as Mermaid text."""
        lines = ["stateDiagram-v2", f"    [*] --> s{START}"]
        for number, state in enumerate(self.states):
            lines.append(f'    state "{number}: {self._state_text(state)}" as s{number}')
            for each in state.transitions:
                target = "[*]" if each.target == FINAL else f"s{each.target}"
                lines.append(f"    s{number} --> {target} : {self._text(each)}")
            if state.kind == "pending":
                lines.append(f"    s{number} --> [*] : when its time is over")
        return "\n".join(lines)

    def _state_text(self, state: AutomatonState) -> str:
        stops = "".join(f", never {name}" for bit, name in enumerate(self.names) if state.stops >> bit & 1)
        return f"{state.step}{'' if state.kind == 'step' else f' ({state.kind})'}{stops}"

    def _text(self, transition: Transition) -> str:
        if transition.guard == ALWAYS:
            return transition.action
        alternatives = (
            " and ".join(
                ("" if bit & wanted else "not ") + self.names[bit.bit_length() - 1] for bit in bits(wanted | unwanted)
            )
            for wanted, unwanted in transition.guard
        )
        return f"{transition.action} if {' or '.join(alternatives) or 'never'}"


@dataclass(slots=True)
class TransitionTable:
    """What a row does to a partial match, by state and the conditions that the row meets; filled on demand."""

    automaton: Automaton
    relevant: list[int] = field(default_factory=list)
    """The conditions that a state, or one it proceeds to, asks about."""
    outcomes: list[dict[int, Outcome]] = field(default_factory=list)
    _completes: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        states, proceeds = self.automaton.states, self.automaton.proceeds
        for number in range(len(states)):
            self.outcomes.append({})
            ahead = [states[each] for each in proceeds(number, over_next=True)]
            guards = (each.guard for state in ahead for each in state.transitions)
            masks = chain((state.stops for state in ahead), *chain.from_iterable(guards))
            self.relevant.append(reduce(or_, masks))
            reached = (states[each] for each in proceeds(number))
            self._completes.append(any(FINAL in each.onward for each in reached if each.kind != "not_next"))

    def compute(self, state: int, hits: int) -> Outcome:
        """The outcome in a state for a row that meets the conditions ``hits``; the table keeps it."""
        moves: list[Move] = []
        stopped = False
        waiting, seen = [(state, False, False)], set()
        while waiting:
            number, only_takes, looked = waiting.pop()
            if number in seen:
                continue
            seen.add(number)
            reached = self.automaton.states[number]
            stopped |= bool(hits & reached.stops)
            looked_here = looked or reached.kind == "not_next"
            for each in reached.transitions:
                if not any(hits & wanted == wanted and not hits & unwanted for wanted, unwanted in each.guard):
                    continue
                if each.action == "take":
                    completes = each.target == FINAL or self._completes[each.target]
                    moves.append((self.automaton.steps.index(reached.step), each.target, completes))
                elif each.action == "ignore" and state != START and not only_takes:
                    moves.append((IGNORE, each.target, False))
                elif each.action == "proceed" and each.target != FINAL:
                    waiting.append((each.target, only_takes or each.only_takes, looked_here))
                elif each.action == "proceed" and looked_here:
                    # Only behind a look at one row is a match not complete with the row taken before it.
                    moves.append((IGNORE, FINAL, True))
        if stopped:
            # What a negation forbids is no later step either, not even the last one.
            moves = []
        outcome = None if moves == [(IGNORE, state, False)] else tuple(moves)
        self.outcomes[state][hits] = outcome
        return outcome
