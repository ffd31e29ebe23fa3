"""How Debezium writes values as JSON, told by a message's schema part or else by what the author says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from headrace.connectors.base.conversion import from_text, from_value
from headrace.connectors.debezium.base64_decimals import decimals, scaled_decimals
from headrace.connectors.debezium.changes import Decimals, Times
from headrace.connectors.debezium.moments import dates, moments
from headrace.connectors.debezium.plain_decimals import plain_decimals

_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_SCALED_DECIMAL = "io.debezium.data.VariableScaleDecimal"
_UNITS: Mapping[str, Times] = {
    "org.apache.kafka.connect.data.Timestamp": "milliseconds",
    "io.debezium.time.Timestamp": "milliseconds",
    "io.debezium.time.MicroTimestamp": "microseconds",
    "io.debezium.time.NanoTimestamp": "nanoseconds",
}
_BYTES = "bytes"
_BASE64 = r"^[A-Za-z0-9+/]+={0,2}$"
# MongoDB's extended JSON: an object around each value of a type that JSON does not have.
_WRAPPED = r'^\{"\$(?:oid|numberLong|numberInt|numberDouble|numberDecimal|date|uuid)":\s*(.*)\}$'
_WRAPPED_BYTES = r'^\{"\$binary":\s*(?:\{"base64":\s*)?"([^"]*)"'


@dataclass(frozen=True, slots=True)
class Encoding:
    """What a schema part says of one value: the name of its logical type, or else of its type; a decimal's scale."""

    name: str
    scale: int | None = None


@dataclass(frozen=True, slots=True)
class Encodings:
    """How the values of messages are written."""

    decimals: Decimals
    times: Times
    named: Mapping[str, Encoding] = field(default_factory=dict)
    """By the path of a value: ``price``, ``prices[]``, ``place.wkb``."""
    extended: bool = False
    """Whether values are MongoDB's extended JSON."""

    def read(self, text: pl.Series, declared: pl.DataType, path: str) -> pl.Series:
        """The values in their declared type, null where the text does not fit."""
        if self.extended:
            text = _unwrapped(text)
        encoding = self.named.get(path)
        if encoding is not None and encoding.scale is not None and encoding.name == _DECIMAL:
            return from_value(decimals(text, encoding.scale), declared)
        if encoding is not None and encoding.name == _SCALED_DECIMAL and declared != pl.String:
            return scaled_decimals(text, declared)
        match declared:
            case pl.Datetime():
                unit = self.times if encoding is None else _UNITS.get(encoding.name, self.times)
                return moments(text, declared, unit)
            case pl.Date():
                return dates(text)
            case pl.Decimal() if encoding is None or encoding.name == _BYTES:
                return self._unnamed_decimals(text, declared)
            case pl.Decimal():
                return plain_decimals(text, declared)
            case pl.Boolean():
                # MySQL's booleans are small numbers.
                return from_text(text.replace({"1": "true", "0": "false"}), declared)
            case _:
                return from_text(text, declared)

    def _unnamed_decimals(self, text: pl.Series, declared: pl.Decimal) -> pl.Series:
        scaled = text.str.starts_with("{")
        if scaled.any():
            return _filled(scaled_decimals(text, declared), self._unnamed_decimals(text.set(scaled, None), declared))
        if self.decimals == "text":
            return plain_decimals(text, declared)
        encoded = text.str.contains(_BASE64)
        if encoded.all():
            return from_value(decimals(text, declared.scale), declared)
        exact = from_value(decimals(text.set(~encoded, None), declared.scale), declared)
        return _filled(exact, plain_decimals(text.set(encoded, None), declared))


def named_encodings(schema: Mapping[str, Any], path: str = "") -> dict[str, Encoding]:
    """The encodings of all values below a schema, by path; ``schema`` is one of Kafka Connect's JSON schemas.

    >>> days = {"field": "on", "type": "int32", "name": "io.debezium.time.Date"}
    >>> named_encodings({"type": "struct", "fields": [days]})
    {'on': Encoding(name='io.debezium.time.Date', scale=None)}
    """
    found: dict[str, Encoding] = {}
    name = schema.get("name", schema.get("type"))
    if path and isinstance(name, str):
        scale = (schema.get("parameters") or {}).get("scale")
        found[path] = Encoding(name, None if scale is None else int(scale))
    for inner in schema.get("fields") or ():
        found |= named_encodings(inner, f"{path}.{inner['field']}" if path else inner["field"])
    if isinstance(schema.get("items"), dict):
        found |= named_encodings(schema["items"], f"{path}[]")
    return found


def _filled(values: pl.Series, others: pl.Series) -> pl.Series:
    return values.zip_with(values.is_not_null(), others)


def _unwrapped(text: pl.Series) -> pl.Series:
    """Values without the objects around them; a date may have two.

    >>> _unwrapped(pl.Series(['{"$oid": "5f"}', '{"$date": {"$numberLong": "7"}}', "{}"])).to_list()
    ['5f', '7', '{}']
    """
    if not text.str.starts_with('{"$').any():
        return text
    once = pl.coalesce(pl.col("text").str.extract(_WRAPPED_BYTES), pl.col("text").str.extract(_WRAPPED), pl.col("text"))
    twice = pl.coalesce(pl.col("text").str.extract(_WRAPPED), pl.col("text"))
    quoted = pl.coalesce(pl.col("text").str.extract('^"(.*)"$'), pl.col("text"))
    frame = text.to_frame("text").with_columns(once).with_columns(twice)
    return (
        frame.with_columns(pl.when(text.str.starts_with('{"$')).then(quoted).otherwise("text"))
        .to_series()
        .alias(text.name)
    )
