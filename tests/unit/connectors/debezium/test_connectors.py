"""The messages of each connector: positions sort as changes happened, and values are what the database holds."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from headrace.connectors.debezium.changes import debezium_changes
from tests.unit.connectors.debezium.recorded import COMMITTED, change, dead, decoded, postgres, rows

ANN = {"id": 1, "name": "Ann"}


def _positions(*sources: dict[str, Any]) -> list[str]:
    found = decoded(*(change("u", after=ANN, source=source) for source in sources))
    return [position for (position,) in rows(found, "position")]


def _mysql(file: str, pos: int, row: int, **more: Any) -> dict[str, Any]:
    where = {"server_id": 223344, "gtid": None, "file": file, "pos": pos, "row": row, "thread": 7, "query": None}
    return {"version": "3.4.0.Final", "connector": "mysql", "name": "shop", "ts_ms": COMMITTED, **where, **more}


def _sql_server(commit_lsn: str, change_lsn: str | None, serial: int | None) -> dict[str, Any]:
    where = {"commit_lsn": commit_lsn, "change_lsn": change_lsn, "event_serial_no": serial}
    known = {"version": "3.4.0.Final", "connector": "sqlserver", "name": "shop", "ts_ms": COMMITTED}
    return {**known, "db": "shop", "schema": "dbo", "table": "customers", **where}


def _mongo(milliseconds: int, order: int) -> dict[str, Any]:
    known = {"version": "3.4.0.Final", "connector": "mongodb", "name": "shop", "db": "shop", "collection": "customers"}
    return {**known, "ts_ms": milliseconds, "snapshot": "false", "ord": order, "lsid": None, "txnNumber": None}


def test_postgres_changes_sort_by_commit_and_then_by_log_position() -> None:
    # The second transaction began before the first one ended: its change has the lower log position.
    snapshot, first, second = postgres(100, snapshot="last"), postgres(140), postgres(120, last_commit=150)
    found = _positions(snapshot, first, second, postgres(160, last_commit=150), postgres(1000, last_commit=170))
    assert found == sorted(found)
    assert found[2] == "00000000000000000150:00000000000000000120"


def test_mysql_changes_sort_by_binary_log_place_and_row() -> None:
    found = _positions(
        _mysql("mysql-bin.000009", 900, 0),
        _mysql("mysql-bin.000010", 154, 0),
        _mysql("mysql-bin.000010", 154, 1),
        _mysql("mysql-bin.000010", 1154, 0),
        _mysql("mysql-bin.1000000", 4, 0),
    )
    assert found == sorted(found)
    assert found[2] == "00000000000000000010:00000000000000000154:00000000000000000001"


def test_sql_server_changes_sort_by_commit_change_and_serial_number() -> None:
    found = _positions(
        _sql_server("00000025:00000c40:0001", None, None),
        _sql_server("00000027:00000ac0:0002", "00000027:00000ac0:0001", 2),
        _sql_server("00000027:00000ac0:0002", "00000027:00000ac0:0001", 10),
        _sql_server("00000027:00000ac0:0002", "00000027:00000ac1:0001", 1),
    )
    assert found == sorted(found)
    assert found[1] == "00000027:00000ac0:0002:00000027:00000ac0:0001:00000000000000000002"


def test_an_unknown_connector_leaves_the_offset_as_position() -> None:
    other = {"connector": "db3", "ts_ms": COMMITTED}
    found = decoded(*(change("u", after=ANN, source=source) for source in (other, None)), first=8)
    assert rows(found, "position") == [("00000000000000000008",), ("00000000000000000009",)]


@pytest.mark.parametrize("name", ["pos", "row", "lsn", "event_serial_no", "ord", "ts_ms"])
def test_positions_and_times_do_not_depend_on_the_names_of_the_tables_columns(name: str) -> None:
    changes = debezium_changes(f"id BIGINT, {name} DECIMAL(10, 2)", key="id")
    sources = [
        _mysql("mysql-bin.000003", 99, 2),
        _mysql("mysql-bin.000003", 100, 10),
        postgres(99),
        postgres(100, last_commit=None, sequence=None),
        _sql_server("00000027:00000ac0:0002", "00000027:00000ac0:0001", 2),
        _mongo(1000, 2),
        postgres(101, ts_ms=0),
    ]
    found = decoded(*(change("u", after={"id": 1, name: 1.5}, source=each) for each in sources), changes=changes)
    usual = decoded(*(change("u", after=ANN, source=each) for each in sources))
    assert rows(found, "position", "committed_at") == rows(usual, "position", "committed_at")
    assert found.rows[name].to_list() == [Decimal("1.50")] * len(sources)


def test_unwrapped_rows_may_declare_the_fields_of_their_position_as_decimals() -> None:
    changes = debezium_changes("id BIGINT, __lsn DECIMAL(20, 0), __source_ts_ms DECIMAL(20, 0)", key="id")
    found = decoded({"id": 1, "__lsn": 99, "__source_ts_ms": COMMITTED}, changes=changes)
    committed_at = datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)
    assert rows(found, "position", "committed_at") == [("00000000000000000099:00000000000000000099", committed_at)]


def test_mysql_values_are_read_by_their_declared_types() -> None:
    changes = debezium_changes(
        "id BIGINT, active BOOLEAN, price DECIMAL(8, 2), made TIMESTAMP_NTZ, seen TIMESTAMP, born DATE",
        key="id",
        times="milliseconds",
    )
    row = {"id": 1, "active": 1, "price": "BNI=", "made": COMMITTED, "seen": "2026-01-02T03:04:05Z", "born": 20455}
    found = decoded(change("c", after=row, source=_mysql("mysql-bin.000001", 4, 0)), changes=changes)
    assert rows(found, "id", "active", "price", "made", "seen", "born") == [
        (
            1,
            True,
            Decimal("12.34"),
            datetime(2026, 1, 2, 3, 4, 5, 678_000),
            datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
            datetime(2026, 1, 2).date(),
        )
    ]


MONGO = debezium_changes(
    "_id STRING, name STRING, visits BIGINT, paid DECIMAL(10, 2), seen TIMESTAMP, photo BINARY, tags ARRAY<STRING>, "
    "home STRUCT<city: STRING, since: TIMESTAMP>",
    key="_id",
)
DOCUMENT = {
    "_id": {"$oid": "65a0c1"},
    "name": 'Ann "the\n1st"',
    "visits": {"$numberLong": "5"},
    "paid": {"$numberDecimal": "12.34"},
    "seen": {"$date": COMMITTED},
    "photo": {"$binary": "AQI=", "$type": "00"},
    "tags": ["new"],
    "home": {"city": "Ulm", "since": {"$date": {"$numberLong": str(COMMITTED)}}},
}


def test_mongodb_documents_come_as_text_of_extended_json() -> None:
    seen = datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)
    home = {"city": "Ulm", "since": seen}
    found = decoded(
        change("c", after=json.dumps(DOCUMENT), source=_mongo(COMMITTED, 1)),
        change("u", after=json.dumps({"_id": 7, "visits": 6}, indent=1), source=_mongo(COMMITTED, 2)),
        changes=MONGO,
    )
    assert rows(found, *(name for name in MONGO.struct.fieldNames()[:9])) == [
        ("65a0c1", DOCUMENT["name"], 5, Decimal("12.34"), seen, b"\x01\x02", ["new"], home, "insert"),
        ("7", None, 6, None, None, None, None, None, "update_after"),
    ]


def test_mongodb_changes_sort_by_time_and_order_within_it() -> None:
    found = decoded(
        *(change("u", after='{"_id": 1}', source=_mongo(*at)) for at in ((999, 3), (1000, 2), (1000, 10), (1000, 10))),
        changes=MONGO,
    )
    positions = [position for (position,) in rows(found, "position")]
    assert positions == sorted(positions)
    assert len(set(positions)) == 4, "operations of one transaction have one time and order"
    assert positions[1].startswith("00000000000000001000:00000000000000000002:")


def test_a_mongodb_delete_is_known_by_the_key_of_its_message() -> None:
    keys = [{"id": '{"$oid": "65a0c1"}'}, {"id": '"ann"'}, {"id": "7"}]
    found = decoded(*[change("d", source=_mongo(COMMITTED, 1))] * 3, changes=MONGO, keys=keys)
    assert rows(found, "_id", "name", "change") == [
        ("65a0c1", None, "delete"),
        ("ann", None, "delete"),
        ("7", None, "delete"),
    ]


def test_a_mongodb_update_without_the_whole_document_is_a_dead_letter() -> None:
    update = {**change("u", source=_mongo(COMMITTED, 1)), "updateDescription": {"updatedFields": '{"visits": 3}'}}
    assert dead(decoded(update, changes=MONGO)) == [(0, "NOT_A_CHANGE", "op u has no row after it")]


def test_a_mongodb_document_that_is_no_json_is_a_dead_letter() -> None:
    found = decoded(change("c", after='{"_id": 1', source=_mongo(1, 1)), changes=MONGO)
    assert [(position, reason) for position, reason, _ in dead(found)] == [(0, "NOT_JSON")]
