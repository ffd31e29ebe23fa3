"""Functions of text and dates: each for whole columns, and for single values while a pattern is matched."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Literal, TypeVar

import polars as pl

Argument = Literal["text", "integer", "day", "local", "instant"]
"""A kind of argument; a ``day`` is a DATE or that of a TIMESTAMP_NTZ."""
_DAY, _HOUR, _MINUTE, _SECOND = 86_400_000_000, 3_600_000_000, 60_000_000, 1_000_000
T = TypeVar("T")
_EPOCH = date(1970, 1, 1)
_TO_THE_END = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Function:
    """A function that is null where an argument is null."""

    takes: tuple[Argument, ...]
    """The kinds of its arguments; the last stands for all further ones."""
    gives: pl.DataType
    of_columns: Callable[..., pl.Expr]
    of_values: Callable[..., Any]
    """Of known values: days since 1970 and microseconds since 1970, as patterns hold them."""

    def arguments(self, operands: Sequence[T]) -> list[tuple[T, Argument]]:
        """Each operand with the kind of argument that it must be."""
        more = len(operands) - len(self.takes)
        return list(zip(operands, (*self.takes, *self.takes[-1:] * more), strict=False))


def type_fits(dtype: pl.DataType, wanted: Argument) -> bool:
    """Whether a type may stand for a kind of argument.

    >>> type_fits(pl.Date(), "day"), type_fits(pl.Datetime("us", "UTC"), "day")
    (True, False)
    """
    match wanted:
        case "text":
            return dtype == pl.String()
        case "integer":
            return dtype.is_integer()
        case "day":
            return dtype in (pl.Date(), pl.Datetime("us"))
        case "local":
            return dtype == pl.Datetime("us")
        case "instant":
            return isinstance(dtype, pl.Datetime) and dtype.time_zone is not None


def day_of_value(dtype: pl.DataType) -> Callable[[int], int]:
    """The day of a value of the kind ``day``, as the number that `Function.of_values` takes."""
    return (lambda value: value) if dtype == pl.Date() else lambda value: value // _DAY


def _substring(text: pl.Expr, position: pl.Expr, length: pl.Expr | None = None) -> pl.Expr:
    place, characters = position.cast(pl.Int64), text.str.len_chars().cast(pl.Int64)
    begin = pl.when(place > 0).then(place - 1).when(place < 0).then(characters + place).otherwise(0)
    end = begin + (pl.lit(_TO_THE_END) if length is None else length.cast(pl.Int64))
    offset = pl.max_horizontal(begin, pl.lit(0))
    taken = text.str.slice(offset, pl.max_horizontal(end - offset, pl.lit(0)))
    return pl.when(place.is_not_null() & end.is_not_null()).then(taken)


def _substring_of(text: str, position: int, length: int = _TO_THE_END) -> str:
    begin = position - 1 if position > 0 else len(text) + position if position < 0 else 0
    return text[max(begin, 0) : max(begin + length, 0)]


def _right(text: pl.Expr, length: pl.Expr) -> pl.Expr:
    taken = pl.max_horizontal(length.cast(pl.Int64), pl.lit(0))
    return pl.when(length.is_not_null()).then(text.str.tail(taken))


def _replaced(text: pl.Expr, part: pl.Expr, by: pl.Expr) -> pl.Expr:
    return pl.when(part != "").then(text.str.replace_all(part, by, literal=True)).otherwise(text)


def _days(day: pl.Expr) -> pl.Expr:
    return day.cast(pl.Date).to_physical()


def _date_of(days: int) -> date:
    return _EPOCH + timedelta(days)


def _last_day(days: int) -> int:
    following = _date_of(days).replace(day=28) + timedelta(4)
    return (following.replace(day=1) - _EPOCH).days - 1


def _part(name: str, of_values: Callable[[date], int]) -> Function:
    """A whole number that is part of a date; ``name`` is what Polars calls it."""
    return Function(
        ("day",),
        pl.Int32(),
        lambda day: getattr(day.dt, name)().cast(pl.Int32),
        lambda day: of_values(_date_of(day)),
    )


def _part_of_time(length: int, within: int) -> Function:
    return Function(
        ("local",),
        pl.Int32(),
        lambda time: (time.to_physical() % within // length).cast(pl.Int32),
        lambda time: time % within // length,
    )


def _since_1970(length: int) -> Function:
    return Function(("instant",), pl.Int64(), lambda time: time.to_physical() // length, lambda time: time // length)


def _text(of_columns: Callable[..., pl.Expr], of_values: Callable[..., Any], *more: Argument) -> Function:
    return Function(("text", *more), pl.String(), of_columns, of_values)


def _test(of_columns: Callable[..., pl.Expr], of_values: Callable[[str, str], bool]) -> Function:
    return Function(("text", "text"), pl.Boolean(), of_columns, of_values)


FUNCTIONS: Mapping[str, Function] = {
    "upper": _text(lambda text: text.str.to_uppercase(), str.upper),
    "lower": _text(lambda text: text.str.to_lowercase(), str.lower),
    "length": Function(("text",), pl.Int32(), lambda text: text.str.len_chars().cast(pl.Int32), len),
    "concat": _text(lambda *texts: pl.concat_str(texts), lambda *texts: "".join(texts), "text"),
    "substring": _text(_substring, _substring_of, "integer", "integer"),
    "right": _text(_right, lambda text, length: text[max(len(text) - length, 0) :] if length > 0 else "", "integer"),
    "trim": _text(lambda text: text.str.strip_chars(" "), lambda text: text.strip(" ")),
    "ltrim": _text(lambda text: text.str.strip_chars_start(" "), lambda text: text.lstrip(" ")),
    "rtrim": _text(lambda text: text.str.strip_chars_end(" "), lambda text: text.rstrip(" ")),
    "replace": _text(_replaced, lambda text, part, by: text.replace(part, by) if part else text, "text", "text"),
    "startswith": _test(lambda text, part: text.str.starts_with(part), str.startswith),
    "endswith": _test(lambda text, part: text.str.ends_with(part), str.endswith),
    "contains": _test(lambda text, part: text.str.contains(part, literal=True), str.__contains__),
    "year": _part("year", lambda day: day.year),
    "quarter": _part("quarter", lambda day: (day.month + 2) // 3),
    "month": _part("month", lambda day: day.month),
    "day": _part("day", lambda day: day.day),
    "dayofyear": _part("ordinal_day", lambda day: day.timetuple().tm_yday),
    "weekofyear": _part("week", lambda day: day.isocalendar().week),
    "dayofweek": Function(
        ("day",),
        pl.Int32(),
        lambda day: (day.dt.weekday() % 7 + 1).cast(pl.Int32),
        lambda day: _date_of(day).isoweekday() % 7 + 1,
    ),
    "hour": _part_of_time(_HOUR, _DAY),
    "minute": _part_of_time(_MINUTE, _HOUR),
    "second": _part_of_time(_SECOND, _MINUTE),
    "last_day": Function(("day",), pl.Date(), lambda day: day.dt.month_end().cast(pl.Date), _last_day),
    "datediff": Function(
        ("day", "day"), pl.Int32(), lambda end, start: _days(end) - _days(start), lambda end, start: end - start
    ),
    "date_add": Function(
        ("day", "integer"),
        pl.Date(),
        lambda day, days: (_days(day).cast(pl.Int64) + days.cast(pl.Int64)).cast(pl.Int32, strict=False).cast(pl.Date),
        lambda day, days: day + days,
    ),
    "unix_seconds": _since_1970(_SECOND),
    "unix_millis": _since_1970(1_000),
    "unix_micros": _since_1970(1),
}
"""The functions of SQL text that are not written as operators, by their names in Spark."""
