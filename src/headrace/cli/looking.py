"""A Spark session for verbs that only look at a pipeline: started quickly, and silent unless something breaks."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.demo.quiet import standard_error_in
from headrace.errors import HeadraceError
from headrace.runtime.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def looking_session(name: str) -> Iterator[SparkSession]:
    """A session that defines plans and runs nothing; what Spark said is shown after an unexpected failure."""
    if sys.stderr.isatty():
        print("Starting Spark ...", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="headrace-") as folder:
        log = Path(folder) / "spark.log"
        try:
            with standard_error_in(log):
                session = spark_session(name, master="local[1]", quick_start=True)
                yield session
                session.stop()
        except HeadraceError:
            raise
        except BaseException:
            sys.stderr.write(log.read_text(encoding="utf-8", errors="replace"))
            raise
