"""What every test may ask for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import headrace as hr


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One local Spark session for the whole run; a failed task is tried again, as on a cluster."""
    session = hr.spark_session("tests", master="local[2,3]", quick_start=True)
    yield session
    session.stop()
