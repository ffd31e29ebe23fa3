"""Tables in plain Python: random histories of them, and what must be known at their end."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from headrace.testing import at
from headrace.testing.elements import At
from tests.models.rows import START

Row = dict[str, Any]
Key = tuple[Any, ...]
Table = dict[Key, Row]
GOING = ("delete", "update_before")


@dataclass(frozen=True)
class History:
    """The changes of a table as they come, and the table at the end of it all."""

    rows: list[At]
    table: Table


def make_history(
    seed: int,
    key: Sequence[str],
    make_row: Callable[[random.Random], Row],
    *,
    steps: int = 60,
    side: Literal["left", "right"] = "left",
    before_images: bool = True,
    repeats: float = 0.15,
    disorder: int = 0,
    partitions: int = 3,
) -> History:
    """Inserts, updates (some of the key itself) and deletes; some come again later, some come too early or late."""
    chance = random.Random(seed)
    table: Table = {}
    sent: list[list[tuple[str, int, Row]]] = []
    for position in range(steps):
        row = make_row(chance)
        identity = tuple(row[name] for name in key)
        old = table.get(identity)
        if old is None:
            moved = chance.choice(list(table)) if table and chance.random() < 0.15 else None
            message = [("insert", position, row)]
            if moved is not None:
                message.insert(0, ("delete", position, table.pop(moved)))
            table[identity] = row
        elif chance.random() < 0.3:
            message = [("delete", position, table.pop(identity))]
        else:
            message = [("update_before", position, old)] if before_images else []
            message.append(("update_after", position, row))
            table[identity] = row
        sent.append(message)
    order = sorted(range(steps), key=lambda place: place + chance.randrange(disorder + 1))
    messages = [sent[place] for place in order]
    for _ in range(int(steps * repeats)):
        again = chance.randrange(steps)
        messages.insert(chance.randrange(messages.index(sent[again]) + 1, len(messages) + 1), sent[again])
    rows = [
        at(
            START + timedelta(seconds=position),
            side=side,
            partition=chance.randrange(partitions),
            change=change,
            position=f"{position:06d}",
            **row,
        )
        for message in messages
        for change, position, row in message
    ]
    return History(rows, table)


def followed(changes: Sequence[Mapping[str, Any]], key: Sequence[str], columns: Sequence[str]) -> Table:
    """The table that a changelog ends with; every change must fit what was there before it."""
    table: Table = {}
    for row in changes:
        identity, values = tuple(row[name] for name in key), {name: row[name] for name in columns}
        if row["change"] in GOING:
            assert table.pop(identity) == values, (row["change"], identity)
        else:
            assert identity not in table, (row["change"], identity)
            table[identity] = values
    return table


def upserted(changes: Sequence[Mapping[str, Any]], key: Sequence[str], columns: Sequence[str]) -> Table:
    """The table of a sink that puts in what is new or changed and takes out what is deleted."""
    table: Table = {}
    for row in changes:
        identity = tuple(row[name] for name in key)
        assert (identity in table) == (row["change"] != "insert"), (row["change"], identity)
        if row["change"] == "delete":
            del table[identity]
        else:
            table[identity] = {name: row[name] for name in columns}
    return table


def joined(left: Table, right: Table, on: tuple[str, str], how: str, columns: Mapping[str, str]) -> list[Row]:
    """The join of two tables; ``columns`` says what the right ones are called."""
    ours, theirs = on
    found, met = [], set()
    for row in left.values():
        matches = [key for key, other in right.items() if row[ours] is not None and row[ours] == other[theirs]]
        met.update(matches)
        found += [{**row, **{new: right[key][old] for old, new in columns.items()}} for key in matches]
        if not matches and how != "inner":
            found.append({**row, **dict.fromkeys(columns.values())})
    if how == "full":
        names = list(next(iter(left.values()))) if left else []
        for key, other in right.items():
            if key not in met:
                alone = {**dict.fromkeys(names), ours: other[theirs]}
                found.append({**alone, **{new: other[old] for old, new in columns.items()}})
    return found


def grouped(table: Table, key: str) -> dict[Any, Row]:
    """What the aggregates of the tests are of each group."""
    groups: dict[Any, list[Row]] = {}
    for row in table.values():
        groups.setdefault(row[key], []).append(row)
    return {name: _aggregates([row["amount"] for row in rows]) for name, rows in groups.items()}


def _aggregates(amounts: list[Any]) -> Row:
    known = [amount for amount in amounts if amount is not None]
    large = [amount for amount in known if amount > 3]
    return {
        "n": len(amounts),
        "known": len(known),
        "kinds": len(set(known)),
        "total": sum(known) if known else None,
        "mean": sum(known) / len(known) if known else None,
        "least": min(known, default=None),
        "most": max(known, default=None),
        "large": sum(large) if large else None,
    }
