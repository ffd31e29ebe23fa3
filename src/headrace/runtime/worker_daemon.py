"""Spark's Python daemon with the big libraries loaded once, before workers are forked from it."""

import pandas  # type: ignore[import-untyped]  # noqa: F401
import polars  # noqa: F401
import pyarrow  # noqa: F401
from pyspark import daemon

import headrace  # noqa: F401

if __name__ == "__main__":
    daemon.manager()
