"""The builder that patterns and groups share: elements one after the other, each with its quantifier."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from headrace.durations import Duration, positive_microseconds
from headrace.errors import DefinitionError, check_name
from headrace.operators.patterns.definition import Contiguity, Element
from headrace.stability import stable


@dataclass(frozen=True, kw_only=True, repr=False)
class Chain:
    """A sequence of elements; every method returns a longer one, or one whose latest element is changed."""

    elements: tuple[Element, ...] = ()

    def begin(self, step: str | Group, where: str | None = None) -> Self:
        """The first step, or a group: a row that meets the condition begins a match."""
        return self.add("begin", step, where)

    def next(self, step: str | Group, where: str | None = None) -> Self:
        """The very next row of the key."""
        return self.add("next", step, where)

    def followed_by(self, step: str | Group, where: str | None = None) -> Self:
        """The next row that meets the condition; rows in between that do not are skipped."""
        return self.add("followed_by", step, where)

    def followed_by_any(self, step: str | Group, where: str | None = None) -> Self:
        """Any later row that meets the condition; rows in between that do are skipped too, in further matches."""
        return self.add("followed_by_any", step, where)

    def not_next(self, step: str, where: str | None = None) -> Self:
        """The very next row does not meet the condition."""
        return self.add("not_next", step, where)

    def not_followed_by(self, step: str, where: str | None = None) -> Self:
        """No row meets the condition before the next step, or at the end of a pattern before the time runs out."""
        return self.add("not_followed_by", step, where)

    def add(self, contiguity: Contiguity, step: str | Group, where: str | None = None) -> Self:
        """The step that the method named by ``contiguity`` adds."""
        call = f".{contiguity}({'a group' if isinstance(step, Group) else repr(step)})"
        if self.elements and contiguity == "begin":
            raise self._wrong("PATTERN_BEGUN_TWICE", f"{call} is not the first step. Use .followed_by.")
        if not self.elements and contiguity != "begin":
            raise self._wrong("PATTERN_NOT_BEGUN", f"{call} is the first step. Use .begin first.")
        negated = contiguity.startswith("not_")
        if negated and self.elements[-1].quantifier.optional:
            raise self._wrong(
                "NEGATION_AFTER_OPTIONAL",
                f"{call} follows an optional step, so it is ambiguous where the negation starts. "
                "Put a required step between them.",
            )
        if isinstance(step, Group):
            if negated or where is not None:
                raise self._wrong("GROUP_CONDITION", f".{contiguity}(...) of a group: conditions belong to its steps.")
            element = Element(contiguity, group=step.checked())
        elif isinstance(step, str):
            check_name("step of a pattern", step)
            element = Element(contiguity, step, where)
        else:
            raise self._wrong("NAME_INVALID", f"{call}: a step needs a name, as in .{contiguity}('b').")
        return replace(self, elements=(*self.elements, element))

    def times(self, least: int, most: int | None = None) -> Self:
        """The latest element comes this many times; ``times(2, 4)`` two to four times."""
        upper = least if most is None else most
        if type(least) is not int or type(upper) is not int or not 0 <= least <= upper or upper == 0:
            raise self._wrong(
                "TIMES_IMPOSSIBLE",
                f".times({least!r}, {upper!r}) can never match. Use whole numbers as in .times(2, 4).",
            )
        repeated = self._repeat(least=max(least, 1), most=upper)
        return repeated.optional() if least == 0 else repeated

    def one_or_more(self) -> Self:
        """The latest element comes at least once."""
        return self._repeat(least=1, most=None)

    def times_or_more(self, least: int) -> Self:
        """The latest element comes at least this many times."""
        if type(least) is not int or least < 1:
            raise self._wrong(
                "TIMES_IMPOSSIBLE",
                f".times_or_more({least!r}): use a whole number of at least 1, and .optional() for none.",
            )
        return self._repeat(least=least, most=None)

    def optional(self) -> Self:
        """The latest element may be missing."""
        latest = self._latest("optional")
        if latest.quantifier.optional:
            raise self._wrong("QUANTIFIER_TWICE", f"{_label(latest)} is optional already. Leave out one .optional().")
        before = [element for element in self.elements[:-1] if not element.negated]
        if before and before[-1].quantifier.greedy:
            raise self._wrong(
                "OPTIONAL_AFTER_GREEDY",
                f"{_label(latest)} is optional and follows a greedy step, so it is ambiguous where the greedy step "
                "ends. Leave out .greedy() or .optional().",
            )
        return self._quantified(optional=True)

    def greedy(self) -> Self:
        """The latest step takes rows as long as it can, also those that the next step could take."""
        latest = self._repeated("greedy")
        if latest.group:
            raise self._wrong("GREEDY_GROUP", "a group cannot be greedy. Make its steps greedy.")
        return self._quantified(greedy=True)

    def consecutive(self) -> Self:
        """The rows of the latest element follow each other directly."""
        return self._inner("consecutive", "consecutive")

    def allow_combinations(self) -> Self:
        """Rows that the latest element could take may be skipped, in further matches."""
        return self._inner("allow_combinations", "combinations")

    def until(self, where: str) -> Self:
        """The latest element takes no row from the first one on that meets the condition."""
        latest = self._latest("until")
        if latest.quantifier.most is not None:
            raise self._wrong(
                "UNTIL_WITHOUT_LOOP",
                f"{_label(latest)} is not a loop. Use .until after .one_or_more() or .times_or_more(...).",
            )
        if latest.quantifier.until is not None:
            raise self._wrong("QUANTIFIER_TWICE", f"{_label(latest)} has .until already. Join the conditions with OR.")
        return self._quantified(until=where)

    def within(self, duration: Duration, *, since: Literal["first", "previous"] = "first") -> Self:
        """The latest step's row comes less than this long after the row before it in the match."""
        if since not in ("first", "previous"):
            raise self._wrong(
                "WITHIN_SINCE",
                f".within({duration!r}, since={since!r}): time counts from the match's first row, since='first', or "
                "from the row before, since='previous'.",
            )
        if since == "first":
            raise self._wrong(
                "WITHIN_GROUP",
                f".within({duration!r}) limits a whole match. Use it on the pattern, or on the latest step with "
                "since='previous'.",
            )
        length = positive_microseconds(duration, argument="within")
        latest = self._latest("within", negated=True)
        if latest.group:
            raise self._wrong("WITHIN_GROUP", "a group has no row of its own. Use .within(...) on its steps.")
        if latest.since_previous is not None:
            raise self._wrong("WITHIN_TWICE", f"{_label(latest)} has .within(..., since='previous') already.")
        return replace(self, elements=(*self.elements[:-1], replace(latest, since_previous=length)))

    @property
    def _label(self) -> str:
        return "a group"

    def _latest(self, method: str, *, negated: bool = False) -> Element:
        if not self.elements:
            raise self._wrong("PATTERN_NOT_BEGUN", f".{method}() has no step. Use .begin first.")
        latest = self.elements[-1]
        if latest.negated and not negated:
            raise self._wrong("NEGATION_QUANTIFIED", f"{_label(latest)} is a negation, so .{method}() does not apply.")
        return latest

    def _repeated(self, method: str) -> Element:
        latest = self._latest(method)
        if not latest.quantifier.given:
            raise self._wrong(
                "NOT_REPEATED", f"{_label(latest)} comes once. Use .{method}() after .times or .one_or_more."
            )
        return latest

    def _inner(self, method: str, inner: Literal["consecutive", "combinations"]) -> Self:
        latest = self._repeated(method)
        if latest.quantifier.inner != "relaxed":
            raise self._wrong(
                "QUANTIFIER_TWICE", f"{_label(latest)}: use one of .consecutive() and .allow_combinations(), once."
            )
        return self._quantified(inner=inner)

    def _repeat(self, *, least: int, most: int | None) -> Self:
        latest = self._latest("times")
        if latest.quantifier.given:
            raise self._wrong("QUANTIFIER_TWICE", f"{_label(latest)} is repeated already. Leave out one of the calls.")
        return self._quantified(least=least, most=most, given=True)

    def _quantified(self, **changes: Any) -> Self:
        latest = self.elements[-1]
        quantifier = replace(latest.quantifier, **changes)
        if quantifier.greedy and quantifier.inner == "combinations":
            raise self._wrong("GREEDY_COMBINATIONS", f"{_label(latest)} cannot be greedy and allow combinations.")
        return replace(self, elements=(*self.elements[:-1], replace(latest, quantifier=quantifier)))

    def _wrong(self, id: str, message: str) -> DefinitionError:
        return DefinitionError(id, f"{self._label}: {message}")


@dataclass(frozen=True, kw_only=True, repr=False)
class Group(Chain):
    """A part of a pattern that is repeated or left out as a whole."""

    def checked(self) -> tuple[Element, ...]:
        """The elements, once they are known to make sense inside another pattern."""
        if not self.elements:
            raise self._wrong("GROUP_EMPTY", "it has no step. Use hr.group().begin(...).")
        if self.elements[0].quantifier.optional:
            raise self._wrong("GROUP_BEGINS_OPTIONAL", "its first step is optional. Make the group optional instead.")
        if self.elements[-1].negated:
            raise self._wrong("GROUP_ENDS_NEGATED", "it ends with a negation. Put that after the group.")
        return self.elements

    def __repr__(self) -> str:
        return f"hr.group(){''.join(map(repr, self.elements))}"


@stable
def group() -> Group:
    """Steps that are taken together, for use in place of a step.

    >>> group().begin("a", "x > 1").next("b")
    hr.group().begin('a', 'x > 1').next('b')
    """
    return Group()


def _label(element: Element) -> str:
    return "the group" if element.group else f"step {element.step!r}"
