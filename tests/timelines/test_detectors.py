"""The ready detectors find every planted case once, and no near miss."""

from __future__ import annotations

from collections import Counter

import pytest

from headrace.demo.detection.plot import OUT_OF_ORDER
from headrace.demo.detection.stories import DETECTIONS
from headrace.event_time.strategy import between, event_time
from headrace.testing import at, batch, crash, play

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
