"""The ready detectors on Spark, over generated rows with planted cases and near misses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.demo.detection import DETECTIONS, judge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.full]


@pytest.mark.parametrize("name", ["impossible-travel", "failed-logins", "card-testing"])
def test_a_detector_finds_all_planted_cases_and_no_near_miss(name: str, spark: SparkSession, tmp_path: Path) -> None:
    judged = judge(DETECTIONS[name], tmp_path, keys=20)
    found = {story: (keys, is_case, alerts) for story, keys, is_case, alerts in judged.stories.rows()}
    cases, near_misses = DETECTIONS[name].cases, DETECTIONS[name].near_misses
    assert found == {
        **dict.fromkeys(cases, (20, True, 20)),
        **dict.fromkeys(near_misses, (20, False, 0)),
    }
    assert (judged.recall, judged.precision, judged.perfect) == (1.0, 1.0, True)
