"""Conversion of values to their declared types; every value that does not fit is reported."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import polars as pl
import pyarrow as pa

from headrace.connectors.base.decoding import (
    FOUND_CHARACTERS,
    POSITION,
    PROBLEM_SCHEMA,
    Columns,
    field_types,
    in_calendar,
    inner_type,
    mismatch,
    readable,
    type_name,
)
from headrace.errors import HeadraceError
from headrace.rendering import json_values, lists_like

_WHOLE_NUMBER = r"^[+-]?[0-9]+$"
_PLAIN_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)$"
_ANY_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
# Date, optional time with optional seconds and fraction, optional zone. Years have four digits.
_DATE = "([0-9]{4}-[0-9]{2}-[0-9]{2})"
_TIME = r"(?:[T ]([0-9]{2}:[0-9]{2})(:[0-5][0-9])?(\.[0-9]{1,9})?)?"
_ANY_TIME = f"^{_DATE}{_TIME}(Z|[+-][0-9]{{2}}(?::?[0-9]{{2}})?)?$"
# What most systems write: all of this is a time, unless its month has no such day.
_USUAL_TIME = (
    "^[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
    r"[T ](?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?"
)
MOST_BYTES = 512 << 20
"""The most that a small table may take, because every worker holds all of it."""
_MICROSECOND_DIGITS = len("2026-01-02T03:04:05.123456")

Reading = Callable[[pl.Series, pl.DataType, str], pl.Series]
"""Converts text in a format's own way: plain values at a path to their declared type, null where one does not fit."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The rows whose value at ``path`` does not fit ``declared``, and the text of those values (null elsewhere)."""

    path: str
    declared: pl.DataType
    found: pl.Series

    def problems(self, positions: pl.Series) -> pl.DataFrame:
        frame = pl.DataFrame({"position": positions, "found": self.found}).drop_nulls("found")
        detail = pl.lit(mismatch(self.path, self.declared, '"')) + pl.col("found").str.slice(0, FOUND_CHARACTERS) + '"'
        return frame.select("position", reason=_reason(self.declared, pl.col("found")), detail=detail)


def settle(read: pl.DataFrame, columns: Columns, reading: Reading | None = None) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rows that fit the declared columns, and for each other row its first problem in column order."""
    positions = read[POSITION]
    settled: list[pl.Series] = []
    problems: list[pl.DataFrame] = []
    for name, declared in columns.types.items():
        values, failures = convert(read[name], declared, name, reading)
        settled.append(values)
        problems.extend(failure.problems(positions) for failure in failures)
        if name in columns.required and read[name].null_count() > 0:
            detail = f"column {name} is {type_name(declared)} NOT NULL, found no value"
            missing = positions.filter(read[name].is_null()).alias("position").to_frame()
            problems.append(missing.with_columns(reason=pl.lit("MISSING_VALUE"), detail=pl.lit(detail)))
    rows = pl.DataFrame([*settled, positions])
    if not problems:
        return rows, pl.DataFrame(schema=PROBLEM_SCHEMA)
    first = pl.concat(problems).unique("position", keep="first", maintain_order=True).sort("position")
    return rows.filter(~pl.col(POSITION).is_in(first["position"].implode())), first


def convert(
    values: pl.Series, declared: pl.DataType, path: str, reading: Reading | None = None
) -> tuple[pl.Series, list[Failure]]:
    """The values in the declared type, null where one does not fit, and those that do not fit."""
    if values.dtype == declared and reading is None:
        return values, []
    if isinstance(declared, pl.List) and isinstance(values.dtype, pl.Array):
        values = values.arr.to_list()
    if isinstance(declared, pl.Struct) and isinstance(values.dtype, pl.Struct):
        return _convert_struct(values, declared, path, reading)
    if isinstance(declared, pl.List) and isinstance(values.dtype, pl.List):
        return _convert_list(values, declared, path, reading)
    if reading is not None and values.dtype == pl.String:
        converted = reading(values, declared, path)
    else:
        converted = (from_text if values.dtype == pl.String else from_value)(values, declared)
    if converted.null_count() == values.null_count():
        return converted, []
    failed = converted.is_null() & values.is_not_null()
    return converted, [Failure(path, declared, _shown(values).set(~failed, None))]


def from_text(text: pl.Series, declared: pl.DataType) -> pl.Series:
    """Text as values of the declared type; null where it does not fit."""
    value = pl.col("value")
    result: pl.Expr
    match declared:
        case pl.Datetime():
            return parse_timestamps(text, zoned=declared.time_zone is not None).alias(text.name)
        case pl.Date():
            return parse_dates(text).alias(text.name)
        case pl.Binary():
            return text.str.decode("base64", strict=False)
        case pl.Boolean():
            lower = value.str.to_lowercase()
            result = pl.when(lower == "true").then(True).when(lower == "false").then(False)
        case pl.Decimal():
            digits = value.str.strip_chars_start("+-").str.extract(r"\.([0-9]*?)0*$").str.len_bytes().fill_null(0)
            exact = value.str.contains(_PLAIN_NUMBER) & (digits <= declared.scale)
            result = pl.when(exact).then(value).cast(declared, strict=False)
        case pl.Float32() | pl.Float64():
            number = value.cast(declared, strict=False)
            overflow = number.is_infinite() & value.str.contains(_ANY_NUMBER)
            result = pl.when(~overflow).then(number)
        case _:
            result = value.cast(declared, strict=False)
    return text.rename("value").to_frame().select(result.alias(text.name)).to_series()


def from_value(values: pl.Series, declared: pl.DataType) -> pl.Series:
    """A cast that gives null instead of another value; a float may lose digits, and a time its nanoseconds."""
    if isinstance(values.dtype, pl.Datetime) and isinstance(declared, pl.Datetime):
        if (declared.time_zone is None) != (values.dtype.time_zone is None):
            # A time outside the calendar has no local time in another zone.
            local = values.dtype.time_zone not in (None, "UTC")
            values = (_in_calendar(values) if local else values).dt.replace_time_zone(declared.time_zone)
        return values.cast(declared, strict=False)
    if declared == pl.String and values.dtype == pl.Binary:
        return from_bytes(values)
    if declared == pl.String and isinstance(values.dtype, (pl.Date, pl.Datetime)):
        return _in_calendar(values).cast(pl.String)
    if declared == pl.String and values.dtype.is_nested():
        return as_json_text(values)
    if declared != pl.String and _kind(values.dtype) != _kind(declared):
        return pl.Series(values.name, [None] * len(values), dtype=declared)
    try:
        converted = values.cast(declared, strict=False)
        if declared == pl.Float32 and values.dtype == pl.Float64:
            return converted.set(converted.is_infinite() & values.is_finite(), None)
        if declared == pl.String:
            return converted
        changed = ~converted.cast(values.dtype, strict=False).eq_missing(values)
    except pl.exceptions.PolarsError:
        return pl.Series(values.name, [None] * len(values), dtype=declared)
    return converted.set(changed, None)


def as_json_text(values: pl.Series) -> pl.Series:
    """Structs and lists as JSON text."""
    plain = values.to_frame("value").select(readable(pl.col("value"), values.dtype)).to_series()
    text = pl.Series(values.name, json_values(plain), dtype=pl.Binary).cast(pl.String)
    return text.set(values.is_null(), None)


def from_bytes(values: pl.Series) -> pl.Series:
    """Bytes as UTF-8 text; null where they are not UTF-8."""
    try:
        return values.cast(pl.String)
    except pl.exceptions.PolarsError:
        replaced = (None if value is None else value.decode(errors="replace") for value in values)
        text = pl.Series(values.name, list(replaced), dtype=pl.String)
        return text.set(~text.cast(pl.Binary).eq_missing(values), None)


def fitted(rows: pl.DataFrame, columns: Mapping[str, pl.DataType], *, table: str) -> pl.DataFrame:
    """The rows of a small table with these columns and no others; fails when values do not fit."""
    missing = [name for name in columns if name not in rows.columns]
    if missing:
        raise HeadraceError(
            "TABLE_COLUMN_MISSING",
            f"{table} has no column {', '.join(missing)}, only {', '.join(rows.columns)}. Restore it and start again.",
        )
    size = int(rows.estimated_size())
    if size > MOST_BYTES:
        raise HeadraceError(
            "TABLE_TOO_LARGE",
            f"{table} takes {size >> 20} MiB, but every worker would hold all of it; at most "
            f"{MOST_BYTES >> 20} MiB are allowed. Read fewer rows or columns, or use hr.lookup or hr.temporal_join.",
        )
    fitting: list[pl.Series] = []
    for name, dtype in columns.items():
        values = rows[name]
        fitting.append(values if values.dtype == dtype else from_value(values, dtype))
        others = values.filter(fitting[-1].is_null() & values.is_not_null())
        if len(others) > 0:
            raise HeadraceError(
                "TABLE_TYPE",
                f"{table}: column {name!r} is {type_name(values.dtype)} and holds {others[0]!r}, "
                f"which does not fit the declared {type_name(dtype)}. Correct the table.",
            )
    return pl.DataFrame(fitting)


def _in_calendar(times: pl.Series) -> pl.Series:
    assert isinstance(times.dtype, (pl.Date, pl.Datetime))  # for the type checker
    inside = pl.when(in_calendar(pl.col("time"), times.dtype)).then("time").alias(times.name)
    return times.to_frame("time").select(inside).to_series()


def _kind(kind: pl.DataType) -> str:
    """The group of types between which a cast keeps the meaning: a number is neither a time nor a boolean."""
    if kind.is_numeric():
        return "number"
    return "time" if kind.is_temporal() else type(kind).__name__


def _convert_struct(
    values: pl.Series, declared: pl.Struct, path: str, reading: Reading | None
) -> tuple[pl.Series, list[Failure]]:
    held = set(values.struct.fields)
    fields: list[pl.Series] = []
    failures: list[Failure] = []
    for name, kind in field_types(declared).items():
        inner = values.struct.field(name) if name in held else pl.Series(name, [None] * len(values), dtype=kind)
        converted, failed = convert(inner, kind, f"{path}.{name}", reading)
        fields.append(converted.alias(name))
        failures.extend(failed)
    rebuilt = pl.DataFrame(fields).to_struct(values.name)
    return rebuilt.set(values.is_null(), None) if values.null_count() > 0 else rebuilt, failures


def _convert_list(
    values: pl.Series, declared: pl.List, path: str, reading: Reading | None
) -> tuple[pl.Series, list[Failure]]:
    items = values.explode(empty_as_null=False, keep_nulls=False)
    converted, failures = convert(items, inner_type(declared), f"{path}[]", reading)
    firsts = (lists_like(values, failure.found).list.drop_nulls().list.first() for failure in failures)
    found = [replace(failure, found=first) for failure, first in zip(failures, firsts, strict=True)]
    return lists_like(values, converted), found


def _reason(declared: pl.DataType, found: pl.Expr) -> pl.Expr:
    match declared:
        case pl.Date() | pl.Datetime():
            return pl.lit("BAD_TIMESTAMP")
        case pl.Int8() | pl.Int16() | pl.Int32() | pl.Int64():
            number = _WHOLE_NUMBER
        case pl.Decimal():
            number = _PLAIN_NUMBER
        case pl.Float32() | pl.Float64():
            number = _ANY_NUMBER
        case _:
            return pl.lit("WRONG_TYPE")
    return pl.when(found.str.contains(number)).then(pl.lit("OUT_OF_RANGE")).otherwise(pl.lit("WRONG_TYPE"))


def _shown(values: pl.Series) -> pl.Series:
    if values.dtype == pl.Binary:
        return values.bin.encode("hex")
    if values.dtype.is_nested():
        return as_json_text(values)
    return values.to_frame("value").select(readable(pl.col("value"), values.dtype)).to_series().cast(pl.String)


def parse_dates(text: pl.Series) -> pl.Series:
    """Dates from ``YYYY-MM-DD``; null for any other text."""
    exact = text.to_frame("text").select(pl.when(pl.col("text").str.contains(f"^{_DATE}$")).then(pl.col("text")))
    return exact.to_series().str.to_date("%Y-%m-%d", strict=False)


def parse_timestamps(text: pl.Series, *, zoned: bool) -> pl.Series:
    """Times in UTC, or local times without a zone, from ISO 8601; null for any other text.

    A zoned column takes text without a zone as UTC; a column without a zone refuses text with one.
    """
    whole = pl.col("text")
    usual = whole.str.contains(_USUAL_TIME + ("Z?$" if zoned else "$"))
    digits = whole.str.strip_suffix("Z").str.head(_MICROSECOND_DIGITS)
    exact = text.to_frame("text").select(pl.when(usual).then(digits)).to_series()
    try:
        # pyarrow parses several times faster than Polars, but fails as a whole and takes dates alone, hours alone, ...
        times = pl.Series(text.name, exact.to_arrow().cast(pa.timestamp("us")), dtype=pl.Datetime("us"))
    except pa.ArrowInvalid:
        return _any_timestamps(text, zoned=zoned)
    times = times.dt.replace_time_zone("UTC") if zoned else times
    rest = (times.is_null() & text.is_not_null()).arg_true()
    return times if rest.is_empty() else times.scatter(rest, _any_timestamps(text.gather(rest), zoned=zoned))


def _any_timestamps(text: pl.Series, *, zoned: bool) -> pl.Series:
    parts = text.rename("text").to_frame().select(pl.col("text").str.extract_groups(_ANY_TIME)).unnest("text")
    day, clock, seconds, fraction, zone = (pl.col(name) for name in parts.columns)
    whole = (
        day
        + "T"
        + clock.fill_null("00:00")
        + seconds.fill_null(":00")
        + pl.when(seconds.is_not_null()).then(fraction.fill_null("")).when(fraction.is_null()).then(pl.lit(""))
    )
    if not zoned:
        times = parts.select(pl.when(zone.is_null()).then(whole)).to_series()
        return times.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f", time_unit="us", strict=False)
    known = pl.when(clock.is_not_null() | zone.is_null()).then(zone.fill_null("Z"))
    times = parts.select(whole + known).to_series()
    return times.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f%#z", time_unit="us", time_zone="UTC", strict=False)
