"""The schema part of a message: taken off, because it is most of the message and almost always the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

import polars as pl

from headrace.connectors.debezium.encodings import Encoding, named_encodings
from headrace.connectors.debezium.forms import Form
from headrace.connectors.debezium.outermost import outermost

_OPENING, _MIDDLE = '{"schema":', ',"payload":'
# Once texts are left out and of inner objects all but the end, a second beginning is that of a second object.
_ONE_OBJECT = r"^(?:\{[^{]*\}|null)$"
_PERHAPS = r'^\s*\{\s*"(?:schema|payload)"\s*:'


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
    payload = parts["field_1"].str.head(-1)
    quick = _are_parts(schema, payload)
    pieces = pl.DataFrame({"schema": schema, "payload": payload, "text": frame["text"]})
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
        if row["type"] == "struct":
            return Layout("envelope", named_encodings(row))
        # A table may have columns with the names of the sides.
        source = fields.get("source", {}).get("type") == "struct"
        return Layout("documents") if source and row["type"] == "string" else Layout("flat", named_encodings(given))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return Layout(None)


def _are_parts(schema: pl.Series, payload: pl.Series) -> pl.Series:
    """Whether a message is these two parts and no row of a table with columns of their names."""
    kinds = {known: _kind(known) for known in schema.unique().drop_nulls()}
    likely = (payload == "null") | (payload.str.starts_with("{") & payload.str.ends_with("}"))
    sure = schema.is_in([known for known, kind in kinds.items() if kind == "schema"]) & likely
    unsure = (schema.is_in([known for known, kind in kinds.items() if kind == "perhaps"]) & likely).fill_null(False)
    if not unsure.any():
        return sure.fill_null(False)
    bare = outermost(payload.filter(unsure)).str.replace_all('"[^"]*"', "")
    return sure.fill_null(False).scatter(unsure.arg_true(), bare.str.contains(_ONE_OBJECT))


def _kind(schema: str) -> Literal["schema", "perhaps", "none"]:
    try:
        given = json.loads(schema)
    except (ValueError, RecursionError):
        return "none"
    if isinstance(given, dict) and isinstance(given.get("fields"), list):
        return "schema"
    return "perhaps" if given is None or isinstance(given, dict) else "none"


def _apart(text: str) -> tuple[str | None, str]:
    """One message that is not written as Kafka Connect writes it: other order, white space."""
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        return None, text
    if not isinstance(whole, dict) or set(whole) != {"schema", "payload"}:
        return None, text
    schema, payload = whole["schema"], whole["payload"]
    if not (isinstance(schema, dict) or isinstance(payload, dict) or schema is payload is None):
        return None, text
    return json.dumps(schema), json.dumps(payload, ensure_ascii=False)
