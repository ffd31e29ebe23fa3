"""PostgreSQL's arrays as text, taken apart into items and put together again."""

from __future__ import annotations

import re

import numpy as np
import polars as pl
import pyarrow as pa

# A quoted item with its escapes, or a plain one.
_ITEM = re.compile(r'"((?:[^"\\]|\\.)*)"|([^",]+)', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_QUOTED = r'["\\]'
_BOUNDS = r"^\[[^={]*\]="
_NULL = "NULL"


def split_arrays(texts: pl.Series) -> tuple[pl.Series, pl.Series]:
    """All items one after the other, and how many each text has; null for a null and for an array of arrays.

    >>> items, lengths = split_arrays(pl.Series(["{1,NULL}", "{}", None, '{"a,b",c}', "{{1},{2}}"]))
    >>> items.to_list(), lengths.to_list()
    (['1', None, 'a,b', 'c'], [2, 0, None, 2, None])
    """
    # Bounds other than from 1, as in [0:1]={5,6}, are not kept.
    inside = texts.str.replace(_BOUNDS, "").str.strip_prefix("{").str.strip_suffix("}").to_frame("text")
    text = pl.col("text")
    quoted = text.str.contains(_QUOTED)
    plain = pl.when(~quoted & ~text.str.starts_with("{")).then(
        pl.when(text == "").then(pl.lit([], pl.List(pl.String))).otherwise(text.str.split(","))
    )
    frame = inside.with_columns(plain.list.eval(pl.element().replace({_NULL: None})).alias("items"), quoted.alias("q"))
    places = frame["q"].fill_null(False).arg_true()
    if places.len():
        # Quotes cannot be taken off a whole column at once; a text without any needs no such care.
        by_hand = {"place": places, "taken": [_items(each) for each in frame["text"].gather(places)]}
        taken = pl.DataFrame(by_hand, schema={"place": pl.UInt32, "taken": pl.List(pl.String)})
        frame = frame.with_row_index("place").join(taken, on="place", how="left", maintain_order="left")
        frame = frame.with_columns(pl.coalesce("items", "taken").alias("items"))
    return frame["items"].explode(empty_as_null=False, keep_nulls=False), frame["items"].list.len()


def put_together(items: pl.Series, lengths: pl.Series) -> pl.Series:
    """Items as lists of these lengths.

    >>> put_together(pl.Series([1, 2, 3]), pl.Series([2, None, 1])).to_list()
    [[1, 2], None, [3]]
    """
    offsets = np.concatenate(([0], np.cumsum(lengths.fill_null(0).to_numpy()))).astype(np.int64)
    missing = lengths.is_null().to_arrow()
    lists = pa.LargeListArray.from_arrays(pa.array(offsets), items.rechunk().to_arrow(), mask=missing)
    return pl.Series(lists, dtype=pl.List(items.dtype))


def _items(text: str) -> list[str | None] | None:
    if text.startswith("{"):
        return None
    found = _ITEM.finditer(text)
    return [
        _ESCAPED.sub(r"\1", item[1]) if item[1] is not None else None if item[2] == _NULL else item[2] for item in found
    ]
