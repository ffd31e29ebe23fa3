"""Elements one after the other, as an author writes them: what patterns and groups have in common."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from headrace.durations import Duration, positive_microseconds
from headrace.errors import DefinitionError
from headrace.graph import check_name
from headrace.operators.patterns.element import Contiguity, Element


@dataclass(frozen=True, kw_only=True, repr=False)
class Chain:
    """A value of elements; every method returns a longer one, or one whose latest element says more."""

    elements: tuple[Element, ...] = ()

    def begin(self, step: str | Group, where: str | None = None) -> Self:
        """The first step, or a group: a row that meets the condition begins a match."""
        if self.elements:
            raise self._wrong("PATTERN_BEGUN_TWICE", f".begin({_shown(step)}) is not the first step. Use .followed_by.")
        return self._more("begin", step, where)

    def next(self, step: str | Group, where: str | None = None) -> Self:
        """The very next row of the key."""
        return self._more("next", step, where)

    def followed_by(self, step: str | Group, where: str | None = None) -> Self:
        """The next row that meets the condition; rows in between that do not are skipped."""
        return self._more("followed_by", step, where)

    def followed_by_any(self, step: str | Group, where: str | None = None) -> Self:
        """Any later row that meets the condition; rows in between that do are skipped too, in further matches."""
        return self._more("followed_by_any", step, where)

    def not_next(self, step: str, where: str | None = None) -> Self:
        """The very next row does not meet the condition."""
        return self._more("not_next", step, where)

    def not_followed_by(self, step: str, where: str | None = None) -> Self:
        """No row meets the condition before the next step, or at the end of a pattern before the time runs out."""
        return self._more("not_followed_by", step, where)

    def times(self, least: int, most: int | None = None) -> Self:
        """The latest element comes so many times; ``times(2, 4)`` two to four times."""
        upper = least if most is None else most
        if not (_is_whole(least) and _is_whole(upper)) or not 0 <= least <= upper or upper == 0:
            raise self._wrong(
                "TIMES_IMPOSSIBLE", f".times({least!r}, {upper!r}) can never be. Use whole numbers as in .times(2, 4)."
            )
        if least == 0:
            return self._quantified(least=1, most=upper).optional()
        return self._quantified(least=least, most=upper)

    def one_or_more(self) -> Self:
        """The latest element comes at least once."""
        return self._quantified(least=1, most=None)

    def times_or_more(self, least: int) -> Self:
        """The latest element comes at least so many times."""
        if not _is_whole(least) or least < 1:
            raise self._wrong(
                "TIMES_IMPOSSIBLE",
                f".times_or_more({least!r}): use a whole number of at least 1, and .optional() for none.",
            )
        return self._quantified(least=least, most=None)

    def optional(self) -> Self:
        """The latest element may be missing."""
        latest = self._latest("optional")
        if latest.quantifier.optional:
            raise self._wrong("QUANTIFIER_TWICE", f"{_name(latest)} is optional already. Say it once.")
        before = [element for element in self.elements[:-1] if not element.negated]
        if before and before[-1].quantifier.greedy:
            raise self._wrong(
                "OPTIONAL_AFTER_GREEDY",
                f"{_name(latest)} is optional behind a greedy step, so it cannot be told what ends the greedy one. "
                "Leave out .greedy() or .optional().",
            )
        return self._said(optional=True)

    def greedy(self) -> Self:
        """The latest step takes rows as long as it can, also those that the next step could take."""
        latest = self._repeated("greedy")
        if latest.group:
            raise self._wrong("GREEDY_GROUP", "a group cannot be greedy. Make its steps greedy.")
        if latest.quantifier.inner == "combinations":
            raise self._wrong("GREEDY_COMBINATIONS", f"{_name(latest)} cannot be greedy and allow combinations.")
        return self._said(greedy=True)

    def consecutive(self) -> Self:
        """The rows of the latest element follow each other directly."""
        return self._inner("consecutive")

    def allow_combinations(self) -> Self:
        """Rows that the latest element could take may be skipped, in further matches."""
        return self._inner("combinations")

    def until(self, where: str) -> Self:
        """The latest element takes no row from one on that meets the condition."""
        latest = self._latest("until")
        if not latest.quantifier.loops:
            raise self._wrong(
                "UNTIL_WITHOUT_LOOP",
                f"{_name(latest)} has an end of its own. Use .until behind .one_or_more() or .times_or_more(...).",
            )
        if latest.quantifier.until is not None:
            raise self._wrong("QUANTIFIER_TWICE", f"{_name(latest)} has .until already. Say it once, with OR.")
        return self._said(until=where)

    def within(self, duration: Duration, *, since: Literal["first", "previous"] = "first") -> Self:
        """The latest step's row comes less than this long behind the row before it in the match."""
        if since not in ("first", "previous"):
            raise self._wrong(
                "WITHIN_SINCE",
                f".within({duration!r}, since={since!r}): time counts from the match's first row, since='first', or "
                "from the row before, since='previous'.",
            )
        if since == "first":
            raise self._wrong(
                "WITHIN_GROUP",
                f".within({duration!r}) is how long a whole match may take. Say it of the pattern, or of the latest "
                "step with since='previous'.",
            )
        length = positive_microseconds(duration, argument="within")
        latest = self._latest("within", negated=True)
        if latest.group:
            raise self._wrong("WITHIN_GROUP", "a group has no row of its own. Use .within(...) behind its steps.")
        if latest.since_previous is not None:
            raise self._wrong("WITHIN_TWICE", f"{_name(latest)} has .within(..., since='previous') already.")
        return self._with((*self.elements[:-1], replace(latest, since_previous=length)))

    def _with(self, elements: tuple[Element, ...]) -> Self:
        return replace(self, elements=elements)

    @property
    def _label(self) -> str:
        return "a group"

    def _more(self, contiguity: Contiguity, step: str | Group, where: str | None) -> Self:
        if not self.elements and contiguity != "begin":
            raise self._wrong(
                "PATTERN_NOT_BEGUN", f".{contiguity}({_shown(step)}) is the first step. Use .begin first."
            )
        negated = contiguity.startswith("not_")
        if negated and self.elements[-1].quantifier.optional:
            raise self._wrong(
                "NEGATION_AFTER_OPTIONAL",
                f".{contiguity}({_shown(step)}) stands behind an optional step, so it is open from where on it counts. "
                "Put a step that must come between them.",
            )
        if isinstance(step, Group):
            if negated or where is not None:
                raise self._wrong("GROUP_CONDITION", f".{contiguity}(...) of a group: conditions belong to its steps.")
            return self._with((*self.elements, Element(contiguity, group=step.checked())))
        if not isinstance(step, str):
            raise self._wrong("NAME_INVALID", f".{contiguity}({step!r}): a step has a name, as in .{contiguity}('b').")
        check_name("step of a pattern", step)
        return self._with((*self.elements, Element(contiguity, step, where)))

    def _latest(self, method: str, *, negated: bool = False) -> Element:
        if not self.elements:
            raise self._wrong("PATTERN_NOT_BEGUN", f".{method}() has no step. Use .begin first.")
        latest = self.elements[-1]
        if latest.negated and not negated:
            raise self._wrong("NEGATION_QUANTIFIED", f"{_name(latest)} must not come, so .{method}() means nothing.")
        return latest

    def _repeated(self, method: str) -> Element:
        latest = self._latest(method)
        if not latest.quantifier.given:
            raise self._wrong(
                "NOT_REPEATED", f"{_name(latest)} comes once. Use .{method}() behind .times or .one_or_more."
            )
        return latest

    def _inner(self, inner: Literal["consecutive", "combinations"]) -> Self:
        method = "consecutive" if inner == "consecutive" else "allow_combinations"
        latest = self._repeated(method)
        if latest.quantifier.inner != "relaxed":
            raise self._wrong(
                "QUANTIFIER_TWICE", f"{_name(latest)}: say .consecutive() or .allow_combinations(), once."
            )
        if latest.quantifier.greedy and inner == "combinations":
            raise self._wrong("GREEDY_COMBINATIONS", f"{_name(latest)} cannot be greedy and allow combinations.")
        return self._said(inner=inner)

    def _quantified(self, *, least: int, most: int | None) -> Self:
        latest = self._latest("times")
        if latest.quantifier.given:
            raise self._wrong("QUANTIFIER_TWICE", f"{_name(latest)} says twice how often it comes. Say it once.")
        return self._said(least=least, most=most, given=True)

    def _said(self, **said: Any) -> Self:
        latest = self.elements[-1]
        return self._with((*self.elements[:-1], replace(latest, quantifier=replace(latest.quantifier, **said))))

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
            raise self._wrong("GROUP_ENDS_NEGATED", "it ends with what must not come. Put that behind the group.")
        return self.elements

    def __repr__(self) -> str:
        return f"hr.group(){''.join(map(repr, self.elements))}"


def group() -> Group:
    """Steps that are taken together, for use in place of a step.

    >>> group().begin("a", "x > 1").next("b")
    hr.group().begin('a', 'x > 1').next('b')
    """
    return Group()


def _is_whole(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)


def _shown(step: str | Group) -> str:
    return "a group" if isinstance(step, Group) else repr(step)


def _name(element: Element) -> str:
    return "the group" if element.group else f"step {element.step!r}"
