"""The ready detectors find every planted case once, and no near miss."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import Any

import pytest

import headrace as hr
from headrace.demo.detection import DETECTIONS, OUT_OF_ORDER
from headrace.event_time.strategy import event_time, valid_times
from headrace.testing import at, batch, crash, expect, play, timeline, watermark
from headrace.testing.elements import Element

TIME = event_time("at", out_of_order=OUT_OF_ORDER, idle=None, accept=valid_times(max_future=None))


@pytest.mark.parametrize("name", DETECTIONS)
def test_a_detector_finds_every_case_once_and_nothing_else(name: str) -> None:
    detection = DETECTIONS[name]
    rows, story_of = detection.planted(3, seed=7)
    cases = [key for key, story in story_of.items() if story in detection.cases]
    elements: list[Element] = []
    for number, columns in enumerate(rows.rows(named=True)):
        if number and number % (rows.height // 6) == 0:
            elements.append(crash() if number == 3 * (rows.height // 6) else batch())
        elements.append(at(columns.pop("at"), **columns))
    elements += [batch(), batch()]
    played = play(detection.step(), *elements, event_time=TIME)
    assert Counter(row[detection.key] for row in played.main) == Counter(dict.fromkeys(cases, 1))
    assert not played.late
    assert len(cases) < len(story_of)


@pytest.mark.parametrize(
    "place", [{"latitude": None, "longitude": 13.4}, {"latitude": 52.5, "longitude": float("nan")}]
)
def test_a_login_without_a_place_is_no_travel(place: dict[str, Any]) -> None:
    timeline(
        hr.detectors.impossible_travel("travel", key="user"),
        at("10:00", user="ann", latitude=52.52, longitude=13.405),
        at("10:01", user="ann", **place),
        at("10:02", user="ann", latitude=52.52, longitude=13.405),
        watermark("11:00"),
        expect(),
        at("11:01", user="ann", latitude=-33.87, longitude=151.21),
        watermark("11:02"),
        expect(user="ann", last_login="10:02"),
    )


def test_places_may_be_decimals() -> None:
    berlin, sydney = (Decimal("52.52"), Decimal("13.405")), (Decimal("-33.87"), Decimal("151.21"))
    timeline(
        hr.detectors.impossible_travel("travel", key="user"),
        at("10:00", user="ann", latitude=berlin[0], longitude=berlin[1]),
        at("11:00", user="ann", latitude=sydney[0], longitude=sydney[1]),
        watermark("12:00"),
        expect(user="ann", last_login="10:00", seconds=3600.0),
    )


@pytest.mark.parametrize("nothing", [None, float("nan")])
def test_a_measurement_that_is_none_says_nothing_of_a_threshold(nothing: float | None) -> None:
    step = hr.detectors.threshold_held("hot", key="device", value="celsius", above=80.0, held="10 minutes")
    timeline(
        step,
        at("10:00", device="d", celsius=nothing),
        at("10:05", device="d", celsius=81.0),
        at("10:08", device="d", celsius=nothing),
        watermark("11:00"),
        expect(device="d", since="10:05", at="10:15"),
    )


@pytest.mark.parametrize("key", [["device", "room"], ["device"], 7])
@pytest.mark.parametrize(
    "detector",
    [
        lambda key: hr.detectors.missing_heartbeat("silent", key=key, gap="5 minutes"),
        lambda key: hr.detectors.impossible_travel("travel", key=key),
        lambda key: hr.detectors.threshold_held("hot", key=key, value="celsius", above=80.0, held="1 minute"),
    ],
    ids=["missing_heartbeat", "impossible_travel", "threshold_held"],
)
def test_a_detector_with_a_typed_key_takes_one_column(detector: Any, key: Any) -> None:
    with pytest.raises(hr.DefinitionError, match=r"\[KEY_NOT_ONE\] step '\w+': key=.* one column"):
        detector(key)
