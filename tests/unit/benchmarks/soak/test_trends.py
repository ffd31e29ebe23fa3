from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.soak.samples import Sample
from benchmarks.soak.trends import judged, trend

SAMPLES = 120


def samples(files: Callable[[int], int]) -> list[Sample]:
    return [Sample(5.0 * look, look, look, 1, 1, files(look), 1, 0.1) for look in range(SAMPLES)]


def test_the_first_third_is_not_judged() -> None:
    seen = samples(lambda look: 100)
    assert judged(seen) == seen[40:]


def test_a_measure_that_rises_by_a_fifth_is_not_flat() -> None:
    found = trend(samples(lambda look: 10_000 + look * 2_000 // SAMPLES), "files")
    assert found.rise == pytest.approx(0.18, abs=0.01)
    assert not found.is_flat


def test_a_saw_whose_teeth_are_as_high_as_the_last_ones_is_flat() -> None:
    assert trend(samples(lambda look: 100 + 40 * (look % 7)), "files").is_flat


def test_a_few_odd_looks_at_the_end_do_not_tilt_the_line() -> None:
    assert trend(samples(lambda look: 1_000 if look > SAMPLES - 5 else 100), "files").is_flat


def test_a_measure_that_falls_is_flat() -> None:
    assert trend(samples(lambda look: 1_000 - look), "files").is_flat
