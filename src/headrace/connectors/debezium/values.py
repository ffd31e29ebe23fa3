"""How Debezium writes values as JSON: decimals, times and dates, and MongoDB's extended JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import polars as pl

from headrace.connectors.base.conversion import from_text, from_value, parse_dates, parse_timestamps
from headrace.connectors.base.decoding import field_types, inner_type
from headrace.connectors.debezium.changes import Decimals, Times

_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_SCALED_DECIMAL = "io.debezium.data.VariableScaleDecimal"
_UNITS: Mapping[str, Times] = {
    "org.apache.kafka.connect.data.Timestamp": "milliseconds",
    "io.debezium.time.Timestamp": "milliseconds",
    "io.debezium.time.MicroTimestamp": "microseconds",
    "io.debezium.time.NanoTimestamp": "nanoseconds",
}
_BASE64 = r"^[A-Za-z0-9+/]+={0,2}$"
_NUMBER = r"-?[0-9][0-9.eE+-]*"
_MAX_DIGITS, _DECIMAL_BYTES = 38, 16
_ZEROS, _ONES = bytes(_DECIMAL_BYTES), b"\xff" * _DECIMAL_BYTES
# Extended JSON puts an object around each value of a type that JSON does not have.
_WRAPPED = r'^\{"\$(?:oid|numberLong|numberInt|numberDouble|numberDecimal|date|uuid)":\s*(.*)\}$'
_WRAPPED_BYTES = r'^\{"\$binary":\s*(?:\{"base64":\s*)?"([^"]*)"'
# The years 1 to 9999, in microseconds and in days.
_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_799_999_999
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
# Infinite, or a year that ISO 8601 writes with a sign or more than four digits.
_BEFORE = r"^-(?:infinity$|\d{4,}-)"
_AFTER = r"^(?:infinity$|\+?\d{5,}-)"


@dataclass(frozen=True, slots=True)
class ValueEncoding:
    """The encoding of one value in a schema part: its logical type or else its type, and a decimal's scale."""

    name: str
    scale: int | None = None


_UNKNOWN = ValueEncoding("")


@dataclass(frozen=True, slots=True)
class ValueEncodings:
    """How the values of messages are written."""

    decimals: Decimals
    times: Times
    by_path: Mapping[str, ValueEncoding] = field(default_factory=dict)
    """The schema part's, by the path of a value: ``price``, ``prices[]``, ``place.wkb``."""
    extended: bool = False
    """Whether values are MongoDB's extended JSON."""

    def read(self, text: pl.Series, declared: pl.DataType, path: str) -> pl.Series:
        if self.extended:
            text = _unwrapped(text)
        encoding = self.by_path.get(path, _UNKNOWN)
        if encoding.name == _DECIMAL and encoding.scale is not None:
            return from_value(base64_decimals(text, encoding.scale), declared)
        if encoding.name == _SCALED_DECIMAL and declared != pl.String:
            return _scaled_decimals(text, declared)
        match declared:
            case pl.Datetime():
                return _parse_times(text, declared, _UNITS.get(encoding.name, self.times))
            case pl.Date():
                days = _clamped(text.cast(pl.Int64, strict=False), text, parse_dates, _FIRST_DAY, _LAST_DAY)
                return days.cast(pl.Int32).cast(pl.Date)
            case pl.Decimal() if encoding.name in ("", "bytes"):
                return self._unnamed_decimals(text, declared)
            case pl.Decimal():
                return _plain_decimals(text, declared)
            case pl.Boolean():
                # MySQL's booleans are small numbers.
                return from_text(text.replace({"1": "true", "0": "false"}), declared)
            case _:
                return from_text(text, declared)

    def _unnamed_decimals(self, text: pl.Series, declared: pl.Decimal) -> pl.Series:
        scaled = text.str.starts_with("{")
        if scaled.any():
            return _scaled_decimals(text, declared).fill_null(self._unnamed_decimals(text.set(scaled, None), declared))
        if self.decimals == "text":
            return _plain_decimals(text, declared)
        encoded = text.str.contains(_BASE64)
        if encoded.all():
            return from_value(base64_decimals(text, declared.scale), declared)
        exact = from_value(base64_decimals(text.set(~encoded, None), declared.scale), declared)
        return exact.fill_null(_plain_decimals(text.set(encoded, None), declared))


def encodings_by_path(schema: Mapping[str, Any], path: str = "") -> dict[str, ValueEncoding]:
    """The encodings of all values below one of Kafka Connect's JSON schemas."""
    found: dict[str, ValueEncoding] = {}
    name = schema.get("name", schema.get("type"))
    if path and isinstance(name, str):
        scale = (schema.get("parameters") or {}).get("scale")
        found[path] = ValueEncoding(name, None if scale is None else int(scale))
    for inner in schema.get("fields") or ():
        found |= encodings_by_path(inner, f"{path}.{inner['field']}" if path else inner["field"])
    if isinstance(schema.get("items"), dict):
        found |= encodings_by_path(schema["items"], f"{path}[]")
    return found


def _unwrapped(text: pl.Series) -> pl.Series:
    """Extended JSON's values without the objects around them; a date may have two."""
    if not text.str.starts_with('{"$').any():
        return text
    each = pl.col("text")
    once = pl.coalesce(each.str.extract(_WRAPPED_BYTES), each.str.extract(_WRAPPED), each)
    twice = pl.coalesce(each.str.extract(_WRAPPED), each)
    quoted = pl.coalesce(each.str.extract('^"(.*)"$'), each)
    frame = text.to_frame("text").with_columns(once).with_columns(twice)
    unquoted = frame.select(pl.when(text.str.starts_with('{"$')).then(quoted).otherwise("text"))
    return unquoted.to_series().alias(text.name)


def base64_decimals(text: pl.Series, scale: int) -> pl.Series:
    """Decimals as Kafka Connect writes them: the bytes of the unscaled integer, big-endian, in base 64.

    Null where the text is not such a number, or has more digits than a column can hold.

    >>> base64_decimals(pl.Series(["BNI=", "/y4=", "?"]), 2).to_list()
    [Decimal('12.34'), Decimal('-2.10'), None]
    """
    if not 0 <= scale <= _MAX_DIGITS:
        return pl.Series(text.name, [None] * len(text), dtype=pl.Decimal(_MAX_DIGITS, 0))
    number = pl.col("number")
    sign = pl.when(number.bin.head(1) >= b"\x80").then(pl.lit(_ONES)).otherwise(pl.lit(_ZEROS))
    whole = (sign + number).bin.tail(_DECIMAL_BYTES).bin.reinterpret(dtype=pl.Int128, endianness="big")
    fits = number.bin.size().is_between(1, _DECIMAL_BYTES)
    unscaled = pl.when(fits).then(whole).cast(pl.Decimal(_MAX_DIGITS, 0), strict=False)
    unit = pl.lit(Decimal(1).scaleb(-scale), pl.Decimal(_MAX_DIGITS, scale))
    decoded = text.str.decode("base64", strict=False).to_frame("number")
    return decoded.select(unscaled * unit).to_series().alias(text.name)


def _scaled_decimals(text: pl.Series, declared: pl.DataType) -> pl.Series:
    """Decimals with a scale each, as ``{"scale": 3, "value": "Fi4="}``, in the declared type."""
    parts = text.to_frame("text").select(
        row=pl.int_range(pl.len()),
        # With a decimal column named ``scale`` the number has become text.
        scale=pl.col("text").str.extract(r'"scale":\s*"?\s*(\d+)').cast(pl.Int64, strict=False),
        value=pl.col("text").str.extract(r'"value":\s*"([^"]*)"'),
    )
    converted = [
        part.select("row", value=from_value(base64_decimals(part["value"], scale), declared))
        for (scale,), part in parts.drop_nulls("scale").partition_by("scale", as_dict=True).items()
    ]
    known = pl.concat(converted) if converted else pl.DataFrame(schema={"row": pl.Int64(), "value": declared})
    return parts.select("row").join(known, on="row", how="left", maintain_order="left")["value"].alias(text.name)


def mark_plain_decimals(payload: pl.Series, declared: Mapping[str, pl.DataType]) -> pl.Series:
    """Objects with the JSON numbers of decimal columns as text with a leading space, which base 64 never has.

    >>> given = pl.Series(['{"price": 1234.0, "n": 7}', '{"price": "BNI=", "n": 8}'])
    >>> mark_plain_decimals(given, {"price": pl.Decimal(10, 2), "n": pl.Int64()}).to_list()
    ['{"price": " 1234.0", "n": 7}', '{"price": "BNI=", "n": 8}']
    """
    kinds = list(_fields(declared))
    # A name that elsewhere in the row stands for another type is ambiguous here.
    others = {name for name, kind in kinds if not isinstance(kind, pl.Decimal)}
    names = sorted({name for name, kind in kinds if isinstance(kind, pl.Decimal)} - others)
    if not names:
        return payload
    quoted = "|".join(pl.escape_regex(json.dumps(name, ensure_ascii=False)) for name in names)
    return payload.str.replace_all(rf"((?:{quoted})\s*:\s*)({_NUMBER})", '${1}" ${2}"')


def _fields(declared: Mapping[str, pl.DataType]) -> Iterator[tuple[str, pl.DataType]]:
    for name, kind in declared.items():
        yield name, kind
        inner = inner_type(kind) if isinstance(kind, pl.List) else kind
        if isinstance(inner, pl.Struct):
            yield from _fields(field_types(inner))


def _plain_decimals(text: pl.Series, declared: pl.Decimal) -> pl.Series:
    """Plain numbers in the declared type; null where they have more digits than it allows."""
    text = text.str.strip_chars_start(" ")
    exact = from_text(text, declared)
    powers = text.str.contains("[eE]").fill_null(False)
    if not powers.any():
        return exact
    # Numbers with an exponent are floats: one that survives the way to the decimal and back had no more digits.
    number = text.set(~powers, None).cast(pl.Float64, strict=False)
    close = number.cast(declared, strict=False)
    return exact.fill_null(close.set((close.cast(pl.Float64) != number).fill_null(True), None))


def _parse_times(text: pl.Series, declared: pl.Datetime, unit: Times) -> pl.Series:
    """Times as numbers of a unit or in ISO 8601, clamped to the years 1 to 9999; null where the text is neither."""
    number = text.cast(pl.Int64, strict=False)
    if unit == "milliseconds":
        number = number.clip(_FIRST // 1000, _LAST // 1000 + 1) * 1000
    elif unit == "nanoseconds":
        number = number // 1000
    zoned = declared.time_zone is not None
    return _clamped(number, text, lambda each: parse_timestamps(each, zoned=zoned), _FIRST, _LAST).cast(declared)


def _clamped(
    number: pl.Series, text: pl.Series, parse: Callable[[pl.Series], pl.Series], first: int, last: int
) -> pl.Series:
    """The numbers, or the parsed texts where there is no number, clamped to the first and the last."""
    if number.null_count() > text.null_count():
        number = number.fill_null(parse(text).to_physical().cast(pl.Int64))
    if number.null_count() > text.null_count():
        before, after = pl.col("text").str.contains(_BEFORE), pl.col("text").str.contains(_AFTER)
        beyond = pl.when(before).then(first).when(after).then(last).cast(pl.Int64)
        number = number.fill_null(text.to_frame("text").select(beyond).to_series())
    return number.clip(first, last)
