"""Any pattern over any rows: the automaton finds what the definition says, each match once."""

from __future__ import annotations

from hypothesis import assume, given, note, settings
from hypothesis import strategies as st

from headrace.operators.patterns.chain import Chain, Group, group
from headrace.operators.patterns.skip import Skip
from tests.unit.operators.patterns.letters import Letters

FOLLOWING = ("next", "followed_by", "followed_by_any")
TAKEN = st.sampled_from(["a", "b", "c", "ab", "bc", "abc"])
FORBIDDEN = st.sampled_from(["x", "x", "xa", "xb", "xbc"])


@st.composite
def quantified(draw: st.DrawFn, chain: Group, *, can_be_optional: bool, can_be_greedy: bool) -> Group:
    """The latest element as often as it may come."""
    how = draw(st.sampled_from(["once", "once", "times", "from to", "one or more", "more"]))
    least = draw(st.integers(1, 3))
    match how:
        case "times":
            chain = chain.times(least)
        case "from to":
            chain = chain.times(least, least + draw(st.integers(0, 2)))
        case "one or more":
            chain = chain.one_or_more()
        case "more":
            chain = chain.times_or_more(least)
    if how != "once":
        inner = draw(st.sampled_from(["relaxed", "consecutive", "combinations"]))
        if inner == "consecutive":
            chain = chain.consecutive()
        elif inner == "combinations":
            chain = chain.allow_combinations()
        if how in ("one or more", "more") and draw(st.booleans()):
            chain = chain.until("u")
        if can_be_greedy and inner != "combinations" and draw(st.booleans()):
            chain = chain.greedy()
    before = [element for element in chain.elements[:-1] if not element.negated]
    if can_be_optional and not (before and before[-1].quantifier.greedy) and draw(st.booleans()):
        chain = chain.optional()
    return chain


@st.composite
def limited(draw: st.DrawFn, chain: Group) -> Group:
    """The latest step, perhaps with a limit of time since the row before it."""
    limit = draw(st.sampled_from([None, None, None, 1, 2, 3]))
    return chain if limit is None else chain.within(f"{limit} microseconds", since="previous")


@st.composite
def groups(draw: st.DrawFn, number: int) -> Group:
    """Two steps, perhaps with something that must not come between them; the second may be missing or come again."""
    inner = group().begin(f"g{number}", draw(TAKEN))
    if draw(st.booleans()):
        inner = inner.one_or_more().until("y")
    inner = draw(limited(inner))
    negation = draw(st.sampled_from([None, None, "not_followed_by", "not_next"]))
    if negation is not None:
        inner = getattr(inner, negation)(f"i{number}", draw(FORBIDDEN))
    inner = getattr(inner, draw(st.sampled_from(FOLLOWING)))(f"h{number}", draw(TAKEN))
    return draw(limited(draw(quantified(inner, can_be_optional=True, can_be_greedy=False))))


@st.composite
def patterns(draw: st.DrawFn) -> Group:
    """Two to four steps, with groups, negations between them, quantifiers and limits of time."""
    chain = group()
    length = draw(st.integers(2, 4))
    for number in range(length):
        last = number == length - 1
        method = "begin" if number == 0 else draw(st.sampled_from(FOLLOWING))
        if draw(st.integers(0, 4)) == 0:
            chain = getattr(chain, method)(draw(groups(number)))
            chain = draw(quantified(chain, can_be_optional=True, can_be_greedy=False))
        else:
            chain = getattr(chain, method)(f"s{number}", draw(TAKEN))
            chain = draw(limited(draw(quantified(chain, can_be_optional=True, can_be_greedy=not last))))
            latest = chain.elements[-1]
            if not latest.quantifier.optional and not last and draw(st.integers(0, 3)) == 0:
                chain = chain.not_followed_by(f"n{number}", draw(FORBIDDEN))
                if draw(st.booleans()):
                    chain = chain.not_followed_by(f"o{number}", "y")
            elif not latest.quantifier.optional and not latest.quantifier.greedy and draw(st.integers(0, 3)) == 0:
                chain = chain.not_next(f"n{number}", draw(FORBIDDEN))
    return chain


@st.composite
def open_ends(draw: st.DrawFn) -> Group:
    """A step, perhaps a negation, and a group or step that may be missing, in whole or at its end, or come again."""
    chain = group().begin("s", "a")
    negation = draw(st.sampled_from([None, "not_next", "not_followed_by"]))
    if negation is not None:
        chain = getattr(chain, negation)("n", draw(FORBIDDEN))
    method = draw(st.sampled_from(FOLLOWING))
    if draw(st.booleans()):
        inner = group().begin("g", "ab")
        if draw(st.booleans()):
            inner = getattr(inner, draw(st.sampled_from(["not_next", "not_followed_by"])))("m", draw(FORBIDDEN))
        inner = draw(limited(getattr(inner, draw(st.sampled_from(FOLLOWING)))("h", "b").optional()))
        chain = draw(quantified(getattr(chain, method)(inner), can_be_optional=True, can_be_greedy=False))
    else:
        chain = draw(limited(getattr(chain, method)("b", "b").optional()))
    return chain.followed_by("e", "ce") if draw(st.booleans()) else chain


@st.composite
def rows(draw: st.DrawFn) -> str:
    letters = draw(st.lists(st.sampled_from("aabbccxyuz"), min_size=2, max_size=9))
    gaps = draw(st.lists(st.integers(0, 2), min_size=len(letters), max_size=len(letters)))
    return " ".join(f"{letter}{sum(gaps[: place + 1])}" for place, letter in enumerate(letters))


@settings(deadline=None, max_examples=400)
@given(chain=patterns(), given_rows=rows(), within=st.sampled_from([None, None, 3, 6]))
def test_every_match_is_found_once(chain: Chain, given_rows: str, within: int | None) -> None:
    note(repr(chain))
    letters = Letters(chain, within)
    assert sorted(letters.matches(given_rows, until=99)) == sorted(letters.true_matches(given_rows))


@settings(deadline=None, max_examples=400)
@given(chain=open_ends(), letters=st.lists(st.sampled_from("abxuze"), min_size=1, max_size=6), gap=st.integers(1, 3))
def test_what_is_left_out_at_an_end_forgets_no_negation_and_no_limit(
    chain: Chain, letters: list[str], gap: int
) -> None:
    note(repr(chain))
    given_rows = " ".join(f"{letter}{gap * place}" for place, letter in enumerate("a" + "".join(letters)))
    played = Letters(chain)
    assert sorted(played.matches(given_rows, until=99)) == sorted(played.true_matches(given_rows))


@settings(deadline=None, max_examples=200)
@given(chain=patterns(), given_rows=rows(), within=st.integers(1, 8))
def test_a_negation_at_the_end_matches_when_the_time_runs_out(chain: Group, given_rows: str, within: int) -> None:
    last = chain.elements[-1]
    assume(not last.quantifier.optional and not last.negated and not (last.group and last.quantifier.given))
    note(repr(chain))
    letters = Letters(chain.not_followed_by("never", "z"), within)
    assert sorted(letters.matches(given_rows, until=99)) == sorted(letters.true_matches(given_rows))


@settings(deadline=None, max_examples=200)
@given(
    chain=patterns(),
    given_rows=rows(),
    kind=st.sampled_from(["to_next", "past_last", "to_first", "to_last"]),
    step=st.integers(0, 3),
)
def test_skipping_keeps_the_first_of_matches_that_exclude_each_other(
    chain: Group, given_rows: str, kind: str, step: int
) -> None:
    steps = [str(each.step) for element in chain.elements for each in element.steps() if not each.negated]
    skip = Skip(kind, steps[step % len(steps)] if kind in ("to_first", "to_last") else None)  # type: ignore[arg-type]
    note(repr(chain))
    letters = Letters(chain, 6, skip)
    everything = Letters(chain, 6).play(given_rows, 99).matches
    # Of matches that begin and end with the same rows the model does not say which one is first.
    ends = [(node_start(node), time) for _, node, time in everything]
    assume(len(ends) == len(set(ends)))
    assert letters.matches(given_rows, until=99) == letters.true_matches(given_rows)


def node_start(node: object) -> object:
    while node[2] is not None:  # type: ignore[index]
        node = node[2]  # type: ignore[index]
    return node[0]  # type: ignore[index]
