"""Messages as Debezium's connectors write them, and what becomes of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from headrace.connectors.base.decoding import Decoded
from headrace.connectors.base.messages import Payloads
from headrace.connectors.debezium.changes import DebeziumChanges, debezium_changes
from headrace.connectors.debezium.decoder import DebeziumMessages, debezium_messages
from headrace.schemas import polars_schema

CUSTOMERS = debezium_changes("id BIGINT, name STRING", key="id")
COMMITTED = 1_767_323_045_678
"""2026-01-02 03:04:05.678 in milliseconds."""

Row = Mapping[str, Any] | None


def postgres(lsn: int, last_commit: int | None = None, **more: Any) -> dict[str, Any]:
    """The source of a change in PostgreSQL's log."""
    before = "null" if last_commit is None else f'"{last_commit}"'
    sequence = f'[{before},"{lsn}"]'
    known = {"version": "3.4.0.Final", "connector": "postgresql", "name": "shop", "ts_ms": COMMITTED}
    where = {"snapshot": "false", "db": "shop", "sequence": sequence, "schema": "public", "table": "customers"}
    return {**known, **where, "txId": 734, "lsn": lsn, "xmin": None, **more}


def change(op: str, before: Row = None, after: Row | str = None, **more: Any) -> dict[str, Any]:
    """An envelope; ``source`` is PostgreSQL's unless given."""
    envelope = {"before": before, "after": after, "source": postgres(100), "transaction": None, "op": op}
    return {**envelope, "ts_ms": COMMITTED + 44, **more}


def with_schema(payload: Mapping[str, Any], columns: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """An envelope with its schema part; ``columns`` are the fields of the table's rows."""
    row = {"type": "struct", "fields": list(columns), "optional": True, "name": "shop.public.customers.Value"}
    source = {"type": "struct", "fields": [{"type": "int64", "field": "lsn"}], "field": "source"}
    sides = [{**row, "field": "before"}, {**row, "field": "after"}, source, {"type": "string", "field": "op"}]
    schema = {"type": "struct", "fields": sides, "optional": False, "name": "shop.public.customers.Envelope"}
    return {"schema": schema, "payload": payload}


def written(message: object) -> bytes | None:
    """A message as Kafka Connect writes it; bytes and None stay."""
    if message is None or isinstance(message, bytes):
        return message
    return json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode()


def decoder(changes: DebeziumChanges = CUSTOMERS) -> DebeziumMessages:
    """The decoder of a source without further columns."""
    return debezium_messages(changes, polars_schema(changes.struct), "json")


def decoded(
    *messages: object, changes: DebeziumChanges = CUSTOMERS, keys: Sequence[object] | None = None, first: int = 0
) -> Decoded:
    """What becomes of messages at offsets from ``first`` on, sent a second apart."""
    offsets = np.arange(first, first + len(messages), dtype=np.int64)
    given = [None] * len(messages) if keys is None else [written(key) for key in keys]
    return decoder(changes).decode(
        Payloads.of([written(each) for each in messages], offsets, given, offsets * 1_000_000)
    )


def rows(found: Decoded, *columns: str) -> list[tuple[Any, ...]]:
    """Some columns of the rows; no row was refused."""
    assert found.dead.rows() == []
    return found.rows.select(*columns).rows()


def dead(found: Decoded) -> list[tuple[int, str, str]]:
    """Position, reason and detail of the dead rows."""
    letters: pl.DataFrame = found.dead.select("position", "reason", "detail")
    return letters.rows()
