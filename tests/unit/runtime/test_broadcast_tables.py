"""Small tables where a flow is driven: which versions there are, and which of them stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from headrace.checkpoint.storage import LocalStorage
from headrace.connectors.files.small_table import file_table
from headrace.errors import HeadraceError
from headrace.event_time.record import BatchRecord
from headrace.observe.history import TableVersion
from headrace.operators.joins.broadcast_join import broadcast_join
from headrace.runtime.broadcast_tables import BroadcastTables

MINUTE = 60_000_000


@pytest.fixture
def source(tmp_path: Path) -> Path:
    file = tmp_path / "levels.parquet"
    write(file, "gold")
    return file


def write(file: Path, level: str) -> None:
    pl.DataFrame({"id": [1], "level": [level]}).write_parquet(file)


def started(folder: Path, source: Path) -> BroadcastTables:
    step = broadcast_join("levels", file_table(source), on="id")
    return BroadcastTables(LocalStorage(folder), [step, "another step"])


def stored(folder: Path) -> list[str]:
    return sorted(file.name for file in (folder / "tables" / "levels").iterdir())


def test_versions_stay_while_a_batch_may_need_them(tmp_path: Path, source: Path) -> None:
    tables = started(tmp_path, source)
    assert tables.versions(0) == {"levels": 1}
    write(source, "tin")
    assert tables.versions(MINUTE - 1) == {"levels": 1}
    assert tables.versions(MINUTE) == {"levels": 2}
    assert stored(tmp_path) == ["0000000001.arrow", "0000000002.arrow"]
    tables.forget({"levels": 1})
    assert stored(tmp_path) == ["0000000001.arrow", "0000000002.arrow"]
    tables.forget({"levels": 2})
    assert stored(tmp_path) == ["0000000002.arrow"]
    assert pl.read_ipc(tmp_path / "tables" / "levels" / "0000000002.arrow").rows() == [(1, "tin")]


def test_a_new_process_reads_the_table_at_once_and_goes_on_counting(tmp_path: Path, source: Path) -> None:
    started(tmp_path, source).versions(0)
    assert started(tmp_path, source).versions(1) == {"levels": 1}
    write(source, "tin")
    assert started(tmp_path, source).versions(2) == {"levels": 2}


def test_a_new_process_goes_on_with_the_version_that_is_kept_when_the_table_is_gone(
    tmp_path: Path, source: Path
) -> None:
    started(tmp_path, source).versions(0)
    again = started(tmp_path, source)
    assert again.steps["levels"].table_columns
    source.unlink()
    with pytest.warns(RuntimeWarning, match="goes on with version 1"):
        assert again.versions(1) == {"levels": 1}
    record = again.complete(BatchRecord(0, 1, {}, {}, {}, drain=False))
    assert "TABLE_UNREADABLE" in (again.read_in(record)["levels"].problem or "")
    write(source, "gold")
    again.versions(1 + MINUTE)
    assert again.read_in(record) == {"levels": TableVersion(1)}


@pytest.mark.parametrize("changed", [{"id": ["x"], "level": ["tin"]}, {"id": [1.5], "level": ["tin"]}])
def test_a_table_that_changed_a_type_counts_as_not_readable(
    tmp_path: Path, source: Path, changed: dict[str, list[Any]]
) -> None:
    tables = started(tmp_path, source)
    assert tables.versions(0) == {"levels": 1}
    pl.DataFrame(changed).write_parquet(source)
    with pytest.warns(RuntimeWarning, match="goes on with version 1 of its table: .*TABLE_TYPE"):
        assert tables.versions(MINUTE) == {"levels": 1}
    write(source, "tin")
    assert tables.versions(2 * MINUTE) == {"levels": 2}


def test_a_driver_that_was_replaced_does_not_change_the_version_that_its_successor_has_named(
    tmp_path: Path, source: Path
) -> None:
    replaced, successor = started(tmp_path, source), started(tmp_path, source)
    assert successor.versions(0) == {"levels": 1}
    write(source, "tin")
    assert replaced.versions(0) == {"levels": 2}
    assert pl.read_ipc(tmp_path / "tables" / "levels" / "0000000001.arrow").rows() == [(1, "gold")]
    assert pl.read_ipc(tmp_path / "tables" / "levels" / "0000000002.arrow").rows() == [(1, "tin")]


def test_a_version_that_a_batch_has_read_and_that_is_missing_is_refused(tmp_path: Path, source: Path) -> None:
    tables = started(tmp_path, source)
    record = BatchRecord(0, 0, {}, {}, {}, drain=False, tables=tables.versions(0))
    started(tmp_path, source).check(record)
    (tmp_path / "tables" / "levels" / "0000000001.arrow").unlink()
    with pytest.raises(HeadraceError, match=r"\[CHECKPOINT_INCOMPLETE\].*tables/levels/0000000001\.arrow is missing"):
        started(tmp_path, source).check(record)


def test_a_clock_that_was_set_back_does_not_keep_a_table_from_being_read(tmp_path: Path, source: Path) -> None:
    tables = started(tmp_path, source)
    tables.versions(1_000 * MINUTE)
    write(source, "tin")
    assert tables.versions(5 * MINUTE) == {"levels": 2}
