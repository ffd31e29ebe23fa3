"""The watermark of one source, partition by partition."""

from __future__ import annotations

import json
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.event_time.strategy import BEGINNING, TimeStrategy
from headrace.event_time.tracker import WHOLE, Partition, SavedWatermark, WatermarkTracker
from headrace.json_codec import decode, encode

SECOND = 1_000_000
MINUTE = 60 * SECOND


def divided(**more: object) -> TimeStrategy:
    return hr.event_time("at", partition="gateway", **more)  # type: ignore[arg-type]


def test_before_the_first_row_there_is_no_watermark() -> None:
    assert WatermarkTracker(hr.event_time("at")).watermark(clock=0) == BEGINNING
    assert WatermarkTracker(divided()).watermark(clock=0) == BEGINNING


def test_the_slowest_partition_decides_less_out_of_order() -> None:
    tracker = WatermarkTracker(divided(out_of_order="1 second"))
    tracker.observe({"north": 50 * SECOND, "south": 20 * SECOND})
    assert tracker.watermark(clock=0) == 19 * SECOND


def test_a_known_partition_without_rows_holds_everything_until_its_first_row() -> None:
    tracker = WatermarkTracker(divided())
    tracker.partitions["discovered"] = Partition()
    tracker.observe({"north": 50 * SECOND})
    assert tracker.watermark(clock=0) == BEGINNING
    tracker.observe({"discovered": 10 * SECOND})
    assert tracker.watermark(clock=0) == 10 * SECOND


def test_a_known_partition_without_rows_holds_until_idle_has_passed() -> None:
    tracker = WatermarkTracker(divided())
    tracker.partitions["discovered"] = Partition()
    tracker.pass_time(MINUTE - 1)
    tracker.observe({"north": 50 * SECOND})
    assert tracker.watermark(clock=0) == BEGINNING
    tracker.pass_time(1)
    assert tracker.watermark(clock=0) == 50 * SECOND


def test_asking_for_the_watermark_after_a_wait_fixes_nothing() -> None:
    tracker = WatermarkTracker(divided())
    tracker.observe({"north": 50 * SECOND, "south": 20 * SECOND})
    tracker.pass_time(MINUTE // 2)
    tracker.observe({"north": 60 * SECOND})
    assert tracker.watermark(clock=0, waited=MINUTE // 2) == 60 * SECOND
    assert tracker.watermark(clock=0) == 20 * SECOND


def test_a_fixed_watermark_never_goes_back() -> None:
    tracker = WatermarkTracker(divided())
    tracker.observe({"north": 50 * SECOND})
    tracker.advance(tracker.watermark(clock=0))
    tracker.observe({"south": 20 * SECOND})
    assert tracker.watermark(clock=0) == 50 * SECOND
    tracker.advance(5)
    assert tracker.watermark(clock=0) == 50 * SECOND


def test_older_rows_do_not_lower_a_partition() -> None:
    tracker = WatermarkTracker(hr.event_time("at"))
    tracker.observe({WHOLE: 50})
    tracker.observe({WHOLE: 40})
    assert tracker.watermark(clock=0) == 50


def test_when_all_are_idle_it_holds_or_advances_to_the_highest_time() -> None:
    for choice, expected in (("hold", BEGINNING), ("advance", 50 * SECOND)):
        tracker = WatermarkTracker(divided(when_all_idle=choice, out_of_order="1 second"))
        tracker.observe({"north": 50 * SECOND, "south": 20 * SECOND})
        tracker.pass_time(MINUTE)
        assert tracker.watermark(clock=0) == expected


def test_a_silent_partition_is_forgotten_after_ten_times_idle() -> None:
    tracker = WatermarkTracker(divided())
    tracker.observe({"north": 50 * SECOND, "south": 20 * SECOND})
    tracker.pass_time(10 * MINUTE - 1)
    tracker.observe({"north": 60 * SECOND})
    assert set(tracker.partitions) == {"north", "south"}
    tracker.pass_time(1)
    assert set(tracker.partitions) == {"north"}


def test_the_one_partition_of_a_whole_source_is_never_forgotten() -> None:
    tracker = WatermarkTracker(hr.event_time("at", when_all_idle="advance"))
    tracker.observe({WHOLE: 50})
    tracker.pass_time(1000 * MINUTE)
    assert tracker.watermark(clock=0) == 50


def test_values_beyond_ten_thousand_share_one_watermark() -> None:
    tracker = WatermarkTracker(divided())
    tracker.observe({str(number): 9 * SECOND for number in range(10_000)})
    tracker.observe({"one more": 5 * SECOND, "and another": 7 * SECOND})
    assert len(tracker.partitions) == 10_001
    assert tracker.watermark(clock=0) == 7 * SECOND


def test_forgotten_partitions_make_room_for_others() -> None:
    tracker = WatermarkTracker(divided())
    tracker.observe({str(number): 1 for number in range(10_000)})
    tracker.pass_time(10 * MINUTE)
    tracker.observe({"one more": 1})
    assert list(tracker.partitions) == ["one more"]


def test_all_idle_advances_to_the_highest_time_even_when_every_partition_is_forgotten() -> None:
    tracker = WatermarkTracker(divided(when_all_idle="advance"))
    tracker.observe({"north": 50 * SECOND, "south": 20 * SECOND})
    tracker.pass_time(10 * MINUTE)
    assert tracker.watermark(clock=0) == 50 * SECOND


def test_a_restart_keeps_times_and_watermark_but_not_quiet_time() -> None:
    tracker = WatermarkTracker(divided())
    tracker.observe({"north": 50 * SECOND, "south": 20 * SECOND})
    tracker.advance(tracker.watermark(clock=0))
    tracker.pass_time(MINUTE - 1)
    restarted = _restarted(tracker, divided())
    assert restarted.watermark(clock=0) == 20 * SECOND
    restarted.observe({"north": 60 * SECOND})
    restarted.pass_time(MINUTE - 1)
    assert restarted.watermark(clock=0) == 20 * SECOND
    restarted.pass_time(1)
    restarted.observe({"north": 60 * SECOND})
    assert restarted.watermark(clock=0) == 60 * SECOND


def test_with_processing_time_the_watermark_is_the_clock_and_does_not_go_back_with_it() -> None:
    tracker = WatermarkTracker(hr.processing_time())
    assert tracker.watermark(clock=70) == 70
    tracker.advance(70)
    assert tracker.watermark(clock=60) == 70


def test_a_source_with_partitions_of_its_own_waits_for_each_of_them() -> None:
    tracker = WatermarkTracker(hr.event_time("at"), divided=True)
    tracker.discover(["t/0", "t/1"])
    tracker.observe({"t/0": 50 * SECOND})
    assert tracker.watermark(clock=0) == BEGINNING
    tracker.observe({"t/1": 10 * SECOND})
    assert tracker.watermark(clock=0) == 10 * SECOND


def test_a_partition_discovered_later_holds_the_watermark_but_does_not_take_it_back() -> None:
    tracker = WatermarkTracker(hr.event_time("at", idle="1 minute"), divided=True)
    tracker.discover(["t/0"])
    tracker.observe({"t/0": 50 * SECOND})
    tracker.advance(tracker.watermark(clock=0))
    tracker.discover(["t/0", "t/1"])
    tracker.observe({"t/0": 90 * SECOND})
    assert tracker.watermark(clock=0) == 50 * SECOND
    assert tracker.watermark(clock=0, waited=MINUTE) == 50 * SECOND
    tracker.pass_time(MINUTE)
    tracker.observe({"t/0": 90 * SECOND})
    assert tracker.watermark(clock=0) == 90 * SECOND


def test_a_partition_with_rows_still_to_be_read_does_not_become_idle() -> None:
    tracker = WatermarkTracker(hr.event_time("at", idle="1 minute"), divided=True)
    tracker.observe({"t/0": 50 * SECOND, "t/1": 10 * SECOND}, unread=["t/1"])
    tracker.pass_time(30 * SECOND)
    tracker.observe({"t/0": 70 * SECOND}, unread=["t/1"])
    tracker.pass_time(2 * MINUTE)
    assert tracker.watermark(clock=0, waited=2 * MINUTE) == 10 * SECOND
    tracker.observe({"t/0": 80 * SECOND})
    tracker.pass_time(MINUTE)
    tracker.observe({"t/0": 90 * SECOND})
    assert tracker.watermark(clock=0) == 90 * SECOND


def test_by_a_column_no_partition_becomes_idle_while_rows_of_any_may_wait_to_be_read() -> None:
    tracker = WatermarkTracker(hr.event_time("at", idle="1 minute", partition="device"), divided=True)
    tracker.observe({"x": 10 * SECOND, "y": SECOND}, unread=["t/0"])
    tracker.pass_time(2 * MINUTE)
    tracker.observe({"x": 70 * SECOND}, unread=["t/0"])
    assert tracker.watermark(clock=0, waited=2 * MINUTE) == SECOND
    tracker.observe({"x": 80 * SECOND})
    tracker.pass_time(MINUTE)
    tracker.observe({"x": 90 * SECOND})
    assert tracker.watermark(clock=0) == 90 * SECOND


BOTH = ["north", "south"]


@pytest.mark.parametrize("partitions", [BOTH, 2])
def test_an_expected_value_holds_the_watermark_until_its_first_row(partitions: list[str] | int) -> None:
    tracker = WatermarkTracker(divided(partitions=partitions))
    tracker.observe({"north": 50 * SECOND})
    tracker.observe({"north": 60 * SECOND})
    assert tracker.watermark(clock=0) == BEGINNING
    tracker.observe({"south": 10 * SECOND})
    assert tracker.watermark(clock=0) == 10 * SECOND


@pytest.mark.parametrize("partitions", [BOTH, 2])
def test_an_expected_value_holds_the_watermark_until_idle_has_passed_since_the_start(
    partitions: list[str] | int,
) -> None:
    tracker = WatermarkTracker(divided(partitions=partitions))
    tracker.pass_time(MINUTE - 1)
    tracker.observe({"north": 50 * SECOND})
    assert tracker.watermark(clock=0) == BEGINNING
    assert not tracker.is_idle(waited=1)
    assert tracker.watermark(clock=0, waited=1) == 50 * SECOND
    tracker.pass_time(1)
    assert tracker.watermark(clock=0) == 50 * SECOND


@pytest.mark.parametrize("partitions", [BOTH, 2])
def test_without_idle_an_expected_value_holds_the_watermark_for_ever(partitions: list[str] | int) -> None:
    tracker = WatermarkTracker(divided(partitions=partitions, idle=None))
    tracker.observe({"north": 50 * SECOND})
    tracker.pass_time(1_000_000 * MINUTE)
    assert tracker.watermark(clock=0) == BEGINNING


@pytest.mark.parametrize("partitions", [BOTH, 2])
def test_the_clock_of_an_expected_value_stands_still_while_any_row_waits_to_be_read(
    partitions: list[str] | int,
) -> None:
    tracker = WatermarkTracker(divided(partitions=partitions))
    tracker.observe({"north": 50 * SECOND}, unread=["(all)"])
    tracker.pass_time(10 * MINUTE)
    tracker.observe({"north": 60 * SECOND})
    assert tracker.watermark(clock=0) == BEGINNING


def test_a_value_that_nobody_declared_counts_from_its_first_row_on() -> None:
    tracker = WatermarkTracker(divided(partitions=BOTH))
    tracker.observe({"north": 50 * SECOND, "south": 50 * SECOND, "west": 20 * SECOND})
    assert tracker.watermark(clock=0) == 20 * SECOND


def test_a_restart_knows_which_expected_values_have_come_and_waits_anew_for_the_others() -> None:
    tracker = WatermarkTracker(divided(partitions=3))
    tracker.observe({"north": 50 * SECOND, "south": 20 * SECOND})
    tracker.pass_time(MINUTE - 1)
    restarted = _restarted(tracker, divided(partitions=3))
    restarted.pass_time(MINUTE - 1)
    restarted.observe({"north": 60 * SECOND, "south": 60 * SECOND})
    assert restarted.watermark(clock=0) == BEGINNING
    restarted.observe({"west": 30 * SECOND})
    assert restarted.watermark(clock=0) == 30 * SECOND
    assert _restarted(restarted, divided(partitions=3)).watermark(clock=0) == 30 * SECOND
    assert _restarted(restarted, divided(partitions=["north", "west"])).watermark(clock=0) == 30 * SECOND
    assert _restarted(restarted, divided(partitions=4)).watermark(clock=0) == BEGINNING


@pytest.mark.parametrize("before", [["north", "sotuh"], 3])
def test_a_value_that_is_no_longer_declared_is_not_waited_for_after_a_restart(before: list[str] | int) -> None:
    tracker = WatermarkTracker(divided(partitions=before, idle=None))
    tracker.observe({"north": 50 * SECOND, "south": 20 * SECOND})
    assert tracker.watermark(clock=0) == BEGINNING
    assert _restarted(tracker, divided(partitions=BOTH, idle=None)).watermark(clock=0) == 20 * SECOND
    assert _restarted(tracker, divided(idle=None)).watermark(clock=0) == 20 * SECOND


@given(
    times=st.dictionaries(st.sampled_from(["1", "2", "3"]), st.lists(st.integers(0, 99), min_size=1), min_size=3),
    by_number=st.booleans(),
    data=st.data(),
)
def test_in_whatever_order_expected_partitions_are_read_no_row_is_late_that_its_partition_has_in_order(
    times: dict[str, list[int]], by_number: bool, data: st.DataObject
) -> None:
    """As a stream that is read file by file, where the rows of one value come long after those of another."""
    tracker = WatermarkTracker(divided(partitions=3 if by_number else [1, 2, 3], idle=None))
    waiting = {name: sorted(given) for name, given in times.items()}
    while waiting:
        watermark = tracker.watermark(clock=0)
        tracker.advance(watermark)
        highest: dict[str, int] = defaultdict(int)
        for name in data.draw(st.sets(st.sampled_from(sorted(waiting)), min_size=1)):
            taken = data.draw(st.integers(1, len(waiting[name])))
            assert waiting[name][0] >= watermark
            highest[name] = waiting[name][taken - 1]
            waiting[name] = waiting[name][taken:]
        tracker.observe(highest)
        waiting = {name: rest for name, rest in waiting.items() if rest}
    assert tracker.watermark(clock=0) == min(max(given) for given in times.values())


def _restarted(tracker: WatermarkTracker, strategy: TimeStrategy) -> WatermarkTracker:
    restarted = WatermarkTracker(strategy)
    restarted.restore(decode(SavedWatermark, json.loads(json.dumps(encode(tracker.saved())))))
    return restarted
