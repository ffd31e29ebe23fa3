"""The broadcast join step."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from headrace.checkpoint.storage import LocalStorage
from headrace.connectors.files.small_table import file_table
from headrace.errors import DefinitionError
from headrace.event_time.record import BatchRecord
from headrace.operators.joins.broadcast_join import broadcast_join
from headrace.schemas import MOMENT
from headrace.testing import at, batch, play
from headrace.wheel.task import Task
from tests.tasks import state_in_memory

ROWS = {"id": pl.Int64(), "n": pl.Int64(), "at": MOMENT}


@pytest.fixture
def table(tmp_path: Path) -> Any:
    pl.DataFrame({"id": [1], "level": ["gold"]}).write_parquet(tmp_path / "levels.parquet")
    return file_table(tmp_path / "levels.parquet")


def test_rows_keep_their_columns_and_get_those_of_the_table_and_its_version(table: Any) -> None:
    operator = broadcast_join("levels", table, on="id").bind(ROWS, "at")
    assert dict(operator.output_schema) == {**ROWS, "level": pl.String(), "levels_version": pl.Int64()}
    assert operator.gathered_by == ()


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"how": "full"}, "HOW_UNKNOWN"),
        ({"refresh": "0 seconds"}, "DURATION_NOT_POSITIVE"),
        ({"on": "n"}, "COLUMN_UNKNOWN"),
        ({"on": {"n": "level"}}, "JOIN_KEY_TYPES"),
    ],
)
def test_a_definition_that_makes_no_sense_is_refused(table: Any, given: dict[str, Any], error: str) -> None:
    with pytest.raises(DefinitionError, match=rf"\[{error}\]"):
        broadcast_join("levels", table, **{"on": "id", **given}).bind(ROWS, "at")


@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_key_of_minus_zero_leaves_as_zero_as_of_every_step(tmp_path: Path, how: Any) -> None:
    pl.DataFrame({"x": [0.0], "v": [1]}).write_parquet(tmp_path / "t.parquet")
    step = broadcast_join("t", file_table(tmp_path / "t.parquet"), on="x", how=how)
    (joined,) = play(step, at("10:00", x=-0.0), batch()).main
    assert (math.copysign(1, joined["x"]), joined["v"]) == (1, 1)


def test_something_else_than_a_table_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"\[TABLE_UNKNOWN\] .*hr\.temporal_join"):
        broadcast_join("levels", "levels.parquet", on="id")  # type: ignore[arg-type]


def test_an_event_time_with_the_name_of_the_version_is_refused(table: Any) -> None:
    with pytest.raises(DefinitionError, match=r"\[OUTPUT_NAME_TAKEN\] step 'levels': the event time"):
        broadcast_join("levels", table, on="id").bind({"id": pl.Int64(), "levels_version": MOMENT}, "levels_version")


def test_a_step_prints_itself_as_the_code_that_makes_it(table: Any) -> None:
    step = broadcast_join("levels", table, on="id", refresh="5 minutes", how="left")
    assert repr(step) == f"hr.broadcast_join('levels', {table!r}, on='id', refresh='5 minutes', how='left')"
    assert "every 5 minutes" in step.state_description
    assert step.state_description.endswith("at most table rows in each worker, 10,000 for a table of 10,000")


def test_a_worker_that_goes_on_with_another_checkpoint_in_the_same_place_reads_its_table(
    table: Any, tmp_path: Path
) -> None:
    operator = broadcast_join("levels", table, on="id").bind(ROWS, "at")
    record = BatchRecord(1, 0, {}, {}, {}, False, tables={"levels": 1})
    storage = LocalStorage(tmp_path)
    task = Task(record, "flow", 0, lambda *_: None, state_in_memory(storage=storage))
    rows = pl.DataFrame({"id": [1], "n": [2], "at": [None]}, schema=ROWS)
    found = []
    for level in ("gold", "tin"):
        content = io.BytesIO()
        pl.DataFrame({"id": [1], "level": [level]}).write_ipc(content)
        storage.write(task.table_file("levels"), content.getbuffer())
        found += [passed.rows["level"].item() for passed in operator.passed([rows], task)]
        storage.delete(task.table_file("levels"))
    assert found == ["gold", "tin"]
