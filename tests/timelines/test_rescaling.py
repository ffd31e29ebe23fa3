"""Every start may divide the state among another number of tasks; what comes out is what an uninterrupted run gives."""

from __future__ import annotations

from itertools import cycle
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.testing import crash, play
from headrace.testing.inline import InlineEngine
from headrace.testing.on_spark import SparkEngine
from tests.models.every_step import BATCHES, NAMES, elements_of, step_of

IN_TURN = (1, 2, 3, 8)


@pytest.mark.parametrize("name", NAMES)
def test_restarts_with_1_2_3_and_8_slots_in_turn_change_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    starts: list[int] = []

    def slots_in_turn(engine: InlineEngine) -> int:
        # Something is unfinished at every restart: a session, a match, a timer, a row that waits.
        assert not starts or engine.planner.last.files
        starts.append(next(numbers))
        return starts[-1]

    monkeypatch.setattr(InlineEngine, "next_slots", slots_in_turn)
    numbers = cycle((1,))
    uninterrupted = play(step_of(name), *elements_of(name), engine="inline").outputs
    assert starts == [1]
    starts.clear()
    numbers = cycle(IN_TURN)
    restarted = play(step_of(name), *elements_of(name, between=(crash(),)), engine="inline").outputs
    assert len(starts) > BATCHES
    assert set(starts) == set(IN_TURN)
    assert len(uninterrupted["main"]) > 10
    assert restarted.keys() == uninterrupted.keys()
    for output, rows in uninterrupted.items():
        assert _sorted(restarted[output]) == _sorted(rows), output


@pytest.mark.spark
@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
def test_restarts_with_another_number_of_tasks_on_spark_change_nothing(
    name: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts: list[int] = []
    start = SparkEngine._start

    def tasks_in_turn(engine: SparkEngine) -> None:
        starts.append(next(numbers))
        spark.conf.set("spark.sql.shuffle.partitions", starts[-1])
        start(engine)

    monkeypatch.setattr(SparkEngine, "_start", tasks_in_turn)
    numbers, before = cycle(IN_TURN), spark.conf.get("spark.sql.shuffle.partitions")
    try:
        restarted = play(step_of(name), *elements_of(name, between=(crash(),)), engine="spark").outputs
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before or "2")
    assert set(starts) == set(IN_TURN)
    uninterrupted = play(step_of(name), *elements_of(name), engine="inline").outputs
    assert len(uninterrupted["main"]) > 10
    for output, rows in uninterrupted.items():
        assert _sorted(restarted[output]) == _sorted(rows), output


def _sorted(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(map(repr, rows))
