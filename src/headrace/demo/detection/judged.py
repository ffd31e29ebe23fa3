"""Running a detector over planted cases and near misses, and judging what it found."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from headrace.connectors.files.sink import to_files
from headrace.connectors.files.source import read_files
from headrace.demo.detection.plot import OUT_OF_ORDER
from headrace.demo.detection.stories import Detection
from headrace.event_time.strategy import between, event_time
from headrace.observe.committed import committed_rows
from headrace.runtime.modes import available_now
from headrace.runtime.pipeline import Pipeline
from headrace.runtime.session import spark_session
from headrace.runtime.write import write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES = 8


@dataclass(frozen=True, slots=True)
class Judged:
    """What a detector made of each story, and how good that is."""

    stories: pl.DataFrame
    rows: int
    recall: float
    precision: float

    @property
    def perfect(self) -> bool:
        """Whether every case was found once and nothing else."""
        return self.recall == 1.0 and self.precision == 1.0


def judge(detection: Detection, folder: Path, *, keys: int, seed: int = 1) -> Judged:
    """Plant cases, run the detector over them as a pipeline, and compare."""
    rows, cases, near_misses = detection.plot.planted(keys, seed)
    landing = folder / "rows"
    landing.mkdir(parents=True)
    for number, part in enumerate(rows.iter_slices(-(-rows.height // FILES))):
        file = landing / f"{number:03d}.parquet"
        part.write_parquet(file)
        # Files are read in the order of their times, and these were written within one tick of the clock.
        os.utime(file, (number, number))

    def detect(spark: SparkSession) -> None:
        frame = read_files(spark, landing, format="parquet", schema=detection.schema, name="rows", files_per_batch=1)
        timed = frame.transform(event_time("at", out_of_order=OUT_OF_ORDER, accept=between(max_future=None)))
        write("detected", detection.step()(timed), to_files(folder / "found"))

    spark = spark_session("headrace-detect", master="local[2]", quick_start=True)
    Pipeline(detect, "detect").run(checkpoint=folder / "checkpoint", mode=available_now(), spark=spark)
    found = Counter(row[detection.plot.key] for row in committed_rows(folder / "found").rows(named=True))
    return _judged(found, cases, near_misses, rows.height)


def _judged(found: Counter[Any], cases: dict[str, str], near_misses: dict[str, str], rows: int) -> Judged:
    right = sum(min(found[key], 1) for key in cases)
    told = Counter(dict.fromkeys((*cases.values(), *near_misses.values()), 0))
    for key, times in found.items():
        told[{**cases, **near_misses}.get(key, "others")] += times
    planted = Counter([*cases.values(), *near_misses.values()])
    stories = pl.DataFrame(
        [
            {"story": name, "keys": planted[name], "to find": name in cases.values(), "alerts": told[name]}
            for name in told
        ]
    )
    alerts = sum(found.values())
    return Judged(stories, rows, right / len(cases), right / alerts if alerts else 0.0)
