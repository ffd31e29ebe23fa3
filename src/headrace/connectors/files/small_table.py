"""Parquet and CSV files as a small table."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import polars as pl

from headrace.connectors.base.conversion import fitted
from headrace.errors import DefinitionError, HeadraceError, check_choice
from headrace.schemas import parse_ddl, polars_schema, spark_schema
from headrace.secrets import call_text
from headrace.stability import stable

Format = Literal["parquet", "csv"]
HIDDEN = (".", "_")
"""Prefixes of files that are not part of a table, such as checksums and success markers."""


@dataclass(frozen=True, slots=True, repr=False)
class FileTable:
    """One file, all files of a folder, or those that match a pattern."""

    path: str
    format: Format
    schema: str | None

    def columns(self) -> Mapping[str, pl.DataType]:
        if self.schema is not None:
            return polars_schema(parse_ddl(self.schema))
        with self._explained():
            found = self._scan().collect_schema()
        return polars_schema(spark_schema(found))

    def read(self) -> pl.DataFrame:
        with self._explained():
            rows = self._scan().collect()
        return fitted(rows, self.columns(), table=f"small table {self.path!r}")

    def _scan(self) -> pl.LazyFrame:
        folder = Path(self.path)
        # What is there has this name, whatever a pattern would match.
        is_pattern = not folder.exists()
        if self.format == "parquet":
            return pl.scan_parquet(self.path, hidden_file_prefix=HIDDEN, glob=is_pattern)
        files = sorted(file for file in folder.rglob("*") if file.is_file()) if folder.is_dir() else []
        shown = [file for file in files if not file.name.startswith(HIDDEN)]
        return pl.scan_csv(shown or self.path, schema_overrides=self.columns(), infer_schema=False, glob=is_pattern)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (OSError, pl.exceptions.PolarsError) as problem:
            raise HeadraceError(
                "TABLE_UNREADABLE", f"small table {self.path!r} cannot be read as {self.format}: {problem}."
            ) from None

    def __repr__(self) -> str:
        return call_text(file_table, self.path, format=self.format, schema=self.schema)


@stable
def file_table(path: str | os.PathLike[str], *, format: Format = "parquet", schema: str | None = None) -> FileTable:
    """A small table in Parquet or CSV files with a header: one file, a folder, or a pattern.

    >>> file_table("rates.csv", format="csv", schema="currency STRING, rate DOUBLE")
    hr.file_table('rates.csv', format='csv', schema='currency STRING, rate DOUBLE')
    """
    check_choice(Format, format=format)
    if format == "csv" and schema is None:
        raise DefinitionError(
            "SCHEMA_MISSING",
            f"small table {os.fspath(path)!r}: declare CSV's types, as in schema='currency STRING, rate DOUBLE'.",
        )
    if schema is not None:
        parse_ddl(schema)
    return FileTable(os.fspath(path), format, schema)
