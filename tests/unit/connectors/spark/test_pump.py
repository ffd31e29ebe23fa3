"""What the pump makes of the batches that a query of Spark brings."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headrace.checkpoint.storage import LocalStorage
from headrace.connectors.spark.pump import Pump
from headrace.errors import HeadraceError

PATIENCE = 30.0
SINCE = {"query": "q", "batch": 3}


@dataclass
class Query:
    """Stands for Spark's."""

    id: str = "q"
    isActive: bool = True

    def exception(self) -> None:
        """None so far."""


@pytest.fixture
def query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Query:
    """The query of the pump."""
    offsets = tmp_path / "pump" / "rows" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "3").touch()
    query = Query()
    monkeypatch.setattr(Pump, "_started", lambda _: query)
    return query


@pytest.fixture
def pump(query: Query, tmp_path: Path) -> Pump:
    """A pump whose flow has concluded Spark's batch 3."""
    pump = Pump("rows", Any, LocalStorage(tmp_path))  # type: ignore[arg-type]
    assert pump.plan(SINCE, most=None).until == SINCE
    assert not pump.calls
    return pump


def bring(pump: Pump, batch: int) -> threading.Thread:
    """As Spark's thread does."""
    handing = threading.Thread(target=pump._hand_over, args=(f"rows of {batch}", batch), daemon=True)
    handing.start()
    deadline = time.monotonic() + PATIENCE
    while handing.is_alive() and not pump.calls:
        assert time.monotonic() < deadline
    return handing


def test_the_next_batch_is_held_until_it_is_concluded(pump: Pump) -> None:
    handing = bring(pump, 4)
    until = pump.plan(SINCE, most=None).until
    assert until == {"query": "q", "batch": 4}
    assert pump.frame(SINCE, until) == "rows of 4"  # type: ignore[comparison-overlap]
    pump.conclude(SINCE)
    assert pump.calls
    pump.conclude(until)
    handing.join(PATIENCE)
    assert not handing.is_alive()
    assert not pump.calls


def test_the_concluded_batch_is_passed_over(pump: Pump) -> None:
    handing = bring(pump, 3)
    handing.join(PATIENCE)
    assert not handing.is_alive()
    assert pump.plan(SINCE, most=None).until == SINCE


@pytest.mark.parametrize("batch", [0, 2, 5])
def test_any_other_batch_is_refused_and_not_let_go(pump: Pump, batch: int) -> None:
    handing = bring(pump, batch)
    with pytest.raises(HeadraceError, match=rf"^\[RANGE_CHANGED\] .* knows batch 3 .* batch {batch} comes next"):
        pump.plan(SINCE, most=None)
    assert handing.is_alive()


def test_a_query_that_somebody_stops_is_told(pump: Pump, query: Query) -> None:
    query.isActive = False
    assert pump.calls
    with pytest.raises(HeadraceError, match=r"^\[SOURCE_FAILED\] .* its query was stopped"):
        pump.plan(SINCE, most=None)
