"""The ready detectors find every planted case once, and no near miss."""

from __future__ import annotations

from collections import Counter

import pytest

import headrace as hr
from headrace.demo.detection.plot import OUT_OF_ORDER
from headrace.demo.detection.stories import DETECTIONS
from headrace.event_time.strategy import between, event_time
from headrace.testing import at, batch, crash, expect, play, timeline, watermark

TIME = event_time("at", out_of_order=OUT_OF_ORDER, idle=None, accept=between(max_future=None))


@pytest.mark.parametrize("name", DETECTIONS)
def test_a_detector_finds_every_case_once_and_nothing_else(name: str) -> None:
    detection = DETECTIONS[name]
    rows, cases, near_misses = detection.plot.planted(3, seed=7)
    elements = []
    for number, columns in enumerate(rows.rows(named=True)):
        if number and number % (rows.height // 6) == 0:
            elements.append(crash() if number == 3 * (rows.height // 6) else batch())
        elements.append(at(columns.pop("at"), **columns))
    elements += [batch(), batch()]
    played = play(detection.step(), *elements, event_time=TIME)
    assert Counter(row[detection.plot.key] for row in played.main) == Counter(dict.fromkeys(cases, 1))
    assert not played.late
    assert near_misses


@pytest.mark.parametrize(
    "place", [{"latitude": None, "longitude": 13.4}, {"latitude": 52.5, "longitude": float("nan")}]
)
def test_a_login_without_a_place_is_no_travel(place: dict[str, float | None]) -> None:
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
