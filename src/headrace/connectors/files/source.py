"""A landing folder: Spark lists its files, each once, and tasks decode them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import polars as pl

from headrace.connectors.base.csv_lines import CsvLines
from headrace.connectors.base.decoding import Columns, Decoder
from headrace.connectors.base.gate import ROW_POSITION, Arrived, Gate
from headrace.connectors.base.json_lines import JsonLines
from headrace.connectors.base.source import FILES, Source, add_source, add_ticks
from headrace.connectors.debezium.changes import DebeziumChanges
from headrace.connectors.debezium.decoder import DebeziumFiles, debezium_messages
from headrace.connectors.files.parquet import ParquetFiles
from headrace.errors import DefinitionError
from headrace.graph import active_graph
from headrace.schemas import parse_ddl, polars_schema
from headrace.storage import COMMITS, local_path, open_binary
from headrace.wheel.task import Task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Format = Literal["json", "csv", "parquet"]


@dataclass(frozen=True, slots=True)
class FileReader:
    """Reads the files that Spark names; with ``listed`` these are commit files that list the real ones."""

    decoder: Decoder
    listed: bool

    def read(self, raw: pl.DataFrame, task: Task) -> Iterator[Arrived]:
        """Chunks of rows of each named file."""
        for path, modified in raw.drop_nulls("path").sort("path").rows():
            for file in self._listed(path) if self.listed else [path]:
                for decoded in self.decoder.decode(file):
                    yield Arrived(decoded, file, int(modified.timestamp() * 1_000_000))

    def _listed(self, commit: str) -> list[str]:
        root = commit.rsplit("/", 2)[0]
        with open_binary(commit) as stream:
            return [f"{root}/{file}" for file in json.load(stream)["files"]]


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
    must appear whole (written elsewhere and moved in). The schema may declare ``_position STRING``, which tells a row
    from all others (its file and line); with ``hr.debezium_changes(...)`` as schema the lines are recorded messages.
    ``name`` identifies the source in the checkpoint and is the folder's name unless given.
    """
    location = os.fspath(path)
    local = local_path(location)
    if local is not None and not local.is_dir():
        raise DefinitionError(
            "SOURCE_MISSING", f"folder {location!r} does not exist, so nothing could ever be read. Create it first."
        )
    # Spark's process may have another working folder than this one.
    place = location if local is None else str(local.absolute())
    listed = local is not None and (local / COMMITS).is_dir()
    struct = schema.struct if isinstance(schema, DebeziumChanges) else parse_ddl(schema)
    called = name or re.sub(r"\W", "_", Path(location.rstrip("/")).name)
    reader = spark.readStream.format("binaryFile").schema(FILES)
    # Spark forgets, and would pass over, files older than this against the newest one.
    reader = reader.option("recursiveFileLookup", "true").option("maxFileAge", "36500d")
    if files_per_batch is not None:
        reader = reader.option("maxFilesPerTrigger", files_per_batch)
    required = frozenset(field.name for field in struct.fields if not field.nullable)
    declared = polars_schema(struct)
    tells_position = declared.pop(ROW_POSITION, None) is not None
    decoder = (
        DebeziumFiles(debezium_messages(schema, declared, format))
        if isinstance(schema, DebeziumChanges)
        else _decoder(format, Columns(declared, required))
    )
    gate = Gate(called, FileReader(decoder, listed), None, tells_position)
    raw = reader.load(f"{place.rstrip('/')}/{COMMITS}" if listed else place).select("path", "modificationTime")
    folder = active_graph().checkpoint / "ticks" / called
    fingerprint: dict[str, object] = {"kind": "files", "path": location, "format": format, "schema": str(schema)}
    if listed:
        # The files that Spark counts are others then, so a checkpoint of the plain folder would read all rows again.
        fingerprint["listed"] = True
    return add_source(
        Source(add_ticks(raw, folder), gate, struct),
        fingerprint,
        folder,
        cap=files_per_batch,
        changes=isinstance(schema, DebeziumChanges),
    )


def _decoder(format: Format, columns: Columns) -> Decoder:
    match format:
        case "json":
            return JsonLines(columns)
        case "csv":
            return CsvLines(columns)
        case "parquet":
            return ParquetFiles(columns)
        case _:
            raise DefinitionError(
                "FORMAT_UNKNOWN", f"format={format!r} is not known. Use 'json' (lines), 'csv' or 'parquet'."
            )
