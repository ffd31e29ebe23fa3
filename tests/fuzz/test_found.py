"""Cases that a target was made for, and those that one has failed on: ``make fuzz`` looks for more."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.fuzz.engine import FOUND, Fuzzer, Target, limited
from tests.fuzz.mutation import MOST_BYTES, mutated
from tests.fuzz.targets import TARGETS

CASES = [
    pytest.param(target, case, id=f"{target.name}-{name}")
    for target in TARGETS.values()
    for name, case in (*((f"seed {number}", seed) for number, seed in enumerate(target.seeds)), *target.kept.items())
]


@pytest.mark.parametrize(("target", "case"), CASES)
def test_what_a_target_was_made_for_and_what_it_has_failed_on_is_counted(target: Target, case: bytes) -> None:
    with limited():
        target.check(case)


def test_every_kept_case_belongs_to_a_target() -> None:
    assert {folder.name for folder in FOUND.iterdir()} <= set(TARGETS)


def test_mutations_are_many_and_the_same_for_a_seed() -> None:
    seeds = [b"abc" * 20, b"", b"{}"]

    def some() -> list[bytes]:
        random = Random(7)
        return [mutated(random.choice(seeds), seeds, [b"token"], random) for _ in range(500)]

    cases = some()
    assert cases == some()
    assert len(set(cases)) > 300
    assert max(map(len, cases)) <= MOST_BYTES


def test_a_failure_is_found_once_and_made_as_short_as_it_can_be(tmp_path: Path) -> None:
    def check(case: bytes) -> object:
        if case.count(b"!") > 1:
            raise ValueError("two of them")
        return len(case) > 3

    from hypothesis import strategies as st

    target = Target("none", [b"a!bc", b"de!f"], check, st.binary(max_size=3))
    fuzzer = Fuzzer(target, Random(1), tmp_path / "case")
    fuzzer.run(0.1, lambda: None)
    [failure] = fuzzer.failures.values()
    assert (failure.kind, failure.said, failure.case) == ("ValueError", "two of them", b"!!")
