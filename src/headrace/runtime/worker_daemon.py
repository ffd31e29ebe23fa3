"""Spark's Python daemon with the big libraries loaded once, before workers are forked from it."""

import gc

import polars
import pyarrow
from pyspark import daemon

import headrace.expressions
import headrace.wheel.spark
import headrace.wheel.turn

if __name__ == "__main__":
    # Python would look through all that the libraries consist of whenever many objects have been made.
    gc.freeze()
    daemon.manager()
