"""The form of messages whose schema part does not tell it, seen by what stands at their outermost level."""

from __future__ import annotations

from typing import Literal

import polars as pl

from headrace.connectors.debezium.outermost import outermost

Form = Literal["envelope", "documents", "flat"]
"""A change with the row before and after it; the same with MongoDB's documents as text; a row alone."""

_OPERATION = r'"op"\s*:\s*"[a-z]"'
_SOURCE = r'"source"\s*:\s*\{[^{}]*"connector"\s*:'
# Connectors write the sides first, and then nothing else needs to be looked at.
_ROW_FIRST = r'^\{\s*"before"\s*:\s*(?:\{|null\s*,\s*"after"\s*:\s*(?:null|\{))'
_TEXT_FIRST = r'^\{\s*(?:"before"\s*:\s*null\s*,\s*)?"(?:before|after)"\s*:\s*"'
_SIDE = r'"(?:before|after)"\s*:\s*'
_OWN_NAME = r'"(?:before|after|source|op|transaction|ts_[mun]s|updateDescription|message)"\s*:'
_ANY_NAME = r'"\s*:'

_text = pl.col("text")


def seen_form(payload: pl.Series) -> pl.Series:
    """The form of each message.

    >>> row, audit = '{"id": 1, "before": "x"}', '{"id": 1, "op": "u", "before": "x", "after": "y"}'
    >>> seen_form(pl.Series([f'{{"op": "c", "after": {row}}}', row, audit])).to_list()
    ['envelope', 'flat', 'flat']
    """
    # Quotes inside of text are escaped, so these are names, but perhaps not the message's own.
    told = _text.str.contains(_OPERATION)
    seen = payload.to_frame("text").with_columns(source=_text.str.contains(_SOURCE), told=told)
    usual = pl.col("told") & pl.col("source")
    form = seen.select(
        pl.when(usual & _text.str.contains(_ROW_FIRST))
        .then(pl.lit("envelope"))
        .when(usual & _text.str.contains(_TEXT_FIRST))
        .then(pl.lit("documents"))
        .when(~pl.col("told"))
        .then(pl.lit("flat"))
    ).to_series()
    unsure = form.is_null()
    return form.scatter(unsure.arg_true(), _looked_into(seen.filter(unsure))) if unsure.any() else form


def _looked_into(seen: pl.DataFrame) -> pl.Series:
    row, document = _text.str.contains(_SIDE + r"\}"), _text.str.contains(_SIDE + '"')
    # What concerns no row, as a truncate, may have neither side; then the block that says where it comes from tells.
    source = pl.col("source") & _text.str.contains(r'"source"\s*:\s*\}')
    # A table may have columns with the names of the sides, but not those alone.
    alone = _text.str.contains(_SIDE) & ~_text.str.replace_all(_OWN_NAME, "").str.contains(_ANY_NAME)
    envelope = _text.str.contains(_OPERATION) & (source | row | alone)
    form = (
        pl.when(envelope & document & ~row)
        .then(pl.lit("documents"))
        .when(envelope)
        .then(pl.lit("envelope"))
        .otherwise(pl.lit("flat"))
    )
    return seen.with_columns(outermost(seen["text"])).select(form).to_series()
