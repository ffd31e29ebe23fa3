"""Expected against actual rows: equal on the columns that are named, in order within a key."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from itertools import zip_longest
from typing import Any

from rich.console import Console
from rich.table import Table

from headrace.durations import microseconds
from headrace.testing.elements import Row, moment, shown

_WINDOW = re.compile(r"\d[^/]*:[^/]*/\d[^/]*:[^/]*")
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT)?\d{1,2}:\d\d(:\d\d(\.\d+)?)?Z?")


def equal(expected: Sequence[Row], actual: Sequence[Row], key: Sequence[str]) -> bool:
    """Whether the rows are the same; the order of rows with different keys does not matter."""
    columns = _columns(expected)
    order = key if all(name in row for row in expected for name in key) else columns
    return _plain_rows(expected, columns, order) == _plain_rows(actual, columns, order)


def _columns(rows: Iterable[Row]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def _plain_rows(rows: Iterable[Row], columns: Collection[str], order: Iterable[str]) -> list[dict[str, str]]:
    """These columns of the rows as they are compared and shown, sorted by some of them."""
    cut = [{name: plain(value) for name, value in row.items() if name in columns} for row in rows]
    return sorted(cut, key=lambda row: [row.get(name, "") for name in order])


def plain(value: Any) -> str:
    """A value in the one form in which both sides are compared and shown."""
    match value:
        case {"start": datetime(), "end": datetime()}:
            return f"{shown(value['start'])}/{shown(value['end'])}"
        case dict():
            return f"{{{', '.join(f'{name}: {plain(each)}' for name, each in value.items())}}}"
        case list():
            return f"[{', '.join(map(plain, value))}]"
        case datetime():
            return shown(value)
        case timedelta():
            return f"{value // timedelta(microseconds=1)} us"
        case bool():
            return repr(value)
        case float() if value.is_integer() and (value or math.copysign(1, value) > 0):
            return repr(int(value))
        case str() if _WINDOW.fullmatch(value):
            start, end = value.split("/")
            return f"{shown(moment(start))}/{shown(moment(end))}"
        case str() if _TIME.fullmatch(value):
            return shown(moment(value))
        case _:
            return repr(value)


def late_by(duration: str) -> timedelta:
    """How late a row is, for an expectation.

    >>> late_by("5 minutes")
    datetime.timedelta(seconds=300)
    """
    return timedelta(microseconds=microseconds(duration, argument="late_by"))


def side_by_side(expected: Sequence[Row], actual: Sequence[Row], key: Sequence[str], timeline: Sequence[str]) -> str:
    """The timeline so far, and below it expected and actual rows beside each other."""
    columns = _columns(expected) or _columns(actual)
    wanted, found = (_plain_rows(rows, {*columns, *key}, key) for rows in (expected, actual))
    table = Table("", "expected", "actual", title_justify="left")
    for pair in zip_longest(wanted, found):
        left, right = (
            "-" if row is None else ", ".join(f"{name}={row[name]}" for name in columns if name in row) for row in pair
        )
        table.add_row("" if left == right else "!", left, right)
    console = Console(width=200, color_system=None, highlight=False)
    with console.capture() as capture:
        console.print(table)
    return "\n".join([*timeline, capture.get()])
