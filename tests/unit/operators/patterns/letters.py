"""Patterns over letters: a row is a letter and a time as in ``b3``, a condition the letters that meet it."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.operators.patterns.chain import Chain
from headrace.operators.patterns.compiler import compile_automaton
from headrace.operators.patterns.definition import conditions_of
from headrace.operators.patterns.matcher import KeyMatches, Matcher, MatchResults, Node, path
from headrace.operators.patterns.skip import Skip
from tests.models.pattern_model import Event, Model


@dataclass
class Letters:
    """A pattern that is played over rows of letters."""

    chain: Chain
    within: int | None = None
    skip: Skip = field(default_factory=lambda: Skip("none"))
    most: int = 1_000

    @property
    def matcher(self) -> Matcher:
        return Matcher(compile_automaton(self.chain.elements), within=self.within, skip=self.skip, most=self.most)

    def taken(self, rows: str) -> list[tuple[int, int, tuple[str]]]:
        """Rows such as ``a1 b2`` as the matcher takes them."""
        conditions = [text or name for name, text in conditions_of(self.chain.elements)]
        return [
            (int(row[1:]), sum(1 << place for place, each in enumerate(conditions) if row[0] in each), (row,))
            for row in rows.split()
        ]

    def play(self, rows: str, until: int | None = None) -> MatchResults:
        """Step through rows such as ``a1 b2``, then let time run."""
        matcher, key, found = self.matcher, KeyMatches(), MatchResults()
        matcher.take(key, self.taken(rows), found)
        if until is not None:
            matcher.expire(key, until, found)
        return found

    def matches(self, rows: str, until: int | None = None) -> list[str]:
        """The matches as the rows they hold."""
        return [shown(node) for _, node, _ in self.play(rows, until).matches]

    def timed_out(self, rows: str, until: int) -> list[str]:
        """What ran out of time: rows, when, and the step that was waited for."""
        return [f"{shown(node)} at {time} for {step}" for _, node, time, step in self.play(rows, until).timed_out]

    def true_matches(self, rows: str) -> list[str]:
        """What the model says."""
        given = rows.split()
        events = [Event(int(row[1:]), row[0]) for row in given]
        model = Model(self.chain.elements, events, self.within)
        return [" ".join(given[place] for place, _ in match) for match in model.matches(self.skip)]


def shown(node: Node) -> str:
    return " ".join(row[2] for row, _ in path(node))
