"""Expected against actual rows: equal on the columns that are named, in order within a key."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from rich.console import Console
from rich.table import Table

from headrace.durations import microseconds
from headrace.testing.elements import Row, moment, shown, shown_window

_WINDOW = re.compile(r"\d[^/]*:[^/]*/\d[^/]*:[^/]*")
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT)?\d{1,2}:\d\d(:\d\d(\.\d+)?)?Z?")


def equal(expected: Sequence[Row], actual: Sequence[Mapping[str, Any]], key: Sequence[str]) -> bool:
    """Whether the rows are the same; the order of rows with different keys does not matter."""
    named = all(name in row.columns for row in expected for name in key)
    wanted = _by_key([row.columns for row in expected], key if named else (), None)
    found = _by_key(actual, key if named else (), expected)
    if not named:
        wanted, found = ({place: sorted(rows) for place, rows in side.items()} for side in (wanted, found))
    return wanted == found


def _by_key(
    rows: Sequence[Mapping[str, Any]], key: Sequence[str], named: Sequence[Row] | None
) -> dict[str, list[tuple[tuple[str, str], ...]]]:
    """Comparable rows by key; actual rows are cut down to the columns that expected rows name."""
    columns = None if named is None else {column for row in named for column in row.columns}
    grouped: dict[str, list[tuple[tuple[str, str], ...]]] = {}
    for row in rows:
        kept = {name: value for name, value in row.items() if columns is None or name in columns}
        place = repr([plain(kept.get(name)) for name in key])
        grouped.setdefault(place, []).append(tuple(sorted((name, plain(value)) for name, value in kept.items())))
    return grouped


def plain(value: Any) -> str:
    """A value in the one form in which both sides are compared and shown."""
    match value:
        case {"start": datetime(), "end": datetime()}:
            return shown_window(value)
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


def side_by_side(
    expected: Sequence[Row], actual: Sequence[Mapping[str, Any]], key: Sequence[str], timeline: Sequence[str]
) -> str:
    """The timeline so far, and below it expected and actual rows beside each other."""
    ordered = sorted(actual, key=lambda row: repr([plain(row.get(name)) for name in key]))
    wanted = sorted(expected, key=lambda row: repr([plain(row.columns.get(name)) for name in key]))
    columns = list(dict.fromkeys(name for row in expected for name in row.columns)) or list(
        dict.fromkeys(name for row in actual for name in row)
    )
    table = Table("", "expected", "actual", title_justify="left")
    for number in range(max(len(wanted), len(ordered))):
        left = _shown_row(wanted[number].columns, columns) if number < len(wanted) else "-"
        right = _shown_row(ordered[number], columns) if number < len(ordered) else "-"
        table.add_row("" if left == right else "!", left, right)
    console = Console(width=200, color_system=None, highlight=False)
    with console.capture() as capture:
        console.print(table)
    return "\n".join([*timeline, capture.get()])


def _shown_row(row: Mapping[str, Any], columns: Sequence[str]) -> str:
    return ", ".join(f"{name}={plain(row[name])}" for name in columns if name in row)
