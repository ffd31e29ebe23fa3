"""Runs the automaton over the rows of one key; knows nothing of frames or batches."""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.operators.patterns.automaton import FINAL, START, Automaton, TransitionTable, bits
from headrace.operators.patterns.skip import Skip

Row = tuple[Any, ...]
"""(time, number in the order of the key's rows, values...)."""
Node = tuple[Row, int, Any]
"""(row, step that took it, node of the row taken before or None): partial matches that branch share their rows."""
Partial = tuple[int, Row, Any]
"""(state, row that began it, last node or None in ``START``)."""
Condition = Callable[[Row, Node | None], bool | None]
"""A condition over a row and what has been matched before it."""
Match = tuple[int, Node, int]
"""(number of the key, last node, time at which the match was complete)."""
TimedOut = tuple[int, Node, int, str | None]
"""(number of the key, last node, time at which it timed out, step it waited for or None for any row)."""

TIME, NUMBER, VALUES = 0, 1, 2


@dataclass(slots=True)
class MatchResults:
    """The matches and time-outs among the rows."""

    matches: list[Match] = field(default_factory=list)
    timed_out: list[TimedOut] = field(default_factory=list)
    overflow: int = 0
    """Partial matches that were dropped because a key had too many."""


@dataclass(slots=True)
class KeyMatches:
    """The partial matches of one key, the earliest first, and matches that wait for earlier ones to be decided."""

    partials: list[Partial] = field(default_factory=list)
    held: list[Partial] = field(default_factory=list)
    rows: int = 0
    """How many rows have been numbered."""
    number: int = 0
    """The number of the key among others."""


class Matcher:
    """The automaton of a pattern, with all that is looked up for each row prepared."""

    def __init__(
        self,
        automaton: Automaton,
        *,
        within: int | None = None,
        skip: Skip | None = None,
        most: int = 1_000,
        conditions: Mapping[int, Condition] | None = None,
    ) -> None:
        self.table = TransitionTable(automaton)
        self._within = within
        self._most = most
        self.limits = dict(automaton.limits)
        self._conditions = dict(conditions or {})
        """Conditions over what has been matched, by their bit; how long after the row before a row comes is one."""
        for bit, limit in automaton.limits:
            self._conditions[bit] = _in_time(limit, self._conditions.get(bit))
        self.asked = sum(self._conditions)
        self._skip = skip or Skip("none")
        self._skipped_to = -1 if self._skip.step is None else automaton.steps.index(self._skip.step)
        states = automaton.states
        self._waits_for = [automaton.waits_for(state) for state in range(len(states))]
        self._pending = [
            any(states[reached].kind == "pending" for reached in automaton.proceeds(state))
            for state in range(len(states))
        ]
        self._patience = [self._patience_in(automaton, state) for state in range(len(states))]

    def _patience_in(self, automaton: Automaton, state: int) -> int | None:
        """How long after its last row a partial match can still go on; None: as long as the whole may last."""
        reached = list(automaton.proceeds(state, over_next=True))
        ahead = [automaton.states[each] for each in reached]
        pending = [each for each in ahead if each.kind == "pending"]
        if pending:
            # It is a match then, whatever a loop before might still take.
            stops = (bit for each in pending for bit in bits(each.stops))
            return min((self.limits[bit] for bit in stops if bit in self.limits), default=None)
        takes = [1 << automaton.names.index(each.step) for each in ahead if each.kind == "step"]
        if any(take not in self.limits for take in takes) or any(map(automaton.looks_last, reached)):
            return None
        return max((self.limits[take] for take in takes), default=0)

    # The hot loop of patterns: it calls little.
    def take(self, key: KeyMatches, rows: Sequence[tuple[int, int, Row]], found: MatchResults) -> None:
        """Take rows, each (time, conditions it meets, values), in their order."""
        outcomes, relevant, compute = self.table.outcomes, self.table.relevant, self.table.compute
        asked, limits, within, most = self.asked, self.limits, self._within, self._most
        starts_with = relevant[START]
        partials, held = key.partials, key.held
        for number, (time, hits, values) in enumerate(rows, key.rows):
            if partials and (limits or (within is not None and partials[0][1][0] + within <= time)):
                self.expire(key, time, found)
                partials, held = key.partials, key.held
            starts = hits & starts_with
            if not partials and not starts:
                continue
            row = (time, number, *values)
            if starts:
                partials.append((START, row, None))
            after: list[Partial] = []
            for partial in partials:
                state, start, node = partial
                met = hits & relevant[state]
                if asked and met & asked:
                    met = self._asked_of(met, row, node)
                try:
                    outcome = outcomes[state][met]
                except KeyError:
                    outcome = compute(state, met)
                if outcome is None:
                    after.append(partial)
                    continue
                for step, target, completes in outcome:
                    reached = node if step < 0 else (row, step, node)
                    if target != FINAL:
                        after.append((target, start, reached))
                    if completes:
                        held.append((FINAL, start, reached))
            key.partials = partials = after
            if held or len(after) > most:
                self._settle(key, time, found)
                partials, held = key.partials, key.held
        key.rows += len(rows)

    def _settle(self, key: KeyMatches, time: int, found: MatchResults) -> None:
        """Emit what is complete, and drop partial matches of which a key has too many."""
        self._release(key, time, found)
        while key.held and (excess := len(key.partials) + len(key.held) - self._most) > 0:
            # The earliest hold back the matches.
            first = _began(key.partials[0])
            _drop(key, excess, sum(_began(partial) == first for partial in key.partials), found)
            self._release(key, time, found)
        if (excess := len(key.partials) - self._most) > 0:
            _drop(key, excess, len(key.partials), found)

    def expire(self, key: KeyMatches, until: int, found: MatchResults) -> None:
        """Let time pass: partial matches that cannot be completed before ``until`` time out, the first to end first."""
        while key.partials and (end := self.due(key)) is not None and end <= until:
            over = self._leaving(key, end)
            matched = [partial for partial in over if self._pending[partial[0]]]
            key.held += [(FINAL, start, node) for _, start, node in matched]
            # However many ways it might have gone on, what was matched times out once.
            known = {id(node) for _, _, node in (*key.partials, *matched)}
            reported: dict[int, TimedOut] = {}
            for state, _, node in over:
                if id(node) not in known:
                    reported[id(node)] = (key.number, node, end, self._waits_for[state])
            found.timed_out += reported.values()
            self._release(key, end, found)

    def _leaving(self, key: KeyMatches, end: int) -> list[Partial]:
        """Remove and return the partial matches whose time is over."""
        if not self.limits:
            # All may last equally long, so those that began with the first end with it.
            count = bisect_right(key.partials, key.partials[0][1][TIME], key=lambda partial: int(partial[1][TIME]))
            over, key.partials = key.partials[:count], key.partials[count:]
            return over
        over = [partial for partial in key.partials if self._end(partial) == end]
        key.partials = [partial for partial in key.partials if self._end(partial) != end]
        return over

    def due(self, key: KeyMatches) -> int | None:
        if not self.limits:
            # The first to begin is the first to end.
            return self._end(key.partials[0]) if key.partials else None
        return min((end for partial in key.partials if (end := self._end(partial)) is not None), default=None)

    def _end(self, partial: Partial) -> int | None:
        state, start, node = partial
        whole = None if self._within is None else int(start[TIME]) + self._within
        patience = self._patience[state]
        if patience is None:
            return whole
        last = int(node[0][TIME]) + patience
        return last if whole is None else min(whole, last)

    def _asked_of(self, met: int, row: Row, node: Node | None) -> int:
        """The conditions that hold, those over what has been matched included."""
        for bit in bits(met & self.asked):
            if self._conditions[bit](row, node) is not True:
                met ^= bit
        return met

    def _release(self, key: KeyMatches, time: int, found: MatchResults) -> None:
        """Emit the matches that no earlier partial match can forestall, and discard what they skip."""
        if self._skip.kind == "none":
            found.matches += [(key.number, node, time) for _, _, node in key.held]
            key.held = []
            return
        key.held.sort(key=_began)
        while key.held and (not key.partials or key.held[0][1][NUMBER] <= key.partials[0][1][NUMBER]):
            _, start, node = key.held.pop(0)
            found.matches.append((key.number, node, time))
            least = self._least_start(start, node)
            key.partials = [partial for partial in key.partials if partial[1][NUMBER] >= least]
            key.held = [match for match in key.held if match[1][NUMBER] >= least]

    def _least_start(self, start: Row, node: Node) -> int:
        """The number of the first row that others may have begun with."""
        first = int(start[NUMBER])
        if self._skip.kind == "to_next":
            return first + 1
        if self._skip.kind == "past_last":
            return int(node[0][NUMBER]) + 1
        numbers = [row[NUMBER] for row, step in path(node) if step == self._skipped_to]
        if not numbers:
            return 0
        return int(numbers[0] if self._skip.kind == "to_first" else numbers[-1])


def path(node: Node | None) -> list[tuple[Row, int]]:
    """The rows of a match with the steps that took them, in order."""
    rows: list[tuple[Row, int]] = []
    while node is not None:
        row, step, node = node
        rows.append((row, step))
    rows.reverse()
    return rows


def _drop(key: KeyMatches, excess: int, among: int, found: MatchResults) -> None:
    """Drop those of the first partial matches that have waited longest, so that a loop that goes on stays whole."""
    fewer = min(among, excess)
    found.overflow += fewer

    def last_row(number: int) -> tuple[int, int]:
        _, start, (last, _, _) = key.partials[number]
        return last[NUMBER], -start[NUMBER]

    gone = set(heapq.nsmallest(fewer, range(among), key=last_row))
    key.partials = [partial for number, partial in enumerate(key.partials) if number not in gone]


def _in_time(limit: int, condition: Condition | None) -> Condition:
    """The condition of a row that must come soon enough after the row taken before it."""

    def holds(row: Row, node: Node | None) -> bool | None:
        if node is not None and row[TIME] - node[0][TIME] >= limit:
            return False
        return True if condition is None else condition(row, node)

    return holds


def _began(partial: Partial) -> int:
    return int(partial[1][NUMBER])
