"""Waiting for a source that Spark reads, when its batch is to run."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from headrace.checkpoint.outages import outages
from headrace.checkpoint.storage import LocalStorage
from headrace.connectors.base.enumerator import Planned
from headrace.connectors.base.sink import Unreachable
from headrace.event_time.record import BatchRecord, SourceRead
from headrace.graph import Graph, SourceNode
from headrace.runtime import source_reads
from headrace.runtime.source_reads import Cancelled, SourceReads

RECORD = replace(BatchRecord(0, 0, {}, {}, {}, drain=False), reads={"table": SourceRead(0, 1)})


class Table:
    """A table that Spark reads, and that is away until it was asked so many times."""

    place = "table t"

    def __init__(self, away: int) -> None:
        self.away = away

    def initial(self) -> int:
        """A new flow begins there."""
        return 0

    def stop_at_newest(self) -> None:
        """A table ends."""

    def plan(self, since: int, *, most: int | None) -> Planned:
        """All of it."""
        return Planned(1)

    def frame(self, since: int, until: int) -> Any:
        """Its rows."""
        self.away -= 1
        if self.away >= 0:
            raise Unreachable("moved away")
        return "rows"


def _reads(tmp_path: Path, table: Table, stopping: threading.Event) -> SourceReads:
    graph = Graph("test", tmp_path, cast(Any, None))
    graph.add_source(SourceNode("table", {}, lambda _: table))
    return SourceReads(graph, ["table"], LocalStorage(tmp_path), stopping)


def test_a_batch_waits_for_a_table_that_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_reads, "ASKED_AGAIN_SECONDS", 0.0)
    table = Table(3)
    found: dict[str, Any] = dict(_reads(tmp_path, table, threading.Event()).frames(RECORD))
    assert found == {"table": "rows"}
    assert table.away == -1
    assert not outages(LocalStorage(tmp_path))


def test_a_batch_whose_table_is_away_is_left_to_the_next_start_when_the_flow_stops(tmp_path: Path) -> None:
    stopping = threading.Event()
    stopping.set()
    with pytest.raises(Cancelled):
        _reads(tmp_path, Table(1), stopping).frames(RECORD)
    [outage] = outages(LocalStorage(tmp_path))
    assert (outage.sink, outage.reason) == ("table t", "moved away")
