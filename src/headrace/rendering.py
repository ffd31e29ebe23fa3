"""Rows rendered for systems outside Spark: flat columns, the last change of each key, JSON, texts from templates."""

from __future__ import annotations

import math
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from io import BytesIO
from operator import is_
from typing import Any
from uuid import uuid4

import polars as pl
import pyarrow as pa

from headrace.changelog import CHANGE, REMOVING
from headrace.errors import DefinitionError
from headrace.schemas import shown_type

_FIRST_MOMENT, _LAST_MOMENT = -8_334_601_228_800_000_000, 8_210_266_876_799_999_999
REFUSED = {"reason": pl.String(), "detail": pl.String(), "raw": pl.Binary()}
"""The columns of rows that a sink refuses."""


def flat_schema(columns: Mapping[str, pl.DataType]) -> dict[str, pl.DataType]:
    """Columns without structs: the fields of ``window`` become ``window_start`` and ``window_end``."""
    flattened: dict[str, pl.DataType] = {}
    for name, kind in columns.items():
        inner = {name: kind}
        if isinstance(kind, pl.Struct):
            inner = flat_schema(pl.DataFrame(schema={name: kind}).unnest(name, separator="_").schema)
        if taken := inner.keys() & flattened.keys():
            raise DefinitionError(
                "COLUMN_EXISTS",
                f"column {min(taken)!r} is there twice, because this sink makes columns of the fields of structs, as "
                "window_start of window. Rename or drop one of the two.",
            )
        flattened |= inner
    return flattened


def flat(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows with the fields of structs as columns."""
    while nested := [name for name, kind in rows.schema.items() if isinstance(kind, pl.Struct)]:
        rows = rows.unnest(nested, separator="_")
    return rows


@dataclass(frozen=True, slots=True)
class Changes:
    """The effect of a batch on a table: rows to upsert, keys to delete, and the number of superseded rows."""

    upserts: pl.DataFrame
    deletes: pl.DataFrame
    superseded: int


def last_changes(rows: pl.DataFrame, key: Sequence[str], *, changelog: bool) -> Changes:
    """The last change of each key, in the order of the rows; where they are no changelog each row sets its key."""
    last = rows.unique(list(key), keep="last", maintain_order=True)
    if not changelog:
        return Changes(last, rows.select(key).clear(), rows.height - last.height)
    gone = last[CHANGE].is_in(REMOVING).fill_null(value=False)
    return Changes(last.filter(~gone).drop(CHANGE), last.filter(gone).select(key), rows.height - last.height)


def json_rows(rows: pl.DataFrame) -> list[bytes]:
    """Each row as a JSON object; times in ISO 8601, decimals as text, bytes in base 64.

    Where JSON has no number it is text, as Spark and Jackson write it: ``NaN``, ``Infinity``, ``-Infinity``. A time
    beyond the calendar (about 262,000 years) is a number of microseconds.

    >>> json_rows(pl.DataFrame({"score": [1.5, float("nan"), None]}))
    [b'{"score":1.5}', b'{"score":"NaN"}', b'{"score":null}']
    """
    return json_lines(rows).splitlines()


def json_values(values: pl.Series) -> list[bytes]:
    """The JSON text of each value, as it is in the JSON object of its row."""
    return [text[len(b'{"v":') : -1] for text in json_rows(values.alias("v").to_frame())]


def json_lines(rows: pl.DataFrame) -> bytes:
    """The rows as JSON lines."""
    # The mark is around numbers in columns that must be text, and in no text of the rows: nobody can guess it.
    stream, mark, columns = BytesIO(), uuid4().hex, rows.get_columns()
    readable = [_readable(values, mark) for values in columns]
    rows.with_columns(readable).write_ndjson(stream)
    text = stream.getvalue()
    if all(map(is_, columns, readable)):
        return text
    return text.replace(f'"{mark}'.encode(), b"").replace(f'{mark}"'.encode(), b"")


def _readable(values: pl.Series, mark: str) -> pl.Series:
    """Values that JSON can hold, in nested values too: bytes, some times and some numbers become text."""
    match values.dtype:
        case pl.Float32() | pl.Float64():
            return values if values.is_finite().all() else _marked(values, mark)
        case pl.Binary():
            return values.bin.encode("base64")
        case pl.Datetime():
            return _within_the_calendar(values)
        case pl.List():
            flat_values = values.explode(empty_as_null=False, keep_nulls=False)
            readable = _readable(flat_values, mark)
            return values if readable is flat_values else lists_like(values, readable)
        case pl.Map():
            entries = values.map.entries()
            pairs = entries.explode(empty_as_null=False, keep_nulls=False).struct.unnest()
            keys, held = pairs.get_columns()
            names, readable = keys.to_frame().select(as_text(pl.first(), keys.dtype)), _readable(held, mark)
            if keys.dtype == pl.String and readable is held:
                return values
            whole = lists_like(entries, names.with_columns(readable).to_struct())
            return whole.cast(pl.Map(pl.String(), readable.dtype))
        case pl.Struct():
            fields = values.struct.unnest().get_columns()
            readable_fields = [_readable(field, mark) for field in fields]
            if all(map(is_, fields, readable_fields)):
                return values
            whole = pl.DataFrame(readable_fields).to_struct(values.name)
            return whole.zip_with(values.is_not_null(), pl.Series([None], dtype=whole.dtype))
        case _:
            return values


def _marked(numbers: pl.Series, mark: str) -> pl.Series:
    """Numbers as text between two marks, and without marks those that JSON does not have."""
    number, text = pl.first(), _number_text(pl.first())
    marked = pl.when(number.is_finite()).then(mark + text + mark).otherwise(text)
    return numbers.to_frame().select(marked.alias(numbers.name)).to_series()


def _number_text(number: pl.Expr) -> pl.Expr:
    return number.cast(pl.String).replace({"inf": "Infinity", "-inf": "-Infinity"})


def finite(value: Any) -> Any:
    """A value of Python's with text in place of the numbers that JSON does not have.

    >>> finite({"score": float("nan"), "more": [1.5, float("-inf")]})
    {'score': 'NaN', 'more': [1.5, '-Infinity']}
    """
    match value:
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case dict():
            return {name: finite(each) for name, each in value.items()}
        case list() | tuple():
            return [finite(each) for each in value]
        case _:
            return value


def lists_like(like: pl.Series, elements: pl.Series) -> pl.Series:
    """Elements in lists of the same lengths as ``like``."""
    ends = like.list.len().fill_null(0).cast(pl.Int64).cum_sum()
    offsets = pl.concat([pl.Series([0], dtype=pl.Int64), ends.alias("")]).to_arrow()
    missing = like.is_null().to_arrow()
    return pl.Series(like.name, pa.LargeListArray.from_arrays(offsets, elements.to_arrow(), mask=missing))


def _within_the_calendar(times: pl.Series) -> pl.Series:
    """The times, or texts if one of them is beyond the calendar."""
    number = times.to_physical()
    written = number.is_between(_FIRST_MOMENT, _LAST_MOMENT)
    if written.all():
        return times
    text = times.set(~written, None).dt.to_string("iso:strict")
    return text.zip_with(written.fill_null(True), number.cast(pl.String))


def shown(value: object) -> str:
    """A value on a screen; of a window the end has a date only if it is on another day.

    >>> shown({"start": datetime(2026, 1, 1, 10), "end": datetime(2026, 1, 1, 11)})
    '2026-01-01 10:00 to 11:00'
    >>> shown({"start": datetime(2026, 1, 1, 23, 30), "end": datetime(2026, 1, 2, 0, 0, 30)})
    '2026-01-01 23:30:00 to 2026-01-02 00:00:30'
    """
    match value:
        case None:
            return ""
        case datetime():
            return value.replace(tzinfo=None).isoformat(sep=" ").removesuffix(":00")
        case {"start": datetime() as start, "end": datetime() as end, **others} if not others:
            fraction, seconds = start.microsecond or end.microsecond, start.second or end.second
            detail = "microseconds" if fraction else "seconds" if seconds else "minutes"
            begin, until = (time.replace(tzinfo=None).isoformat(" ", detail) for time in (start, end))
            return f"{begin} to {until[11:] if start.date() == end.date() else until}"
        case Mapping():
            return "{" + ", ".join(f"{name}: {shown(inner)}" for name, inner in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(shown, value)) + "]"
        case bytes():
            return value.decode("utf-8", "replace")
        case _:
            return str(value)


def refused_rows(rows: pl.DataFrame, reason: str, detail: str) -> pl.DataFrame:
    """Rows that a sink refuses, for the dead letters.

    >>> refused_rows(pl.DataFrame({"n": [1]}), "KEY_NULL", "account is null").row(0)
    ('KEY_NULL', 'account is null', b'{"n":1}')
    """
    raw = json_rows(rows)
    return pl.DataFrame({"reason": [reason] * len(raw), "detail": [detail] * len(raw), "raw": raw}, schema=REFUSED)


_ESCAPE = "%"


@dataclass(frozen=True, slots=True)
class Template:
    """Text with columns in braces: ``texts[0] columns[0] texts[1] columns[1] ... texts[-1]``."""

    texts: tuple[str, ...]
    columns: tuple[str, ...]

    def check(self, columns: Mapping[str, pl.DataType]) -> None:
        """Fail unless every column of the template exists and is scalar."""
        for name in self.columns:
            kind = columns.get(name)
            if kind is None or kind.is_nested():
                missing = f"the rows do not have. Existing columns: {', '.join(columns)}."
                why = missing if kind is None else f"is {shown_type(kind)}. Name scalar columns."
                raise DefinitionError("TEMPLATE_COLUMN", f"template {str(self)!r} names column {name!r}, which {why}")

    def render(self, rows: pl.DataFrame) -> pl.Series:
        """The text of each row, null where one of its columns is null; different values give different texts.

        Values are not escaped, except in text before another column: there the separator after the column (and ``%``)
        is percent-encoded, so that ``a-b`` and ``c`` differ from ``a`` and ``b-c``.

        >>> rows = pl.DataFrame({"a": ["x-y", "x"], "b": ["z", "y-z"]})
        >>> parse_template("{a}-{b}").render(rows).to_list()
        ['x%2Dy-z', 'x-y-z']
        """
        parts: list[pl.Expr] = [pl.lit(self.texts[0])]
        for position, name in enumerate(self.columns):
            text, kind = self.texts[position + 1], rows.schema[name]
            value = as_text(pl.col(name), kind)
            if position + 1 < len(self.columns) and isinstance(kind, pl.String | pl.Categorical | pl.Enum):
                for each in (_ESCAPE, text[0]):
                    value = value.str.replace_all(each, f"%{ord(each):02X}", literal=True)
            parts += [value, pl.lit(text)]
        return rows.select(pl.concat_str(parts).alias("name"))["name"]

    def __str__(self) -> str:
        texts = [text.replace("{", "{{").replace("}", "}}") for text in self.texts]
        return texts[0] + "".join(f"{{{name}}}{text}" for name, text in zip(self.columns, texts[1:], strict=True))


def parse_template(text: str) -> Template:
    """Parse a template; ``{{`` and ``}}`` stand for braces.

    >>> template = parse_template("spend:{account}:{day}")
    >>> template.columns, str(template)
    (('account', 'day'), 'spend:{account}:{day}')
    """
    texts, columns = [""], list[str]()
    try:
        parsed = list(string.Formatter().parse(text))
    except ValueError as problem:
        raise _invalid(text, str(problem)) from None
    for literal, name, form, conversion in parsed:
        texts[-1] += literal
        if name is None:
            continue
        if name == "" or form or conversion:
            raise _invalid(text, "only a column's name may be between braces")
        columns.append(name)
        texts.append("")
    if not columns:
        raise _invalid(text, "it names no column, so all rows would have the same text")
    for between in texts[1:-1]:
        if between == "" or between[0].isalnum() or not between[0].isascii() or between[0] == _ESCAPE:
            raise _invalid(text, "columns must be separated by a character such as ':' or '-'")
    return Template(tuple(texts), tuple(columns))


def _invalid(text: str, why: str) -> DefinitionError:
    return DefinitionError("TEMPLATE_INVALID", f"template {text!r}: {why}. Write it like 'spend:{{account}}:{{day}}'.")


def as_text(value: pl.Expr, kind: pl.DataType) -> pl.Expr:
    """A scalar column as text; times in ISO 8601 and UTC, bytes in hexadecimal."""
    match kind:
        case pl.Datetime(time_zone=None):
            return value.dt.to_string("%Y-%m-%dT%H:%M:%S%.6f")
        case pl.Datetime():
            return value.dt.convert_time_zone("UTC").dt.to_string("%Y-%m-%dT%H:%M:%S%.fZ")
        case pl.Duration():
            return value.dt.to_string("iso")
        case pl.Binary():
            return value.bin.encode("hex")
        case pl.Float32() | pl.Float64():
            return _number_text(value)
        case _:
            return value.cast(pl.String)
