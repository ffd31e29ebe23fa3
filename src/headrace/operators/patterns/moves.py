"""What a row does to a partial match, looked up by the state and the conditions that the row meets."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.operators.patterns.automaton import FINAL, START, Automaton
from headrace.operators.patterns.requirement import holds, used

IGNORE = -1
Move = tuple[int, int, bool]
"""(step that takes the row or ``IGNORE``, state afterwards or ``FINAL``, whether a match is complete)."""
Outcome = tuple[Move, ...] | None
"""All that becomes of a partial match; None: it stays as it is."""


@dataclass(slots=True)
class Moves:
    """The outcomes of an automaton, worked out when they are first needed."""

    automaton: Automaton
    relevant: list[int] = field(init=False)
    """The conditions that a state, or one it proceeds to, asks about."""
    outcomes: list[dict[int, Outcome]] = field(init=False)
    _completes: list[bool] = field(init=False)

    def __post_init__(self) -> None:
        states = self.automaton.states
        self.relevant = [0] * len(states)
        self._completes = [False] * len(states)
        self.outcomes = [{} for _ in states]
        for number in range(len(states)):
            waiting, seen = [number], {FINAL}
            while waiting:
                reached = waiting.pop()
                if reached in seen:
                    continue
                seen.add(reached)
                self.relevant[number] |= states[reached].stops
                for edge in states[reached].edges:
                    self.relevant[number] |= used(edge.when)
                    if edge.action == "proceed":
                        waiting.append(edge.target)
            self._completes[number] = any(
                edge.target == FINAL
                for reached in self.automaton.proceeds(number)
                if states[reached].kind != "not_next"
                for edge in states[reached].edges
                if edge.action == "proceed"
            )

    def work_out(self, state: int, hits: int) -> Outcome:
        """The outcome in a state for a row that meets the conditions ``hits``, remembered from now on."""
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
            for edge in reached.edges:
                if not holds(edge.when, hits):
                    continue
                if edge.action == "take":
                    step = self.automaton.steps.index(reached.step)
                    completes = edge.target == FINAL or self._completes[edge.target]
                    moves.append((step, edge.target, completes))
                elif edge.action == "ignore" and state != START and not only_takes:
                    moves.append((IGNORE, edge.target, False))
                elif edge.action == "proceed" and edge.target == FINAL:
                    # Only behind a look at one row is a match not complete with the row taken before it.
                    if looked or reached.kind == "not_next":
                        moves.append((IGNORE, FINAL, True))
                elif edge.action == "proceed":
                    waiting.append((edge.target, only_takes or edge.only_takes, looked or reached.kind == "not_next"))
        if stopped:
            moves = [(step, FINAL, True) for step, _, completes in moves if completes]
        outcome = None if moves == [(IGNORE, state, False)] else tuple(moves)
        self.outcomes[state][hits] = outcome
        return outcome
