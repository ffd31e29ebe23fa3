"""The schema part of a message: taken off, because it is most of the message and almost always the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

import polars as pl

from headrace.sources.debezium.encodings import Encoding, named_encodings

Form = Literal["envelope", "documents", "flat"]
"""A change with the row before and after it; the same with MongoDB's documents as text; a row alone."""

_OPENING, _MIDDLE = '{"schema":', ',"payload":'
_PERHAPS = r'^\s*\{\s*"(?:schema|payload)"\s*:'
_OPERATION = r'"op"\s*:\s*"[a-z]"'
# What concerns no row, as a truncate, may have neither side; then the block that says where it comes from tells.
_SIDES = r'"(?:before|after)"\s*:|"source"\s*:\s*\{[^{}]*"connector"\s*:'
_TEXT_SIDES = r'"(?:before|after)"\s*:\s*"'


@dataclass(frozen=True, slots=True)
class Layout:
    """What a schema part says: the form of the message and how its values are written."""

    form: Form | None
    """None where the schema, if there is one, does not tell, and the message itself must be looked at."""
    named: Mapping[str, Encoding] = field(default_factory=dict)


def split(text: pl.Series) -> pl.DataFrame:
    """Messages as ``schema`` (null where they have none) and ``payload``.

    >>> split(pl.Series(['{"schema":{"type":"int32"},"payload":{"id":1}}', '{"id":2}'])).rows()
    [('{"type":"int32"}', '{"id":1}'), (None, '{"id":2}')]
    """
    frame = text.to_frame("text").with_columns(pl.col("text").str.strip_chars())
    perhaps = frame["text"].str.contains(_PERHAPS).fill_null(False)
    if not perhaps.any():
        return frame.select(pl.lit(None, pl.String).alias("schema"), payload="text")
    parts = frame["text"].str.splitn(_MIDDLE, 2).struct.unnest()
    opened = frame["text"].str.starts_with(_OPENING) & parts["field_1"].is_not_null()
    schema = parts["field_0"].str.strip_prefix(_OPENING).set(~opened.fill_null(False), None)
    readable = {known for known in schema.unique().drop_nulls() if _is_json(known)}
    quick = schema.is_in(list(readable)).fill_null(False)
    pieces = pl.DataFrame({"schema": schema, "payload": parts["field_1"].str.head(-1), "text": frame["text"]})
    told = pieces.select(
        schema=pl.when(quick).then("schema"),
        payload=pl.when(quick).then("payload").otherwise("text"),
    )
    slow = perhaps & ~quick
    if not slow.any():
        return told
    apart = [_apart(one) for one in frame["text"].filter(slow)]
    rows = slow.arg_true()
    return told.with_columns(
        told["schema"].scatter(rows, pl.Series([schema for schema, _ in apart], dtype=pl.String)),
        told["payload"].scatter(rows, pl.Series([payload for _, payload in apart], dtype=pl.String)),
    )


@lru_cache(maxsize=256)
def layout(schema: str | None) -> Layout:
    """What a schema part says; nothing where it is none of Kafka Connect's."""
    try:
        given = None if schema is None else json.loads(schema)
        if given is None:
            return Layout(None)
        fields = {each["field"]: each for each in given["fields"]}
        row = fields.get("after", fields.get("before"))
        if "op" not in fields or row is None:
            return Layout(None if "op" in fields else "flat", named_encodings(given))
        return Layout("documents") if row["type"] == "string" else Layout("envelope", named_encodings(row))
    except (ValueError, TypeError, KeyError, AttributeError):
        return Layout(None)


def seen_form(payload: pl.Expr) -> pl.Expr:
    """The form of messages whose schema part does not tell it. Quotes inside of text are escaped, so these are keys."""
    envelope = payload.str.contains(_OPERATION) & payload.str.contains(_SIDES)
    return (
        pl.when(envelope & payload.str.contains(_TEXT_SIDES))
        .then(pl.lit("documents"))
        .when(envelope)
        .then(pl.lit("envelope"))
        .otherwise(pl.lit("flat"))
    )


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _apart(text: str) -> tuple[str | None, str]:
    """One message that is not written as Kafka Connect writes it: other order, white space."""
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        return None, text
    if not isinstance(whole, dict) or set(whole) != {"schema", "payload"}:
        return None, text
    return json.dumps(whole["schema"]), json.dumps(whole["payload"], ensure_ascii=False)
