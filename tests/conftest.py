"""What every test may ask for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import headrace as hr


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options must be known before any folder is collected, so this one is not beside the timelines that use it."""
    parser.addoption(
        "--engine",
        choices=("inline", "spark", "both"),
        default="both",
        help="timelines: all of them inline; all of them on Spark; or (default) all inline, and on Spark as well "
        "those that are marked",
    )


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One local Spark session for the whole run; a failed task is tried again, as on a cluster."""
    session = hr.spark_session("tests", master="local[2,3]", quick_start=True)
    yield session
    session.stop()
