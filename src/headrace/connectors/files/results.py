"""``hr.read_results``: what ``hr.to_files`` has written, as a table; without Spark for the command line."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import reduce
from pathlib import Path
from typing import Any

import polars as pl
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.changelog import DELETE, SETTING, UPDATE_BEFORE
from headrace.connectors.base.delivery import quoted
from headrace.connectors.files.batch_listing import read_listing
from headrace.errors import DefinitionError
from headrace.nodes import ResultVersions
from headrace.stability import stable
from headrace.storage import COMMITS

_BATCH, _ROW = "__batch", "__row"
_PATTERN = re.compile(r"[\[\]{}*?\\]")
"""What Spark would take for a pattern in the name of a file."""


class Results:
    """The batches of a folder, oldest first, and their rows."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._root = Path(path).absolute()
        self._place = f"folder {os.fspath(path)!r}"
        # Names end with generation and number.
        names = sorted((commit.stem.rsplit("-", 2)[1:], commit) for commit in self._root.glob(f"{COMMITS}/[!.]*.json"))
        if not names:
            raise DefinitionError(
                "RESULTS_MISSING",
                f"{self._place} holds no results. Give the folder that hr.to_files(...) writes, and wait for its first "
                "batch with rows.",
            )
        self._commits = [commit for _, commit in names]
        self.listings = [read_listing(commit) for commit in self._commits]

    @property
    def rows(self) -> int:
        return sum(listing.rows for listing in self.listings)

    def on_spark(self, spark: SparkSession, *, latest: bool) -> DataFrame:
        """All rows, or of each result the last version."""
        versions = self._versions() if latest else None
        kinds: dict[tuple[str, str], list[str]] = defaultdict(list)
        for listing in self.listings:
            files = (_PATTERN.sub(r"\\\g<0>", f"{self._root}/{file}") for file in listing.files)
            kinds[listing.format, listing.schema] += files
        # A value that does not fit its column must not become null.
        reads = (
            spark.read.schema(schema).option("mode", "FAILFAST").format(format).load(files)
            for (format, schema), files in kinds.items()
        )
        if versions is None:
            return _united(reads)
        batch = F.regexp_extract("_metadata.file_path", r"(\d+-\d+)/[^/]*$", 1)
        rows = _united(read.withColumn(_BATCH, batch) for read in reads)
        key = [F.col(".".join(map(quoted, path))) for path in versions.key]
        order = _order(versions, F.col(_BATCH), lambda name: F.col(quoted(name)))
        last = rows.groupBy(*key).agg(F.max_by(F.struct("*"), F.struct(*order)).alias(_ROW)).select(f"{_ROW}.*")
        if versions.change is not None:
            last = last.where(F.col(quoted(versions.change)).isin(*SETTING)).drop(versions.change)
        return last.drop(_BATCH)

    def newest(self, rows: int) -> pl.DataFrame:
        """The last rows that were written, at most so many."""
        first, found = len(self.listings), 0
        while first > 0 and found < rows:
            first -= 1
            found += self.listings[first].rows
        return self._read(first).drop(_BATCH).tail(rows)

    def latest(self) -> pl.DataFrame:
        """The last version of each result, in the order in which they were written."""
        versions, rows = self._versions(), self._read(0)
        if versions is None:
            return rows.drop(_BATCH)
        key = [reduce(lambda value, name: value.struct.field(name), path[1:], pl.col(path[0])) for path in versions.key]
        order = _order(versions, pl.col(_BATCH), pl.col)
        # Without a key all rows are versions of one result.
        last = rows.sort(order, maintain_order=True).unique(key or [pl.lit(0)], keep="last", maintain_order=True)
        if versions.change is not None:
            last = last.filter(pl.col(versions.change).is_in(SETTING)).drop(versions.change)
        return last.drop(_BATCH)

    def _read(self, first: int) -> pl.DataFrame:
        """The rows of the batches from one on, with the number of each."""
        frames: list[pl.DataFrame] = []
        for number, listing in enumerate(self.listings[first:]):
            # As bytes: Polars too takes some names for patterns.
            for content in ((self._root / file).read_bytes() for file in listing.files):
                is_parquet = listing.format == "parquet"
                rows = pl.read_parquet(content) if is_parquet else pl.read_ndjson(content, infer_schema_length=None)
                frames.append(rows.with_columns(pl.lit(number).alias(_BATCH)))
        return pl.concat(frames, how="diagonal_relaxed")

    def _versions(self) -> ResultVersions | None:
        """Which rows are versions of one result; an error where that is not known."""
        outputs = {commit.stem.rsplit("-", 2)[0] for commit in self._commits}
        [versions, *others] = {listing.versions for listing in self.listings}
        why = None if versions is None else versions.unknown
        if others:
            why = "not all batches have the columns that identify a result"
        if len(outputs) > 1:
            why = f"it has results of {len(outputs)} outputs or checkpoints, whose batches have no common order"
        if why is not None:
            raise DefinitionError(
                "RESULTS_NOT_IDENTIFIED",
                f"{self._place}: which rows are versions of one result is not known: {why}. Write each output to a "
                "folder of its own, with the step's key, window (or session_id), revision and change, under any name. "
                "Or read all rows, without latest.",
            )
        return versions


def _united(reads: Iterable[DataFrame]) -> DataFrame:
    def both(one: DataFrame, other: DataFrame) -> DataFrame:
        return one.unionByName(other, allowMissingColumns=True)

    return reduce(both, reads)


def _order(versions: ResultVersions, batch: Any, mark: Callable[[str], Any]) -> list[Any]:
    """What puts the versions of a result in order.

    A row that takes a result back has the revision of that result. Without revisions an update takes back first.
    """
    order = [batch]
    if versions.revision is not None:
        order.append(mark(versions.revision))
    if versions.change is not None:
        change = mark(versions.change)
        order.append(change != UPDATE_BEFORE if versions.revision is None else (change == DELETE))
    return order


@stable
def read_results(spark: SparkSession, path: str | os.PathLike[str], *, latest: bool = False) -> DataFrame:
    """The rows that ``hr.to_files`` has committed to a folder, as a table.

    With ``latest`` only the last version of each result: of a window its last revision, of a session or a group that
    was taken back nothing. What identifies a result is known from the step that made it.

    >>> import headrace as hr
    >>> def spent_most(spark):
    ...     return hr.read_results(spark, "tables/spend", latest=True).orderBy("spent", ascending=False).limit(10)
    """
    return Results(path).on_spark(spark, latest=latest)
