"""Ready-made detectors, judged on rows with planted cases and near misses."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import product
from math import degrees
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
from pyspark.sql import SparkSession

from headrace import detectors
from headrace.connectors.files.sink import to_files
from headrace.connectors.files.source import read_files
from headrace.detectors import EARTH_KILOMETRES
from headrace.event_time.strategy import event_time, valid_times
from headrace.observe.committed import committed_rows
from headrace.runtime.modes import available_now
from headrace.runtime.pipeline import Pipeline
from headrace.runtime.session import spark_session
from headrace.runtime.write import write
from headrace.schemas import MOMENT

BEGINNING = datetime(2026, 3, 1, tzinfo=UTC)
OUT_OF_ORDER = timedelta(minutes=2)
MICROSECOND, MINUTE = timedelta(microseconds=1), timedelta(minutes=1)
FILES = 8
Story = Sequence[tuple[timedelta, dict[str, Any]]]
"""What happens to one key: when after its beginning, and the columns of the row."""


@dataclass(frozen=True, slots=True)
class Detection:
    """A detector with the rows that try it: stories to be found, and those that are nearly so or not at all."""

    step: Callable[[], Any]
    schema: str
    """The columns of the rows, the key first."""
    cases: dict[str, Story]
    near_misses: dict[str, Story]
    spread: timedelta = timedelta(hours=6)
    """Over how long the stories begin."""

    @property
    def key(self) -> str:
        return self.schema.partition(" ")[0]

    def planted(self, keys: int, seed: int) -> tuple[pl.DataFrame, dict[str, str]]:
        """Rows of this many keys for each story, out of order within the bound; and which key has which story.

        The last row has its own key and moves event time past all others.
        """
        chance = Random(seed)
        story_of: dict[str, str] = {}
        rows: list[tuple[datetime, dict[str, Any]]] = []
        for (name, story), number in product([*self.cases.items(), *self.near_misses.items()], range(keys)):
            key = f"{name.replace(' ', '-')}-{number}"
            story_of[key] = name
            begins = BEGINNING + self.spread * chance.random()
            rows += [(begins + after, {self.key: key, **columns}) for after, columns in story]
        arrival = sorted(rows, key=lambda row: row[0] + OUT_OF_ORDER * 0.9 * chance.random())
        closing = max(at for at, _ in rows) + OUT_OF_ORDER + timedelta(seconds=1)
        found = [{"at": at, **columns} for at, columns in arrival] + [{"at": closing, self.key: "end"}]
        return pl.DataFrame(found, schema_overrides={"at": MOMENT}), story_of


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
    rows, story_of = detection.planted(keys, seed)
    landing = folder / "rows"
    landing.mkdir(parents=True)
    for number, part in enumerate(rows.iter_slices(-(-rows.height // FILES))):
        file = landing / f"{number:03d}.parquet"
        part.write_parquet(file)
        # Files are read in the order of their times, and these were written within one tick of the clock.
        os.utime(file, (number, number))

    def detect(spark: SparkSession) -> None:
        frame = read_files(spark, landing, format="parquet", schema=detection.schema, name="rows", files_per_batch=1)
        timed = frame.transform(event_time("at", out_of_order=OUT_OF_ORDER, accept=valid_times(max_future=None)))
        write("detected", detection.step()(timed), to_files(folder / "found"))

    spark = spark_session("headrace-detect", master="local[2]", quick_start=True, log=folder / "spark.log")
    Pipeline(detect, "detect").run(checkpoint=folder / "checkpoint", mode=available_now(), spark=spark)
    alerts = [row[detection.key] for row in committed_rows(folder / "found").rows(named=True)]
    keys_of, alerts_of = Counter(story_of.values()), Counter(story_of.get(key, "others") for key in alerts)
    stories = pl.DataFrame(
        [
            {"story": name, "keys": keys_of[name], "to find": name in detection.cases, "alerts": alerts_of[name]}
            for name in {**keys_of, **alerts_of}
        ]
    )
    cases = {key for key, story in story_of.items() if story in detection.cases}
    right = len(cases.intersection(alerts))
    return Judged(stories, rows.height, right / len(cases), right / len(alerts) if alerts else 0.0)


def _even(column: str, last: timedelta, *values: object) -> Story:
    """Values in equal steps, the last at ``last``."""
    return [(last * number / (len(values) - 1), {column: value}) for number, value in enumerate(values)]


def _logins(last: timedelta, outcomes: str) -> Story:
    """Failures (``-``) and successes (``+``)."""
    return _even("succeeded", last, *(each == "+" for each in outcomes))


def _flight(speed: float) -> Story:
    """Two logins on one meridian, half an hour apart, at this speed in kilometres an hour."""
    north = degrees(speed * 0.5 / EARTH_KILOMETRES)
    return [
        (0 * MINUTE, {"latitude": 1.5, "longitude": 7.25}),
        (30 * MINUTE, {"latitude": 1.5 + north, "longitude": 7.25}),
    ]


def _beats(*, silence: timedelta | None) -> Story:
    """A heartbeat every minute for three hours, but for one silence."""
    before = [MINUTE * number for number in range(60)]
    resumed = before[-1] + (MINUTE if silence is None else silence)
    after = [resumed + MINUTE * number for number in range((180 * MINUTE - resumed) // MINUTE)]
    return [(at, {"beat": 1}) for at in (*before, *after)]


def _temperatures(*values: tuple[timedelta, float]) -> Story:
    return [(at, {"celsius": value}) for at, value in values]


def _statuses(first: timedelta, second: timedelta, *, order: str = "ordered paid sent") -> Story:
    times = (timedelta(0), first, first + second)
    return [(at, {"status": status}) for at, status in zip(times, order.split(), strict=True)]


DETECTIONS: dict[str, Detection] = {
    "failed-logins": Detection(
        lambda: detectors.failed_logins("detected", key="user"),
        "user STRING, at TIMESTAMP, succeeded BOOLEAN",
        {
            "five failures": _logins(9 * MINUTE, "-----+"),
            "nine failures": _logins(5 * MINUTE, "---------+"),
            "five in time": _logins(10 * MINUTE - MICROSECOND, "-----+"),
        },
        {
            "four failures": _logins(9 * MINUTE, "----+"),
            "five too slow": _logins(10 * MINUTE, "-----+"),
            "no success": _logins(9 * MINUTE, "-------"),
            "success between": _logins(7 * MINUTE, "---+---+"),
        },
    ),
    "impossible-travel": Detection(
        lambda: detectors.impossible_travel("detected", key="user"),
        "user STRING, at TIMESTAMP, latitude DOUBLE, longitude DOUBLE",
        {"901 km an hour": _flight(901.0), "9000 km an hour": _flight(9000.0)},
        {"899 km an hour": _flight(899.0), "at home": _flight(0.0)},
    ),
    "card-testing": Detection(
        lambda: detectors.card_testing("detected", key="card"),
        "card STRING, at TIMESTAMP, amount DOUBLE",
        {
            "three probes": _even("amount", 9 * MINUTE, 1.0, 1.5, 0.5, 10.01),
            "purchase between": _even("amount", 9 * MINUTE, 1.0, 1.0, 5.0, 1.0, 250.0),
            "strike in time": _even("amount", 10 * MINUTE - MICROSECOND, 1.0, 1.0, 1.0, 500.0),
        },
        {
            "two probes": _even("amount", 9 * MINUTE, 1.0, 1.5, 500.0),
            "ten times": _even("amount", 9 * MINUTE, 1.0, 1.5, 0.5, 10.0),
            "strike too late": _even("amount", 10 * MINUTE, 1.0, 1.0, 1.0, 500.0),
            "no strike": _even("amount", 9 * MINUTE, 1.0, 1.0, 1.0, 1.0, 1.0),
        },
    ),
    "missing-heartbeat": Detection(
        lambda: detectors.missing_heartbeat("detected", key="device", gap="5 minutes"),
        "device STRING, at TIMESTAMP, beat INT",
        {"silent": _beats(silence=60 * MINUTE), "gap and a microsecond": _beats(silence=5 * MINUTE + MICROSECOND)},
        {"always there": _beats(silence=None), "gap less a microsecond": _beats(silence=5 * MINUTE - MICROSECOND)},
        spread=timedelta(0),
    ),
    "threshold-held": Detection(
        lambda: detectors.threshold_held("detected", key="device", value="celsius", above=80.0, held="10 minutes"),
        "device STRING, at TIMESTAMP, celsius DOUBLE",
        {
            "ten minutes": _temperatures((0 * MINUTE, 80.1), (4 * MINUTE, 99.0), (10 * MINUTE, 20.0)),
            "no end": _temperatures((0 * MINUTE, 70.0), (1 * MINUTE, 90.0), (12 * MINUTE, 90.0)),
        },
        {
            "a microsecond less": _temperatures((0 * MINUTE, 80.1), (10 * MINUTE - MICROSECOND, 20.0)),
            "at the limit": _temperatures((0 * MINUTE, 80.0), (20 * MINUTE, 80.0)),
            "a moment below": _temperatures(
                (0 * MINUTE, 90.0), (6 * MINUTE, 80.0), (7 * MINUTE, 90.0), (15 * MINUTE, 70.0)
            ),
        },
    ),
    "sequence": Detection(
        lambda: detectors.sequence(
            "detected",
            key="order_id",
            steps={"ordered": "status = 'ordered'", "paid": "status = 'paid'", "sent": "status = 'sent'"},
            gap="1 hour",
            within="3 hours",
        ),
        "order_id STRING, at TIMESTAMP, status STRING",
        {
            "in order": _statuses(30 * MINUTE, 20 * MINUTE),
            "gap less a microsecond": _statuses(60 * MINUTE - MICROSECOND, 60 * MINUTE - MICROSECOND),
        },
        {
            "gap": _statuses(60 * MINUTE, 5 * MINUTE),
            "gap and a microsecond": _statuses(5 * MINUTE, 60 * MINUTE + MICROSECOND),
            "other order": _statuses(5 * MINUTE, 5 * MINUTE, order="paid ordered sent"),
        },
    ),
}
