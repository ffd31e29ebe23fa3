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

    def was_away(self, failure: BaseException) -> bool:
        """What its job failed on."""
        self.away -= 1
        if self.away >= 0:
            raise Unreachable("moved away")
        return "file" in str(failure)


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


def test_a_batch_whose_job_failed_while_its_table_was_away_runs_again_when_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_reads, "ASKED_AGAIN_SECONDS", 0.0)
    table = Table(0)
    reads = _reads(tmp_path, table, threading.Event())
    for _ in range(3):
        table.away = 2
        assert reads.were_away(RECORD, RuntimeError("a file is missing"))
        assert table.away == -1


def test_a_file_that_is_missing_twice_though_the_table_is_there_is_gone(tmp_path: Path) -> None:
    reads = _reads(tmp_path, Table(0), threading.Event())
    assert reads.were_away(RECORD, RuntimeError("a file is missing"))
    assert not reads.were_away(RECORD, RuntimeError("a file is missing"))
    assert reads.were_away(replace(RECORD, batch=1), RuntimeError("a file is missing"))


def test_what_fails_for_another_reason_is_not_tried_again(tmp_path: Path) -> None:
    reads = _reads(tmp_path, Table(0), threading.Event())
    assert not reads.were_away(RECORD, RuntimeError("a task has failed"))
    nothing = replace(RECORD, reads={"table": SourceRead(1, 1)})
    assert not reads.were_away(nothing, RuntimeError("a file is missing"))
