"""A job that asks a service with another answer for every call, tasks of which run twice at once.

In the batches that ``--twice`` names, an attempt of a task asks only when the other attempt asks too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import uuid
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import SparkSession

import headrace as hr
from headrace.connectors.files.sink import FileSink
from tests.recovery.failpoints import crash, wrap

PER_BATCH = 1_000
"""The keys of a batch begin with its number times this."""
PATIENCE = 60.0


def service(root: Path, twice: frozenset[int]) -> Any:
    """A service that writes down what it answers to which attempt."""

    async def answered(key: int) -> dict[str, Any]:
        context, answer = TaskContext.get(), uuid.uuid4().hex
        assert context is not None
        (root / "asked" / f"{key}.{context.attemptNumber()}.{answer}").touch()
        deadline = asyncio.get_running_loop().time() + PATIENCE
        while key // PER_BATCH in twice and context.partitionId() == 0 and _attempts(root, key) < 2:
            if asyncio.get_running_loop().time() > deadline:
                raise TimeoutError("no second attempt has asked")
            await asyncio.sleep(0.02)
        return {"answer": answer}

    return answered


def _attempts(root: Path, key: int) -> int:
    return len({file.name.split(".")[1] for file in (root / "asked").glob(f"{key}.*")})


@hr.pipeline(name="recovery")
def enriched(spark: SparkSession, root: Path, twice: frozenset[int]) -> None:
    """The answers beside the rows that asked for them, and how often each was given."""
    rows = hr.read_files(
        spark, root / "in", format="json", schema="id BIGINT, at TIMESTAMP", name="rows", files_per_batch=1
    )
    answers = hr.lookup(
        "answers", service(root, twice), on="id", output="answer STRING", on_failure="stop", retries=0,
        timeout="2 minutes",
    )(rows.transform(hr.event_time("at")))  # fmt: skip
    given = hr.tumbling("given", size="1 hour", key="answer").agg(n="count(*)").late(hr.drop())
    hr.write(
        "spend",
        (answers, hr.to_files(root / "out" / "rows", format="parquet")),
        (given(answers), hr.to_files(root / "out" / "given", format="parquet")),
    )


def main() -> None:
    """Run to the end of the data, or die in a batch when the first of its two sinks has been written."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("root", type=Path)
    arguments.add_argument("--master", required=True)
    arguments.add_argument("--twice", type=int, nargs="*", default=[])
    arguments.add_argument("--die-in", type=int)
    arguments.add_argument("--marker", default="")
    arguments.add_argument("--setting", action="append", default=[], help="name=value, for the session")
    given = arguments.parse_args()
    (given.root / "asked").mkdir(exist_ok=True)
    if given.die_in is not None:
        group, batch = os.getpgrp(), given.die_in

        def is_first(file: Path, listing: bytes) -> bool:
            return ".answers.main-" in file.name and bool(json.loads(listing)["batch"] == batch)

        wrap(FileSink, "commit", is_first, after=lambda: crash(given.marker, group))
    settings = {"spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"]}
    settings |= dict(setting.split("=", 1) for setting in given.setting)
    spark = hr.spark_session("recovery", master=given.master, quick_start=True, settings=settings)
    enriched.run(
        checkpoint=given.root / "checkpoint",
        mode=hr.available_now(drain=True),
        spark=spark,
        root=given.root,
        twice=frozenset(given.twice),
    )
    spark.stop()


if __name__ == "__main__":
    main()
