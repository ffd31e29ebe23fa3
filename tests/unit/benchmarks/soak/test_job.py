from __future__ import annotations

import json
from datetime import UTC, datetime

import numpy as np

from benchmarks.soak.job import GENERATION, Visits

START = datetime(2026, 1, 1, tzinfo=UTC)


def test_no_user_is_in_two_generations() -> None:
    lines = Visits().lines(np.arange(3 * GENERATION), start=START, rate=50.0)["line"]
    users = np.array([json.loads(line)["user"] for line in lines]).reshape(3, GENERATION)
    first, second, third = (set(generation.tolist()) for generation in users)
    assert len(first) == len(second) == len(third) == 5_000
    assert not first & second | second & third | first & third


def test_rows_are_dated_by_their_number() -> None:
    line = Visits().lines(np.array([125]), start=START, rate=50.0)["line"][0]
    assert json.loads(line) == {"user": 125, "at": "2026-01-01T00:00:02.500000Z"}
