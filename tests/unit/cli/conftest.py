"""A small checkpoint made by hand: what Headrace would have left after three batches."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from headrace.connectors.files.batch_listing import BatchListing
from headrace.event_time.strategy import BEGINNING
from headrace.wheel.side_rows import DEAD_LETTER_SCHEMA

CLOCK = 1_767_268_800_000_000  # 2026-01-01 12:00:00 UTC
MINUTE = 60_000_000
READ_AT = datetime(2026, 1, 1, 12, tzinfo=UTC)


def account(read: int, dead: int, late: int, out: int) -> dict[str, Any]:
    """An account that adds up."""
    handed_on = read - dead
    return {
        "sources": {"in": {"read": read, "handed_on": handed_on, "dead": dead}},
        "steps": {"hourly": {"in": handed_on, "accepted": handed_on - late, "late": late}},
        "sinks": {"main": {"out": out, "written": out, "already_marked": 0}},
    }


def entry(
    batch: int, *, watermark: int, read: int, dead: int, late: int, out: int, total: tuple[int, int, int, int]
) -> dict[str, Any]:
    """A line of history whose account adds up."""
    return {
        "flow": "spend",
        "batch": batch,
        "clock": CLOCK + batch * MINUTE,
        "watermarks": {"in": watermark},
        "partitions": {"in": {"": watermark}},
        "account": account(read, dead, late, out),
        "total": account(*total),
        "seconds": {"compute": 0.5, "batch": 1.25},
        "state": {"rows": 4, "bytes": 2048},
    }


def letter(position: int, reason: str, raw: bytes, *, batch: int) -> dict[str, Any]:
    """A dead letter of the file monday.json."""
    where = {"source": "in", "origin": "file:/in/monday.json", "position": position}
    return {**where, "reason": reason, "detail": "why it is dead", "raw": raw, "batch": batch, "read_at": READ_AT}


def put_letters(folder: Path, letters: list[dict[str, Any]], *, batch: int, committed: bool = True) -> None:
    """Leave a batch of dead letters as the sink does."""
    name = f"spend.in.dead_letters-0000-{batch:010d}"
    (folder / name).mkdir(parents=True)
    pl.DataFrame(letters, schema=DEAD_LETTER_SCHEMA).write_parquet(folder / name / "part-00000-0.parquet")
    if committed:
        (folder / "_commits").mkdir(exist_ok=True)
        files = (f"{name}/part-00000-0.parquet",)
        listing = BatchListing("parquet", "", files, len(letters), 0, batch, "t", None)
        (folder / "_commits" / f"{name}.json").write_bytes(listing.to_bytes())


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """The checkpoint folder."""
    entries = [
        entry(0, watermark=BEGINNING, read=100, dead=2, late=0, out=0, total=(100, 2, 0, 0)),
        entry(1, watermark=CLOCK - 5 * MINUTE, read=50, dead=1, late=3, out=7, total=(150, 3, 3, 7)),
        entry(2, watermark=CLOCK - 5 * MINUTE, read=50, dead=0, late=1, out=4, total=(200, 3, 4, 11)),
        entry(2, watermark=CLOCK - 4 * MINUTE, read=60, dead=0, late=1, out=5, total=(210, 3, 4, 12)),
    ]
    flow = tmp_path / "spend"
    flow.mkdir()
    (flow / "history.jsonl").write_text("".join(json.dumps(each) + "\n" for each in entries))
    put_letters(
        flow / "dead_letters",
        [letter(3, "NOT_JSON", b"broken", batch=0), letter(9, "NOT_UTF8", b'{"shop": "Caf\xe9"}', batch=0)],
        batch=0,
    )
    put_letters(flow / "dead_letters", [letter(4, "NOT_JSON", b'{"id": [bold]', batch=1)], batch=1)
    put_letters(flow / "dead_letters", [letter(1, "NOT_JSON", b"not committed", batch=2)], batch=2, committed=False)
    return tmp_path
