"""A lookup's batches in this process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from headrace.checkpoint.storage import MemoryStorage
from headrace.event_time.record import BatchRecord
from headrace.nodes import NodeId
from headrace.operators.lookup.lookup import Lookup
from headrace.reports import StepReport
from headrace.wheel.side_rows import read_rows
from headrace.wheel.stateless import Stateless, pass_rows
from headrace.wheel.task import Task
from tests.bad_service import BadService, bad_service
from tests.tasks import state_in_memory


@dataclass(frozen=True)
class Batch:
    """What a batch made of its rows."""

    rows: list[dict[str, Any]]
    letters: list[dict[str, Any]]
    report: StepReport
    seconds: float

    @property
    def counters(self) -> dict[str, int]:
        """The lookup's numbers."""
        return dict(self.report.counters)


class Batches:
    """Runs batches of lookups; what is kept between them is kept."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._storage = MemoryStorage()
        self._bound: dict[int, tuple[Lookup, Stateless]] = {}
        self._number = 0

    def __call__(self, step: Lookup, *frames: pl.DataFrame, clock: int = 0) -> Batch:
        said: dict[tuple[Any, ...], Any] = {}
        began = time.monotonic()
        made = list(self.pieces(step, *frames, clock=clock, said=said))
        seconds = time.monotonic() - began
        report = said["flow", self._number, NodeId("step", step.name), 0]
        letters = [
            row for file, _ in report.side["dead_letters"] for row in read_rows(self._storage, file).rows(named=True)
        ]
        assert report.in_ == report.accepted + report.failed
        return Batch([row for frame in made for row in frame.rows(named=True)], letters, report, seconds)

    def pieces(
        self,
        step: Lookup,
        *frames: pl.DataFrame,
        clock: int = 0,
        said: dict[tuple[Any, ...], Any] | None = None,
    ) -> Iterator[pl.DataFrame]:
        """A batch as its rows leave, which are asked for only as somebody takes them; ``said`` gets the report."""
        if id(step) not in self._bound:
            self._bound[id(step)] = (step, step.bind(dict(frames[0].schema), None))
        self._number += 1
        record = BatchRecord(self._number, clock, {}, {}, {}, False)
        heard = {} if said is None else said
        task = Task(record, "flow", 0, heard.__setitem__, state_in_memory(storage=self._storage))
        return pass_rows(frames, self._bound[id(step)][1], task)

    def close(self) -> None:
        """Let go of every service."""
        for _, bound in self._bound.values():
            bound.close()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Batches]:
    """Runs a batch of frames through a lookup."""
    batches = Batches(tmp_path)
    yield batches
    batches.close()


@pytest.fixture
def service() -> Iterator[BadService]:
    """A service on a free port."""
    with bad_service() as service:
        yield service
