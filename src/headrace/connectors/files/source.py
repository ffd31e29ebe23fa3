"""``hr.read_files``: the files of a landing folder, each once; tasks decode them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Literal

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from headrace.checkpoint.outages import OutageMarker
from headrace.connectors.base.conversion import settle
from headrace.connectors.base.csv_lines import CsvLines
from headrace.connectors.base.decoding import POSITION, Decoded, Decoder, as_json
from headrace.connectors.base.json_lines import JsonLines
from headrace.connectors.base.sink import Unreachable
from headrace.connectors.base.source import ROW_POSITION, Gate, add_source, declared_columns, source_name
from headrace.connectors.debezium.changes import DebeziumChanges
from headrace.connectors.debezium.decoder import DebeziumFiles, debezium_messages
from headrace.connectors.files.batch_listing import BatchListing
from headrace.connectors.files.listing import FileEnumerator, HiddenFiles, file_stat
from headrace.errors import DefinitionError, HeadraceError
from headrace.schemas import parse_ddl
from headrace.stability import stable
from headrace.storage import COMMITS, local_path, open_binary
from headrace.wheel.task import Task

Format = Literal["json", "csv", "parquet"]
ASKED_AGAIN_SECONDS = 1.0
CHANGED = "the file was written again after it was listed; let files appear whole and give new rows a new file"


@dataclass(frozen=True, slots=True)
class FileReader:
    """Reads files of a folder; with ``listed`` these are commit files that list the data files."""

    source: str
    place: str
    decoder: Decoder
    listed: bool

    def read(self, given: Sequence[tuple[str, int, int]], task: Task) -> Iterator[Decoded]:
        for path, size, modified in given:
            now = self._stat(path, task)
            if task.runs_again and now != (size, modified):
                raise _range_changed(path, now, task)
            if now not in ((size, modified), None):
                letter = Decoded.of_letter(self.decoder.columns.types, "FILE_CHANGED", CHANGED)
                yield replace(letter, origin=path, arrived=modified)
                continue
            for file in self._listed(path) if self.listed else [path]:
                if task.runs_again and self.listed and self._stat(file, task) is None:
                    raise _range_changed(file, None, task)
                for decoded in self.decoder.decode(file):
                    yield replace(decoded, origin=file, arrived=modified)

    def _stat(self, path: str, task: Task) -> tuple[int, int] | None:
        """The size of a file and when it was modified, None if it is gone; waits while the folder is away."""
        outage = OutageMarker(task.state.storage, f"source.{self.source}", self.place)
        while True:
            try:
                found = file_stat(path, self.place)
            except Unreachable as problem:
                outage.begin(str(problem))
                time.sleep(ASKED_AGAIN_SECONDS)
            else:
                outage.end()
                return found

    def _listed(self, commit: str) -> list[str]:
        root = commit.rsplit("/", 2)[0]
        with open_binary(commit) as stream:
            return [f"{root}/{file}" for file in BatchListing.from_bytes(stream.read(), file=commit).files]


def _range_changed(file: str, now: tuple[int, int] | None, task: Task) -> HeadraceError:
    """The error for a file that a batch which runs again can no longer read as the first time."""
    return HeadraceError(
        "RANGE_CHANGED",
        f"batch {task.record.batch} of flow {task.flow!r} was begun before and runs again, but its file {file!r} "
        f"{'is gone' if now is None else 'was written again since'}, and a sink may have the batch's rows already. Put "
        "the file back as it was (cp -p keeps its time of modification), or start with a new checkpoint.",
    )


@dataclass(frozen=True, slots=True)
class ParquetFiles(Decoder):
    """Decodes the declared columns of Parquet files; a value that does not fit its column makes a dead row."""

    chunk_rows: int = 250_000

    def chunks(self, stream: BinaryIO, name: str) -> Iterator[Decoded]:
        file, first = pq.ParquetFile(stream, coerce_int96_timestamp_unit="us"), 0
        held, declared = file.schema_arrow.names, self.columns.names
        missing = ", ".join(name for name in declared if name not in held)
        if missing:
            raise ValueError(f"the file has columns {', '.join(held)}, but not the declared {missing}")
        for batch in file.iter_batches(batch_size=self.chunk_rows, columns=declared, use_threads=False):
            yield self._decode_batch(batch, first)
            first += batch.num_rows
        if first != file.metadata.num_rows:
            raise ValueError(f"the file says that it has {file.metadata.num_rows} rows, but {first} can be read")

    def _decode_batch(self, batch: pa.RecordBatch, first: int) -> Decoded:
        frame = pl.DataFrame(batch)
        positions = pl.int_range(first, first + frame.height, eager=True).alias(POSITION)
        rows, problems = settle(frame.with_columns(positions), self.columns)
        if problems.height == 0:
            return Decoded(rows)
        broken = frame[(problems["position"] - first).to_list()].select(self.columns.names)
        missing = pl.col("reason") == "MISSING_VALUE"
        reason = pl.when(missing).then("reason").otherwise(pl.lit("WRONG_TYPE")).alias("reason")
        return Decoded(rows, problems.with_columns(reason, as_json(broken)))


_DECODERS: Mapping[str, type[Decoder]] = {"json": JsonLines, "csv": CsvLines, "parquet": ParquetFiles}


@stable
def read_files(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    format: Format,
    schema: str | DebeziumChanges,
    name: str | None = None,
    files_per_batch: int | None = None,
) -> DataFrame:
    """The rows of a landing folder, each file read once; rows that cannot be read become dead letters.

    A folder that ``hr.to_files`` writes is read by its commit list, so no row of an unfinished batch is seen. Files
    must appear whole (written elsewhere and moved in). A file is known by its path, size and time of modification, so
    one that is written again is read again. Names that begin with ``_`` or ``.`` are hidden: such files are passed
    over, which a warning tells. The schema may declare ``_position STRING``, which identifies a
    row by its file and line; with ``hr.debezium_changes(...)`` as schema the lines are recorded messages.
    ``name`` identifies the source in the checkpoint; the default is the folder's name.

    >>> import headrace as hr
    >>> @hr.pipeline
    ... def payments(spark):
    ...     rows = hr.read_files(spark, "landing/payments", format="csv", schema="id STRING, amount DOUBLE")
    ...     hr.write("payments", rows, hr.to_console())
    """
    location = os.fspath(path)
    local = local_path(location)
    if local is not None and not local.is_dir():
        raise DefinitionError("SOURCE_MISSING", f"folder {location!r} does not exist. Create it first.")
    if files_per_batch is not None and files_per_batch < 1:
        raise DefinitionError(
            "FILES_PER_BATCH_INVALID",
            f"read_files: files_per_batch={files_per_batch} must be at least 1; leave it out for no limit.",
        )
    # Spark's process may have another working folder than this one.
    place = location if local is None else str(local.absolute())
    listed = local is not None and (local / COMMITS).is_dir()
    struct = schema.struct if isinstance(schema, DebeziumChanges) else parse_ddl(schema)
    columns = declared_columns(struct, without=(ROW_POSITION,))
    if isinstance(schema, DebeziumChanges):
        decoder: Decoder = DebeziumFiles(columns, debezium_messages(schema, columns.types, format))
    elif format in _DECODERS:
        decoder = _DECODERS[format](columns)
    else:
        raise DefinitionError(
            "FORMAT_UNKNOWN", f"format={format!r} is not known. Use 'json' (lines), 'csv' or 'parquet'."
        )
    called = source_name(name, Path(location.rstrip("/")).name)
    folder = f"{place.rstrip('/')}/{COMMITS}" if listed else place
    reader = FileReader(called, folder, decoder, listed)
    gate = Gate(called, reader, None, adds_position=ROW_POSITION in struct.fieldNames())
    fingerprint: dict[str, object] = {"kind": "files", "path": location, "format": format, "schema": str(schema)}
    if listed:
        # Other files are counted then, so a checkpoint of the plain folder would read all rows again.
        fingerprint["listed"] = True
    return add_source(
        spark,
        gate,
        lambda storage: FileEnumerator(
            called, storage, folder, files_per_batch, None if listed else HiddenFiles(called)
        ),
        struct,
        fingerprint,
        changes=isinstance(schema, DebeziumChanges),
    )
