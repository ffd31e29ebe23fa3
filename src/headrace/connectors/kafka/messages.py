"""Rows as Kafka messages: a value and a key each, and those that no broker would take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import polars as pl

from headrace.connectors.kafka.clients import Message
from headrace.shaping import REFUSED, json_rows

Format = Literal["json", "raw"]
OVERHEAD = 128
"""Bytes that a broker counts beside value and key when a message is alone in its batch."""


def messages(
    rows: pl.DataFrame, *, key: Sequence[str], format: Format, max_bytes: int
) -> tuple[list[Message], pl.DataFrame | None]:
    """The messages of rows in their order, and the rows that are too large.

    >>> rows = pl.DataFrame({"account": ["a"], "spent": [2.5]})
    >>> messages(rows, key=["account"], format="json", max_bytes=1_000_000)
    ([(b'{"account":"a","spent":2.5}', b'a')], None)
    """
    values = json_rows(rows) if format == "json" else _bytes(rows["value"])
    keys = _keys(rows, key)
    every = list(zip(values, keys, strict=True))
    room = max_bytes - OVERHEAD
    sizes = [(0 if value is None else len(value)) + (0 if key is None else len(key)) for value, key in every]
    if max(sizes, default=0) <= room:
        return every, None
    fits = [size <= room for size in sizes]
    large = rows.filter(~pl.Series(fits))
    refused = pl.DataFrame(
        {
            "reason": ["MESSAGE_TOO_LARGE"] * large.height,
            "detail": [f"{size} bytes; at most {room} are taken" for size in sizes if size > room],
            "raw": json_rows(large),
        },
        schema=REFUSED,
    )
    return [message for message, taken in zip(every, fits, strict=True) if taken], refused


def _keys(rows: pl.DataFrame, key: Sequence[str]) -> list[bytes | None]:
    if not key:
        return [None] * rows.height
    if len(key) > 1:
        return list(json_rows(rows.select(key)))
    values = rows[key[0]]
    if isinstance(values.dtype, pl.String | pl.Binary):
        return _bytes(values)
    # The text that the value has in the JSON of the row, so that a reader finds the same in both.
    opening = len(json_rows(pl.DataFrame({key[0]: [0]}))[0]) - len(b"0}")
    texts = [text[opening:-1] for text in json_rows(rows.select(key))]
    return [None if text == b"null" else text.strip(b'"') for text in texts]


def _bytes(values: pl.Series) -> list[bytes | None]:
    return values.cast(pl.Binary).to_list()
