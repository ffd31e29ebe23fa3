"""A landing folder while a flow reads it: files come, change and go, and so does the folder."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import headrace as hr
from headrace.observe.committed import committed_rows
from headrace.observe.status import statuses
from tests.integration.conftest import SCHEMA

pytestmark = pytest.mark.spark


def _until(said: Callable[[], bool]) -> None:
    until = time.monotonic() + 120
    while not said():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.05)


@pytest.mark.full
def test_files_and_their_folder_may_come_and_go_and_every_row_is_read_once(place: Any, spark: SparkSession) -> None:
    kept = f"read {place.root}"

    @hr.pipeline(name="read")
    def read(spark: SparkSession) -> None:
        rows = hr.read_files(spark, place.landing, format="json", schema=SCHEMA, name="payments")
        hr.write("read", rows, hr.to_memory(kept))

    def ids() -> list[str]:
        return sorted(row["id"] for row in hr.memory(kept))

    def waiting() -> list[str]:
        return [text for flow in statuses(place.checkpoint) for text in flow.waiting]

    place.land("1", ("1", "a", 5, "10:05:00"))
    place.land("2", ("2", "a", 5, "10:06:00"))
    running = read.start(checkpoint=place.checkpoint, mode=hr.micro_batch("100 milliseconds"), spark=spark)
    try:
        _until(lambda: ids() == ["1", "2"])
        (place.landing / "1.json").unlink()
        # A file that is written again is another file.
        place.land("2", ("another", "a", 5, "10:06:00"))
        place.land("3", ("3", "a", 5, "10:07:00"))
        _until(lambda: ids() == ["1", "2", "3", "another"])
        away = place.landing.rename(place.root / "away")
        _until(lambda: [str(place.landing) in text for text in waiting()] == [True])
        away.rename(place.landing)
        place.land("4", ("4", "a", 5, "10:08:00"))
        _until(lambda: ids() == ["1", "2", "3", "4", "another"])
        assert waiting() == []
    finally:
        running.stop()
    assert ids() == ["1", "2", "3", "4", "another"]


GLOBS = {"in [x]": "in x", "in{a}": "ina", "in*": "in y"}
"""Names of folders, and what they would match if they were patterns."""


def _land(folder: Path, name: str, *, modified: int) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps({"id": f"{folder.name} {name}"}) + "\n")
    os.utime(folder / name, (modified, modified))


def test_names_of_folders_are_no_patterns_and_a_file_from_the_future_hides_no_later_one(
    place: Any, spark: SparkSession
) -> None:
    kept = f"globs {place.root}"

    @hr.pipeline(name="globs")
    def globs(spark: SparkSession) -> None:
        for number, name in enumerate(GLOBS):
            rows = hr.read_files(spark, place.root / name, format="json", schema="id STRING", name=f"source{number}")
            hr.write(f"copy{number}", rows, hr.to_memory(kept))

    def run() -> list[str]:
        globs.run(checkpoint=place.checkpoint, mode=hr.available_now(), spark=spark)
        return sorted(row["id"] for row in hr.memory(kept))

    for name, neighbour in GLOBS.items():
        _land(place.root / neighbour, "other.json", modified=1_700_000_000)
        _land(place.root / name, "_hidden.json", modified=1_700_000_000)
        _land(place.root / name, "future.json", modified=16_000_000_000)
    with pytest.warns(RuntimeWarning, match=r"source 'source\d' passes over files .*\(1\): .*/_hidden\.json\.") as told:
        assert run() == sorted(f"{name} future.json" for name in GLOBS)
    assert len(told) == len(GLOBS)
    for name in GLOBS:
        _land(place.root / name, "later.json", modified=1_700_000_001)
        (place.root / name / "_hidden.json").rename(place.root / name / "named.json")
    assert run() == sorted(f"{name} {file}.json" for name in GLOBS for file in ("_hidden", "future", "later"))


def test_a_parquet_file_that_nobody_can_read_is_a_dead_letter_and_the_flow_goes_on(
    place: Any, spark: SparkSession
) -> None:
    kept = f"unreadable {place.root}"

    @hr.pipeline(name="read")
    def read(spark: SparkSession) -> None:
        rows = hr.read_files(
            spark, place.landing, format="parquet", schema="v STRING", name="values", files_per_batch=1
        )
        hr.write("read", rows, hr.to_memory(kept))

    values = {
        "1": pa.array(["one"]),
        "2": pa.array([0], pa.timestamp("us", "Mars/Olympus")),
        "3": pa.array([Decimal("1.5")], pa.decimal256(60, 2)),
        "4": pa.array(["four"]),
    }
    for name, array in values.items():
        pq.write_table(pa.table({"v": array}), place.landing / f"{name}.parquet")
    read.run(checkpoint=place.checkpoint, mode=hr.available_now(), spark=spark)
    assert [row["v"] for row in hr.memory(kept)] == ["one", "four"]
    letters = committed_rows(place.checkpoint / "read" / "dead_letters")
    assert [(Path(file).name, reason) for file, reason in letters.select("origin", "reason").rows()] == [
        ("2.parquet", "FILE_UNREADABLE"),
        ("3.parquet", "FILE_UNREADABLE"),
    ]


class FailsOnce:
    """A sink behind another one that fails in its first batch."""

    guarantee = "at_least_once"

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.fails = True

    def write(self, frame: DataFrame, batch: hr.BatchIdentity) -> hr.Written:
        if self.fails:
            self.fails = False
            raise hr.HeadraceError("DISK_FULL", "no space is left.")
        self.ids += sorted(row["id"] for row in frame.collect())
        return hr.Written(len(self.ids), len(self.ids))


def test_a_batch_that_runs_again_stops_until_its_files_are_as_they_were(place: Any, spark: SparkSession) -> None:
    second = FailsOnce()

    @hr.pipeline(name="read")
    def read(spark: SparkSession) -> None:
        rows = hr.read_files(spark, place.landing, format="json", schema=SCHEMA, name="payments")
        hr.write("read", rows, hr.to_files(place.root / "out"), second)

    def run() -> None:
        read.run(checkpoint=place.checkpoint, mode=hr.available_now(), spark=spark)

    place.land("1", ("1", "a", 5, "10:05:00"))
    place.land("2", ("2", "a", 5, "10:06:00"))
    file, kept = place.landing / "2.json", place.root / "kept"
    shutil.copy2(file, kept)
    with pytest.raises(hr.HeadraceError, match="DISK_FULL"):
        run()
    place.land("2", ("another", "a", 5, "10:06:00"))
    with pytest.raises(hr.HeadraceError, match=r"^\[RANGE_CHANGED\] batch 0 .*2\.json' was written again since"):
        run()
    file.unlink()
    with pytest.raises(hr.HeadraceError, match=r"^\[RANGE_CHANGED\] batch 0 of flow 'read' .*2\.json' is gone, "):
        run()
    shutil.copy2(kept, file)
    run()
    assert second.ids == sorted(committed_rows(place.root / "out")["id"]) == ["1", "2"]
    assert not (place.checkpoint / "read" / "dead_letters").exists()


def test_an_output_folder_that_is_removed_between_batches_ends_the_flow(place: Any, spark: SparkSession) -> None:
    out = place.root / "out"

    @hr.pipeline(name="copy")
    def copy(spark: SparkSession) -> None:
        rows = hr.read_files(spark, place.landing, format="json", schema=SCHEMA, name="payments")
        hr.write("copy", rows, hr.to_files(out))

    place.land("1", ("1", "a", 5, "10:05:00"))
    running = copy.start(checkpoint=place.checkpoint, mode=hr.micro_batch("100 milliseconds"), spark=spark)
    _until(lambda: [flow.batch for flow in statuses(place.checkpoint)] == [0])
    shutil.rmtree(out)
    place.land("2", ("2", "a", 5, "10:06:00"))
    with pytest.raises(hr.HeadraceError, match=r"^\[MARK_LOST\] folder '.*out': .* should be batch 0 or 1, found none"):
        running.wait()
    with pytest.raises(hr.HeadraceError, match=r"^\[MARK_LOST\] folder '.*out'"):
        copy.run(checkpoint=place.checkpoint, mode=hr.available_now(), spark=spark)
    assert not out.exists()
