"""Debezium's messages of a table (id, name), one after the other, in plain Python."""

from __future__ import annotations

import json
from typing import Any

Change = tuple[int, str | None, str, int]
"""Id, name, change and offset."""

UNAVAILABLE = "__debezium_unavailable_value"


def changes_of(messages: list[tuple[bytes | None, bytes | None]]) -> tuple[list[Change], set[int], int]:
    """The rows of (key, value) at offsets from 0 on, the offsets of dead letters, and how many were skipped."""
    rows: list[Change] = []
    dead: set[int] = set()
    skipped = 0
    for offset, (key, value) in enumerate(messages):
        try:
            held = None if value is None else json.loads(value)
            if isinstance(held, dict) and set(held) == {"schema", "payload"}:
                held = held["payload"]
            if held is None:
                skipped += 1
            else:
                rows += [(_id(row), _name(row), change, offset) for row, change in _rows(held, key)]
        except (ValueError, KeyError, TypeError, AttributeError):
            dead.add(offset)
    return rows, dead, skipped


def _rows(held: dict[str, Any], key: bytes | None) -> list[tuple[dict[str, Any], str]]:
    if not _is_envelope(held):
        change = {"c": "insert", "r": "insert", "u": "update_after", "d": "delete"}[held.get("__op", "u")]
        return [(held, "delete" if held.get("__deleted") == "true" else change)]
    before, after = held["before"], held["after"]
    match held["op"]:
        case "c" | "r":
            return [(_there(after), "insert")]
        case "u" if before is None:
            return [(_there(after), "update_after")]
        case "u" if _there(after)["id"] != before["id"]:
            return [(before, "delete"), (after, "insert")]
        case "u":
            return [(before, "update_before"), (after, "update_after")]
        case "d" if before is None and key is not None:
            return [({**json.loads(key), "name": None}, "delete")]
        case "d":
            return [(_there(before), "delete")]
        case other:
            raise ValueError(other)


def _is_envelope(held: dict[str, Any]) -> bool:
    """A row may have columns of the same names, but these are then no objects, and not all that it has."""
    if not (isinstance(held.get("op"), str) and len(held["op"]) == 1):
        return False
    blocks = [held.get(name) for name in ("before", "after", "source")]
    return any(isinstance(block, dict) for block in blocks) or "id" not in held


def _there(row: dict[str, Any] | None) -> dict[str, Any]:
    if row is None:
        raise ValueError("no row")
    return row


def _id(row: dict[str, Any]) -> int:
    if type(row["id"]) is not int:
        raise ValueError("no id")
    return row["id"]


def _name(row: dict[str, Any]) -> str | None:
    return None if row.get("name") == UNAVAILABLE else row.get("name")
