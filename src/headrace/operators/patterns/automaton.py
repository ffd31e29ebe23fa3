"""The automaton of a pattern: states with edges that take a row, ignore it, or proceed to another state with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from headrace.operators.patterns.requirement import Requirement, spoken

FINAL = -1
"""Where a match is complete."""
START = 0


@dataclass(frozen=True, slots=True)
class Edge:
    """What happens to a partial match in a state when a row fulfils a requirement."""

    action: Literal["take", "ignore", "proceed"]
    target: int
    when: Requirement
    only_takes: bool = False
    """Whether proceeding counts only for what takes the row, because the state left can itself ignore it."""


@dataclass(frozen=True, slots=True)
class State:
    """What a partial match waits for."""

    step: str
    """The step that would take a row here."""
    edges: tuple[Edge, ...]
    stops: int = 0
    """Negated conditions: a row that meets one discards the partial match."""
    kind: Literal["step", "not_next", "pending", "junction"] = "step"
    """``pending`` is a match once its time is over; ``not_next`` looks at one row; a ``junction`` only proceeds."""


@dataclass(frozen=True, slots=True)
class Automaton:
    """States by number, the first of which waits for the row that begins a match."""

    states: tuple[State, ...]
    names: tuple[str, ...]
    """What each condition is called."""
    steps: tuple[str, ...]
    """The steps that take rows, in the order of the pattern."""
    takes: tuple[int, ...]
    """The condition of each step, as a mask."""
    limits: tuple[tuple[int, int], ...] = ()
    """(condition of a step, how long behind the row before it a row of the step may come)."""

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
                waiting += [edge.target for edge in self.states[number].edges if edge.action == "proceed"]

    def looks_last(self, state: int) -> bool:
        """Whether it looks at one more row, and the match can be complete with that."""
        return self.states[state].kind == "not_next" and any(
            edge.target == FINAL and edge.action == "proceed"
            for reached in self.proceeds(state, over_next=True)
            for edge in self.states[reached].edges
        )

    def waits_for(self, state: int) -> str | None:
        """The step that must come next: behind a loop or an optional step the one after it.

        None where any row will do that a ``not_next`` at the end does not forbid.
        """
        seen = set()
        while state not in seen:
            seen.add(state)
            onward = [edge.target for edge in self.states[state].edges if edge.action == "proceed"]
            if not onward or onward[-1] == FINAL:
                break
            state = onward[-1]
        return None if self.states[state].kind == "not_next" else self.states[state].step

    def __str__(self) -> str:
        lines = []
        for number, state in enumerate(self.states):
            lines.append(f"{number} {self._shown(state)}")
            lines += [f"    {self._said(edge)} -> {_number(edge.target)}" for edge in state.edges]
        return "\n".join(lines)

    def draw(self) -> str:
        """The automaton as Mermaid text."""
        lines = ["stateDiagram-v2", f"    [*] --> s{START}"]
        for number, state in enumerate(self.states):
            lines.append(f'    state "{number}: {self._shown(state)}" as s{number}')
            for edge in state.edges:
                target = "[*]" if edge.target == FINAL else f"s{edge.target}"
                lines.append(f"    s{number} --> {target} : {self._said(edge)}")
            if state.kind == "pending":
                lines.append(f"    s{number} --> [*] : when its time is over")
        return "\n".join(lines)

    def _shown(self, state: State) -> str:
        stops = "".join(f", never {name}" for bit, name in enumerate(self.names) if state.stops >> bit & 1)
        return f"{state.step}{'' if state.kind == 'step' else f' ({state.kind})'}{stops}"

    def _said(self, edge: Edge) -> str:
        when = spoken(edge.when, self.names)
        return f"{edge.action} if {when}" if when else edge.action


def _number(state: int) -> str:
    return "match" if state == FINAL else str(state)
