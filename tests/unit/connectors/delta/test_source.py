"""How rows of a Delta table come to the gate."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from unittest.mock import Mock

import polars as pl
import pytest

from headrace.connectors.base.decoding import POSITION
from headrace.connectors.delta.source import DeltaReader, not_append_only
from headrace.connectors.delta.table import DeltaLog
from headrace.errors import HeadraceError
from headrace.event_time.record import BatchRecord
from headrace.wheel.task import Task
from tests.tasks import state_in_memory

TASK = Task(BatchRecord(0, 77, {}, {}, {}, drain=False), "flow", "side", 0, lambda *_: None, state_in_memory())


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
