"""A share as chunks that are the same whenever the share is written again, and as arguments of the script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from headrace.connectors.redis.scripts import Value
from headrace.shaping import flat, json_rows, last_changes, refused_rows
from headrace.template import Template

CHUNK = 1_000
_KEY = "headrace.key"
Text = str | bytes


@dataclass(frozen=True, slots=True)
class Chunk:
    """Changes of keys, each key once."""

    deletes: Sequence[str]
    sets: Sequence[str]
    values: Sequence[Text | int]
    """For each key to set: its JSON, or the number of texts that follow and then field, value, field, value..."""

    @property
    def changes(self) -> int:
        """How many keys it changes."""
        return len(self.deletes) + len(self.sets)


@dataclass(frozen=True, slots=True)
class Chunks:
    """All changes of a share, sorted by key and cut."""

    chunks: Sequence[Chunk]
    superseded: int
    refused: pl.DataFrame


def cut(rows: pl.DataFrame, template: Template, value: Value) -> Chunks:
    """The last change of each key, in chunks.

    >>> from headrace.template import parse_template
    >>> rows = pl.DataFrame({"id": [2, 1, 1], "n": [5, 6, 7]})
    >>> cut(rows, parse_template("n:{id}"), "json").chunks
    [Chunk(deletes=[], sets=['n:1', 'n:2'], values=[b'{"id":1,"n":7}', b'{"id":2,"n":5}'])]
    """
    keyed = rows.with_columns(template.render(flat(rows)).alias(_KEY))
    nameless = rows.filter(keyed[_KEY].is_null())
    last = last_changes(keyed.filter(pl.col(_KEY).is_not_null()), [_KEY])
    values = _values(last.upserts.drop(_KEY), value)
    places: list[tuple[str, int | None]] = [(name, place) for place, name in enumerate(last.upserts[_KEY])]
    places += [(name, None) for name in last.deletes[_KEY]]
    # Rows of different keys may come in another order when the batch runs again; their keys are the same.
    places.sort(key=lambda each: each[0])
    # A share of which every row is refused has one chunk too, for its mark.
    chunks = [_chunk(places[start : start + CHUNK], values) for start in range(0, len(places) or 1, CHUNK)]
    refused = refused_rows(nameless, "NO_KEY", f"a column of the key {str(template)!r} is null")
    return Chunks(chunks, last.superseded, refused)


def _chunk(places: Sequence[tuple[str, int | None]], values: Sequence[Sequence[Text | int]]) -> Chunk:
    deletes = [name for name, place in places if place is None]
    sets = [name for name, place in places if place is not None]
    texts = [text for _, place in places if place is not None for text in values[place]]
    return Chunk(deletes, sets, texts)


def _values(rows: pl.DataFrame, value: Value) -> list[Sequence[Text | int]]:
    if value == "json":
        return [(text,) for text in json_rows(rows)]
    columns = flat(rows)
    names = columns.columns
    values: list[Sequence[Text | int]] = []
    for row in zip(*(_texts(columns[name]) for name in names), strict=True):
        fields = [text for pair in zip(names, row, strict=True) if pair[1] is not None for text in pair]
        values.append((len(fields), *fields))
    return values


def _texts(column: pl.Series) -> list[Text | None]:
    match column.dtype:
        case pl.Binary():
            return column.to_list()
        case pl.Datetime(time_zone=None):
            return column.dt.to_string("%Y-%m-%dT%H:%M:%S%.6f").to_list()
        case pl.Datetime():
            return column.dt.convert_time_zone("UTC").dt.to_string("%Y-%m-%dT%H:%M:%S%.fZ").to_list()
        case pl.Duration():
            return column.dt.to_string("iso").to_list()
        case kind if kind.is_nested():
            opening = len('{"list":')
            texts = json_rows(column.alias("list").to_frame())
            return [None if text.endswith(b":null}") else text[opening:-1] for text in texts]
        case _:
            return column.cast(pl.String).to_list()
