"""Delta: our commit with a mark beside Spark's own append."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import functions as F

from benchmarks.sinks.cases import Case, Digest, Way
from benchmarks.sinks.rows import Rows
from headrace import to_delta
from headrace.connectors.base.sink import BatchIdentity


@contextmanager
def delta_case(rows: Rows, root: Path) -> Iterator[Case]:
    """Batches appended to a table."""
    ours, sparks = str(root / "delta-ours"), str(root / "delta-sparks")
    sink = to_delta(ours)

    def write_ours(batch: int) -> None:
        sink.write(rows.frame(batch), BatchIdentity("sinks", 0, batch, "main", "sinks", 1))

    def write_sparks(batch: int) -> None:
        rows.frame(batch).write.format("delta").mode("append").save(sparks)

    def digest(path: str) -> Digest:
        table = rows.kept.sparkSession.read.format("delta").load(path)
        hashed = F.xxhash64(*table.columns).cast("decimal(38,0)")
        number, total = table.agg(F.count("*"), F.sum(hashed)).first() or (0, 0)
        return int(number), str(total)

    yield Case(
        "delta_vs_spark",
        Way("to_delta", write_ours, lambda: digest(ours)),
        (Way("Spark's append", write_sparks, lambda: digest(sparks)),),
    )
