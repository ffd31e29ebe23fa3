"""A driver that runs a flow as often as it is told to: one command a line, one answer a line.

The process stays, with its Spark session, so that hundreds of starts take minutes. It may be frozen and killed.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import headrace as hr
from headrace.checkpoint import lease

EXPIRES_SECONDS, RENEWED_SECONDS = 2.0, 0.3
"""A driver that is frozen is replaced sooner than usual."""
SCHEMA = "id STRING, at TIMESTAMP"


def sink_of(kind: str, address: str, root: str, writers: int) -> Any:
    """The sink of a place; its topic, table or keys are called as its folder."""
    name = Path(root).name
    match kind:
        case "kafka":
            return hr.to_kafka(name, servers=address, key="id", writers=writers)
        case "postgres":
            return hr.to_postgres(name, dsn=address, writers=writers)
        case "redis":
            return hr.to_redis(address, key=f"{name}:{{id}}", writers=writers)
        case "delta":
            return hr.to_delta(f"{root}/table")
        case _:
            return hr.to_files(f"{root}/out")


@hr.pipeline(name="fork")
def rows_once(spark: SparkSession, root: str, sink: str, address: str, files_per_batch: int, writers: int) -> None:
    """Each row once, and the same row however batches are cut."""
    rows = hr.read_files(
        spark, f"{root}/in", format="json", schema=SCHEMA, name="rows", files_per_batch=files_per_batch
    )
    timed = rows.transform(hr.event_time("at", out_of_order="1 day"))
    once = hr.deduplicate("once", key="id", within="30 days").late(hr.drop())
    hr.write("fork", timed.transform(once), sink_of(sink, address, root, writers))


def hold_leases_for_a_shorter_time() -> None:
    """Of this process only."""
    this_process = lease.LeaseHolder.this_process

    def shorter(*given: Any, **how: Any) -> lease.LeaseHolder:
        return replace(this_process(*given, **how), expires=EXPIRES_SECONDS)

    lease.LeaseHolder.this_process = shorter  # type: ignore[method-assign]
    lease.RENEWED_SECONDS = RENEWED_SECONDS


def run(spark: SparkSession, checkpoint: str, **how: Any) -> str:
    """Run over what is there; the error that refuses it, or nothing. An error without an id ends the process."""
    try:
        rows_once.run(checkpoint=checkpoint, mode=hr.available_now(), spark=spark, **how)
    except hr.HeadraceError as problem:
        return str(problem)
    return ""


def main() -> None:
    """Answer until there are no more commands."""
    hold_leases_for_a_shorter_time()
    answers = sys.stdout
    sys.stdout = sys.stderr
    # Two drivers, for hours: their rows are few.
    memory = {"spark.driver.memory": "1g"}
    spark = hr.spark_session("fork", master="local[2,4]", quick_start=True, connectors=("delta",), settings=memory)
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(run(spark, **json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
