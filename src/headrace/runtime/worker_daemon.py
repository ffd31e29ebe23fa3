"""Spark's Python daemon with the big libraries loaded once, before workers are forked from it."""

import gc

import pandas  # type: ignore[import-untyped]  # noqa: F401
import polars  # noqa: F401
import pyarrow  # noqa: F401
from pyspark import daemon

import headrace.expressions
import headrace.wheel.spark
import headrace.wheel.turn  # noqa: F401

if __name__ == "__main__":
    # Python would look through all that the libraries consist of whenever many objects have been made.
    gc.freeze()
    daemon.manager()
