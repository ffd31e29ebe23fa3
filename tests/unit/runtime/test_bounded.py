"""Bounded input: into how many slots a table is divided."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import headrace as hr
from headrace.runtime.bounded import BYTES_OF_A_SLOT, check_key_groups, slots_for
from headrace.state.group_range import KEY_GROUPS, MOST_KEY_GROUPS


class Chained(SimpleNamespace):
    """Gives its last value at the end of a chain of calls."""

    def __getattr__(self, name: str) -> Any:
        return lambda: self


class Size(Chained):
    """A size, however it is asked for."""

    def __str__(self) -> str:
        return str(self.bytes)


def table(size: int) -> Any:
    return SimpleNamespace(_jdf=Size(bytes=size))


def session(partitions: str) -> Any:
    return SimpleNamespace(conf={"spark.sql.shuffle.partitions": partitions})


@pytest.mark.parametrize(
    ("sizes", "partitions", "slots"),
    [
        ([], 4, 4),
        ([0], 4, 4),
        ([4 * BYTES_OF_A_SLOT], 4, 4),
        ([4 * BYTES_OF_A_SLOT + 1], 4, 5),
        ([2 * BYTES_OF_A_SLOT, 3 * BYTES_OF_A_SLOT], 4, 5),
        ([2**63 - 1], 4, KEY_GROUPS),
        ([0], 500, 500),
    ],
)
def test_a_slot_is_small_every_core_has_one_and_a_key_group_is_in_one(
    sizes: list[int], partitions: int, slots: int
) -> None:
    assert slots_for(session(str(partitions)), [table(size) for size in sizes], KEY_GROUPS) == slots


def test_more_key_groups_allow_more_slots() -> None:
    assert slots_for(session("4"), [table(2**40)], MOST_KEY_GROUPS) == 2**40 // BYTES_OF_A_SLOT


@pytest.mark.parametrize("given", [0, MOST_KEY_GROUPS + 1])
def test_there_are_so_many_key_groups_at_most(given: int) -> None:
    with pytest.raises(hr.DefinitionError, match=r"\[KEY_GROUPS_INVALID\] step 'spend': key_groups=.* 1 to 32,768"):
        check_key_groups("step 'spend'", given)
