"""Whether what was seen of a flow stays flat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.soak.samples import Sample

MOST_RISE = 0.1


@dataclass(frozen=True, slots=True)
class Measure:
    """A column of the samples and how people read it."""

    title: str
    unit: float = 1.0


MEASURES: Mapping[str, Measure] = {
    "state_rows": Measure("state, rows"),
    "state_bytes": Measure("state, MB", 1e6),
    "files": Measure("files in the checkpoint"),
    "memory_bytes": Measure("memory of all processes, MB", 1e6),
    "batch_seconds": Measure("batch, ms", 1e-3),
}


@dataclass(frozen=True, slots=True)
class Trend:
    """Where a measure stands, and by which share of that it rose."""

    level: float
    rise: float

    @property
    def is_flat(self) -> bool:
        """Whether it rose by a tenth at most. It may fall."""
        return self.rise <= MOST_RISE


def judged(samples: Sequence[Sample]) -> Sequence[Sample]:
    """The last two thirds of the time: before, state fills, code compiles and heaps grow."""
    first = samples[-1].seconds / 3
    return [sample for sample in samples if sample.seconds >= first]


def trend(samples: Sequence[Sample], name: str) -> Trend:
    """The median of a measure, and how far its line rises from the first sample to the last.

    The slope of the line is the median of the slopes between any two samples (Theil and Sen), so that neither a few odd
    batches nor the teeth of a saw tilt it.
    """
    seconds = np.array([sample.seconds for sample in samples])
    values = np.array([getattr(sample, name) for sample in samples], dtype=float)
    earlier, later = np.triu_indices(len(samples), 1)
    slope = np.median((values[later] - values[earlier]) / (seconds[later] - seconds[earlier]))
    level = float(np.median(values))
    return Trend(level, float(slope * (seconds[-1] - seconds[0]) / level))
