"""When an edge may be taken: what a row must and must not meet, as masks over the conditions of a pattern."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

Requirement = tuple[tuple[int, int], ...]
"""Alternatives, each (conditions that must hold, conditions that must not); no alternative: never."""

ALWAYS: Requirement = ((0, 0),)
NEVER: Requirement = ()


def holds(requirement: Requirement, hits: int) -> bool:
    """Whether a row that meets the conditions ``hits`` fulfils a requirement.

    >>> holds(((0b01, 0b10),), 0b01), holds(((0b01, 0b10),), 0b11)
    (True, False)
    """
    return any(hits & wanted == wanted and not hits & unwanted for wanted, unwanted in requirement)


def both(left: Requirement, right: Requirement) -> Requirement:
    """Both requirements.

    >>> both(((1, 0),), ((0, 2), (0, 1)))
    ((1, 2),)
    """
    pairs = ((a | c, b | d) for (a, b), (c, d) in product(left, right))
    return tuple(dict.fromkeys(pair for pair in pairs if not pair[0] & pair[1]))


def negated(requirement: Requirement) -> Requirement:
    """The opposite of a requirement.

    >>> negated(((1, 2),))
    ((0, 1), (2, 0))
    """
    result = ALWAYS
    for wanted, unwanted in requirement:
        opposite = (*((0, bit) for bit in bits(wanted)), *((bit, 0) for bit in bits(unwanted)))
        result = both(result, opposite)
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


def used(requirement: Requirement) -> int:
    """All conditions that a requirement asks about.

    >>> used(((1, 2), (4, 0)))
    7
    """
    mask = 0
    for wanted, unwanted in requirement:
        mask |= wanted | unwanted
    return mask


def spoken(requirement: Requirement, names: Sequence[str]) -> str:
    """A requirement in words.

    >>> spoken(((1, 2),), ("a", "b"))
    'a and not b'
    """
    alternatives = [
        " and ".join(("" if bit & wanted else "not ") + names[bit.bit_length() - 1] for bit in bits(wanted | unwanted))
        for wanted, unwanted in requirement
    ]
    return " or ".join(alternatives) if requirement else "never"
