"""Deletes that say no more than their message's key: the rows that the keys name."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from headrace.connectors.base.decoding import POSITION
from headrace.connectors.debezium.events import Table, read_objects
from headrace.connectors.debezium.schema_part import split

DOCUMENTS = "mongodb"
"""The connector whose keys hold JSON once more as text, under the name ``id``."""


def keyed(deletes: pl.DataFrame, key: Sequence[str], table: Table) -> pl.DataFrame:
    """Deletes with ``before`` made of their ``key``, null where that cannot be read, and the key's ``schema``."""
    pieces = deletes.select(POSITION, "connector").hstack(split(deletes["key"]))
    documents = pl.col("connector").eq_missing(pl.lit(DOCUMENTS))
    inside = read_objects(pieces.filter(documents & pl.col("payload").is_not_null()), {"id": pl.String()}).rows
    named = inside.drop_nulls().select(POSITION, payload=pl.concat_str(pl.lit(f'{{"{key[0]}": '), "id", pl.lit("}")))
    plain = pieces.filter(~documents & pl.col("payload").is_not_null()).select(POSITION, "payload")
    rows = read_objects(pl.concat([plain, named]).sort(POSITION), {name: table[name] for name in key}).rows
    row = pl.struct(*(name if name in key else pl.lit(None, kind).alias(name) for name, kind in table.items()))
    found = rows.select(POSITION, row.alias("before"))
    known = deletes.drop("before").with_columns(pieces["schema"])
    return known.join(found, on=POSITION, how="left", maintain_order="left")
