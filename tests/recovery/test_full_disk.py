"""A disk that is full: the flow waits until there is room, and everything is there once."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import headrace as hr
from headrace.checkpoint.storage import LocalStorage
from headrace.observe import history
from headrace.observe.committed import committed_rows
from tests.recovery.conftest import FOLDER, environment
from tests.recovery.disk_job import wait_for

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("part", ["log", "sources", "history.jsonl"])
def test_a_driver_that_cannot_write_waits_and_goes_on_and_its_process_may_start_again(
    part: str, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing, checkpoint, refused = tmp_path / "in", tmp_path / "checkpoint", list[Path]()
    landing.mkdir()
    (landing / "1.json").write_text('{"id": "1"}\n')

    @hr.pipeline(name="copy")
    def copy(spark: SparkSession) -> None:
        rows = hr.read_files(spark, landing, format="json", schema="id STRING", name="rows")
        hr.write("copy", rows, hr.to_files(tmp_path / "out"))

    def full(file: Path) -> None:
        if part in file.parts and len(refused) < 3:
            refused.append(file)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(file))

    write, append = LocalStorage._write, history.append

    def writing(at: LocalStorage, file: Path, content: Any) -> None:
        full(file)
        write(at, file, content)

    def appending(at: Path, entry: history.HistoryEntry) -> None:
        full(at / history.FILE)
        append(at, entry)

    monkeypatch.setattr("headrace.runtime.flow.ROOM_SECONDS", 0.01)
    running = copy.start(checkpoint=checkpoint, mode=hr.micro_batch("20 milliseconds"), spark=spark)
    wait_for(lambda: history.newest(checkpoint / "copy") is not None, "the first batch is done")
    monkeypatch.setattr(LocalStorage, "_write", writing)
    monkeypatch.setattr(history, "append", appending)
    (landing / "2.json").write_text('{"id": "2"}\n')
    wait_for(lambda: refused and committed_rows(tmp_path / "out").height == 2, "there is room")
    running.stop()
    (landing / "3.json").write_text('{"id": "3"}\n')
    copy.run(checkpoint=checkpoint, mode=hr.available_now(), spark=spark)
    assert sorted(committed_rows(tmp_path / "out")["id"]) == ["1", "2", "3"]


def test_a_flow_that_waits_for_room_can_be_stopped_and_a_start_on_a_full_disk_is_refused(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing, checkpoint, refused = tmp_path / "in", tmp_path / "checkpoint", list[Path]()
    landing.mkdir()
    (landing / "1.json").write_text('{"id": "1"}\n')

    @hr.pipeline(name="copy")
    def copy(spark: SparkSession) -> None:
        rows = hr.read_files(spark, landing, format="json", schema="id STRING", name="rows")
        hr.write("copy", rows, hr.to_files(tmp_path / "out"))

    def full(_: LocalStorage, file: Path, content: object) -> None:
        refused.append(file)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(file))

    running = copy.start(checkpoint=checkpoint, mode=hr.micro_batch("20 milliseconds"), spark=spark)
    wait_for(lambda: history.newest(checkpoint / "copy") is not None, "the first batch is done")
    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "_write", full)
        (landing / "2.json").write_text('{"id": "2"}\n')
        wait_for(lambda: any("sources" in file.parts for file in refused), "the disk is full")
        running.stop()
        for _ in range(2):
            with pytest.raises(hr.HeadraceError, match=r"\[DISK_FULL\]"):
                copy.start(checkpoint=checkpoint, spark=spark)
    copy.run(checkpoint=checkpoint, mode=hr.available_now(), spark=spark)
    assert sorted(committed_rows(tmp_path / "out")["id"]) == ["1", "2"]


@pytest.mark.full
@pytest.mark.timeout(900)
def test_a_disk_that_is_full_again_and_again_loses_and_doubles_nothing(tmp_path: Path) -> None:
    command = ["unshare", "--mount", "--map-root-user", sys.executable, "-m", "tests.recovery.disk_job", str(tmp_path)]
    result = subprocess.run(
        command, capture_output=True, text=True, env=environment(), cwd=FOLDER.parents[1], check=False
    )
    assert result.returncode == 0, result.stderr[-4000:]
    assert "everything is there once" in result.stdout
