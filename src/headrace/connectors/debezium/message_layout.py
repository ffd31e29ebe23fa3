"""The layout of a message: its schema part, which is split off, and the form of its payload."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

import polars as pl

from headrace.connectors.debezium.values import ValueEncoding, encodings_by_path

MessageForm = Literal["envelope", "documents", "flat", "canal", "maxwell"]
"""A change with the row before and after it; the same with MongoDB's documents as text; a row alone; and what others
write: the rows of a statement, or a row with the old values of what has changed."""

_OPENING, _MIDDLE = '{"schema":', ',"payload":'
_PERHAPS_SPLIT = r'^\s*\{\s*"(?:schema|payload)"\s*:'
_OPERATION, _ANY_OPERATION = r'"op"\s*:\s*"[a-z]"', r'"op"\s*:'
_SOURCE = r'"source"\s*:\s*\{[^{}]*"connector"\s*:'
# Connectors write the sides first; then nothing else needs to be looked at.
_ROW_FIRST = r'^\{\s*"before"\s*:\s*(?:\{|null\s*,\s*"after"\s*:\s*(?:null|\{))'
_TEXT_FIRST = r'^\{\s*(?:"before"\s*:\s*null\s*,\s*)?"(?:before|after)"\s*:\s*"'
_ENVELOPE_NAMES = frozenset(
    ["before", "after", "source", "op", "transaction", "ts_ms", "ts_us", "ts_ns", "updateDescription", "message"]
)
_text = pl.col("text")
_BROKEN = object()
"""What is parsed from a text that is not JSON."""


@lru_cache(maxsize=256)
def message_layout(schema: str | None) -> tuple[MessageForm | None, Mapping[str, ValueEncoding]]:
    """What a schema part says of its messages: their form, None where only the payload shows it, and encodings."""
    try:
        given = json.loads(schema or "null")
        fields = {each["field"]: each for each in given["fields"]}
        row = fields.get("after", fields.get("before"))
        if "op" not in fields or row is None:
            return None if "op" in fields else "flat", encodings_by_path(given)
        if row["type"] == "struct":
            return "envelope", encodings_by_path(row)
        # A table may have columns named before and after.
        if fields.get("source", {}).get("type") == "struct" and row["type"] == "string":
            return "documents", {}
        return "flat", encodings_by_path(given)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        # None, or not a schema of Kafka Connect's.
        return None, {}


def split_messages(text: pl.Series) -> pl.DataFrame:
    """Messages as ``schema`` (null where they have none) and ``payload``.

    The schema part is most of a message and almost always the same, so it is split off before anything is parsed.

    >>> split_messages(pl.Series(['{"schema":{"type":"int32"},"payload":{"id":1}}', '{"id":2}'])).rows()
    [('{"type":"int32"}', '{"id":1}'), (None, '{"id":2}')]
    """
    frame = text.to_frame("text").with_columns(_text.str.strip_chars())
    perhaps = frame["text"].str.contains(_PERHAPS_SPLIT).fill_null(False)
    if not perhaps.any():
        return frame.select(pl.lit(None, pl.String).alias("schema"), payload="text")
    parts = frame["text"].str.splitn(_MIDDLE, 2).struct.unnest()
    opened = frame["text"].str.starts_with(_OPENING) & parts["field_1"].is_not_null()
    schema = parts["field_0"].str.strip_prefix(_OPENING).set(~opened.fill_null(False), None)
    payload = parts["field_1"].str.head(-1)
    quick = _are_parts(schema, payload)
    pieces = pl.DataFrame({"schema": schema, "payload": payload, "text": frame["text"]}).select(
        schema=pl.when(quick).then("schema"), payload=pl.when(quick).then("payload").otherwise("text")
    )
    slow = perhaps & ~quick
    if not slow.any():
        return pieces
    parsed = pl.DataFrame(map(_split_parsed, frame["text"].filter(slow)), schema=pieces.schema, orient="row")
    return pieces.with_columns(pieces[part].scatter(slow.arg_true(), parsed[part]) for part in pieces.columns)


def _are_parts(schema: pl.Series, payload: pl.Series) -> pl.Series:
    """Whether these are the two parts of a message, and not columns with their names in a row."""
    parsed = {text: _parsed(text) for text in schema.unique().drop_nulls()}
    full = {
        text: given is not None and isinstance(given.get("fields"), list)
        for text, given in parsed.items()
        if given is None or isinstance(given, dict)
    }
    known = schema.replace_strict(full, default=None, return_dtype=pl.Boolean)
    likely = (payload == "null") | (payload.str.starts_with("{") & payload.str.ends_with("}"))
    sure, unsure = (known & likely).fill_null(False), (~known & likely).fill_null(False)
    if not unsure.any():
        return sure
    whole = [_parsed(text) is not _BROKEN for text in payload.filter(unsure)]
    return sure.scatter(unsure.arg_true(), pl.Series(whole))


def _split_parsed(text: str) -> tuple[str | None, str]:
    """Split one message that is not written as Kafka Connect writes it: other order, white space."""
    whole = _parsed(text)
    if not isinstance(whole, dict) or set(whole) != {"schema", "payload"}:
        return None, text
    schema, payload = whole["schema"], whole["payload"]
    if not (isinstance(schema, dict) or isinstance(payload, dict) or schema is payload is None):
        return None, text
    return json.dumps(schema), json.dumps(payload, ensure_ascii=False)


def seen_form(payload: pl.Series) -> pl.Series:
    """The form of messages whose schema part does not say it.

    >>> row, audit = '{"id": 1, "before": "x"}', '{"id": 1, "op": "u", "before": "x", "after": "y"}'
    >>> seen_form(pl.Series([f'{{"op": "c", "after": {row}}}', row, audit])).to_list()
    ['envelope', 'flat', 'flat']
    """
    # Quotes within texts are escaped, so these patterns match names, though perhaps those of an inner object.
    seen = payload.to_frame("text").with_columns(
        source=_text.str.contains(_SOURCE), operation=_text.str.contains(_OPERATION)
    )
    usual = pl.col("operation") & pl.col("source")
    form = seen.select(
        pl.when(usual & _text.str.contains(_ROW_FIRST))
        .then(pl.lit("envelope"))
        .when(usual & _text.str.contains(_TEXT_FIRST))
        .then(pl.lit("documents"))
        .when(~_text.str.contains(_ANY_OPERATION))
        .then(pl.lit("flat"))
    ).to_series()
    unsure = form.is_null()
    return form.scatter(unsure.arg_true(), pl.Series(map(_parsed_form, payload.filter(unsure)), dtype=pl.String))


def _parsed_form(text: str) -> MessageForm:
    """The form of one message whose names come in an unusual order, or are perhaps those of columns."""
    whole = _parsed(text)
    if not isinstance(whole, dict):
        return "flat"
    sides = [whole[name] for name in ("before", "after") if name in whole]
    row, document = (any(isinstance(side, kind) for side in sides) for kind in (dict, str))
    # An event without a row, such as a truncate, may have neither side; its source block then shows the form.
    source = isinstance(whole.get("source"), dict) and "connector" in whole["source"]
    # A table may have columns named before and after, but not only those.
    alone = bool(sides) and whole.keys() <= _ENVELOPE_NAMES
    # An operation that nobody knows is one all the same, where all else is that of an event.
    known = re.fullmatch("[a-z]", str(whole.get("op"))) is not None
    if "op" not in whole or not (source or (row or alone if known else row and alone)):
        return "flat"
    return "documents" if document and not row else "envelope"


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return _BROKEN
