"""Partial matches as state columns: the rows of a key once, and how its partial matches share them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from headrace.operators.patterns.automaton import FINAL
from headrace.operators.patterns.match_values import physical
from headrace.operators.patterns.matcher import NUMBER, KeyMatches, Node, Partial, Row
from headrace.schemas import PolarsType

NODES, PARTIALS, ROW_TIME = "__nodes", "__partials", "__row_time"
"""For each row that a branch has taken, (number of the node before it + 1, step, place of the row) in one number; for
each partial match (state + 1, number of its last node); the times of the rows. ``FINAL`` + 1 = 0 is the state of a
match that waits for earlier ones."""
_PARENT, _STEP, _PLACE = 40, 32, (1 << 32) - 1
_STEPS = (1 << (_PARENT - _STEP)) - 1


def partial_match_schema(types: Sequence[pl.DataType]) -> dict[str, pl.List]:
    """The columns of a key's partial matches, given the types of the values that its rows carry."""
    values = {f"__row_value_{number}": pl.List(dtype) for number, dtype in enumerate(types)}
    return {**dict.fromkeys((NODES, PARTIALS, ROW_TIME), pl.List(pl.Int64())), **values}


def decode_partial_matches(state: pl.DataFrame, types: Sequence[pl.DataType]) -> list[KeyMatches]:
    """The partial matches of each key of a frame."""
    if state.is_empty():
        return []
    columns = (state[name].to_list() for name in partial_match_schema(types))
    return [_decoded(*lists) for lists in zip(*columns, strict=True)]


def _decoded(packed: list[int], partials: list[int], times: list[int], *values: list[Any]) -> KeyMatches:
    rows: list[Row] = list(zip(times, range(len(times)), *values, strict=True))
    nodes: list[Node] = []
    starts: list[Row] = []
    for number in packed:
        row, parent = rows[number & _PLACE], (number >> _PARENT) - 1
        nodes.append((row, number >> _STEP & _STEPS, None if parent < 0 else nodes[parent]))
        starts.append(row if parent < 0 else starts[parent])
    key = KeyMatches(rows=len(rows))
    for number in partials:
        state, last = (number >> _STEP) - 1, number & _PLACE
        (key.held if state == FINAL else key.partials).append((state, starts[last], nodes[last]))
    return key


def encode_partial_matches(keys: Sequence[KeyMatches], types: Sequence[pl.DataType]) -> pl.DataFrame:
    """A frame of the partial matches of each key; rows that none of them holds are dropped."""
    if not keys:
        return pl.DataFrame(schema=dict(partial_match_schema(types)))
    nodes, partials, rows = zip(*(_encoded(key.partials + key.held) for key in keys), strict=True)
    ends = pa.array(np.cumsum([0, *map(len, rows)]))
    times, _, *values = zip(*chain.from_iterable(rows), strict=True)
    # From one flat array of values: many times faster than from a list of lists.
    carried = (pl.Series(each, dtype=of).to_arrow() for each, of in zip(values, types, strict=True))
    columns = [
        pa.array(nodes, pa.large_list(pa.int64())),
        pa.array(partials, pa.large_list(pa.int64())),
        *(pa.LargeListArray.from_arrays(ends, each) for each in (pa.array(times, pa.int64()), *carried)),
    ]
    return pl.DataFrame(pa.Table.from_arrays(columns, list(partial_match_schema(types))))


def _encoded(partials: Sequence[Partial]) -> tuple[list[int], list[int], list[Row]]:
    rows: dict[int, Row] = {}
    numbers: dict[int, int] = {}
    nodes: list[tuple[int, int, int]] = []
    packed: list[int] = []
    for state, _, node in partials:
        fresh: list[Node] = []
        chained: Node | None = node
        while chained is not None and id(chained) not in numbers:
            fresh.append(chained)
            chained = chained[2]
        parent = 0 if chained is None else numbers[id(chained)] + 1
        for each in reversed(fresh):
            row = each[0]
            rows[row[NUMBER]] = row
            nodes.append((parent, each[1], row[NUMBER]))
            numbers[id(each)] = parent = len(numbers)
            parent += 1
        packed.append(state + 1 << _STEP | numbers[id(node)])
    places = {number: place for place, number in enumerate(sorted(rows))}
    in_place = [parent << _PARENT | step << _STEP | places[row] for parent, step, row in nodes]
    return in_place, packed, [rows[number] for number in places]


VALUES = "__values"
"""The values of all carried columns as text, where the columns differ from row to row, as with rules."""
MATCHES_AS_TEXT = {**dict.fromkeys((NODES, PARTIALS, ROW_TIME), pl.List(pl.Int64())), VALUES: pl.List(pl.String())}
"""The columns of a key's partial matches with their values as text."""


def values_as_text(types: Sequence[pl.DataType]) -> pl.Expr:
    """The values that rows carry, one column after the other, as text that gives the very same values back."""
    texts = [pl.lit([], pl.List(pl.String))]
    for number, dtype in enumerate(types):
        text = _in_text(pl.element(), dtype)
        if dtype.is_nested():
            text = pl.when(pl.element().is_not_null()).then(pl.struct(text.alias("v")).struct.json_encode())
        texts.append(pl.col(f"__row_value_{number}").list.eval(text))
    return pl.concat_list(texts).alias(VALUES)


def values_from_text(types: Sequence[pl.DataType]) -> list[pl.Expr]:
    """The same values as the columns of a pattern."""
    text, rows, values = pl.element(), pl.col(ROW_TIME).list.len().cast(pl.Int64), []
    for number, dtype in enumerate(types):
        if dtype.is_nested():
            text = text.str.json_decode(pl.Struct({"v": _text_type(dtype)})).struct.field("v")
        of_column = pl.col(VALUES).list.slice(number * rows, rows)
        values.append(of_column.list.eval(_from_text(text, dtype)).alias(f"__row_value_{number}"))
        text = pl.element()
    return values


def _text_type(dtype: PolarsType) -> pl.DataType:
    """A type with texts in place of its single values."""
    if isinstance(dtype, pl.List):
        return pl.List(_text_type(dtype.inner))
    if isinstance(dtype, pl.Struct):
        return pl.Struct({field.name: _text_type(field.dtype) for field in dtype.fields})
    return pl.String()


def _in_text(value: pl.Expr, dtype: PolarsType) -> pl.Expr:
    if isinstance(dtype, pl.List):
        return value.list.eval(_in_text(pl.element(), dtype.inner))
    if isinstance(dtype, pl.Struct):
        fields = (_in_text(value.struct.field(each.name), each.dtype).alias(each.name) for each in dtype.fields)
        return pl.when(value.is_not_null()).then(pl.struct(fields))
    return value.bin.encode("hex") if dtype == pl.Binary else value.cast(_between(dtype)).cast(pl.String)


def _from_text(text: pl.Expr, dtype: PolarsType) -> pl.Expr:
    if isinstance(dtype, pl.List):
        return text.list.eval(_from_text(pl.element(), dtype.inner))
    if isinstance(dtype, pl.Struct):
        fields = (_from_text(text.struct.field(each.name), each.dtype).alias(each.name) for each in dtype.fields)
        return pl.when(text.is_not_null()).then(pl.struct(fields))
    return text.str.decode("hex") if dtype == pl.Binary else text.cast(_between(dtype)).cast(dtype)


def _between(dtype: PolarsType) -> PolarsType:
    """The type between values and text."""
    if isinstance(dtype, pl.Datetime | pl.Duration | pl.Date):
        return physical(dtype)
    return pl.Int8() if dtype == pl.Boolean else dtype
