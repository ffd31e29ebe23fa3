from __future__ import annotations

from pathlib import Path

import pytest

import headrace as hr
from headrace.graph import FlowNode, Graph, SourceNode
from headrace.observe.history import HistoryEntry
from headrace.runtime.modes import SMALLEST_CAP, Mode, Pace, Throttle, check_mode


def test_batches_settle_at_the_target_whatever_the_speed() -> None:
    for rate in (5_000, 50_000, 500_000):
        pace = Pace(target=1.0, warm=2)
        for _ in range(30):
            pace.learn(rows=pace.cap, seconds=0.2 + pace.cap / rate)
        assert 0.5 < 0.2 + pace.cap / rate < 1.0


def test_a_sink_that_becomes_slow_makes_batches_smaller_and_one_that_recovers_larger_again() -> None:
    pace = Pace(target=1.0, cap=50_000, warm=2)
    for _ in range(10):
        pace.learn(rows=pace.cap, seconds=0.1 + pace.cap / 5_000)
    small = pace.cap
    assert small < 5_000
    for _ in range(10):
        pace.learn(rows=pace.cap, seconds=0.1 + pace.cap / 100_000)
    assert pace.cap > 10 * small


def test_where_an_empty_batch_takes_nearly_as_long_as_it_may_batches_still_catch_up() -> None:
    pace = Pace(target=2.0, warm=2)
    for _ in range(40):
        pace.learn(rows=pace.cap, seconds=1.4 + pace.cap / 6_000)
    assert pace.cap > 3_000
    assert 1.4 + pace.cap / 6_000 < 2 * pace.target


def test_the_first_batches_of_a_process_and_small_ones_teach_nothing() -> None:
    pace = Pace(target=1.0, cap=10_000)
    pace.learn(rows=10_000, seconds=9.0)
    pace.learn(rows=10_000, seconds=5.0)
    pace.learn(rows=40, seconds=0.5)
    assert pace.cap == 10_000


def test_batches_stay_within_their_bounds() -> None:
    pace = Pace(target=1.0, cap=10_000, largest=15_000, warm=2)
    pace.learn(rows=10_000, seconds=0.1)
    assert pace.cap == 15_000
    for _ in range(20):
        pace.learn(rows=pace.cap, seconds=pace.cap / 10)
    assert pace.cap == SMALLEST_CAP


def reading(*, counts_rows: bool) -> tuple[FlowNode, Graph]:
    graph = Graph("shop", Path("checkpoint"), None)  # type: ignore[arg-type]
    graph.add_source(SourceNode("landing", {}, lambda _: None, counts_rows=counts_rows))
    return FlowNode("spend", (), (), ("landing",), ()), graph


def throttle(mode: Mode, last: HistoryEntry | None = None) -> Throttle:
    return Throttle(mode, last=last)


def test_a_flow_that_keeps_up_goes_on_with_what_it_has_learned() -> None:
    learning = throttle(hr.micro_batch("1 second", keep_up=True))
    assert learning.cap == 10_000
    for _ in range(3):
        learning.learn(rows=learning.cap or 0, seconds=0.4)
    assert learning.cap == 20_000
    last = HistoryEntry("spend", 7, 0, cap=learning.cap)
    assert throttle(hr.micro_batch("1 second", keep_up=True), last).cap == 20_000
    assert throttle(hr.micro_batch(max_rows=70), last).cap == 70
    assert throttle(hr.micro_batch(), last).cap is None


@pytest.mark.parametrize("mode", [hr.micro_batch(keep_up=True), hr.available_now(max_rows=5)])
def test_a_source_that_cannot_count_ahead_refuses_a_bound_on_rows(mode: Mode) -> None:
    with pytest.raises(hr.HeadraceError, match=r"\[MAX_ROWS_UNSUPPORTED\].*source 'landing'"):
        check_mode(mode, *reading(counts_rows=False))


def test_no_rows_at_all_is_no_bound() -> None:
    with pytest.raises(hr.DefinitionError, match=r"\[MAX_ROWS_TOO_SMALL\]"):
        hr.micro_batch(max_rows=0)
