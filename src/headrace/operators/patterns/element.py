"""One element of a pattern: a step or a group, how it follows the element before, and how often it comes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from headrace.durations import spoken

Contiguity = Literal["begin", "next", "followed_by", "followed_by_any", "not_next", "not_followed_by"]
Inner = Literal["relaxed", "consecutive", "combinations"]


@dataclass(frozen=True, slots=True)
class Quantifier:
    """How often an element comes: from ``least`` to ``most`` times (None: without an end), or perhaps not at all."""

    least: int = 1
    most: int | None = 1
    given: bool = False
    """Whether the author has said a number, even if it is one."""
    optional: bool = False
    greedy: bool = False
    inner: Inner = "relaxed"
    until: str | None = None

    @property
    def loops(self) -> bool:
        """Whether the element comes without an end."""
        return self.most is None

    def __repr__(self) -> str:
        said = ""
        if self.given and self.most is None:
            said = ".one_or_more()" if self.least == 1 else f".times_or_more({self.least})"
        elif self.given:
            said = f".times({self.least})" if self.least == self.most else f".times({self.least}, {self.most})"
        said += {"relaxed": "", "consecutive": ".consecutive()", "combinations": ".allow_combinations()"}[self.inner]
        said += "" if self.until is None else f".until({self.until!r})"
        return said + (".optional()" if self.optional else "") + (".greedy()" if self.greedy else "")


ONCE = Quantifier()


@dataclass(frozen=True, slots=True)
class Element:
    """A step with its condition, or a group of elements."""

    contiguity: Contiguity
    step: str | None = None
    where: str | None = None
    group: tuple[Element, ...] = ()
    quantifier: Quantifier = field(default=ONCE)
    since_previous: int | None = None
    """The row must come less than this many microseconds behind the row before it in the match."""

    @property
    def negated(self) -> bool:
        """Whether the element says what must not come."""
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
    def first(self) -> Element:
        """The element itself, or the first step of the group."""
        return self.group[0].first if self.group else self

    @property
    def last(self) -> Element:
        """The element itself, or the last step of the group."""
        return self.group[-1].last if self.group else self

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

    def to_json(self) -> dict[str, Any]:
        """The element as plain dictionaries; what is not said is left out."""
        quantifier = {
            name: value
            for name in ("least", "most", "given", "optional", "greedy", "inner", "until")
            if (value := getattr(self.quantifier, name)) != getattr(ONCE, name)
        }
        said = {
            "contiguity": self.contiguity,
            "step": self.step,
            "where": self.where,
            "group": [element.to_json() for element in self.group] or None,
            "quantifier": quantifier or None,
            "since_previous": self.since_previous,
        }
        return {name: value for name, value in said.items() if value is not None}
