"""The protocol holds in every interleaving, and each of its rules is needed."""

from __future__ import annotations

import pytest

from tests.models.protocol import Scenario, Violation, explore


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(Scenario(drivers=1, batches=3, attempts=2), id="a task is tried again or runs twice"),
        pytest.param(Scenario(batches=3, reads=True), id="a crash or a zombie, and a savepoint meanwhile"),
        pytest.param(Scenario(attempts=2), id="a crash or a zombie, and tasks tried again"),
        pytest.param(Scenario(copies=True), id="a checkpoint that was copied"),
        pytest.param(Scenario(drivers=3), id="three drivers", marks=pytest.mark.full),
        pytest.param(Scenario(drivers=3, batches=3), id="three drivers, three batches", marks=pytest.mark.full),
        pytest.param(Scenario(drivers=3, copies=True), id="a copy among three drivers", marks=pytest.mark.full),
    ],
)
def test_no_interleaving_breaks_a_promise(scenario: Scenario) -> None:
    assert explore(scenario) > 100


@pytest.mark.parametrize(
    ("rule", "scenario", "broken"),
    [
        ("takeover", Scenario(), "not there or not whole"),
        ("newest number", Scenario(), "which nobody will read"),
        ("mark", Scenario(), "the sink holds"),
        ("token", Scenario(copies=True), "the sink holds"),
        ("orphans by epoch", Scenario(), "the sink holds"),
        ("look again", Scenario(reads=True), "the pin of batch 1"),
        ("sync before report", Scenario(), "not there or not whole"),
        ("rows before outcome", Scenario(), "not in the sink"),
        ("marks before claims", Scenario(copies=True), "though it had seen that it cannot write"),
        ("marks after claims", Scenario(copies=True), "the sink holds"),
        ("epochs of copies differ", Scenario(copies=True), "the sink holds"),
        ("fence", Scenario(copies=True), "the sink holds"),
    ],
)
def test_each_rule_is_needed(rule: str, scenario: Scenario, broken: str) -> None:
    without = Scenario(scenario.drivers, reads=scenario.reads, copies=scenario.copies, broken=frozenset({rule}))
    with pytest.raises(Violation, match=broken):
        explore(without)


def test_where_results_repeat_and_there_is_no_copy_marks_alone_keep_out_a_driver_that_was_replaced() -> None:
    assert explore(Scenario(broken=frozenset({"fence"}))) > 100
