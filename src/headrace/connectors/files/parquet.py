"""Parquet files, row group by row group, without a copy where the file's types are the declared ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.connectors.base.conversion import settle
from headrace.connectors.base.decoding import (
    DEAD_SCHEMA,
    MISSING_VALUE,
    POSITION,
    WRONG_TYPE,
    Columns,
    Decoded,
    as_json,
    unreadable,
)
from headrace.storage import open_binary

CHUNK_ROWS = 250_000


@dataclass(frozen=True, slots=True)
class ParquetFiles:
    """Decodes the declared columns of Parquet files; a value that cannot be kept whole is a dead row."""

    columns: Columns
    chunk_rows: int = CHUNK_ROWS

    def decode(self, path: str) -> Iterator[Decoded]:
        try:
            with open_binary(path) as stream:
                file = pq.ParquetFile(stream, coerce_int96_timestamp_unit="us")
                yield from self._decode_file(file)
        except (OSError, ValueError, pa.ArrowException) as error:
            yield unreadable(self.columns, str(error))

    def _decode_file(self, file: pq.ParquetFile) -> Iterator[Decoded]:
        held = file.schema_arrow.names
        missing = [name for name in self.columns.names if name not in held]
        if missing:
            raise ValueError(f"the file has columns {', '.join(held)}, but not the declared {', '.join(missing)}")
        first = 0
        for batch in file.iter_batches(batch_size=self.chunk_rows, columns=self.columns.names, use_threads=False):
            yield self._decode_batch(batch, first)
            first += batch.num_rows

    def _decode_batch(self, batch: pa.RecordBatch, first: int) -> Decoded:
        frame = pl.DataFrame(batch)
        positions = pl.Series(POSITION, np.arange(first, first + frame.height, dtype=np.int64))
        rows, problems = settle(frame.with_columns(positions), self.columns)
        if problems.height == 0:
            return Decoded(rows, pl.DataFrame(schema=DEAD_SCHEMA))
        broken = frame[(problems["position"] - first).to_list()].select(self.columns.names)
        missing = pl.col("reason") == MISSING_VALUE
        reason = pl.when(missing).then("reason").otherwise(pl.lit(WRONG_TYPE)).alias("reason")
        return Decoded(rows, problems.with_columns(reason, as_json(broken)))
