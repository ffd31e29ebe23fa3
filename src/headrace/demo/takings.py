"""The demonstration's pipeline, written as any user would write it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import headrace as hr

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPEED = 60
PAYMENTS = hr.Payments(
    accounts=500,
    shops=8,
    disorder="20 seconds",
    late=0.003,
    delay="6 minutes",
    duplicates=0.01,
    broken=0.004,
    future=0.0005,
)


@hr.pipeline
def takings(spark: SparkSession, folder: str) -> None:
    """What each shop takes in a minute; a second by the clock brings a minute of payments."""
    payments = hr.generate(spark, PAYMENTS, rate=1000, speed=SPEED).transform(
        hr.event_time("at", out_of_order="30 seconds")
    )
    minutes = (
        hr.tumbling("minutes", size="1 minute", key="shop")
        .agg(payments="count(*)", spent="sum(amount)", largest="max(amount)")
        .late(hr.side_output())
        .outputs(payments)
    )
    hr.write(
        "takings",
        (minutes.main, hr.to_files(Path(folder) / "windows")),
        (minutes.late, hr.to_files(Path(folder) / "late")),
    )
