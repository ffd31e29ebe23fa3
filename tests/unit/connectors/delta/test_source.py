"""How far a batch reads a Delta table, and how its rows come to the gate."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from unittest.mock import Mock

import polars as pl
import pytest
from pyspark.errors import PySparkException

from headrace.connectors.base.decoding import POSITION
from headrace.connectors.base.enumerator import Planned
from headrace.connectors.delta.source import DeltaEnumerator, DeltaReader, Start
from headrace.connectors.delta.table import DeltaLog
from headrace.errors import HeadraceError
from headrace.event_time.record import BatchRecord
from headrace.event_time.tracker import WHOLE
from headrace.wheel.task import Task
from tests.tasks import state_in_memory

TASK = Task(BatchRecord(0, 77, {}, {}, {}, drain=False), "flow", 0, lambda *_: None, state_in_memory())


def _raw(*rows: tuple[Any, ...]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema={"n": pl.Int64, "__file": pl.String}, orient="row")


def test_rows_are_numbered_through_the_whole_task() -> None:
    reader = DeltaReader(("n",))
    first = list(reader.read(_raw((1, "a"), (None, "b"), (2, "b")), TASK))
    assert [(chunk.origin, chunk.rows.rows(), chunk.arrived) for chunk in first] == [
        ("a", [(1, 0)], 77),
        ("b", [(None, 1), (2, 2)], 77),
    ]
    [last] = reader.read(_raw((3, "b")), TASK)
    assert last.rows.rows() == [(3, 3)]
    assert not list(reader.read(_raw(), TASK))


def test_changes_have_the_words_of_a_changelog_and_arrived_when_they_were_committed() -> None:
    moment = datetime(2025, 1, 1, tzinfo=UTC)
    kinds = ["insert", "update_preimage", "update_postimage", "delete"]
    raw = pl.DataFrame({"change": kinds, "_commit_timestamp": [moment] * 4, "__file": ["a"] * 4})
    [chunk] = DeltaReader(("change", "_commit_timestamp")).read(raw, TASK)
    assert chunk.rows["change"].to_list() == ["insert", "update_before", "update_after", "delete"]
    assert isinstance(chunk.arrived, pl.Series)
    assert chunk.arrived.to_list() == [1_735_689_600_000_000] * 4
    assert chunk.rows.columns[-1] == POSITION


@pytest.mark.parametrize(
    ("jar", "extensions"), [(None, "io.delta.sql.DeltaSparkSessionExtension"), ("delta.jar", "of.another.Extension")]
)
def test_a_session_without_delta_is_told_how_to_have_it(jar: str | None, extensions: str) -> None:
    session: Any = Mock()
    thread = session.sparkContext._jvm.java.lang.Thread.currentThread.return_value
    thread.getContextClassLoader.return_value.getResource.return_value = jar
    session.conf.get.return_value = extensions
    with pytest.raises(HeadraceError, match=r"\[CONNECTOR_MISSING\].*hr.spark_session\(connectors=\("):
        DeltaLog(session, "t").exists()


def _enumerator(start: Start = "earliest") -> tuple[DeltaEnumerator, Any]:
    """Of a table at version 7, and the function by which Spark opens Delta's source."""
    log: Any = Mock(path="t")
    log.version.return_value = 7
    source = log.jvm.org.apache.spark.sql.delta.sources.DeltaDataSource.return_value
    return DeltaEnumerator(log, changes=False, files_per_batch=None, start=start), source.createSource


@pytest.mark.parametrize("condition", ["DELTA_SOURCE_TABLE_IGNORE_CHANGES", "DELTA_SOURCE_IGNORE_DELETE"])
def test_a_table_whose_rows_were_changed_stops_the_flow_with_advice_and_other_failures_as_they_are(
    condition: str,
) -> None:
    enumerator, opening = _enumerator()
    opening.side_effect = PySparkException(f"terminated with exception: [{condition}] Detected ...")
    with pytest.raises(
        HeadraceError, match=r"^\[DELTA_NOT_APPEND_ONLY\] rows of Delta table 't' were updated or deleted"
    ):
        enumerator.plan(enumerator.initial(), most=None)
    opening.side_effect = PySparkException("out of memory")
    with pytest.raises(PySparkException, match="out of memory"):
        enumerator.plan(enumerator.initial(), most=None)


@pytest.mark.parametrize(("start", "version"), [("earliest", None), ("latest", 8), (3, 3)])
def test_a_new_flow_begins_with_all_rows_those_behind_the_newest_version_or_those_of_a_version(
    start: Start, version: int | None
) -> None:
    enumerator, _ = _enumerator(start)
    assert enumerator.initial() == {"version": version, "offset": None}


def test_a_version_that_is_not_there_yet_is_waited_for() -> None:
    enumerator, opening = _enumerator("latest")
    since = {"version": 8, "offset": None}
    assert enumerator.plan(since, most=None) == Planned(since)
    opening.assert_not_called()


def test_a_batch_reads_up_to_the_offset_that_delta_gives_and_says_whether_more_waits() -> None:
    enumerator, opening = _enumerator()
    offsets = [{"n": 1}, {"n": 2}, {"n": 2}, {"n": 2}, None]
    given = [None if offset is None else Mock(json=Mock(return_value=json.dumps(offset))) for offset in offsets]
    opening.return_value.latestOffset.side_effect = given
    first = enumerator.plan(enumerator.initial(), most=None)
    assert first == Planned({"version": None, "offset": {"n": 1}}, {WHOLE: 1})
    second = enumerator.plan(first.until, most=None)
    assert second == Planned({"version": None, "offset": {"n": 2}})
    assert enumerator.plan(second.until, most=None) == second


@pytest.mark.parametrize("ends", [True, False])
def test_only_a_run_over_what_is_there_ends_at_the_newest_version(ends: bool) -> None:
    enumerator, opening = _enumerator()
    opening.return_value.latestOffset.return_value = None
    enumerator.plan(enumerator.initial(), most=None)
    if ends:
        enumerator.stop_at_newest()
    for _ in range(2):
        enumerator.plan(enumerator.initial(), most=None)
    assert opening.return_value.prepareForTriggerAvailableNow.call_count == ends
