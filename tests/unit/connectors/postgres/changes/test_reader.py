"""Entries of the log as rows: where each of them was read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from headrace.connectors.postgres.changes.birth import Birth
from headrace.connectors.postgres.changes.catalogue import Column, Table
from headrace.connectors.postgres.changes.change_log import ChangeLog, Entry
from headrace.connectors.postgres.changes.draft import Draft
from headrace.connectors.postgres.changes.reader import ChangesReader, OnTruncate
from headrace.connectors.postgres.changes.recording import framed, position
from headrace.errors import HeadraceError

ID, NOTE, MORE = Column("id", 23, -1, "integer"), Column("note", 25, -1, "text"), Column("more", 25, -1, "text")


def logged(folder: Path, *pieces: tuple[tuple[Column, ...], list[tuple[bytes, ...]]], truncated: bool = False) -> None:
    """A log with one entry: rows of a table that had these columns and then others."""
    Birth("shop", "shop", "log", (Table("public.orders", (ID,), ("id",), whole=False),)).write(folder)
    log = ChangeLog(folder / "log")
    log.create()
    draft = Draft(log, 0)
    for number, (columns, rows) in enumerate(pieces):
        placed = [("insert", position(number, index), 0, 1, None, *row) for index, row in enumerate(rows)]
        draft.write("public.orders", columns, framed(placed, len(columns)))
    emptied = {"public.orders": position(9, 0)} if truncated else {}
    added = [column.name for columns, _ in pieces for column in columns if column is not ID]
    draft.publish(Entry(truncated=emptied, altered={"public.orders": added}, last=9, end=10))


def found(folder: Path, on_truncate: OnTruncate = "dead_letter") -> tuple[list[Any], list[Any]]:
    """Rows and dead letters of the entry, each with the place where it was read."""
    reader = ChangesReader(folder, "public.orders", {"id": pl.Int32()}, on_truncate)
    arrived = list(reader.read(pl.DataFrame({"first": [0], "until": [1]}), None))  # type: ignore[arg-type]
    assert {each.origin for each in arrived} == {"public.orders entry 0"}
    rows = pl.concat(each.decoded.rows for each in arrived)
    dead = pl.concat(each.decoded.dead for each in arrived)
    return rows.select("__position", "id").rows(), dead.select("position", "reason").rows()


def test_rows_and_dead_letters_of_an_entry_all_have_places_of_their_own(tmp_path: Path) -> None:
    logged(
        tmp_path,
        ((ID,), [(b"1",), (b"x",)]),
        ((ID, NOTE), [(b"y", b""), (b"2", b""), (b"3", b"")]),
        ((ID, NOTE, MORE), [(b"z", b"", b"")]),
        truncated=True,
    )
    rows, dead = found(tmp_path)
    assert rows == [(0, 1), (3, 2), (4, 3)]
    assert sorted(dead) == [
        (1, "WRONG_TYPE"),
        (2, "WRONG_TYPE"),
        (5, "WRONG_TYPE"),
        (6, "COLUMN_ADDED"),
        (7, "TABLE_TRUNCATED"),
    ]


def test_places_go_on_where_a_file_is_read_in_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.connectors.postgres.changes.reader.CHUNK_ROWS", 2)
    logged(tmp_path, ((ID,), [(b"1",), (b"2",), (b"3",)]), ((ID, NOTE), [(b"4", b""), (b"5", b""), (b"6", b"")]))
    assert found(tmp_path) == ([(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6)], [(6, "COLUMN_ADDED")])


def test_a_truncated_table_stops_the_flow_unless_the_author_wants_a_dead_letter(tmp_path: Path) -> None:
    logged(tmp_path, ((ID,), [(b"1",)]), truncated=True)
    assert found(tmp_path) == ([(0, 1)], [(1, "TABLE_TRUNCATED")])
    with pytest.raises(HeadraceError, match=rf"\[TABLE_TRUNCATED\] .* at {position(9, 0)}, "):
        found(tmp_path, "stop")
