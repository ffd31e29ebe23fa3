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
from headrace.connectors.base.sink import Unreachable
from headrace.connectors.delta.source import DeltaEnumerator, DeltaReader, Start, not_append_only, read_delta
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


@pytest.mark.parametrize("condition", ["DELTA_SOURCE_TABLE_IGNORE_CHANGES", "DELTA_SOURCE_IGNORE_DELETE"])
def test_changed_rows_are_told_in_our_words_and_other_failures_are_left_alone(condition: str) -> None:
    found = not_append_only(RuntimeError(f"terminated with exception: [{condition}] Detected ..."), "t")
    assert found is not None
    assert str(found).startswith("[DELTA_NOT_APPEND_ONLY] rows of Delta table 't' were updated or deleted")
    assert not_append_only(RuntimeError("out of memory"), "t") is None


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


def test_a_table_whose_rows_were_changed_stops_the_flow_with_advice() -> None:
    enumerator, table = _enumerator()
    table.open.side_effect = PySparkException("[DELTA_SOURCE_IGNORE_DELETE] Detected deleted data")
    with pytest.raises(HeadraceError, match=r"^\[DELTA_NOT_APPEND_ONLY\] rows of Delta table 't'"):
        enumerator.plan(enumerator.initial(), most=None)


def _enumerator(start: Start = "earliest", *, newest: int = 7) -> tuple[DeltaEnumerator, Any]:
    table: Any = Mock()
    table.log.path = "t"
    table.log.version.return_value = newest
    return DeltaEnumerator(table, start), table


def test_what_spark_raises_is_an_error_with_an_id_and_its_words_without_the_trace() -> None:
    enumerator, table = _enumerator()
    said = "An error occurred while calling o5.latestOffset.\n: java.lang.IllegalStateException: no\n\tat org.spark.x"
    table.open.side_effect = PySparkException(said)
    with pytest.raises(HeadraceError, match=r"^\[SOURCE_FAILED\] Delta table 't': .*: java.lang.IllegalState.*: no$"):
        enumerator.plan(enumerator.initial(), most=None)
    with pytest.raises(HeadraceError, match=r"^\[RANGE_CHANGED\] Delta table 't': .*: java.lang.IllegalState.*: no$"):
        enumerator.frame(enumerator.initial(), {"version": None, "offset": {"n": 1}})


@pytest.mark.parametrize(
    ("said", "newest"),
    [
        (": java.io.FileNotFoundException: No such file", 7),
        (": java.lang.RuntimeException: no\n\tat a.b\nCaused by: java.net.ConnectException: refused", 7),
        (": org.apache.hadoop.fs.s3a.AWSServiceIOException: slow down", 7),
        # Delta takes a table that is away for an empty one.
        ("[DELTA_SCHEMA_NOT_SET] Table schema is not set.", -1),
    ],
)
def test_a_table_that_cannot_be_read_now_is_asked_again(said: str, newest: int) -> None:
    enumerator, table = _enumerator(newest=newest)
    table.open.side_effect = PySparkException(said)
    for _ in range(2):
        with pytest.raises(Unreachable):
            enumerator.plan(enumerator.initial(), most=None)
        with pytest.raises(Unreachable):
            enumerator.frame(enumerator.initial(), {"version": None, "offset": {"n": 1}})


@pytest.mark.parametrize(
    ("said", "id"),
    [(": java.io.IOException: away", "SOURCE_UNREACHABLE"), ("[DELTA_TRUNCATED_TRANSACTION_LOG] no", "SOURCE_FAILED")],
)
def test_a_table_that_cannot_be_read_at_the_definition_is_an_error_with_an_id(
    said: str, id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DeltaLog, "version", Mock(side_effect=PySparkException(said)))
    monkeypatch.setattr(DeltaLog, "exists", Mock(side_effect=PySparkException(said)))
    with pytest.raises(HeadraceError, match=rf"^\[{id}\] Delta table '.*/t'"):
        read_delta(Mock(), "t")


def test_a_job_that_could_not_read_a_file_is_an_outage_if_the_table_is_away_or_was() -> None:
    enumerator, table = _enumerator(newest=-1)
    failure = PySparkException("[FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file a.parquet")
    with pytest.raises(Unreachable):
        enumerator.was_away(failure)
    table.log.version.return_value = 7
    assert enumerator.was_away(failure)
    assert not enumerator.was_away(PySparkException("[CAST_INVALID_INPUT] no"))


def test_a_log_file_that_delta_misses_is_no_outage() -> None:
    enumerator, table = _enumerator()
    said = ": DeltaFileNotFoundException: [DELTA_LOG_FILE_NOT_FOUND_FOR_STREAMING_SOURCE] If you never ..."
    table.open.side_effect = PySparkException(f"{said}\n\tat a.b\nCaused by: java.io.FileNotFoundException: 3.json")
    with pytest.raises(HeadraceError, match="SOURCE_FAILED"):
        enumerator.plan(enumerator.initial(), most=None)


def test_while_the_table_is_away_no_flow_begins_or_ends_at_its_newest_version() -> None:
    enumerator, _ = _enumerator("latest", newest=-1)
    with pytest.raises(Unreachable, match="there is no Delta table at 't' now"):
        enumerator.initial()
    with pytest.raises(Unreachable, match="there is no Delta table at 't' now"):
        enumerator.plan({"version": 8, "offset": None}, most=None)


def test_a_run_over_what_is_there_ends_there_also_if_the_table_was_away_at_first() -> None:
    enumerator, table = _enumerator()
    source = table.open.return_value
    source.latestOffset.return_value = None
    source.prepareForTriggerAvailableNow.side_effect = [PySparkException(": java.io.IOException: away"), None]
    enumerator.stop_at_newest()
    with pytest.raises(Unreachable):
        enumerator.plan(enumerator.initial(), most=None)
    enumerator.plan(enumerator.initial(), most=None)
    assert source.prepareForTriggerAvailableNow.call_count == 2


@pytest.mark.parametrize(("start", "version"), [("earliest", None), ("latest", 8), (3, 3)])
def test_a_new_flow_begins_with_all_rows_those_behind_the_newest_version_or_those_of_a_version(
    start: Start, version: int | None
) -> None:
    table: Any = Mock()
    table.log.version.return_value = 7
    enumerator = DeltaEnumerator(table, start)
    assert enumerator.initial() == {"version": version, "offset": None}


def test_a_version_that_is_not_there_yet_is_waited_for() -> None:
    table: Any = Mock()
    table.log.version.return_value = 7
    since = {"version": 8, "offset": None}
    assert DeltaEnumerator(table, "latest").plan(since, most=None) == Planned(since)
    table.open.assert_not_called()


def test_a_batch_reads_up_to_the_offset_that_delta_gives_and_says_whether_more_waits() -> None:
    table: Any = Mock()
    offsets = [{"n": 1}, {"n": 2}, {"n": 2}, {"n": 2}, None]
    given = [None if offset is None else Mock(json=Mock(return_value=json.dumps(offset))) for offset in offsets]
    table.open.return_value.latestOffset.side_effect = given
    enumerator = DeltaEnumerator(table, "earliest")
    first = enumerator.plan(enumerator.initial(), most=None)
    assert first == Planned({"version": None, "offset": {"n": 1}}, {WHOLE: 1})
    second = enumerator.plan(first.until, most=None)
    assert second == Planned({"version": None, "offset": {"n": 2}})
    assert enumerator.plan(second.until, most=None) == second


@pytest.mark.parametrize("ends", [True, False])
def test_only_a_run_over_what_is_there_ends_at_the_newest_version(ends: bool) -> None:
    table: Any = Mock()
    table.open.return_value.latestOffset.return_value = None
    enumerator = DeltaEnumerator(table, "earliest")
    enumerator.plan(enumerator.initial(), most=None)
    if ends:
        enumerator.stop_at_newest()
    for _ in range(2):
        enumerator.plan(enumerator.initial(), most=None)
    assert table.open.return_value.prepareForTriggerAvailableNow.call_count == ends
