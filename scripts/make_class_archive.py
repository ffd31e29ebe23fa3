"""Makes an archive of the JVM classes that a small streaming query loads, so that later starts are quick.

The JVM writes it when it ends (`-XX:ArchiveClassesAtExit`); sessions use it by `-XX:SharedArchiveFile`.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

PATIENCE = 180


def pack(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    for batch in batches:
        slots = pyarrow.array([0, 1], pyarrow.int32())
        blobs = pyarrow.array([bytes(batch.num_rows), b""], pyarrow.binary())
        yield pyarrow.RecordBatch.from_arrays([slots, blobs], ["slot", "blob"])


def unpack(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    yield from batches


def start_session(archive: Path, folder: str) -> SparkSession:
    return (
        SparkSession.builder.master("local[2]")
        .appName("class archive")
        .config(
            "spark.driver.extraJavaOptions",
            # Quiet: the JVM lists every class that cannot be archived, hundreds of generated ones among them.
            f"-XX:ArchiveClassesAtExit={archive} -XX:TieredStopAtLevel=1 -Xlog:disable",
        )
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
        .getOrCreate()
    )


def run_small_query(spark: SparkSession, folder: str) -> None:
    spark.range(100).selectExpr("id", "cast(id AS STRING) AS name").write.parquet(f"{folder}/in")

    def write(batch: DataFrame, _: int) -> None:
        batch.write.mode("append").parquet(f"{folder}/out")
        batch.collect()

    (
        spark.readStream.schema("id LONG, name STRING")
        .parquet(f"{folder}/in")
        .mapInArrow(pack, "slot INT, blob BINARY")
        .repartitionById(1, F.pmod("slot", F.lit(1)).cast("int"))
        .mapInArrow(unpack, "slot INT, blob BINARY")
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )


def end_jvm() -> None:
    """Closes the JVM's input, its sign to end, and waits until it has written the archive."""
    process = SparkContext._gateway.proc  # type: ignore[union-attr]
    process.stdin.close()
    process.wait(PATIENCE)


def main() -> None:
    archive = Path(sys.argv[1]).absolute()
    unfinished = archive.with_suffix(".unfinished")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory() as folder, Path(os.devnull).open("w") as nothing:
        os.environ["SPARK_LOCAL_DIRS"] = folder
        # The JVM inherits both, and what it says is of no use to whoever runs the set-up.
        os.dup2(nothing.fileno(), sys.stdout.fileno())
        os.dup2(nothing.fileno(), sys.stderr.fileno())
        archive.unlink(missing_ok=True)
        unfinished.unlink(missing_ok=True)
        spark = start_session(unfinished, folder)
        run_small_query(spark, folder)
        spark.stop()
        end_jvm()
    unfinished.rename(archive)


if __name__ == "__main__":
    main()
